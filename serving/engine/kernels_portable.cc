// The variant for any CPU: plain C++.

#include "kernels.h"
#include "tanh_table.h"

namespace gnmt {
namespace {
namespace portable {

constexpr int kMaxRows = 4;
constexpr int kActivationOffset = 0;

template <int rows>
inline void Dot(const int8_t* panel, int groups, const int8_t* const* inputs, int32_t (*sums)[kPanel]) {
  for (int row = 0; row < rows; ++row) {
    for (int unit = 0; unit < kPanel; ++unit) sums[row][unit] = 0;
  }
  for (int group = 0; group < groups; ++group, panel += kPanel * 4) {
    for (int row = 0; row < rows; ++row) {
      const int8_t* x = inputs[row] + group * 4;
      for (int unit = 0; unit < kPanel; ++unit) {
        const int8_t* w = panel + unit * 4;
        sums[row][unit] += w[0] * x[0] + w[1] * x[1] + w[2] * x[2] + w[3] * x[3];
      }
    }
  }
}

int64_t OnlyProducts(int64_t rounds, int32_t* sink) {
  int8_t panel[kPanel * 4 * 8] = {1}, input[4 * 8] = {1};
  const int8_t* inputs[] = {input, input, input, input};
  int32_t sums[4][kPanel];
  for (int64_t round = 0; round < rounds; ++round) {
    Dot<4>(panel, 8, inputs, sums);
    *sink += sums[0][0];
  }
  return rounds * 4 * kPanel * 4 * 8;
}

#include "kernels_inl.h"

bool IsSupported() { return true; }

}  // namespace portable
}  // namespace

const Kernels& PortableKernels() {
  using namespace portable;
  static const Kernels kernels = GNMT_KERNELS("portable", IsSupported);
  return kernels;
}

}  // namespace gnmt
