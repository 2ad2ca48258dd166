#include "translator.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <thread>

namespace gnmt {
namespace {

// Numbers of sentences in batches of similar length, the longest first. With several threads each gets some even when all
// would fit into one batch, as long as batches stay worth it; and batches that run side by side get every second (third,
// ...) sentence of the same stretch, so that they take equally long.
std::vector<std::vector<int>> CutIntoBatches(const std::vector<std::vector<int32_t>>& sentences, int batch_size,
                                             int num_threads) {
  constexpr int kSmallestBatch = 4;
  std::vector<int> order(sentences.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return sentences[a].size() > sentences[b].size(); });
  const int count = static_cast<int>(order.size());
  const int share = (count + num_threads - 1) / num_threads;
  const int size = std::max(1, std::min(batch_size, std::max(share, kSmallestBatch)));
  std::vector<std::vector<int>> batches;
  for (int start = 0; start < count; start += size * num_threads) {
    const int stretch = std::min(count - start, size * num_threads), side_by_side = (stretch + size - 1) / size;
    const size_t first = batches.size();
    batches.resize(first + side_by_side);
    for (int k = 0; k < stretch; ++k) batches[first + k % side_by_side].push_back(order[start + k]);
  }
  return batches;
}

}  // namespace

SearchStatus Translator::Translate(const std::vector<std::vector<int32_t>>& sentences, const SearchOptions& options,
                                   const std::vector<int>& forced_lengths, int num_threads, const std::function<bool()>& is_cancelled,
                                   std::vector<std::vector<Hypothesis>>* results) {
  results->assign(sentences.size(), {});
  return RunBatches(CutIntoBatches(sentences, options.batch_size, num_threads), num_threads,
                    [&](Searcher& searcher, Workers& workers, const std::vector<int>& batch) {
                      std::vector<const std::vector<int32_t>*> chosen;
                      std::vector<std::vector<Hypothesis>*> found;
                      std::vector<int> forced;
                      for (int number : batch) {
                        chosen.push_back(&sentences[number]);
                        found.push_back(&(*results)[number]);
                        if (!forced_lengths.empty()) forced.push_back(forced_lengths[number]);
                      }
                      return searcher.Search(chosen, options, forced, workers, is_cancelled, found);
                    });
}

SearchStatus Translator::Score(const std::vector<std::vector<int32_t>>& sentences,
                               const std::vector<std::vector<int32_t>>& targets, bool keep_attention, int batch_size,
                               int num_threads, const std::function<bool()>& is_cancelled,
                               std::vector<Hypothesis>* results) {
  results->assign(sentences.size(), {});
  return RunBatches(CutIntoBatches(sentences, batch_size, num_threads), num_threads,
                    [&](Searcher& searcher, Workers& workers, const std::vector<int>& batch) {
                      std::vector<const std::vector<int32_t>*> chosen, wanted;
                      for (int number : batch) {
                        chosen.push_back(&sentences[number]);
                        wanted.push_back(&targets[number]);
                      }
                      std::vector<Hypothesis> found;
                      const SearchStatus status =
                          searcher.Score(chosen, wanted, keep_attention, workers, is_cancelled, &found);
                      if (status != SearchStatus::kDone) return status;
                      for (size_t k = 0; k < batch.size(); ++k) (*results)[batch[k]] = std::move(found[k]);
                      return status;
                    });
}

SearchStatus Translator::RunBatches(const std::vector<std::vector<int>>& batches, int num_threads, const Job& job) {
  const int num_batches = static_cast<int>(batches.size());
  const int num_parallel = std::max(1, std::min(num_threads, num_batches));
  std::atomic<int> next{0};
  std::atomic<SearchStatus> status{SearchStatus::kDone};
  auto work = [&](int num_workers) {
    std::unique_ptr<Searcher> searcher = TakeSearcher();
    Workers workers(num_workers);
    for (int number = next++; number < num_batches && status == SearchStatus::kDone; number = next++) {
      const SearchStatus found = job(*searcher, workers, batches[number]);
      if (found != SearchStatus::kDone) status = found;
    }
    GiveBack(std::move(searcher));
  };
  std::vector<std::thread> threads;
  for (int thread = 1; thread < num_parallel; ++thread) threads.emplace_back(work, num_threads / num_parallel);
  work(std::max(1, num_threads - (num_parallel - 1) * (num_threads / num_parallel)));
  for (std::thread& thread : threads) thread.join();
  return status;
}

std::unique_ptr<Searcher> Translator::TakeSearcher() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (searchers_.empty()) return std::make_unique<Searcher>(*model_);
  std::unique_ptr<Searcher> searcher = std::move(searchers_.back());
  searchers_.pop_back();
  return searcher;
}

void Translator::GiveBack(std::unique_ptr<Searcher> searcher) {
  std::lock_guard<std::mutex> lock(mutex_);
  searchers_.push_back(std::move(searcher));
}

}  // namespace gnmt
