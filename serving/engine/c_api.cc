#include "c_api.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "measure.h"
#include "translator.h"

namespace {

thread_local std::string last_error;

int Fail(const std::string& message) {
  last_error = message;
  return 1;
}

std::vector<std::vector<int32_t>> Split(const int32_t* ids, const int32_t* lengths, int count) {
  std::vector<std::vector<int32_t>> sentences;
  for (int number = 0; number < count; ++number) {
    sentences.emplace_back(ids, ids + lengths[number]);
    ids += lengths[number];
  }
  return sentences;
}

std::string CheckIds(const std::vector<std::vector<int32_t>>& sentences, int vocab_size, const char* what) {
  for (size_t number = 0; number < sentences.size(); ++number) {
    if (sentences[number].empty()) {
      return std::string(what) + " " + std::to_string(number) + ": expected at least one piece, got none";
    }
    for (int32_t id : sentences[number]) {
      if (id < 0 || id >= vocab_size) {
        return std::string(what) + " " + std::to_string(number) + ": expected ids from 0 to " +
               std::to_string(vocab_size - 1) + ", got " + std::to_string(id);
      }
    }
  }
  return "";
}

int Report(gnmt::SearchStatus status) {
  if (status == gnmt::SearchStatus::kDone) return 0;
  return Fail(status == gnmt::SearchStatus::kCancelled ? "cancelled" : "the model gives values that are not finite");
}

bool Never() { return false; }

}  // namespace

const char* gnmt_error(void) { return last_error.c_str(); }

const char* gnmt_kernels(void) {
  static const std::string names = [] {
    std::string found;
    for (const char* name : {"avx512vnni", "avx2", "portable"}) {
      if (gnmt::KernelsByName(name) != nullptr) found += (found.empty() ? "" : " ") + std::string(name);
    }
    return found;
  }();
  return names.c_str();
}

int gnmt_load(const GnmtShape* shape, const void* const* weights, int32_t num_weights, const char* kernels,
              void** model) try {
  const gnmt::Kernels* chosen = kernels == nullptr ? &gnmt::BestKernels() : gnmt::KernelsByName(kernels);
  if (chosen == nullptr) return Fail(std::string("kernels: expected one of ") + gnmt_kernels() + ", got " + kernels);
  const int num_layers = shape->num_encoder_layers + 1 + shape->num_decoder_layers;
  const int expected = 4 + 3 * num_layers + 4 + 3;
  if (num_weights != expected) {
    return Fail("weights: expected " + std::to_string(expected) + ", got " + std::to_string(num_weights));
  }
  gnmt::ModelShape model_shape;
  model_shape.vocab_size = shape->vocab_size;
  model_shape.num_encoder_layers = shape->num_encoder_layers;
  model_shape.num_decoder_layers = shape->num_decoder_layers;
  model_shape.num_units = shape->num_units;
  model_shape.attention_units = shape->attention_units;
  model_shape.embedding_size = shape->embedding_size;
  model_shape.first_residual_layer = shape->first_residual_layer;
  model_shape.tanh_output = shape->tanh_output != 0;
  model_shape.clip_bound = shape->clip_bound;
  model_shape.logit_bound = shape->logit_bound;
  const void* const* next = weights;
  auto bytes = [&next] { return static_cast<const int8_t*>(*next++); };
  auto floats = [&next] { return static_cast<const float*>(*next++); };
  gnmt::ModelWeights found;
  found.source_embeddings = bytes();
  found.source_scales = floats();
  found.target_embeddings = bytes();
  found.target_scales = floats();
  for (int number = 0; number < num_layers; ++number) {
    gnmt::LstmWeights layer;
    layer.values = bytes();
    layer.row_scales = floats();
    layer.biases = floats();
    (number <= shape->num_encoder_layers ? found.encoder : found.decoder).push_back(layer);
  }
  found.query_kernel = floats();
  found.key_kernel = floats();
  found.key_bias = floats();
  found.score_kernel = floats();
  found.projection = bytes();
  found.projection_scales = floats();
  found.projection_biases = floats();
  *model = new gnmt::Translator(std::make_unique<gnmt::Model>(model_shape, found, *chosen));
  return 0;
} catch (const std::exception& error) {
  return Fail(error.what());
}

void gnmt_free(void* model) { delete static_cast<gnmt::Translator*>(model); }

void gnmt_sizes(const void* model, int64_t* int8_bytes, int64_t* total_bytes) {
  const gnmt::Model& loaded = static_cast<const gnmt::Translator*>(model)->model();
  *int8_bytes = static_cast<int64_t>(loaded.int8_bytes());
  *total_bytes = static_cast<int64_t>(loaded.total_bytes());
}

