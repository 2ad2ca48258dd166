// How fast the kernels are, and how fast this machine lets them be.

#ifndef GNMT_TF_SERVING_ENGINE_MEASURE_H_
#define GNMT_TF_SERVING_ENGINE_MEASURE_H_

#include <cstdint>

#include "kernels.h"

namespace gnmt {

// Products of int8 per second of a matrix product that is repeated for about so many seconds, on one thread.
double ProductsPerSecond(const Kernels& kernels, int num_rows, int size, int num_units, double seconds);

// The most that the variant's instructions can do, in registers: no matrix product of the engine can be faster.
double PeakProductsPerSecond(const Kernels& kernels, double seconds);

// Bytes per second read, in order, from an array of that size.
double BytesPerSecond(int64_t bytes, double seconds);

}  // namespace gnmt

#endif  // GNMT_TF_SERVING_ENGINE_MEASURE_H_
