// The variant for x86 CPUs with AVX-512 and its dot product of bytes (VNNI).

#include "kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "tanh_table.h"

#pragma GCC push_options
#pragma GCC target("avx2,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,prefer-vector-width=512")

namespace gnmt {
namespace {
namespace avx512vnni {

constexpr int kMaxRows = 6;
// The dot product takes unsigned activations.
constexpr int kActivationOffset = 128;

template <int rows>
inline void Dot(const int8_t* panel, int groups, const int8_t* const* inputs, int32_t (*sums)[kPanel]) {
  __m512i totals[rows][4];
  for (int row = 0; row < rows; ++row) {
    for (int v = 0; v < 4; ++v) totals[row][v] = _mm512_setzero_si512();
  }
  for (int group = 0; group < groups; ++group, panel += kPanel * 4) {
    __m512i w[4];
    for (int v = 0; v < 4; ++v) w[v] = _mm512_loadu_si512(panel + v * 64);
    for (int row = 0; row < rows; ++row) {
      int32_t four;
      __builtin_memcpy(&four, inputs[row] + group * 4, 4);
      const __m512i x = _mm512_set1_epi32(four);
      for (int v = 0; v < 4; ++v) totals[row][v] = _mm512_dpbusd_epi32(totals[row][v], x, w[v]);
    }
  }
  for (int row = 0; row < rows; ++row) {
    for (int v = 0; v < 4; ++v) _mm512_storeu_si512(sums[row] + v * kLanes, totals[row][v]);
  }
}

int64_t OnlyProducts(int64_t rounds, int32_t* sink) {
  constexpr int kSums = 16;
  __m512i sums[kSums];
  for (auto& sum : sums) sum = _mm512_setzero_si512();
  const __m512i x = _mm512_set1_epi8(static_cast<char>(*sink));
  __m512i w = _mm512_set1_epi8(3);
  for (int64_t round = 0; round < rounds; ++round) {
    for (auto& sum : sums) {
      // Hides from the compiler that nothing changes.
      asm volatile("" : "+v"(w));
      sum = _mm512_dpbusd_epi32(sum, x, w);
    }
  }
  for (const auto& sum : sums) {
    int32_t lanes[kLanes];
    _mm512_storeu_si512(lanes, sum);
    *sink += lanes[0];
  }
  return rounds * kSums * 64;
}

#include "kernels_inl.h"

bool IsSupported() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni");
}

}  // namespace avx512vnni
}  // namespace

const Kernels& Avx512VnniKernels() {
  using namespace avx512vnni;
  static const Kernels kernels = GNMT_KERNELS("avx512vnni", IsSupported);
  return kernels;
}

}  // namespace gnmt

#pragma GCC pop_options
#endif  // defined(__x86_64__)
