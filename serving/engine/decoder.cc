#include "decoder.h"

#include <algorithm>
#include <cstring>

#include "fixed.h"

namespace gnmt {
namespace {

// Rows whose logits exist at a time: products are at full speed, and with 32,000 pieces they take 6 MiB.
constexpr int kLogitRows = 48;

}  // namespace

void DecoderState::Reset(int num_rows) {
  num_rows_ = num_rows;
  const size_t size = static_cast<size_t>(num_rows) * model_->padded_units();
  for (auto* layers : {&c_, &m_}) {
    for (Aligned<int16_t>& values : *layers) std::fill_n(values.Reserve(size), size, int16_t{0});
  }
}

void DecoderState::Choose(const std::vector<int>& parents) {
  const size_t row_size = model_->padded_units();
  for (auto* layers : {&c_, &m_}) {
    for (Aligned<int16_t>& values : *layers) {
      int16_t* to = spare_.Reserve(parents.size() * row_size);
      for (size_t row = 0; row < parents.size(); ++row) {
        std::memcpy(to + row * row_size, values.data() + parents[row] * row_size, row_size * sizeof(int16_t));
      }
      std::swap(values, spare_);
    }
  }
  num_rows_ = static_cast<int>(parents.size());
}

void Decoder::Step(const std::vector<int32_t>& ids, const std::vector<const Memory*>& memories, Workers& workers,
                   const std::function<void(int, int)>& read) {
  const ModelShape& shape = model_->shape();
  const size_t num_rows = ids.size();
  Attend(memories, workers);
  inputs_.stride = RoundUp(shape.embedding_size, 4);
  inputs_.values = input_values_.Reserve(num_rows * RoundUp(std::max(shape.embedding_size, shape.num_units), 4));
  inputs_.scales = input_scales_.Reserve(num_rows);
  for (size_t row = 0; row < num_rows; ++row) {
    model_->LookUpTarget(ids[row], inputs_.values + row * inputs_.stride, inputs_.scales + row);
  }
  RunLayers(workers);
  const int all = static_cast<int>(num_rows), num_blocks = (all + kLogitRows - 1) / kLogitRows;
  for (int block = 0; block < num_blocks; ++block) {
    const int begin = all * block / num_blocks, end = all * (block + 1) / num_blocks;
    Project(begin, end, workers);
    read(begin, end);
  }
}

void Decoder::Attend(const std::vector<const Memory*>& memories, Workers& workers) {
  const ModelShape& shape = model_->shape();
  const Kernels& kernels = model_->kernels();
  const int num_rows = static_cast<int>(memories.size()), num_units = shape.num_units;
  const int padded_units = model_->padded_units(), attention = model_->padded_attention();
  const int memory_size = model_->padded_memory();
  probs_stride_ = 0;
  for (const Memory* memory : memories) {
    probs_stride_ = std::max(probs_stride_, static_cast<size_t>(RoundUp(memory->source_length, kLanes)));
  }
  float* floats = floats_.Reserve(static_cast<size_t>(num_rows) * num_units);
  queries_.Reserve(static_cast<size_t>(num_rows) * attention);
  probs_.Reserve(num_rows * probs_stride_);
  contexts_.Reserve(static_cast<size_t>(num_rows) * memory_size);
  context_.stride = RoundUp(shape.memory_size(), 4);
  context_.values = context_values_.Reserve(num_rows * context_.stride);
  context_.scales = context_scales_.Reserve(num_rows);
  const int16_t* m = state_.m(0);
  for (int row = 0; row < num_rows; ++row) {
    for (int k = 0; k < num_units; ++k) {
      floats[row * num_units + k] = m[static_cast<size_t>(row) * padded_units + k] * model_->unit();
    }
  }
  // Each thread takes some columns of the kernel, so that all of them together read it once.
  workers.Run(attention, kLanes, [&](int begin, int end) {
    kernels.project(floats, num_units, num_units, model_->query_kernel.data() + begin, attention, nullptr, end - begin,
                    num_rows, queries_.data() + begin, attention);
  });
  workers.Run(num_rows, 1, [&](int begin, int end) {
    for (int row = begin; row < end; ++row) {
      const Memory& memory = *memories[row];
      float* probs = probs_.data() + row * probs_stride_;
      kernels.attend(queries_.data() + static_cast<size_t>(row) * attention, memory.keys.data(),
                     model_->score_kernel.data(), attention, memory.source_length, probs);
      float* context = contexts_.data() + static_cast<size_t>(row) * memory_size;
      kernels.project(probs, probs_stride_, memory.source_length, memory.values.data(), memory_size, nullptr,
                      memory_size, 1, context, memory_size);
      QuantizedRows quantized = context_;
      quantized.values += row * context_.stride;
      quantized.scales += row;
      kernels.quantize_float(context, memory_size, shape.memory_size(), 1, quantized);
    }
  });
}

void Decoder::RunLayers(Workers& workers) {
  const ModelShape& shape = model_->shape();
  const Kernels& kernels = model_->kernels();
  const int num_rows = state_.num_rows(), padded = model_->padded_units();
  own_.stride = RoundUp(shape.num_units, 4);
  own_.values = own_values_.Reserve(num_rows * own_.stride);
  own_.scales = own_scales_.Reserve(num_rows);
  outputs_.Reserve(static_cast<size_t>(num_rows) * padded);
  for (size_t number = 0; number < model_->decoder.size(); ++number) {
    const LstmLayer& layer = model_->decoder[number];
    const int depth = static_cast<int>(number);
    kernels.quantize_fixed(state_.m(depth), padded, shape.num_units, model_->unit(), num_rows, own_);
    const QuantizedRows parts[] = {inputs_, context_, own_};
    workers.Run(layer.num_panels, 1, [&](int begin, int end) {
      kernels.lstm_step(layer, parts, 0, nullptr, num_rows, state_.c(depth), state_.m(depth), begin, end);
    });
    const size_t size = static_cast<size_t>(num_rows) * padded;
    if (depth + 1 >= shape.first_residual_layer) {
      // What stands in `outputs_` is the layer below's.
      AddClamped(outputs_.data(), state_.m(depth), size);
    } else {
      std::memcpy(outputs_.data(), state_.m(depth), size * sizeof(int16_t));
    }
    inputs_.stride = RoundUp(shape.num_units, 4);
    kernels.quantize_fixed(outputs_.data(), padded, shape.num_units, model_->unit(), num_rows, inputs_);
  }
}

void Decoder::Project(int begin, int end, Workers& workers) {
  const Projection& projection = model_->projection;
  const int num_rows = end - begin, num_panels = projection.weights.num_panels;
  const int num_chunks = (num_panels + kPanelsPerChunk - 1) / kPanelsPerChunk;
  first_row_ = begin;
  logits_.Reserve(num_rows * logit_stride());
  chunk_sums_.Reserve(static_cast<size_t>(num_rows) * num_chunks);
  QuantizedRows inputs = inputs_;
  inputs.values += begin * inputs_.stride;
  inputs.scales += begin;
  workers.Run(num_panels, kPanelsPerChunk, [&](int first, int last) {
    model_->kernels().logits(projection, inputs, num_rows, logits_.data(), chunk_sums_.data(), first, last);
  });
  normalisers_.resize(num_rows);
  for (int row = 0; row < num_rows; ++row) {
    float total = 0.0f;
    for (int chunk = 0; chunk < num_chunks; ++chunk) total += chunk_sums_[static_cast<size_t>(row) * num_chunks + chunk];
    normalisers_[row] = projection.logit_bound + ExactLog(total);
  }
}

}  // namespace gnmt
