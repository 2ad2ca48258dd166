// Kernels of the quantised engine's ops: they read, check, call the engine and write.

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "serving/engine/translator.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_op_kernel.h"

namespace gnmt {
namespace {

using ::tensorflow::DEVICE_CPU;
using ::tensorflow::OpKernel;
using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;

class Int8Model : public tensorflow::ResourceBase {
 public:
  explicit Int8Model(std::unique_ptr<Model> model) : translator_(std::move(model)) {}
  Translator& translator() { return translator_; }
  std::string DebugString() const override { return "quantised GNMT"; }

 private:
  Translator translator_;
};

template <typename T>
absl::Status Read(OpKernelConstruction* context, const char* name, T* value) {
  return context->GetAttr(name, value);
}

// Sentences of a batch, checked.
absl::Status ReadSentences(const std::string& name, const Tensor& ids, const Tensor& lengths, int vocab_size,
                           std::vector<std::vector<int32_t>>* sentences) {
  if (ids.dims() != 2) {
    return absl::InvalidArgumentError(absl::StrCat(name, "_ids: expected rank 2, got shape ", ids.shape().DebugString()));
  }
  if (lengths.dims() != 1 || lengths.dim_size(0) != ids.dim_size(0)) {
    return absl::InvalidArgumentError(absl::StrCat(name, "_lengths: expected shape [", ids.dim_size(0), "], got ",
                                                   lengths.shape().DebugString()));
  }
  const auto all = ids.matrix<int32_t>();
  const auto ends = lengths.vec<int32_t>();
  sentences->clear();
  for (int64_t row = 0; row < ids.dim_size(0); ++row) {
    if (ends(row) < 1 || ends(row) > ids.dim_size(1)) {
      return absl::InvalidArgumentError(absl::StrCat(name, "_lengths: expected 1 to ", ids.dim_size(1), ", got ",
                                                     ends(row), " in row ", row));
    }
    sentences->emplace_back();
    for (int64_t k = 0; k < ends(row); ++k) {
      if (all(row, k) < 0 || all(row, k) >= vocab_size) {
        return absl::InvalidArgumentError(absl::StrCat(name, "_ids: expected 0 to ", vocab_size - 1, ", got ", all(row, k),
                                                       " in row ", row, ", column ", k));
      }
      sentences->back().push_back(all(row, k));
    }
  }
  return absl::OkStatus();
}

absl::Status ToStatus(SearchStatus status) {
  switch (status) {
    case SearchStatus::kDone: return absl::OkStatus();
    case SearchStatus::kCancelled: return absl::CancelledError("the call was cancelled during the search");
    case SearchStatus::kNotFinite: return absl::InternalError("the model gives values that are not finite");
  }
  return absl::InternalError("unknown status");
}

int NumThreads(OpKernelContext* context) {
  return std::max(1, context->device()->tensorflow_cpu_worker_threads()->num_threads);
}

std::function<bool()> Cancellation(OpKernelContext* context) {
  tensorflow::CancellationManager* manager = context->cancellation_manager();
  return [manager] { return manager != nullptr && manager->IsCancelled(); };
}

class LoadInt8Model : public OpKernel {
 public:
  explicit LoadInt8Model(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, Read(context, "vocab_size", &shape_.vocab_size));
    OP_REQUIRES_OK(context, Read(context, "num_encoder_layers", &shape_.num_encoder_layers));
    OP_REQUIRES_OK(context, Read(context, "num_decoder_layers", &shape_.num_decoder_layers));
    OP_REQUIRES_OK(context, Read(context, "num_units", &shape_.num_units));
    OP_REQUIRES_OK(context, Read(context, "attention_units", &shape_.attention_units));
    OP_REQUIRES_OK(context, Read(context, "embedding_size", &shape_.embedding_size));
    OP_REQUIRES_OK(context, Read(context, "first_residual_layer", &shape_.first_residual_layer));
    OP_REQUIRES_OK(context, Read(context, "tanh_output", &shape_.tanh_output));
    float clip_bound;
    OP_REQUIRES_OK(context, Read(context, "clip_bound", &clip_bound));
    shape_.clip_bound = clip_bound;
    OP_REQUIRES_OK(context, Read(context, "logit_bound", &shape_.logit_bound));
    OP_REQUIRES(context, clip_bound >= 1.0f && clip_bound <= 1e6f,
                absl::InvalidArgumentError(absl::StrCat("clip_bound: expected 1 to 1e6, got ", clip_bound)));
    OP_REQUIRES(context, shape_.logit_bound > 0.0f && shape_.logit_bound <= 40.0f,
                absl::InvalidArgumentError(absl::StrCat("logit_bound: expected above 0, at most 40, got ", shape_.logit_bound)));
    constexpr int kMost = 1 << 20;
    for (int size : {shape_.vocab_size, shape_.num_encoder_layers, shape_.num_decoder_layers, shape_.num_units,
                     shape_.attention_units, shape_.embedding_size, shape_.first_residual_layer}) {
      OP_REQUIRES(context, size <= kMost, absl::InvalidArgumentError(absl::StrCat("a size: expected at most ", kMost, ", got ", size)));
    }
  }

