#include "search.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

namespace gnmt {
namespace {

constexpr float kImpossible = -std::numeric_limits<float>::infinity();
constexpr float kCoverageFloor = 1e-6f;

// A continuation of a live hypothesis.
struct Candidate {
  float log_prob;  // of the whole hypothesis
  float piece_log_prob;
  int slot;  // of the hypothesis among its sentence's
  int32_t id;
};

// One step of one hypothesis in the tree of a sentence's search.
struct Node {
  int parent;
  int32_t id;
  float piece_log_prob;
  int attention;  // place of its step's attention in the tree's, or -1
};

struct Live {
  int node;
  float log_prob;
  int row;  // in the decoder's state
  int32_t id;
};

struct Complete {
  float score;
  float log_prob;
  int node;
  int length;
};

float LengthPenalty(int length, float weight) {
  return static_cast<float>(std::pow((5.0 + length) / 6.0, static_cast<double>(weight)));
}

// The search of one sentence.
class SentenceSearch {
 public:
  // A forced length above 0 is that of all hypotheses.
  SentenceSearch(const Memory& memory, const SearchOptions& options, int forced_length)
      : memory_(&memory),
        options_(&options),
        limit_(forced_length > 0 ? forced_length : MaxTargetLength(memory.source_length, options)),
        min_length_(forced_length > 0 ? forced_length - 1 : options.min_length) {
    live_.push_back({-1, 0.0f, 0, kStartId});
    accumulated_.assign(memory.source_length, 0.0f);
  }

  const Memory& memory() const { return *memory_; }
  bool is_done() const { return live_.empty(); }
  std::vector<Live>& live() { return live_; }

  // Begins a step.
  void Begin() {
    ++length_;
    candidates_.clear();
  }

  // Reads the logits of one live hypothesis, which are in the decoder's row. False if one was not finite.
  bool Read(Decoder& decoder, int row, int slot, std::vector<int32_t>& places) {
    if (!std::isfinite(decoder.normaliser(row))) return false;
    AddCandidates(decoder, row, slot, length_, places);
    return true;
  }

  // Ends a step whose rows began at `first_row`.
  void Advance(const Decoder& decoder, int first_row) {
    const int length = length_, source_length = memory_->source_length;
    const size_t kept = std::min(candidates_.size(), static_cast<size_t>(options_->beam_width));
    std::partial_sort(candidates_.begin(), candidates_.begin() + kept, candidates_.end(),
                      [](const Candidate& a, const Candidate& b) {
                        if (a.log_prob != b.log_prob) return a.log_prob > b.log_prob;
                        return a.slot != b.slot ? a.slot < b.slot : a.id < b.id;
                      });
    int first_attention = -1;
    if (options_->keep_attention) {
      first_attention = static_cast<int>(attention_.size());
      for (size_t slot = 0; slot < live_.size(); ++slot) {
        const float* probs = decoder.attention_probs(first_row + static_cast<int>(slot));
        attention_.insert(attention_.end(), probs, probs + source_length);
      }
    }
    next_live_.clear();
    next_accumulated_.clear();
    for (size_t k = 0; k < kept; ++k) {
      const Candidate& chosen = candidates_[k];
      const int place = first_attention < 0 ? -1 : first_attention + chosen.slot * source_length;
      nodes_.push_back({live_[chosen.slot].node, chosen.id, chosen.piece_log_prob, place});
      const int node = static_cast<int>(nodes_.size()) - 1;
      const float* before = accumulated_.data() + static_cast<size_t>(chosen.slot) * source_length;
      const float* probs = decoder.attention_probs(first_row + chosen.slot);
      if (chosen.id == kEndId) {
        float coverage = 0.0f;
        for (int k = 0; k < source_length; ++k) {
          coverage += ExactLog(std::min(std::max(before[k] + probs[k], kCoverageFloor), 1.0f));
        }
        AddComplete(chosen.log_prob, coverage, node, length);
      } else {
        for (int k = 0; k < source_length; ++k) next_accumulated_.push_back(before[k] + probs[k]);
        next_live_.push_back({node, chosen.log_prob, first_row + chosen.slot, chosen.id});
      }
    }
    std::swap(live_, next_live_);
    std::swap(accumulated_, next_accumulated_);
    if (options_->early_stopping && !CanWin()) live_.clear();
  }

  void Finish(std::vector<Hypothesis>* results) const {
    results->clear();
    for (const Complete& complete : complete_) {
      if (static_cast<int>(results->size()) == options_->n_best) break;
      if (options_->hypothesis_margin >= 0.0f && complete.score < complete_[0].score - options_->hypothesis_margin) {
        break;
      }
      Hypothesis hypothesis;
      hypothesis.score = complete.score;
      hypothesis.log_prob = complete.log_prob;
      hypothesis.truncated = complete.length >= limit_;
      std::vector<int> path;
      for (int node = complete.node; node >= 0; node = nodes_[node].parent) path.push_back(node);
      for (auto node = path.rbegin(); node != path.rend(); ++node) {
        hypothesis.ids.push_back(nodes_[*node].id);
        hypothesis.piece_log_probs.push_back(nodes_[*node].piece_log_prob);
        if (options_->keep_attention) {
          const auto from = attention_.begin() + nodes_[*node].attention;
          hypothesis.attention_probs.insert(hypothesis.attention_probs.end(), from, from + memory_->source_length);
        }
      }
      results->push_back(std::move(hypothesis));
    }
  }

