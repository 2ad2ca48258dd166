// Tests of the engine without TensorFlow or Python: kernels at their extremes, and that nothing a result should not
// depend on changes a bit of it. Run by tests/serving/engine_test.py, also under sanitizers.

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "translator.h"

namespace gnmt {
namespace {

#define EXPECT(condition, ...)                                        \
  do {                                                                \
    if (!(condition)) {                                               \
      std::fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition); \
      std::fprintf(stderr, __VA_ARGS__);                              \
      std::fprintf(stderr, "\n");                                     \
      std::exit(1);                                                   \
    }                                                                 \
  } while (false)

std::vector<const Kernels*> AllKernels() {
  std::vector<const Kernels*> found;
  for (const char* name : {"portable", "avx2", "avx512vnni"}) {
    if (const Kernels* kernels = KernelsByName(name)) found.push_back(kernels);
  }
  return found;
}

// A random network and everything its weights point to.
struct RandomModel {
  ModelShape shape;
  std::vector<std::vector<int8_t>> bytes;
  std::vector<std::vector<float>> floats;
  std::mt19937 chance;
  bool spoil = false;

  explicit RandomModel(ModelShape wanted, int seed) : shape(wanted), chance(seed) {}

  const int8_t* Bytes(size_t size) {
    std::uniform_int_distribution<int> value(-127, 127);
    bytes.emplace_back(size);
    for (int8_t& byte : bytes.back()) byte = static_cast<int8_t>(value(chance));
    return bytes.back().data();
  }

  const float* Floats(size_t size, float low, float high) {
    std::uniform_real_distribution<float> value(low, high);
    floats.emplace_back(size);
    for (float& number : floats.back()) number = value(chance);
    return floats.back().data();
  }

  LstmWeights Lstm(int input_size) {
    const size_t units = 4 * shape.num_units;
    const float scale = 4096.0f * 2.0f / 127.0f / std::sqrt(static_cast<float>(input_size + shape.num_units));
    LstmWeights weights;
    weights.values = Bytes(units * (input_size + shape.num_units));
    weights.row_scales = Floats(units, 0.5f * scale, scale);
    weights.biases = Floats(units, -2000.0f, 2000.0f);
    return weights;
  }

