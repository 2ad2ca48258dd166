"""A Predict request against a signature: what may be asked, and how a bad request is refused.

Reads PredictRequest and SignatureDef; gives the input arrays and the names of the wanted outputs.
"""

from collections.abc import Iterable, Mapping

import numpy as np
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import model_pb2, predict_pb2

from gnmt_tf.serving.server.status import StatusCode, StatusError
from gnmt_tf.serving.server.tensors import array_from_proto

DEFAULT_SIGNATURE_NAME = "serving_default"
INIT_SIGNATURE_NAME = "__saved_model_init_op"
"""Written into every SavedModel by TensorFlow for its own loader; not something a client can call."""


def signature_name_of(
    model_spec: model_pb2.ModelSpec, signature_defs: Mapping[str, meta_graph_pb2.SignatureDef]
) -> str:
    """The signature that a request asks for.

    Raises:
      StatusError: INVALID_ARGUMENT listing the known signatures.
    """
    name = model_spec.signature_name or DEFAULT_SIGNATURE_NAME
    known = set(signature_defs) - {INIT_SIGNATURE_NAME}
    if name not in known:
        raise StatusError(
            StatusCode.INVALID_ARGUMENT,
            f'Serving signature key "{name}" not found. Known signatures: {_set(known)}.',
        )
    return name


def inputs_of(request: predict_pb2.PredictRequest, signature_def: meta_graph_pb2.SignatureDef) -> dict[str, np.ndarray]:
    """The request's inputs by name, each checked for dtype and shape.

    Raises:
      StatusError: INVALID_ARGUMENT for a missing, extra or malformed input, naming what was expected and what given.
    """
    given, expected = set(request.inputs), set(signature_def.inputs)
    if given != expected:
        raise StatusError(
            StatusCode.INVALID_ARGUMENT,
            f"input size does not match signature: {len(given)}!={len(expected)} "
            f"len({_set(given)}) != len({_set(expected)}). "
            f"Sent extra: {_set(given - expected)}. Missing but required: {_set(expected - given)}.",
        )
    return {name: array_from_proto(name, request.inputs[name], signature_def.inputs[name]) for name in sorted(expected)}


def output_names_of(request: predict_pb2.PredictRequest, signature_def: meta_graph_pb2.SignatureDef) -> list[str]:
    """The outputs that the request wants: those of its filter, or all.

    Raises:
      StatusError: INVALID_ARGUMENT for a name that is unknown or given twice.
    """
    wanted = list(request.output_filter)
    for position, name in enumerate(wanted):
        if name not in signature_def.outputs:
            raise StatusError(
                StatusCode.INVALID_ARGUMENT,
                f"output tensor alias not found in signature: {name} "
                f"Outputs expected to be in the set {_set(signature_def.outputs)}.",
            )
        if name in wanted[:position]:
            raise StatusError(StatusCode.INVALID_ARGUMENT, f"duplicate output tensor alias: {name}")
    return wanted or sorted(signature_def.outputs)


def _set(names: Iterable[str]) -> str:
    return "{" + ",".join(sorted(names)) + "}"