 private:
  // The pieces that may follow a hypothesis, the best of them: no more than the beam is wide.
  void AddCandidates(Decoder& decoder, int row, int slot, int length, std::vector<int32_t>& places) {
    float* logits = decoder.logits(row);
    const float normaliser = decoder.normaliser(row), before = live_[slot].log_prob;
    auto add = [&](int32_t id, float piece_log_prob) {
      candidates_.push_back({before + piece_log_prob, piece_log_prob, slot, id});
    };
    if (length >= limit_) {
      add(kEndId, logits[kEndId] - normaliser);
      return;
    }
    logits[kPadId] = logits[kStartId] = kImpossible;
    if (length <= min_length_) logits[kEndId] = kImpossible;
    for (int32_t id : options_->banned_ids) logits[id] = kImpossible;
    const Kernels& kernels = decoder.kernels();
    const int size = static_cast<int>(decoder.logit_stride());
    const float best = kernels.largest(logits, size);
    if (best == kImpossible) return;
    const float best_log_prob = best - normaliser;
    const bool prunes = options_->piece_margin >= 0.0f;
    const float least_log_prob = prunes ? best_log_prob - options_->piece_margin : kImpossible;
    // A little below, since the margin is one of rounded differences; what is too low is left out below.
    float threshold = prunes ? best - options_->piece_margin - 1e-3f : std::numeric_limits<float>::lowest();
    const int width = options_->beam_width;
    if (!prunes) threshold = ThresholdOfBest(kernels, logits, size, width);
    places.resize(size);
    const int found = kernels.at_least(logits, size, threshold, places.data(), size);
    const size_t first = candidates_.size();
    for (int k = 0; k < found; ++k) {
      const float piece_log_prob = logits[places[k]] - normaliser;
      if (piece_log_prob >= least_log_prob) add(places[k], piece_log_prob);
    }
    if (candidates_.size() - first > static_cast<size_t>(width)) {
      std::partial_sort(candidates_.begin() + first, candidates_.begin() + first + width, candidates_.end(),
                        [&](const Candidate& a, const Candidate& b) {
                          return logits[a.id] != logits[b.id] ? logits[a.id] > logits[b.id] : a.id < b.id;
                        });
      candidates_.resize(first + width);
    }
  }

  // A value that at least `width` of the logits reach, and not many more: the width-th largest of the maxima of blocks.
  float ThresholdOfBest(const Kernels& kernels, const float* logits, int size, int width) {
    constexpr int kBlock = kLanes;
    maxima_.clear();
    const int num_blocks = size / kBlock;
    for (int block = 0; block < num_blocks; ++block) maxima_.push_back(kernels.largest(logits + block * kBlock, kBlock));
    if (num_blocks <= width) return std::numeric_limits<float>::lowest();
    std::nth_element(maxima_.begin(), maxima_.begin() + width - 1, maxima_.end(), std::greater<float>());
    return std::max(maxima_[width - 1], std::numeric_limits<float>::lowest());
  }

  void AddComplete(float log_prob, float coverage, int node, int length) {
    const float score = log_prob / LengthPenalty(length, options_->length_penalty_weight) +
                        options_->coverage_penalty_weight * coverage;
    const Complete complete = {score, log_prob, node, length};
    const auto place = std::upper_bound(complete_.begin(), complete_.end(), complete,
                                        [](const Complete& a, const Complete& b) { return a.score > b.score; });
    complete_.insert(place, complete);
  }

  // Whether a live hypothesis could still enter the n best, were the rest of it free and all of it attended to.
  bool CanWin() const {
    if (live_.empty()) return false;
    float best_live = kImpossible;
    for (const Live& live : live_) best_live = std::max(best_live, live.log_prob);
    const float bound = best_live / LengthPenalty(limit_, options_->length_penalty_weight);
    if (!complete_.empty() && options_->hypothesis_margin >= 0.0f &&
        bound <= complete_[0].score - options_->hypothesis_margin) {
      return false;
    }
    if (static_cast<int>(complete_.size()) < options_->n_best) return true;
    return bound > complete_[options_->n_best - 1].score;
  }

