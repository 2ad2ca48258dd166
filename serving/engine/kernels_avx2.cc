// The variant for x86 CPUs with AVX2.

#include "kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "tanh_table.h"

#pragma GCC push_options
#pragma GCC target("avx2")

namespace gnmt {
namespace {
namespace avx2 {

constexpr int kMaxRows = 4;
constexpr int kActivationOffset = 0;

// Pairs of products are added up in 16 bits: |x| * (w with the sign of x) + the same is at most 2 * 127 * 127 = 32258.
template <int rows>
inline void Dot(const int8_t* panel, int groups, const int8_t* const* inputs, int32_t (*sums)[kPanel]) {
  const __m256i ones = _mm256_set1_epi16(1);
  for (int first = 0; first < kPanel; first += 16) {
    __m256i low[rows], high[rows];
    for (int row = 0; row < rows; ++row) low[row] = high[row] = _mm256_setzero_si256();
    const int8_t* at = panel + first * 4;
    for (int group = 0; group < groups; ++group, at += kPanel * 4) {
      const __m256i w_low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
      const __m256i w_high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at + 32));
      for (int row = 0; row < rows; ++row) {
        int32_t four;
        __builtin_memcpy(&four, inputs[row] + group * 4, 4);
        const __m256i x = _mm256_set1_epi32(four), size = _mm256_abs_epi8(x);
        const __m256i pairs_low = _mm256_maddubs_epi16(size, _mm256_sign_epi8(w_low, x));
        const __m256i pairs_high = _mm256_maddubs_epi16(size, _mm256_sign_epi8(w_high, x));
        low[row] = _mm256_add_epi32(low[row], _mm256_madd_epi16(pairs_low, ones));
        high[row] = _mm256_add_epi32(high[row], _mm256_madd_epi16(pairs_high, ones));
      }
    }
    for (int row = 0; row < rows; ++row) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums[row] + first), low[row]);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums[row] + first + 8), high[row]);
    }
  }
}

int64_t OnlyProducts(int64_t rounds, int32_t* sink) {
  constexpr int kSums = 8;
  __m256i sums[kSums];
  for (auto& sum : sums) sum = _mm256_setzero_si256();
  const __m256i x = _mm256_set1_epi8(static_cast<char>(*sink)), ones = _mm256_set1_epi16(1);
  __m256i w = _mm256_set1_epi8(3);
  for (int64_t round = 0; round < rounds; ++round) {
    for (auto& sum : sums) {
      // Hides from the compiler that nothing changes.
      asm volatile("" : "+x"(w));
      const __m256i pairs = _mm256_maddubs_epi16(x, _mm256_sign_epi8(w, x));
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones));
    }
  }
  for (const auto& sum : sums) *sink += _mm256_extract_epi32(sum, 0);
  return rounds * kSums * 32;
}

#include "kernels_inl.h"

bool IsSupported() { return __builtin_cpu_supports("avx2"); }

}  // namespace avx2
}  // namespace

const Kernels& Avx2Kernels() {
  using namespace avx2;
  static const Kernels kernels = GNMT_KERNELS("avx2", IsSupported);
  return kernels;
}

}  // namespace gnmt

#pragma GCC pop_options
#endif  // defined(__x86_64__)
