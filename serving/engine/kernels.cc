#include "kernels.h"

#include <cmath>
#include <cstring>

#include "tanh_table.h"

namespace gnmt {

const Kernels& BestKernels() {
#if defined(__x86_64__)
  if (Avx512VnniKernels().is_supported()) return Avx512VnniKernels();
  if (Avx2Kernels().is_supported()) return Avx2Kernels();
#endif
  return PortableKernels();
}

const Kernels* KernelsByName(const char* name) {
  const Kernels* all[] = {
#if defined(__x86_64__)
      &Avx512VnniKernels(), &Avx2Kernels(),
#endif
      &PortableKernels()};
  for (const Kernels* kernels : all) {
    if (std::strcmp(kernels->name, name) == 0) return kernels->is_supported() ? kernels : nullptr;
  }
  return nullptr;
}

const int32_t* TanhTable() {
  struct Table {
    int32_t entries[kTanhSegments];
    Table() {
      auto point = [](int segment) {
        return static_cast<int32_t>(
            std::nearbyint(32767.0 * std::tanh((segment - kTanhSegments / 2) * (1 << kSegmentBits) / 4096.0)));
      };
      for (int segment = 0; segment < kTanhSegments; ++segment) {
        entries[segment] = point(segment) * 65536 + (point(segment + 1) - point(segment));
      }
    }
  };
  static const Table table;
  return table.entries;
}

float ExactLog(float value) {
  int exponent;
  double fraction = std::frexp(static_cast<double>(value), &exponent);
  if (fraction < 0.70710678118654752) {
    fraction *= 2.0;
    exponent -= 1;
  }
  const double s = (fraction - 1.0) / (fraction + 1.0);
  const double square = s * s;
  double series = 0.0;
  for (int denominator = 21; denominator > 0; denominator -= 2) series = series * square + 1.0 / denominator;
  return static_cast<float>(exponent * 0.6931471805599453 + 2.0 * (s * series));
}

void Pack(const int8_t* weights, size_t stride, int size, const int32_t* unit_of, int num_panels, int8_t* values,
          int32_t* offsets) {
  const int groups = (size + 3) / 4;
  std::memset(values, 0, static_cast<size_t>(num_panels) * groups * kPanel * 4);
  for (int place = 0; place < num_panels * kPanel; ++place) {
    offsets[place] = 0;
    if (unit_of[place] < 0) continue;
    const int8_t* row = weights + unit_of[place] * stride;
    int8_t* panel = values + static_cast<size_t>(place / kPanel) * groups * kPanel * 4 + place % kPanel * 4;
    int32_t sum = 0;
    for (int k = 0; k < size; ++k) {
      panel[static_cast<size_t>(k / 4) * kPanel * 4 + k % 4] = row[k];
      sum += row[k];
    }
    offsets[place] = 128 * sum;
  }
}

}  // namespace gnmt