  const Memory* memory_;
  const SearchOptions* options_;
  int limit_, min_length_, length_ = 0;
  std::vector<Live> live_, next_live_;
  std::vector<float> accumulated_, next_accumulated_, attention_, maxima_;
  std::vector<Node> nodes_;
  std::vector<Candidate> candidates_;
  std::vector<Complete> complete_;
};

}  // namespace

int MaxTargetLength(int source_length, const SearchOptions& options) {
  const int scaled = static_cast<int>(static_cast<float>(source_length) * options.max_length_factor);
  return std::max(scaled + options.max_length_constant, 1);
}

SearchStatus Searcher::Search(const std::vector<const std::vector<int32_t>*>& sentences, const SearchOptions& options,
                              const std::vector<int>& forced_lengths, Workers& workers, const std::function<bool()>& is_cancelled,
                              std::vector<std::vector<Hypothesis>*> results) {
  if (is_cancelled()) return SearchStatus::kCancelled;
  encoder_.Encode(sentences, workers, memories_);
  std::vector<SentenceSearch> searches;
  for (size_t number = 0; number < sentences.size(); ++number) {
    searches.emplace_back(memories_[number], options, forced_lengths.empty() ? 0 : forced_lengths[number]);
  }
  decoder_.state().Reset(static_cast<int>(sentences.size()));
  for (size_t number = 0; number < searches.size(); ++number) searches[number].live()[0].row = static_cast<int>(number);
  std::vector<int32_t> ids, places;
  std::vector<const Memory*> memories;
  std::vector<int> parents;
  std::vector<std::pair<SentenceSearch*, int>> slot_of;  // of each row
  while (true) {
    if (is_cancelled()) return SearchStatus::kCancelled;
    ids.clear();
    memories.clear();
    parents.clear();
    slot_of.clear();
    for (SentenceSearch& search : searches) {
      search.Begin();
      for (const Live& live : search.live()) {
        slot_of.emplace_back(&search, static_cast<int>(&live - search.live().data()));
        ids.push_back(live.id);
        parents.push_back(live.row);
        memories.push_back(&search.memory());
      }
    }
    if (ids.empty()) break;
    decoder_.state().Choose(parents);
    bool finite = true;
    decoder_.Step(ids, memories, workers, [&](int begin, int end) {
      for (int row = begin; row < end; ++row) {
        finite = slot_of[row].first->Read(decoder_, row, slot_of[row].second, places) && finite;
      }
    });
    if (!finite) return SearchStatus::kNotFinite;
    int row = 0;
    for (SentenceSearch& search : searches) {
      const int num_rows = static_cast<int>(search.live().size());
      if (num_rows == 0) continue;
      search.Advance(decoder_, row);
      row += num_rows;
    }
  }
  for (size_t number = 0; number < searches.size(); ++number) searches[number].Finish(results[number]);
  return SearchStatus::kDone;
}

SearchStatus Searcher::Score(const std::vector<const std::vector<int32_t>*>& sentences,
                             const std::vector<const std::vector<int32_t>*>& targets, bool keep_attention,
                             Workers& workers, const std::function<bool()>& is_cancelled,
                             std::vector<Hypothesis>* results) {
  if (is_cancelled()) return SearchStatus::kCancelled;
  encoder_.Encode(sentences, workers, memories_);
  decoder_.state().Reset(static_cast<int>(sentences.size()));
  results->assign(sentences.size(), Hypothesis());
  std::vector<int> rows(sentences.size()), parents;
  for (size_t number = 0; number < sentences.size(); ++number) rows[number] = static_cast<int>(number);
  std::vector<int32_t> ids;
  std::vector<const Memory*> memories;
  for (size_t step = 0;; ++step) {
    if (is_cancelled()) return SearchStatus::kCancelled;
    ids.clear();
    memories.clear();
    parents.clear();
    for (size_t number = 0; number < sentences.size(); ++number) {
      if (step >= targets[number]->size()) continue;
      ids.push_back(step == 0 ? kStartId : (*targets[number])[step - 1]);
      parents.push_back(rows[number]);
      rows[number] = static_cast<int>(ids.size()) - 1;
      memories.push_back(&memories_[number]);
    }
    if (ids.empty()) return SearchStatus::kDone;
    decoder_.state().Choose(parents);
    bool finite = true;
    decoder_.Step(ids, memories, workers, [&](int begin, int end) {
      for (size_t number = 0; number < sentences.size(); ++number) {
        const int row = rows[number];
        if (step >= targets[number]->size() || row < begin || row >= end) continue;
        Hypothesis& result = (*results)[number];
        finite = finite && std::isfinite(decoder_.normaliser(row));
        const int32_t id = (*targets[number])[step];
        result.ids.push_back(id);
        result.piece_log_probs.push_back(decoder_.logits(row)[id] - decoder_.normaliser(row));
        result.log_prob += result.piece_log_probs.back();
        if (keep_attention) {
          const float* probs = decoder_.attention_probs(row);
          result.attention_probs.insert(result.attention_probs.end(), probs, probs + memories_[number].source_length);
        }
      }
    });
    if (!finite) return SearchStatus::kNotFinite;
  }
}

}  // namespace gnmt