  void Compute(OpKernelContext* context) override {
    tensorflow::OpInputList weights;
    OP_REQUIRES_OK(context, context->input_list("weights", &weights));
    ModelWeights found;
    OP_REQUIRES_OK(context, ReadWeights(weights, &found));
    Int8Model* model = nullptr;
    try {
      model = new Int8Model(std::make_unique<Model>(shape_, found, BestKernels()));
    } catch (const std::bad_alloc&) {
      context->SetStatus(absl::ResourceExhaustedError("not enough memory for the packed weights"));
      return;
    } catch (const std::exception& error) {
      context->SetStatus(absl::InvalidArgumentError(error.what()));
      return;
    }
    const tensorflow::ResourceHandle& handle = tensorflow::HandleFromInput(context, 0);
    // A model that is loaded again takes the place of the one before; calls that run keep theirs.
    tensorflow::DeleteResource<Int8Model>(context, handle).IgnoreError();
    OP_REQUIRES_OK(context, tensorflow::CreateResource(context, handle, model));
  }

 private:
  absl::Status ReadWeights(const tensorflow::OpInputList& weights, ModelWeights* found) const {
    int next = 0;
    absl::Status status;
    auto take = [&](const std::string& name, tensorflow::DataType type, std::vector<int64_t> dims) -> const Tensor* {
      if (!status.ok()) return nullptr;
      if (next >= weights.size()) {
        status = absl::InvalidArgumentError(absl::StrCat("weights: expected ", name, " at place ", next, ", got only ",
                                                         weights.size(), " tensors"));
        return nullptr;
      }
      const Tensor& tensor = weights[next++];
      const TensorShape shape(dims);
      if (tensor.dtype() != type || tensor.shape() != shape) {
        status = absl::InvalidArgumentError(absl::StrCat(
            name, ": expected ", tensorflow::DataTypeString(type), " ", shape.DebugString(), ", got ",
            tensorflow::DataTypeString(tensor.dtype()), " ", tensor.shape().DebugString()));
        return nullptr;
      }
      return &tensor;
    };
    auto bytes = [&](const std::string& name, int64_t rows, int64_t columns) -> const int8_t* {
      const Tensor* tensor = take(name, tensorflow::DT_INT8, {rows, columns});
      return tensor ? tensor->flat<int8_t>().data() : nullptr;
    };
    auto floats = [&](const std::string& name, std::vector<int64_t> dims) -> const float* {
      const Tensor* tensor = take(name, tensorflow::DT_FLOAT, std::move(dims));
      return tensor ? tensor->flat<float>().data() : nullptr;
    };
    const int64_t vocab = shape_.vocab_size, units = shape_.num_units, embedding = shape_.embedding_size;
    const int64_t attention = shape_.attention_units, memory = shape_.memory_size();
    auto lstm = [&](const std::string& name, int64_t input_size) {
      LstmWeights layer;
      layer.values = bytes(name + " values", 4 * units, input_size + units);
      layer.row_scales = floats(name + " row_scales", {4 * units});
      layer.biases = floats(name + " biases", {4 * units});
      return layer;
    };
    found->source_embeddings = bytes("source_embeddings", vocab, embedding);
    found->source_scales = floats("source_scales", {vocab});
    found->target_embeddings = bytes("target_embeddings", vocab, embedding);
    found->target_scales = floats("target_scales", {vocab});
    for (int number = 0; number <= shape_.num_encoder_layers; ++number) {
      const int64_t size = number < 2 ? embedding : number == 2 ? 2 * units : units;
      found->encoder.push_back(lstm(absl::StrCat("encoder layer ", number), size));
    }
    for (int number = 0; number < shape_.num_decoder_layers; ++number) {
      found->decoder.push_back(lstm(absl::StrCat("decoder layer ", number), (number == 0 ? embedding : units) + memory));
    }
    found->query_kernel = floats("query_kernel", {units, attention});
    found->key_kernel = floats("key_kernel", {memory, attention});
    found->key_bias = floats("key_bias", {attention});
    found->score_kernel = floats("score_kernel", {attention});
    found->projection = bytes("projection", vocab, units);
    found->projection_scales = floats("projection_scales", {vocab});
    found->projection_biases = floats("projection_biases", {vocab});
    if (status.ok() && next != weights.size()) {
      status = absl::InvalidArgumentError(absl::StrCat("weights: expected ", next, " tensors, got ", weights.size()));
    }
    return status;
  }

