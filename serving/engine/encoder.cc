#include "encoder.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "fixed.h"

namespace gnmt {
namespace {

// Positions whose input sums are made together: enough for products at full speed, and few enough to stay in a cache.
constexpr int kPositionsAtATime = 192;

}  // namespace

void Encoder::Encode(const std::vector<const std::vector<int32_t>*>& sentences, Workers& workers,
                     std::vector<Memory>& memories) {
  const ModelShape& shape = model_->shape();
  Order(sentences);
  int width = 2 * shape.num_units;
  outputs_.Reserve(static_cast<size_t>(num_positions_) * width);
  below_.Reserve(static_cast<size_t>(num_positions_) * width);
  Embed(sentences, false);
  RunLayer(model_->encoder[0], false, 0, width, workers);
  Embed(sentences, true);
  RunLayer(model_->encoder[1], true, shape.num_units, width, workers);
  for (int number = 2; number <= shape.num_encoder_layers; ++number) {
    std::swap(outputs_, below_);
    outputs_.Reserve(static_cast<size_t>(num_positions_) * 2 * shape.num_units);
    inputs_.stride = RoundUp(width, 4);
    inputs_.values = input_values_.Reserve(num_positions_ * inputs_.stride);
    workers.Run(num_positions_, 1, [&](int begin, int end) {
      QuantizedRows rows = inputs_;
      rows.values += begin * inputs_.stride;
      rows.scales += begin;
      model_->kernels().quantize_fixed(below_.data() + static_cast<size_t>(begin) * width, width, width, model_->unit(),
                                       end - begin, rows);
    });
    width = shape.num_units;
    RunLayer(model_->encoder[number], false, 0, width, workers);
    if (number >= shape.first_residual_layer) {
      AddClamped(outputs_.data(), below_.data(), static_cast<size_t>(num_positions_) * width);
    }
  }
  const int padded = model_->padded_memory(), attention = model_->padded_attention();
  memories.resize(sentences.size());
  for (size_t row = 0; row < sentences.size(); ++row) {
    Memory& memory = memories[order_[row]];
    memory.source_length = static_cast<int>(sentences[order_[row]]->size());
    memory.values.Reserve(static_cast<size_t>(memory.source_length) * padded);
    memory.keys.Reserve(static_cast<size_t>(memory.source_length) * attention);
    for (int t = 0; t < memory.source_length; ++t) {
      const int16_t* from = outputs_.data() + (first_position_[t] + row) * width;
      float* to = memory.values.data() + static_cast<size_t>(t) * padded;
      for (int k = 0; k < padded; ++k) to[k] = k < width ? from[k] * model_->unit() : 0.0f;
    }
  }
  workers.Run(static_cast<int>(sentences.size()), 1, [&](int begin, int end) {
    for (int number = begin; number < end; ++number) {
      Memory& memory = memories[number];
      model_->kernels().project(memory.values.data(), padded, width, model_->key_kernel.data(), attention,
                                model_->key_bias.data(), attention, memory.source_length, memory.keys.data(), attention);
    }
  });
  // Decoding needs the room.
  outputs_.Free();
  below_.Free();
  sums_.Free();
  input_values_.Free();
}

void Encoder::Order(const std::vector<const std::vector<int32_t>*>& sentences) {
  order_.resize(sentences.size());
  std::iota(order_.begin(), order_.end(), 0);
  std::stable_sort(order_.begin(), order_.end(),
                   [&](int a, int b) { return sentences[a]->size() > sentences[b]->size(); });
  lengths_.resize(sentences.size());
  for (size_t row = 0; row < sentences.size(); ++row) lengths_[row] = static_cast<int>(sentences[order_[row]]->size());
  const size_t longest = sentences[order_[0]]->size();
  first_position_.assign(longest, 0);
  num_rows_.assign(longest, 0);
  for (const auto* sentence : sentences) {
    for (size_t t = 0; t < sentence->size(); ++t) ++num_rows_[t];
  }
  num_positions_ = 0;
  for (size_t t = 0; t < longest; ++t) {
    first_position_[t] = num_positions_;
    num_positions_ += num_rows_[t];
  }
  inputs_.stride = RoundUp(model_->shape().embedding_size, 4);
  inputs_.values = input_values_.Reserve(num_positions_ * inputs_.stride);
  inputs_.scales = input_scales_.Reserve(num_positions_);
  own_.stride = RoundUp(model_->shape().num_units, 4);
  own_.values = own_values_.Reserve(sentences.size() * own_.stride);
  own_.scales = own_scales_.Reserve(sentences.size());
}

void Encoder::Embed(const std::vector<const std::vector<int32_t>*>& sentences, bool backward) {
  for (size_t row = 0; row < sentences.size(); ++row) {
    const std::vector<int32_t>& sentence = *sentences[order_[row]];
    for (size_t t = 0; t < sentence.size(); ++t) {
      const size_t position = first_position_[t] + row;
      const int32_t id = sentence[backward ? sentence.size() - 1 - t : t];
      model_->LookUpSource(id, inputs_.values + position * inputs_.stride, inputs_.scales + position);
    }
  }
}

void Encoder::RunLayer(const LstmLayer& layer, bool backward, int column, int width, Workers& workers) {
  const Kernels& kernels = model_->kernels();
  const int num_units = model_->shape().num_units, padded = model_->padded_units();
  const size_t num_sentences = order_.size(), sum_stride = static_cast<size_t>(layer.num_panels) * kPanel;
  std::memset(c_.Reserve(num_sentences * padded), 0, num_sentences * padded * sizeof(int16_t));
  std::memset(m_.Reserve(num_sentences * padded), 0, num_sentences * padded * sizeof(int16_t));
  const int num_steps = static_cast<int>(num_rows_.size());
  int made_until = 0, made_from = 0;
  for (int t = 0; t < num_steps; ++t) {
    const int rows = num_rows_[t], first = first_position_[t];
    if (t == made_until) {
      made_from = t;
      int positions = 0;
      while (made_until < num_steps && (positions == 0 || positions + num_rows_[made_until] <= kPositionsAtATime)) {
        positions += num_rows_[made_until++];
      }
      QuantizedRows inputs = inputs_;
      inputs.values += first * inputs_.stride;
      inputs.scales += first;
      sums_.Reserve(positions * sum_stride);
      workers.Run(layer.num_panels, 1, [&](int begin, int end) {
        kernels.lstm_input_sums(layer, inputs, positions, sums_.data(), begin, end);
      });
    }
    kernels.quantize_fixed(m_.data(), padded, num_units, model_->unit(), rows, own_);
    const QuantizedRows parts[] = {QuantizedRows(), own_};
    const float* sums = sums_.data() + (first - first_position_[made_from]) * sum_stride;
    workers.Run(layer.num_panels, 1, [&](int begin, int end) {
      kernels.lstm_step(layer, parts, 1, sums, rows, c_.data(), m_.data(), begin, end);
    });
    for (int row = 0; row < rows; ++row) {
      const int at = backward ? lengths_[row] - 1 - t : t;
      std::memcpy(outputs_.data() + static_cast<size_t>(first_position_[at] + row) * width + column,
                  m_.data() + static_cast<size_t>(row) * padded, num_units * sizeof(int16_t));
    }
  }
}

}  // namespace gnmt
