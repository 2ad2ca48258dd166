#include "measure.h"

#include <chrono>
#include <vector>

#include "aligned.h"

namespace gnmt {
namespace {

using Clock = std::chrono::steady_clock;

double Seconds(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Calls per second of `work`, the first of which does not count.
template <typename Work>
double CallsPerSecond(double seconds, const Work& work) {
  work();
  const Clock::time_point start = Clock::now();
  int64_t calls = 0, at_a_time = 1;
  while (Seconds(start) < seconds) {
    for (int64_t call = 0; call < at_a_time; ++call) work();
    calls += at_a_time;
    at_a_time *= 2;
  }
  return calls / Seconds(start);
}

}  // namespace

double ProductsPerSecond(const Kernels& kernels, int num_rows, int size, int num_units, double seconds) {
  const int num_panels = RoundUp(num_units, kPanel) / kPanel, groups = (size + 3) / 4;
  const size_t bytes = static_cast<size_t>(num_panels) * groups * kPanel * 4;
  Aligned<int8_t> values(bytes), inputs(static_cast<size_t>(num_rows) * groups * 4);
  for (size_t k = 0; k < bytes; ++k) values[k] = static_cast<int8_t>(k * 7 % 255 - 127);
  for (size_t k = 0; k < inputs.size(); ++k) inputs[k] = static_cast<int8_t>(k * 5 % 255 - 127);
  std::vector<int32_t> offsets(num_panels * kPanel);
  std::vector<float> scales(num_rows, 1.0f), sums(static_cast<size_t>(num_rows) * num_panels * kPanel);
  LstmLayer layer;
  layer.num_units = num_panels * kUnitsPerPanel;
  layer.num_panels = num_panels;
  layer.num_parts = 1;
  layer.parts[0] = {num_panels, groups, values.data(), offsets.data()};
  const QuantizedRows rows = {inputs.data(), scales.data(), static_cast<size_t>(groups) * 4};
  const double calls = CallsPerSecond(
      seconds, [&] { kernels.lstm_input_sums(layer, rows, num_rows, sums.data(), 0, num_panels); });
  return calls * num_rows * size * num_units;
}

double PeakProductsPerSecond(const Kernels& kernels, double seconds) {
  constexpr int64_t kRounds = 1 << 14;
  int32_t sink = 1;
  int64_t products = 0;
  const double calls = CallsPerSecond(seconds, [&] { products = kernels.only_products(kRounds, &sink); });
  return calls * products;
}

double BytesPerSecond(int64_t bytes, double seconds) {
  std::vector<uint64_t> values(bytes / sizeof(uint64_t), 1);
  volatile uint64_t sink = 0;
  const double calls = CallsPerSecond(seconds, [&] {
    uint64_t sums[8] = {};
    for (size_t k = 0; k + 8 <= values.size(); k += 8) {
      for (int lane = 0; lane < 8; ++lane) sums[lane] += values[k + lane];
    }
    for (uint64_t sum : sums) sink = sink + sum;
  });
  return calls * bytes;
}

}  // namespace gnmt
