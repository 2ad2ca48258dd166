// Beam search over the quantised network: eq. 14, both prunings, for a batch of sentences on one or several threads.
//
// The same search as gnmt_tf/search/beam_search.py. Finished hypotheses and sentences leave the batch at once. Among
// equals the earlier hypothesis and then the lower piece comes first. A sentence's result depends on nothing but the
// sentence: not on its batch, not on the number of threads, not on the kernels.

#ifndef GNMT_TF_SERVING_ENGINE_SEARCH_H_
#define GNMT_TF_SERVING_ENGINE_SEARCH_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "decoder.h"
#include "encoder.h"
#include "model.h"
#include "workers.h"

namespace gnmt {

// Reserved pieces, as in gnmt_tf/text/vocabulary.py.
constexpr int32_t kPadId = 0, kUnknownId = 1, kStartId = 2, kEndId = 3;

struct SearchOptions {
  int beam_width = 8;
  int n_best = 1;
  float length_penalty_weight = 0.2f;
  float coverage_penalty_weight = 0.2f;
  // The paper's margin for either pruning; negative for none.
  float piece_margin = 3.0f;
  float hypothesis_margin = 3.0f;
  bool early_stopping = true;
  float max_length_factor = 2.0f;
  int max_length_constant = 10;
  int min_length = 0;
  bool keep_attention = false;
  std::vector<int32_t> banned_ids;
  // Sentences decoded together on one thread.
  int batch_size = 32;
};

struct Hypothesis {
  std::vector<int32_t> ids;            // `</s>` last.
  std::vector<float> piece_log_probs;  // of each
  float log_prob = 0.0f;
  float score = 0.0f;  // eq. 14
  bool truncated = false;
  std::vector<float> attention_probs;  // [ids.size(), source_length] if kept.
};

// Longest hypothesis of a sentence in pieces, `</s>` counted.
int MaxTargetLength(int source_length, const SearchOptions& options);

// Why a search ended early.
enum class SearchStatus { kDone, kCancelled, kNotFinite };

// Searches on one thread or, with several workers, on all of them. Not for several callers at a time.
class Searcher {
 public:
  explicit Searcher(const Model& model) : model_(&model), encoder_(model), decoder_(model) {}

  // Translates sentences of at least one piece each; results[i] are the best hypotheses of sentences[i], best first.
  // `forced_lengths` is empty or says how long each sentence's hypotheses have to be. `is_cancelled` is asked between
  // steps.
  SearchStatus Search(const std::vector<const std::vector<int32_t>*>& sentences, const SearchOptions& options,
                      const std::vector<int>& forced_lengths, Workers& workers, const std::function<bool()>& is_cancelled,
                      std::vector<std::vector<Hypothesis>*> results);

  // log P of given target pieces, `</s>` last: piece_log_probs, log_prob and the attention are filled in.
  SearchStatus Score(const std::vector<const std::vector<int32_t>*>& sentences,
                     const std::vector<const std::vector<int32_t>*>& targets, bool keep_attention, Workers& workers,
                     const std::function<bool()>& is_cancelled, std::vector<Hypothesis>* results);

 private:
  const Model* model_;
  Encoder encoder_;
  Decoder decoder_;
  std::vector<Memory> memories_;
};

}  // namespace gnmt

#endif  // GNMT_TF_SERVING_ENGINE_SEARCH_H_