  ModelShape shape_;
};

class TranslateInt8 : public OpKernel {
 public:
  explicit TranslateInt8(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, Read(context, "beam_width", &options_.beam_width));
    OP_REQUIRES_OK(context, Read(context, "n_best", &options_.n_best));
    OP_REQUIRES_OK(context, Read(context, "length_penalty_weight", &options_.length_penalty_weight));
    OP_REQUIRES_OK(context, Read(context, "coverage_penalty_weight", &options_.coverage_penalty_weight));
    OP_REQUIRES_OK(context, Read(context, "piece_margin", &options_.piece_margin));
    OP_REQUIRES_OK(context, Read(context, "hypothesis_margin", &options_.hypothesis_margin));
    OP_REQUIRES_OK(context, Read(context, "early_stopping", &options_.early_stopping));
    OP_REQUIRES_OK(context, Read(context, "max_length_factor", &options_.max_length_factor));
    OP_REQUIRES_OK(context, Read(context, "max_length_constant", &options_.max_length_constant));
    OP_REQUIRES_OK(context, Read(context, "min_length", &options_.min_length));
    OP_REQUIRES_OK(context, Read(context, "banned_ids", &options_.banned_ids));
    OP_REQUIRES_OK(context, Read(context, "batch_size", &options_.batch_size));
    OP_REQUIRES_OK(context, Read(context, "keep_attention", &options_.keep_attention));
    constexpr int kMostWidth = 1024;
    OP_REQUIRES(context, options_.beam_width <= kMostWidth,
                absl::InvalidArgumentError(absl::StrCat("beam_width: expected at most ", kMostWidth, ", got ", options_.beam_width)));
    OP_REQUIRES(context, options_.n_best <= options_.beam_width,
                absl::InvalidArgumentError(absl::StrCat("n_best: expected at most beam_width (", options_.beam_width,
                                                        "), got ", options_.n_best)));
    OP_REQUIRES(context, options_.max_length_factor > 0.0f && options_.max_length_factor <= 100.0f,
                absl::InvalidArgumentError(absl::StrCat("max_length_factor: expected above 0, at most 100, got ",
                                                        options_.max_length_factor)));
    OP_REQUIRES(context, options_.max_length_constant <= 1000000,
                absl::InvalidArgumentError(absl::StrCat("max_length_constant: expected at most 1000000, got ",
                                                        options_.max_length_constant)));
    for (const auto& [name, value] :
         {std::pair{"length_penalty_weight", options_.length_penalty_weight},
          std::pair{"coverage_penalty_weight", options_.coverage_penalty_weight}}) {
      OP_REQUIRES(context, value >= 0.0f && value <= 1000.0f,
                  absl::InvalidArgumentError(absl::StrCat(name, ": expected 0 to 1000, got ", value)));
    }
    for (const auto& [name, value] : {std::pair{"piece_margin", options_.piece_margin},
                                      std::pair{"hypothesis_margin", options_.hypothesis_margin}}) {
      OP_REQUIRES(context, std::isfinite(value), absl::InvalidArgumentError(absl::StrCat(name, ": expected a number, got ", value)));
    }
  }

  void Compute(OpKernelContext* context) override {
    tensorflow::core::RefCountPtr<Int8Model> model;
    OP_REQUIRES_OK(context, tensorflow::LookupResource(context, tensorflow::HandleFromInput(context, 0), &model));
    const int vocab_size = model->translator().model().shape().vocab_size;
    for (int32_t id : options_.banned_ids) {
      OP_REQUIRES(context, id >= 0 && id < vocab_size,
                  absl::InvalidArgumentError(absl::StrCat("banned_ids: expected 0 to ", vocab_size - 1, ", got ", id)));
    }
    std::vector<std::vector<int32_t>> sentences;
    OP_REQUIRES_OK(context, ReadSentences("source", context->input(1), context->input(2), vocab_size, &sentences));
    std::vector<std::vector<Hypothesis>> results;
    OP_REQUIRES_OK(context, ToStatus(model->translator().Translate(sentences, options_, {}, NumThreads(context),
                                                                   Cancellation(context), &results)));
    Write(context, results, context->input(1).dim_size(1));
  }

