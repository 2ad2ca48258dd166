"""Warm-up requests beside an exported model, so that a server that cannot run it fails to load it.

Reads a version directory and some texts; gives `assets.extra/tf_serving_warmup_requests`, a TFRecord of PredictionLog
that TF Serving and `gnmt serve` run before the version goes live.
"""

import os
from collections.abc import Sequence

from gnmt_tf.config import UserError

WARMUP_FILE = os.path.join("assets.extra", "tf_serving_warmup_requests")
MAX_WARMUP_REQUESTS = 1000
"""TF Serving refuses to load a model with more."""


def write_warmup_requests(version_dir: str, texts: Sequence[str], model_name: str) -> str:
    """Writes one request for each signature, `texts` being its batch.

    Args:
      version_dir: BASE/<version>, which holds saved_model.pb.
      texts: at least one source sentence; `score_pair` takes them as translations of themselves.
      model_name: the name that the requests carry.

    Returns:
      The path of the file written.

    Raises:
      UserError: no texts, no SavedModel there, or tensorflow-serving-api is not installed.
    """
    if not texts:
        raise UserError("texts", "at least one sentence to warm up with", "none", "Give one or more.")
    if not os.path.isfile(os.path.join(version_dir, "saved_model.pb")):
        raise UserError(
            version_dir, "the directory of an exported version", "no saved_model.pb in it", "Export the model first."
        )
    try:
        from tensorflow_serving.apis import predict_pb2, prediction_log_pb2
    except ImportError as error:
        raise UserError(
            "warm-up requests",
            "the package tensorflow-serving-api",
            f"an import error ({error})",
            "Run `pip install 'gnmt_tf[serve]'`.",
        ) from None
    import tensorflow as tf

    batch = tf.make_tensor_proto(list(texts), dtype=tf.string)
    inputs_of_signature = {
        "serving_default": {"text": batch},
        "n_best": {"text": batch},
        "score_pair": {"text": batch, "translation": batch},
    }
    path = os.path.join(version_dir, WARMUP_FILE)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with tf.io.TFRecordWriter(path) as writer:
        for signature_name, inputs in inputs_of_signature.items():
            request = predict_pb2.PredictRequest(inputs=inputs)
            request.model_spec.name = model_name
            request.model_spec.signature_name = signature_name
            log = prediction_log_pb2.PredictionLog(predict_log=prediction_log_pb2.PredictLog(request=request))
            writer.write(log.SerializeToString())
    return path
