// Small helpers on the engine's 16-bit integers.

#ifndef GNMT_TF_SERVING_ENGINE_FIXED_H_
#define GNMT_TF_SERVING_ENGINE_FIXED_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace gnmt {

// values += others, held in [-32767, 32767]: the residual connection of eq. 6 under the clip of eq. 10.
inline void AddClamped(int16_t* values, const int16_t* others, size_t size) {
  for (size_t k = 0; k < size; ++k) {
    values[k] = static_cast<int16_t>(std::min(std::max(values[k] + others[k], -32767), 32767));
  }
}

}  // namespace gnmt

#endif  // GNMT_TF_SERVING_ENGINE_FIXED_H_