 private:
  void Write(OpKernelContext* context, const std::vector<std::vector<Hypothesis>>& results, int64_t source_length) {
    const int64_t batch = results.size(), n_best = options_.n_best;
    int64_t longest = 1;
    for (const auto& hypotheses : results) {
      for (const Hypothesis& found : hypotheses) longest = std::max<int64_t>(longest, found.ids.size());
    }
    const int64_t kept = options_.keep_attention ? source_length : 0;
    Tensor *ids, *lengths, *scores, *log_probs, *piece_log_probs, *attention, *truncated;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({batch, n_best, longest}), &ids));
    OP_REQUIRES_OK(context, context->allocate_output(1, TensorShape({batch, n_best}), &lengths));
    OP_REQUIRES_OK(context, context->allocate_output(2, TensorShape({batch, n_best}), &scores));
    OP_REQUIRES_OK(context, context->allocate_output(3, TensorShape({batch, n_best}), &log_probs));
    OP_REQUIRES_OK(context, context->allocate_output(4, TensorShape({batch, n_best, longest}), &piece_log_probs));
    OP_REQUIRES_OK(context, context->allocate_output(5, TensorShape({batch, n_best, longest, kept}), &attention));
    OP_REQUIRES_OK(context, context->allocate_output(6, TensorShape({batch, n_best}), &truncated));
    ids->flat<int32_t>().setConstant(kPadId);
    lengths->flat<int32_t>().setZero();
    scores->flat<float>().setConstant(-std::numeric_limits<float>::infinity());
    log_probs->flat<float>().setConstant(-std::numeric_limits<float>::infinity());
    piece_log_probs->flat<float>().setZero();
    attention->flat<float>().setZero();
    truncated->flat<bool>().setConstant(false);
    auto all_probs = attention->tensor<float, 4>();
    for (int64_t row = 0; row < batch; ++row) {
      for (size_t n = 0; n < results[row].size(); ++n) {
        const Hypothesis& found = results[row][n];
        lengths->matrix<int32_t>()(row, n) = static_cast<int32_t>(found.ids.size());
        scores->matrix<float>()(row, n) = found.score;
        log_probs->matrix<float>()(row, n) = found.log_prob;
        truncated->matrix<bool>()(row, n) = found.truncated;
        const size_t width = kept ? found.attention_probs.size() / found.ids.size() : 0;
        for (size_t k = 0; k < found.ids.size(); ++k) {
          ids->tensor<int32_t, 3>()(row, n, k) = found.ids[k];
          piece_log_probs->tensor<float, 3>()(row, n, k) = found.piece_log_probs[k];
          for (size_t s = 0; s < width; ++s) all_probs(row, n, k, s) = found.attention_probs[k * width + s];
        }
      }
    }
  }

  SearchOptions options_;
};

class ScoreInt8 : public OpKernel {
 public:
  explicit ScoreInt8(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, Read(context, "batch_size", &batch_size_));
  }

  void Compute(OpKernelContext* context) override {
    tensorflow::core::RefCountPtr<Int8Model> model;
    OP_REQUIRES_OK(context, tensorflow::LookupResource(context, tensorflow::HandleFromInput(context, 0), &model));
    const int vocab_size = model->translator().model().shape().vocab_size;
    std::vector<std::vector<int32_t>> sentences, targets;
    OP_REQUIRES_OK(context, ReadSentences("source", context->input(1), context->input(2), vocab_size, &sentences));
    OP_REQUIRES_OK(context, ReadSentences("target", context->input(3), context->input(4), vocab_size, &targets));
    OP_REQUIRES(context, sentences.size() == targets.size(),
                absl::InvalidArgumentError(absl::StrCat("target_ids: expected ", sentences.size(), " rows, got ", targets.size())));
    std::vector<Hypothesis> results;
    OP_REQUIRES_OK(context, ToStatus(model->translator().Score(sentences, targets, false, batch_size_, NumThreads(context),
                                                               Cancellation(context), &results)));
    Tensor* output;
    OP_REQUIRES_OK(context, context->allocate_output(0, context->input(3).shape(), &output));
    output->flat<float>().setZero();
    auto log_probs = output->matrix<float>();
    for (size_t row = 0; row < results.size(); ++row) {
      for (size_t k = 0; k < results[row].piece_log_probs.size(); ++k) log_probs(row, k) = results[row].piece_log_probs[k];
    }
  }

 private:
  int batch_size_ = 32;
};

REGISTER_KERNEL_BUILDER(Name("Gnmt>Int8Model").Device(DEVICE_CPU), tensorflow::ResourceHandleOp<Int8Model>);
REGISTER_KERNEL_BUILDER(Name("Gnmt>LoadInt8Model").Device(DEVICE_CPU), LoadInt8Model);
REGISTER_KERNEL_BUILDER(Name("Gnmt>TranslateInt8").Device(DEVICE_CPU), TranslateInt8);
REGISTER_KERNEL_BUILDER(Name("Gnmt>ScoreInt8").Device(DEVICE_CPU), ScoreInt8);

}  // namespace
}  // namespace gnmt
