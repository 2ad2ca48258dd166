// The table of fixed_point.tanh16, shared by all variants.

#ifndef GNMT_TF_SERVING_ENGINE_TANH_TABLE_H_
#define GNMT_TF_SERVING_ENGINE_TANH_TABLE_H_

#include <cstdint>

namespace gnmt {

constexpr int kSegmentBits = 7;
constexpr int kTanhSegments = 1 << (16 - kSegmentBits);

// int32 [512]: the segment's first value times 65536, plus its step.
const int32_t* TanhTable();

}  // namespace gnmt

#endif  // GNMT_TF_SERVING_ENGINE_TANH_TABLE_H_