  std::unique_ptr<Model> Make(const Kernels& kernels) {
    bytes.clear();
    floats.clear();
    chance.seed(7);
    ModelWeights weights;
    weights.source_embeddings = Bytes(static_cast<size_t>(shape.vocab_size) * shape.embedding_size);
    weights.source_scales = Floats(shape.vocab_size, 0.001f, 0.008f);
    weights.target_embeddings = Bytes(static_cast<size_t>(shape.vocab_size) * shape.embedding_size);
    weights.target_scales = Floats(shape.vocab_size, 0.001f, 0.008f);
    for (int number = 0; number <= shape.num_encoder_layers; ++number) {
      weights.encoder.push_back(
          Lstm(number < 2 ? shape.embedding_size : number == 2 ? 2 * shape.num_units : shape.num_units));
    }
    for (int number = 0; number < shape.num_decoder_layers; ++number) {
      weights.decoder.push_back(Lstm((number == 0 ? shape.embedding_size : shape.num_units) + shape.memory_size()));
    }
    weights.query_kernel = Floats(shape.num_units * shape.attention_units, -0.5f, 0.5f);
    weights.key_kernel = Floats(shape.memory_size() * shape.attention_units, -0.5f, 0.5f);
    weights.key_bias = Floats(shape.attention_units, -0.5f, 0.5f);
    weights.score_kernel = Floats(shape.attention_units, -1.0f, 1.0f);
    weights.projection = Bytes(static_cast<size_t>(shape.vocab_size) * shape.num_units);
    weights.projection_scales = Floats(shape.vocab_size, 0.005f, 0.03f);
    weights.projection_biases = Floats(shape.vocab_size, -1.0f, 1.0f);
    if (spoil) floats.back().back() = std::numeric_limits<float>::quiet_NaN();
    return std::make_unique<Model>(shape, weights, kernels);
  }
};

ModelShape SmallShape(int num_layers, int num_units, int vocab_size) {
  ModelShape shape;
  shape.vocab_size = vocab_size;
  shape.num_encoder_layers = shape.num_decoder_layers = num_layers;
  shape.num_units = num_units;
  shape.attention_units = num_units + 3;
  shape.embedding_size = num_units + 5;
  return shape;
}

std::vector<std::vector<int32_t>> RandomSentences(int count, int vocab_size, int seed) {
  std::mt19937 chance(seed);
  std::uniform_int_distribution<int> length(1, 17), piece(kEndId + 1, vocab_size - 1);
  std::vector<std::vector<int32_t>> sentences(count);
  for (auto& sentence : sentences) {
    for (int k = length(chance); k > 1; --k) sentence.push_back(piece(chance));
    sentence.push_back(kEndId);
  }
  return sentences;
}

// Sums of products on every small shape, at the largest magnitudes and at random ones, against plain loops.
void TestProductsAreExact() {
  std::mt19937 chance(1);
  std::uniform_int_distribution<int> value(-127, 127);
  for (const Kernels* kernels : AllKernels()) {
    for (int size : {1, 2, 3, 4, 5, 7, 8, 31, 64, 65, 100, 257, 4096}) {
      for (int rows = 1; rows <= 14; rows += size > 300 ? 6 : 1) {
        for (int kind = 0; kind < 3; ++kind) {
          const int num_units = 64;
          std::vector<int8_t> weights(num_units * size), packed(RoundUp(size, 4) * kPanel);
          std::vector<int16_t> inputs(rows * size);
          for (auto& w : weights) w = static_cast<int8_t>(kind == 0 ? value(chance) : kind == 1 ? 127 : -127);
          for (int row = 0; row < rows; ++row) {
            // The largest of a row becomes 127, so that with 127 in it a row is quantised to itself.
            for (int k = 0; k < size; ++k) inputs[row * size + k] = static_cast<int16_t>(kind == 0 ? value(chance) : 127);
            inputs[row * size] = 127;
          }
          std::vector<int32_t> unit_of(kPanel), offsets(kPanel);
          for (int unit = 0; unit < kPanel; ++unit) unit_of[unit] = unit;
          Pack(weights.data(), size, size, unit_of.data(), 1, packed.data(), offsets.data());
          std::vector<int8_t> quantized(rows * RoundUp(size, 4));
          std::vector<float> scales(rows), ones(kPanel, 1.0f), zeros(kPanel, 0.0f), sums(rows * kPanel);
          QuantizedRows out = {quantized.data(), scales.data(), static_cast<size_t>(RoundUp(size, 4))};
          kernels->quantize_fixed(inputs.data(), size, size, 1.0f, rows, out);
          LstmLayer layer;
          layer.num_units = 16;
          layer.num_panels = 1;
          layer.num_parts = 1;
          layer.parts[0] = {1, RoundUp(size, 4) / 4, packed.data(), offsets.data()};
          kernels->lstm_input_sums(layer, out, rows, sums.data(), 0, 1);
          for (int row = 0; row < rows; ++row) {
            for (int unit = 0; unit < kPanel; ++unit) {
              int64_t expected = 0;
              for (int k = 0; k < size; ++k) expected += weights[unit * size + k] * inputs[row * size + k];
              const float wanted = static_cast<float>(expected) * scales[row];
              EXPECT(sums[row * kPanel + unit] == wanted, "%s, size %d, rows %d, row %d, unit %d: %g, not %g",
                     kernels->name, size, rows, row, unit, sums[row * kPanel + unit], wanted);
            }
          }
        }
      }
    }
  }
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

bool Same(const std::vector<std::vector<Hypothesis>>& a, const std::vector<std::vector<Hypothesis>>& b) {
  if (a.size() != b.size()) return false;
  for (size_t number = 0; number < a.size(); ++number) {
    if (a[number].size() != b[number].size()) return false;
    for (size_t k = 0; k < a[number].size(); ++k) {
      const Hypothesis &x = a[number][k], &y = b[number][k];
      if (x.ids != y.ids || std::memcmp(&x.score, &y.score, 4) != 0 || std::memcmp(&x.log_prob, &y.log_prob, 4) != 0 ||
          !SameBits(x.piece_log_probs, y.piece_log_probs) || !SameBits(x.attention_probs, y.attention_probs)) {
        return false;
      }
    }
  }
  return true;
}

bool Never() { return false; }

// The same bits on all kernels, in all batches, on any number of threads.
void TestNothingElseChangesAResult(int num_sentences) {
  for (const ModelShape& shape : {SmallShape(1, 9, 23), SmallShape(4, 40, 2100)}) {
    RandomModel weights(shape, 3);
    const auto sentences = RandomSentences(num_sentences, shape.vocab_size, 5);
    SearchOptions options;
    options.beam_width = 5;
    options.n_best = 3;
    options.keep_attention = true;
    options.max_length_factor = 1.0f;
    options.max_length_constant = 4;
    for (float margin : {3.0f, -1.0f}) {
      options.piece_margin = options.hypothesis_margin = margin;
      std::vector<std::vector<Hypothesis>> expected;
      for (const Kernels* kernels : AllKernels()) {
        Translator translator(weights.Make(*kernels));
        for (int batch_size : {1, 3, 32}) {
          for (int num_threads : {1, 2, 3}) {
            options.batch_size = batch_size;
            std::vector<std::vector<Hypothesis>> results;
            const SearchStatus status = translator.Translate(sentences, options, {}, num_threads, Never, &results);
            EXPECT(status == SearchStatus::kDone, "search failed");
            if (expected.empty()) expected = results;
            EXPECT(Same(results, expected), "%s, batches of %d, %d threads", kernels->name, batch_size, num_threads);
          }
        }
      }
      int num_hypotheses = 0;
      for (const auto& found : expected) num_hypotheses += static_cast<int>(found.size());
      EXPECT(num_hypotheses > num_sentences, "%d hypotheses of %d sentences", num_hypotheses, num_sentences);
    }
  }
}

// The log-probabilities that a search gives are those of its hypothesis read as a given target.
void TestAHypothesisScoresWhatTheSearchSaid() {
  RandomModel weights(SmallShape(3, 24, 90), 3);
  Translator translator(weights.Make(BestKernels()));
  const auto sentences = RandomSentences(9, 90, 6);
  SearchOptions options;
  options.keep_attention = true;
  options.max_length_factor = 1.0f;
  std::vector<std::vector<Hypothesis>> found;
  translator.Translate(sentences, options, {}, 2, Never, &found);
  std::vector<std::vector<int32_t>> targets;
  for (const auto& hypotheses : found) targets.push_back(hypotheses.at(0).ids);
  std::vector<Hypothesis> scored;
  translator.Score(sentences, targets, true, 4, 2, Never, &scored);
  for (size_t number = 0; number < sentences.size(); ++number) {
    EXPECT(SameBits(scored[number].piece_log_probs, found[number][0].piece_log_probs), "sentence %zu", number);
    EXPECT(SameBits(scored[number].attention_probs, found[number][0].attention_probs), "sentence %zu", number);
  }
}

void TestACancelledSearchEnds() {
  RandomModel weights(SmallShape(2, 16, 50), 3);
  Translator translator(weights.Make(BestKernels()));
  int asked = 0;
  std::vector<std::vector<Hypothesis>> found;
  const auto status =
      translator.Translate(RandomSentences(4, 50, 1), SearchOptions(), {}, 1, [&] { return ++asked > 2; }, &found);
  EXPECT(status == SearchStatus::kCancelled, "asked %d times", asked);
}

void TestWeightsThatAreNotFiniteAreRefused() {
  RandomModel weights(SmallShape(2, 16, 50), 3);
  weights.spoil = true;
  try {
    weights.Make(BestKernels());
  } catch (const std::invalid_argument& error) {
    EXPECT(std::string(error.what()).find("projection_biases: expected finite weights, got nan at place 49") == 0, "%s",
           error.what());
    return;
  }
  EXPECT(false, "a NaN was accepted");
}

// Several callers share one model.
void TestSeveralCallersAtATime() {
  RandomModel weights(SmallShape(2, 24, 70), 3);
  Translator translator(weights.Make(BestKernels()));
  const auto sentences = RandomSentences(12, 70, 8);
  std::vector<std::vector<Hypothesis>> expected;
  translator.Translate(sentences, SearchOptions(), {}, 1, Never, &expected);
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&, caller] {
      for (int round = 0; round < 3; ++round) {
        std::vector<std::vector<Hypothesis>> found;
        translator.Translate(sentences, SearchOptions(), {}, 1 + caller % 3, Never, &found);
        EXPECT(Same(found, expected), "caller %d", caller);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

}  // namespace
}  // namespace gnmt

int main(int argc, char** argv) {
  const int num_sentences = argc > 1 ? std::atoi(argv[1]) : 40;
  gnmt::TestProductsAreExact();
  gnmt::TestNothingElseChangesAResult(num_sentences);
  gnmt::TestAHypothesisScoresWhatTheSearchSaid();
  gnmt::TestACancelledSearchEnds();
  gnmt::TestWeightsThatAreNotFiniteAreRefused();
  gnmt::TestSeveralCallersAtATime();
  std::printf("engine_test: passed\n");
  return 0;
}
