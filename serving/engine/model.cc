#include "model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>

namespace gnmt {
namespace {

// Which row of [i, i', f, o] each place of an LSTM's panels takes.
std::vector<int32_t> LstmUnits(int num_units) {
  const int num_panels = RoundUp(num_units, kUnitsPerPanel) / kUnitsPerPanel;
  std::vector<int32_t> unit_of(static_cast<size_t>(num_panels) * kPanel, -1);
  for (int place = 0; place < num_panels * kPanel; ++place) {
    const int gate = place % kPanel / kUnitsPerPanel;
    const int unit = place / kPanel * kUnitsPerPanel + place % kUnitsPerPanel;
    if (unit < num_units) unit_of[place] = gate * num_units + unit;
  }
  return unit_of;
}

std::vector<int32_t> PlainUnits(int num_units) {
  std::vector<int32_t> unit_of(RoundUp(num_units, kPanel), -1);
  for (int unit = 0; unit < num_units; ++unit) unit_of[unit] = unit;
  return unit_of;
}

Aligned<float> Copy(const float* values, size_t size) {
  Aligned<float> copy(size);
  std::copy(values, values + size, copy.data());
  return copy;
}

// Everything else is an integer or bounded, so that finite weights give finite results.
void RequireFinite(const char* name, const float* values, size_t size) {
  for (size_t k = 0; k < size; ++k) {
    if (!std::isfinite(values[k])) {
      throw std::invalid_argument(std::string(name) + ": expected finite weights, got " + std::to_string(values[k]) +
                                  " at place " + std::to_string(k));
    }
  }
}

void RequireFinite(const ModelShape& shape, const ModelWeights& weights) {
  RequireFinite("source_scales", weights.source_scales, shape.vocab_size);
  RequireFinite("target_scales", weights.target_scales, shape.vocab_size);
  const size_t gates = 4 * static_cast<size_t>(shape.num_units), attention = shape.attention_units;
  for (const auto* layers : {&weights.encoder, &weights.decoder}) {
    for (const LstmWeights& layer : *layers) {
      RequireFinite("row_scales of an LSTM layer", layer.row_scales, gates);
      RequireFinite("biases of an LSTM layer", layer.biases, gates);
    }
  }
  RequireFinite("query_kernel", weights.query_kernel, shape.num_units * attention);
  RequireFinite("key_kernel", weights.key_kernel, shape.memory_size() * attention);
  RequireFinite("key_bias", weights.key_bias, attention);
  RequireFinite("score_kernel", weights.score_kernel, attention);
  RequireFinite("projection_scales", weights.projection_scales, shape.vocab_size);
  RequireFinite("projection_biases", weights.projection_biases, shape.vocab_size);
}

}  // namespace

Model::Model(const ModelShape& shape, const ModelWeights& weights, const Kernels& kernels)
    : shape_(shape), kernels_(&kernels) {
  RequireFinite(shape, weights);
  source_embeddings_ = PackEmbeddings(weights.source_embeddings);
  source_scales_ = Copy(weights.source_scales, shape.vocab_size);
  if (weights.target_embeddings != weights.source_embeddings) {
    target_embeddings_ = PackEmbeddings(weights.target_embeddings);
    target_scales_ = Copy(weights.target_scales, shape.vocab_size);
  }
  for (size_t number = 0; number < weights.encoder.size(); ++number) {
    const int input_size = number < 2 ? shape.embedding_size : number == 2 ? 2 * shape.num_units : shape.num_units;
    encoder.push_back(PackLstm(weights.encoder[number], {input_size, shape.num_units}));
  }
  for (size_t number = 0; number < weights.decoder.size(); ++number) {
    const int input_size = number == 0 ? shape.embedding_size : shape.num_units;
    decoder.push_back(PackLstm(weights.decoder[number], {input_size, shape.memory_size(), shape.num_units}));
  }
  query_kernel = Pad(weights.query_kernel, shape.num_units, shape.attention_units);
  key_kernel = Pad(weights.key_kernel, shape.memory_size(), shape.attention_units);
  key_bias = Pad(weights.key_bias, 1, shape.attention_units);
  score_kernel = Pad(weights.score_kernel, 1, shape.attention_units);
  const std::vector<int32_t> pieces = PlainUnits(shape.vocab_size);
  projection.vocab_size = shape.vocab_size;
  projection.weights = PackMatrix(weights.projection, shape.num_units, shape.num_units, pieces);
  projection.row_scales = Spread(weights.projection_scales, pieces);
  projection.biases = Spread(weights.projection_biases, pieces);
  projection.logit_bound = shape.logit_bound;
  total_bytes_ = source_embeddings_.size() + target_embeddings_.size() +
                 sizeof(float) * (source_scales_.size() + target_scales_.size() + query_kernel.size() +
                                  key_kernel.size() + key_bias.size() + score_kernel.size());
  for (const Bytes& bytes : packed_) total_bytes_ += bytes.size();
  for (const auto& offsets : offsets_) total_bytes_ += sizeof(int32_t) * offsets.size();
  for (const auto& spread : spread_) total_bytes_ += sizeof(float) * spread.size();
}

void Model::LookUp(const Bytes& embeddings, const Aligned<float>& scales, int id, int8_t* values, float* scale) const {
  const bool is_shared = embeddings.data() == nullptr;
  const size_t stride = RoundUp(shape_.embedding_size, 4);
  std::memcpy(values, (is_shared ? source_embeddings_ : embeddings).data() + id * stride, stride);
  *scale = (is_shared ? source_scales_ : scales)[id];
}

Model::Bytes Model::PackEmbeddings(const int8_t* embeddings) {
  const size_t size = shape_.embedding_size, stride = RoundUp(shape_.embedding_size, 4);
  const int offset = kernels_->unsigned_activations ? 128 : 0;
  Bytes packed(shape_.vocab_size * stride);
  for (int id = 0; id < shape_.vocab_size; ++id) {
    for (size_t k = 0; k < stride; ++k) {
      const int value = k < size ? embeddings[id * size + k] : 0;
      packed[id * stride + k] = static_cast<int8_t>(value + offset);
    }
  }
  int8_bytes_ += shape_.vocab_size * size;
  return packed;
}

LstmLayer Model::PackLstm(const LstmWeights& weights, const std::vector<int>& input_sizes) {
  const std::vector<int32_t> unit_of = LstmUnits(shape_.num_units);
  LstmLayer layer;
  layer.num_units = shape_.num_units;
  layer.num_panels = static_cast<int>(unit_of.size()) / kPanel;
  layer.num_parts = static_cast<int>(input_sizes.size());
  int stride = 0, first = 0;
  for (int size : input_sizes) stride += size;
  for (int part = 0; part < layer.num_parts; ++part) {
    layer.parts[part] = PackMatrix(weights.values + first, stride, input_sizes[part], unit_of);
    first += input_sizes[part];
  }
  layer.row_scales = Spread(weights.row_scales, unit_of);
  layer.biases = Spread(weights.biases, unit_of);
  layer.one = std::min(static_cast<int>(std::nearbyint(32768.0 / shape_.clip_bound)), 32767);
  layer.activation_scale = shape_.tanh_output ? unit() * 4096.0f : 0.0f;
  return layer;
}

PackedMatrix Model::PackMatrix(const int8_t* weights, int stride, int size, const std::vector<int32_t>& unit_of) {
  PackedMatrix matrix;
  matrix.num_panels = static_cast<int>(unit_of.size()) / kPanel;
  matrix.groups = (size + 3) / 4;
  packed_.emplace_back(unit_of.size() * matrix.groups * 4);
  offsets_.emplace_back(unit_of.size());
  Pack(weights, stride, size, unit_of.data(), matrix.num_panels, packed_.back().data(), offsets_.back().data());
  matrix.values = packed_.back().data();
  matrix.offsets = offsets_.back().data();
  int8_bytes_ += static_cast<size_t>(size) * std::count_if(unit_of.begin(), unit_of.end(), [](int u) { return u >= 0; });
  return matrix;
}

const float* Model::Spread(const float* values, const std::vector<int32_t>& unit_of) {
  spread_.emplace_back(unit_of.size());
  for (size_t place = 0; place < unit_of.size(); ++place) {
    spread_.back()[place] = unit_of[place] < 0 ? 0.0f : values[unit_of[place]];
  }
  return spread_.back().data();
}

Aligned<float> Model::Pad(const float* values, int rows, int columns) {
  const int padded = RoundUp(columns, kLanes);
  Aligned<float> result(static_cast<size_t>(rows) * padded);
  for (int row = 0; row < rows; ++row) {
    for (int k = 0; k < padded; ++k) result[row * padded + k] = k < columns ? values[row * columns + k] : 0.0f;
  }
  return result;
}

}  // namespace gnmt
