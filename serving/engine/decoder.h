// One step of the quantised decoder for any number of hypotheses of any sentences.

#ifndef GNMT_TF_SERVING_ENGINE_DECODER_H_
#define GNMT_TF_SERVING_ENGINE_DECODER_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "encoder.h"
#include "model.h"
#include "workers.h"

namespace gnmt {

// The state of the hypotheses, row by row.
class DecoderState {
 public:
  explicit DecoderState(const Model& model) : model_(&model), c_(model.decoder.size()), m_(model.decoder.size()) {}

  // So many rows of zeros.
  void Reset(int num_rows);
  // Row i becomes a copy of row parents[i].
  void Choose(const std::vector<int>& parents);

  int num_rows() const { return num_rows_; }
  // int16 [num_rows, padded_units] of a layer.
  int16_t* c(int layer) { return c_[layer].data(); }
  int16_t* m(int layer) { return m_[layer].data(); }

 private:
  const Model* model_;
  int num_rows_ = 0;
  // Of each layer; what is chosen goes to `spare_`, which then changes places with what it was chosen from.
  std::vector<Aligned<int16_t>> c_, m_;
  Aligned<int16_t> spare_;
};

class Decoder {
 public:
  explicit Decoder(const Model& model) : model_(&model), state_(model) {}

  const Kernels& kernels() const { return model_->kernels(); }
  DecoderState& state() { return state_; }

  // Feeds one piece to each row of the state; memories[i] belongs to row i. Logits are made for some rows at a time:
  // `read(begin, end)` is called when those of rows [begin, end) are there.
  void Step(const std::vector<int32_t>& ids, const std::vector<const Memory*>& memories, Workers& workers,
            const std::function<void(int, int)>& read);

  // What the last step gave. Logits, for the rows that are being read, have a stride; those of places beyond the
  // vocabulary are -inf.
  float* logits(int row) { return logits_.data() + (row - first_row_) * logit_stride(); }
  size_t logit_stride() const { return static_cast<size_t>(model_->projection.weights.num_panels) * kPanel; }
  float normaliser(int row) const { return normalisers_[row - first_row_]; }
  const float* attention_probs(int row) const { return probs_.data() + row * probs_stride_; }

 private:
  void Attend(const std::vector<const Memory*>& memories, Workers& workers);
  void RunLayers(Workers& workers);
  void Project(int begin, int end, Workers& workers);

  const Model* model_;
  DecoderState state_;
  size_t probs_stride_ = 0;
  int first_row_ = 0;
  QuantizedRows inputs_, context_, own_;
  Aligned<int8_t> input_values_, context_values_, own_values_;
  Aligned<float> input_scales_, context_scales_, own_scales_;
  Aligned<float> floats_, queries_, contexts_, probs_, logits_, chunk_sums_;
  Aligned<int16_t> outputs_;
  std::vector<float> normalisers_;
};

}  // namespace gnmt

#endif  // GNMT_TF_SERVING_ENGINE_DECODER_H_
