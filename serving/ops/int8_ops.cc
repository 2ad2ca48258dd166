// Registration of the quantised engine's ops, with shape functions that refuse what the kernels could not use.

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace gnmt {
namespace {

using ::tensorflow::shape_inference::DimensionHandle;
using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

// ids [batch, length] and lengths [batch] from input `first` on; gives the dimensions.
absl::Status IdsAndLengths(InferenceContext* context, int first, DimensionHandle* batch, DimensionHandle* length) {
  ShapeHandle ids, lengths;
  TF_RETURN_IF_ERROR(context->WithRank(context->input(first), 2, &ids));
  TF_RETURN_IF_ERROR(context->WithRank(context->input(first + 1), 1, &lengths));
  TF_RETURN_IF_ERROR(context->Merge(context->Dim(ids, 0), context->Dim(lengths, 0), batch));
  *length = context->Dim(ids, 1);
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("Gnmt>Int8Model")
    .Attr("container: string = ''")
    .Attr("shared_name: string = ''")
    .Output("model: resource")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc("Handle of a quantised model, which `Gnmt>LoadInt8Model` fills.");

REGISTER_OP("Gnmt>LoadInt8Model")
    .Attr("T: list({int8, float}) >= 1")
    .Attr("vocab_size: int >= 4")
    .Attr("num_encoder_layers: int >= 1")
    .Attr("num_decoder_layers: int >= 1")
    .Attr("num_units: int >= 1")
    .Attr("attention_units: int >= 1")
    .Attr("embedding_size: int >= 1")
    .Attr("first_residual_layer: int >= 3 = 3")
    .Attr("tanh_output: bool = false")
    .Attr("clip_bound: float = 1.0")
    .Attr("logit_bound: float = 25.0")
    .Input("model: resource")
    .Input("weights: T")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* context) {
      ShapeHandle scalar;
      return context->WithRank(context->input(0), 0, &scalar);
    })
    .Doc("Packs quantised weights into the model, once for all sessions and calls.");

REGISTER_OP("Gnmt>TranslateInt8")
    .Attr("beam_width: int >= 1 = 8")
    .Attr("n_best: int >= 1 = 1")
    .Attr("length_penalty_weight: float = 0.2")
    .Attr("coverage_penalty_weight: float = 0.2")
    .Attr("piece_margin: float = 3.0")
    .Attr("hypothesis_margin: float = 3.0")
    .Attr("early_stopping: bool = true")
    .Attr("max_length_factor: float = 2.0")
    .Attr("max_length_constant: int >= 0 = 10")
    .Attr("min_length: int >= 0 = 0")
    .Attr("banned_ids: list(int) = []")
    .Attr("batch_size: int >= 1 = 32")
    .Attr("keep_attention: bool = false")
    .Input("model: resource")
    .Input("source_ids: int32")
    .Input("source_lengths: int32")
    .Output("ids: int32")
    .Output("lengths: int32")
    .Output("scores: float")
    .Output("log_probs: float")
    .Output("piece_log_probs: float")
    .Output("attention_probs: float")
    .Output("truncated: bool")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* context) {
      DimensionHandle batch, length;
      TF_RETURN_IF_ERROR(IdsAndLengths(context, 1, &batch, &length));
      int64_t n_best;
      bool keep_attention;
      TF_RETURN_IF_ERROR(context->GetAttr("n_best", &n_best));
      TF_RETURN_IF_ERROR(context->GetAttr("keep_attention", &keep_attention));
      const DimensionHandle target_length = context->UnknownDim();
      context->set_output(0, context->MakeShape({batch, n_best, target_length}));
      for (int output : {1, 2, 3, 6}) context->set_output(output, context->MakeShape({batch, n_best}));
      context->set_output(4, context->MakeShape({batch, n_best, target_length}));
      const DimensionHandle kept = keep_attention ? length : context->MakeDim(0);
      context->set_output(5, context->MakeShape({batch, n_best, target_length, kept}));
      return absl::OkStatus();
    })
    .Doc("Beam search (eq. 14, both prunings) with a quantised model; margins below zero turn a pruning off.");

REGISTER_OP("Gnmt>ScoreInt8")
    .Attr("batch_size: int >= 1 = 32")
    .Input("model: resource")
    .Input("source_ids: int32")
    .Input("source_lengths: int32")
    .Input("target_ids: int32")
    .Input("target_lengths: int32")
    .Output("piece_log_probs: float")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* context) {
      DimensionHandle sources, targets, batch, length;
      TF_RETURN_IF_ERROR(IdsAndLengths(context, 1, &sources, &length));
      TF_RETURN_IF_ERROR(IdsAndLengths(context, 3, &targets, &length));
      TF_RETURN_IF_ERROR(context->Merge(sources, targets, &batch));
      context->set_output(0, context->MakeShape({batch, length}));
      return absl::OkStatus();
    })
    .Doc("log P of each given target piece; zeros behind the ends.");

}  // namespace gnmt
