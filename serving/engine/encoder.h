// The quantised encoder: source pieces of several sentences in, what decoding reads of each out.

#ifndef GNMT_TF_SERVING_ENGINE_ENCODER_H_
#define GNMT_TF_SERVING_ENGINE_ENCODER_H_

#include <cstdint>
#include <vector>

#include "model.h"
#include "workers.h"

namespace gnmt {

// What decoding reads of one sentence.
struct Memory {
  int source_length = 0;
  Aligned<float> values;  // [source_length, padded_memory]
  Aligned<float> keys;    // [source_length, padded_attention]
};

// Not for several threads at a time; what it needs of memory it keeps from call to call.
class Encoder {
 public:
  explicit Encoder(const Model& model) : model_(&model) {}

  // Encodes sentences of at least one piece each; memories[i] belongs to sentences[i].
  void Encode(const std::vector<const std::vector<int32_t>*>& sentences, Workers& workers,
              std::vector<Memory>& memories);

 private:
  // Positions are ordered by step, then by sentence, the longest sentence first: those of a step are together, and a
  // sentence has the same row in every step until it ends.
  void Order(const std::vector<const std::vector<int32_t>*>& sentences);
  void Embed(const std::vector<const std::vector<int32_t>*>& sentences, bool backward);
  // One layer over all steps; its outputs go to `outputs_` at a column.
  void RunLayer(const LstmLayer& layer, bool backward, int column, int width, Workers& workers);

  const Model* model_;
  // The sentence of each row and its length; the first position and the rows of each step.
  std::vector<int> order_, lengths_, first_position_, num_rows_;
  int num_positions_ = 0;
  QuantizedRows inputs_, own_;
  Aligned<int8_t> input_values_, own_values_;
  Aligned<float> input_scales_, own_scales_, sums_;
  Aligned<int16_t> c_, m_, outputs_, below_;
};

}  // namespace gnmt

#endif  // GNMT_TF_SERVING_ENGINE_ENCODER_H_
