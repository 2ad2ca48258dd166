// The quantised network: its shape, its weights as they come from a checkpoint, and both packed for one variant of the
// kernels.

#ifndef GNMT_TF_SERVING_ENGINE_MODEL_H_
#define GNMT_TF_SERVING_ENGINE_MODEL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "aligned.h"
#include "kernels.h"

namespace gnmt {

struct ModelShape {
  int vocab_size = 0;
  int num_encoder_layers = 0;
  int num_decoder_layers = 0;
  int num_units = 0;
  int attention_units = 0;
  int embedding_size = 0;
  int first_residual_layer = 3;
  bool tanh_output = false;
  double clip_bound = 1.0;
  float logit_bound = 25.0f;

  int memory_size() const { return num_encoder_layers > 1 ? num_units : 2 * num_units; }
};

// One LSTM layer: int8 [4 * num_units, all inputs side by side], gates i, i', f, o one after the other.
struct LstmWeights {
  const int8_t* values = nullptr;
  const float* row_scales = nullptr;
  const float* biases = nullptr;
};

// Everything a checkpoint gives, quantised as in int8_reference.py. The engine copies what it needs.
struct ModelWeights {
  const int8_t* source_embeddings = nullptr;  // [vocab_size, embedding_size]
  const float* source_scales = nullptr;       // [vocab_size]
  const int8_t* target_embeddings = nullptr;
  const float* target_scales = nullptr;
  std::vector<LstmWeights> encoder;  // Forward, backward, then the upper layers.
  std::vector<LstmWeights> decoder;
  const float* query_kernel = nullptr;  // [num_units, attention_units]
  const float* key_kernel = nullptr;    // [memory_size, attention_units]
  const float* key_bias = nullptr;      // [attention_units]
  const float* score_kernel = nullptr;  // [attention_units]
  const int8_t* projection = nullptr;   // [vocab_size, num_units]
  const float* projection_scales = nullptr;
  const float* projection_biases = nullptr;
};

class Model {
 public:
  // Packs the weights. `kernels` has to outlive the model. Throws std::invalid_argument when a weight is not finite.
  Model(const ModelShape& shape, const ModelWeights& weights, const Kernels& kernels);

  const ModelShape& shape() const { return shape_; }
  const Kernels& kernels() const { return *kernels_; }

  // A row of embeddings, quantised, into a row of `out` that has room for RoundUp(embedding_size, 4).
  void LookUpSource(int id, int8_t* values, float* scale) const {
    LookUp(source_embeddings_, source_scales_, id, values, scale);
  }
  void LookUpTarget(int id, int8_t* values, float* scale) const {
    LookUp(target_embeddings_, target_scales_, id, values, scale);
  }

  // What an int16 of a state is worth.
  float unit() const { return static_cast<float>(shape_.clip_bound / 32767.0); }
  // Widths that kernels work with.
  int padded_units() const { return RoundUp(shape_.num_units, kUnitsPerPanel); }
  int padded_attention() const { return RoundUp(shape_.attention_units, kLanes); }
  int padded_memory() const { return RoundUp(shape_.memory_size(), kLanes); }

  std::vector<LstmLayer> encoder;
  std::vector<LstmLayer> decoder;
  Projection projection;
  Aligned<float> query_kernel;  // [num_units, padded_attention]
  Aligned<float> key_kernel;    // [memory_size, padded_attention]
  Aligned<float> key_bias;
  Aligned<float> score_kernel;

  // Bytes of weights: as int8 alone, and all that the model holds.
  size_t int8_bytes() const { return int8_bytes_; }
  size_t total_bytes() const { return total_bytes_; }

 private:
  using Bytes = Aligned<int8_t>;

  void LookUp(const Bytes& embeddings, const Aligned<float>& scales, int id, int8_t* values, float* scale) const;
  Bytes PackEmbeddings(const int8_t* embeddings);
  LstmLayer PackLstm(const LstmWeights& weights, const std::vector<int>& input_sizes);
  PackedMatrix PackMatrix(const int8_t* weights, int stride, int size, const std::vector<int32_t>& unit_of);
  const float* Spread(const float* values, const std::vector<int32_t>& unit_of);
  Aligned<float> Pad(const float* values, int rows, int columns);

  ModelShape shape_;
  const Kernels* kernels_;
  Bytes source_embeddings_, target_embeddings_;
  Aligned<float> source_scales_, target_scales_;
  std::vector<Bytes> packed_;
  std::vector<Aligned<int32_t>> offsets_;
  std::vector<Aligned<float>> spread_;
  size_t int8_bytes_ = 0, total_bytes_ = 0;
};

}  // namespace gnmt

#endif  // GNMT_TF_SERVING_ENGINE_MODEL_H_
