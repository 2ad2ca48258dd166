"""One loaded version of the model, warmed up and ready to answer.

Reads BASE/<version> (a SavedModel with its warm-up requests); gives PredictResponse for PredictRequest.
"""

import os

import tensorflow as tf
import tensorflow_text  # noqa: F401  (registers the ops that the in-graph segmentation of an exported model uses)
from google.protobuf import message
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

from gnmt_tf.export.warmup import MAX_WARMUP_REQUESTS, WARMUP_FILE
from gnmt_tf.serving.server.predict import inputs_of, output_names_of, signature_name_of
from gnmt_tf.serving.server.status import StatusCode, StatusError
from gnmt_tf.serving.server.tensors import proto_from_array
from gnmt_tf.serving.server.versions import SAVED_MODEL_FILE


class ServedModel:
    """A SavedModel in memory; safe to call from several threads.

    Args:
      path: the version's directory.
      version: its number, which every response carries.

    Raises:
      StatusError: the SavedModel cannot be read, or one of its warm-up requests fails.
    """

    def __init__(self, path: str, version: int):
        self.version = version
        self.signature_defs = _read_signature_defs(path)
        try:
            self._saved_model = tf.saved_model.load(path)
        except Exception as error:
            # Whatever a broken directory makes TensorFlow raise, the version cannot be served.
            raise StatusError(StatusCode.INTERNAL, f"cannot load {path}: {_one_line(error)}") from error
        self._functions = dict(self._saved_model.signatures)
        self._warm_up(os.path.join(path, WARMUP_FILE))

    def predict(self, request: predict_pb2.PredictRequest) -> predict_pb2.PredictResponse:
        """Runs one signature on the request's inputs.

        Raises:
          StatusError: INVALID_ARGUMENT for a request that does not fit the signature, or what the model itself raised.
        """
        signature_name = signature_name_of(request.model_spec, self.signature_defs)
        signature_def = self.signature_defs[signature_name]
        inputs = inputs_of(request, signature_def)
        output_names = output_names_of(request, signature_def)
        try:
            tensors = {
                name: tf.constant(array, tf.as_dtype(signature_def.inputs[name].dtype))
                for name, array in inputs.items()
            }
            outputs = self._functions[signature_name](**tensors)
        except tf.errors.OpError as error:
            raise StatusError(StatusCode(error.error_code), str(error.message)) from error
        response = predict_pb2.PredictResponse()
        response.model_spec.name = request.model_spec.name
        response.model_spec.version.value = self.version
        response.model_spec.signature_name = signature_name
        for name in output_names:
            response.outputs[name].CopyFrom(proto_from_array(outputs[name].numpy()))
        return response

    def _warm_up(self, path: str) -> None:
        if not os.path.exists(path):
            return
        try:
            records = list(tf.data.TFRecordDataset(path).as_numpy_iterator())
            logs = [prediction_log_pb2.PredictionLog.FromString(record) for record in records]
        except (tf.errors.OpError, message.DecodeError) as error:
            raise StatusError(
                StatusCode.DATA_LOSS, f"cannot read warm-up requests {path}: {_one_line(error)}"
            ) from error
        if len(logs) > MAX_WARMUP_REQUESTS:
            raise StatusError(
                StatusCode.INVALID_ARGUMENT,
                f"{path}: number of warm-up requests ({len(logs)}) exceeds {MAX_WARMUP_REQUESTS}",
            )
        for number, log in enumerate(logs, start=1):
            kind = log.WhichOneof("log_type")
            if kind != "predict_log":
                raise StatusError(StatusCode.UNIMPLEMENTED, f"{path}: record {number}: unsupported log type {kind}")
            try:
                self.predict(log.predict_log.request)
            except StatusError as error:
                raise StatusError(error.code, f"warm-up request {number} failed: {error.message}") from error


def _read_signature_defs(path: str) -> dict[str, meta_graph_pb2.SignatureDef]:
    file = os.path.join(path, SAVED_MODEL_FILE)
    try:
        with open(file, "rb") as stream:
            saved_model = saved_model_pb2.SavedModel.FromString(stream.read())
    except (OSError, message.DecodeError) as error:
        raise StatusError(StatusCode.DATA_LOSS, f"cannot read {file}: {_one_line(error)}") from error
    for meta_graph in saved_model.meta_graphs:
        if tf.saved_model.SERVING in meta_graph.meta_info_def.tags:
            return dict(meta_graph.signature_def)
    raise StatusError(StatusCode.NOT_FOUND, f"{file} has no graph tagged {tf.saved_model.SERVING!r}")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
