// Many sentences over one model: sorted by length, cut into batches, spread over threads, and back in order.

#ifndef GNMT_TF_SERVING_ENGINE_TRANSLATOR_H_
#define GNMT_TF_SERVING_ENGINE_TRANSLATOR_H_

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "search.h"

namespace gnmt {

// Safe for any number of callers at a time: each takes searchers of its own, which are kept for the next.
class Translator {
 public:
  explicit Translator(std::unique_ptr<Model> model) : model_(std::move(model)) {}

  const Model& model() const { return *model_; }

  // As Searcher::Search, for any number of sentences. With several threads each takes batches of its own; a single batch
  // is worked on by all of them. No result depends on their number.
  SearchStatus Translate(const std::vector<std::vector<int32_t>>& sentences, const SearchOptions& options,
                         const std::vector<int>& forced_lengths, int num_threads, const std::function<bool()>& is_cancelled,
                         std::vector<std::vector<Hypothesis>>* results);

  SearchStatus Score(const std::vector<std::vector<int32_t>>& sentences,
                     const std::vector<std::vector<int32_t>>& targets, bool keep_attention, int batch_size,
                     int num_threads, const std::function<bool()>& is_cancelled, std::vector<Hypothesis>* results);

 private:
  using Job = std::function<SearchStatus(Searcher&, Workers&, const std::vector<int>&)>;

  SearchStatus RunBatches(const std::vector<std::vector<int>>& batches, int num_threads, const Job& job);
  std::unique_ptr<Searcher> TakeSearcher();
  void GiveBack(std::unique_ptr<Searcher> searcher);

  std::unique_ptr<Model> model_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Searcher>> searchers_;
};

}  // namespace gnmt

#endif  // GNMT_TF_SERVING_ENGINE_TRANSLATOR_H_