int gnmt_translate(void* model, const int32_t* ids, const int32_t* lengths, const int32_t* forced_lengths,
                   int32_t num_sentences, const GnmtOptions* options, int32_t num_threads, int32_t most, int32_t* out_ids, int32_t* out_lengths,
                   float* out_scores, float* out_log_probs, float* out_piece_log_probs) try {
  auto& translator = *static_cast<gnmt::Translator*>(model);
  const auto sentences = Split(ids, lengths, num_sentences);
  const std::string problem = CheckIds(sentences, translator.model().shape().vocab_size, "sentence");
  if (!problem.empty()) return Fail(problem);
  gnmt::SearchOptions search;
  search.beam_width = options->beam_width;
  search.n_best = options->n_best;
  search.length_penalty_weight = options->length_penalty_weight;
  search.coverage_penalty_weight = options->coverage_penalty_weight;
  search.piece_margin = options->piece_margin;
  search.hypothesis_margin = options->hypothesis_margin;
  search.early_stopping = options->early_stopping != 0;
  search.max_length_factor = options->max_length_factor;
  search.max_length_constant = options->max_length_constant;
  search.min_length = options->min_length;
  search.batch_size = options->batch_size;
  std::vector<std::vector<gnmt::Hypothesis>> results;
  std::vector<int> forced;
  if (forced_lengths != nullptr) forced.assign(forced_lengths, forced_lengths + num_sentences);
  for (int length : forced) {
    if (length < 1) return Fail("forced_lengths: expected at least 1, got " + std::to_string(length));
  }
  const int status = Report(translator.Translate(sentences, search, forced, num_threads, Never, &results));
  if (status != 0) return status;
  const int n_best = options->n_best;
  for (int place = 0; place < num_sentences * n_best; ++place) {
    const auto& hypotheses = results[place / n_best];
    out_lengths[place] = 0;
    if (place % n_best >= static_cast<int>(hypotheses.size())) continue;
    const gnmt::Hypothesis& found = hypotheses[place % n_best];
    if (static_cast<int>(found.ids.size()) > most) return Fail("most: a hypothesis has " + std::to_string(found.ids.size()) + " pieces");
    out_lengths[place] = static_cast<int32_t>(found.ids.size());
    out_scores[place] = found.score;
    out_log_probs[place] = found.log_prob;
    std::copy(found.ids.begin(), found.ids.end(), out_ids + static_cast<size_t>(place) * most);
    std::copy(found.piece_log_probs.begin(), found.piece_log_probs.end(),
              out_piece_log_probs + static_cast<size_t>(place) * most);
  }
  return 0;
} catch (const std::exception& error) {
  return Fail(error.what());
}

double gnmt_products_per_second(const char* kernels, int32_t num_rows, int32_t size, int32_t num_units,
                                double seconds) {
  const gnmt::Kernels* chosen = gnmt::KernelsByName(kernels);
  return chosen == nullptr ? 0.0 : gnmt::ProductsPerSecond(*chosen, num_rows, size, num_units, seconds);
}

double gnmt_peak_products_per_second(const char* kernels, double seconds) {
  const gnmt::Kernels* chosen = gnmt::KernelsByName(kernels);
  return chosen == nullptr ? 0.0 : gnmt::PeakProductsPerSecond(*chosen, seconds);
}

double gnmt_bytes_per_second(int64_t bytes, double seconds) { return gnmt::BytesPerSecond(bytes, seconds); }

int gnmt_score(void* model, const int32_t* ids, const int32_t* lengths, const int32_t* target_ids,
               const int32_t* target_lengths, int32_t num_sentences, int32_t num_threads, float* out,
               float* out_attention) try {
  auto& translator = *static_cast<gnmt::Translator*>(model);
  const auto sentences = Split(ids, lengths, num_sentences), targets = Split(target_ids, target_lengths, num_sentences);
  const int vocab_size = translator.model().shape().vocab_size;
  std::string problem = CheckIds(sentences, vocab_size, "sentence");
  if (problem.empty()) problem = CheckIds(targets, vocab_size, "target");
  if (!problem.empty()) return Fail(problem);
  std::vector<gnmt::Hypothesis> results;
  constexpr int kBatchSize = 32;
  const int status = Report(
      translator.Score(sentences, targets, out_attention != nullptr, kBatchSize, num_threads, Never, &results));
  if (status != 0) return status;
  for (const gnmt::Hypothesis& found : results) {
    out = std::copy(found.piece_log_probs.begin(), found.piece_log_probs.end(), out);
    if (out_attention != nullptr) {
      out_attention = std::copy(found.attention_probs.begin(), found.attention_probs.end(), out_attention);
    }
  }
  return 0;
} catch (const std::exception& error) {
  return Fail(error.what());
}
