"""The RPC layer: a deadline in, the core called, a status out. It has no opinions of its own.

Reads gRPC calls of `tensorflow.serving.PredictionService` and `ModelService`; gives the core's answers.
"""

import logging
from collections.abc import Callable
from concurrent import futures
from typing import NoReturn, TypeVar

import grpc
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_management_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)

from gnmt_tf.serving.server.model_server import ModelServer
from gnmt_tf.serving.server.status import StatusError

_LOG = logging.getLogger(__name__)
_Response = TypeVar("_Response")


class PredictionServicer(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Predict and GetModelMetadata.

    Args:
      model_server: the core.
      predict_pool: the threads that predictions run on. They are not the ones that answer health checks and status,
        so that a server with nothing but work to do still says that it is alive.
    """

    def __init__(self, model_server: ModelServer, predict_pool: futures.ThreadPoolExecutor):
        self._model_server = model_server

        def predict(request: predict_pb2.PredictRequest, context: grpc.ServicerContext) -> predict_pb2.PredictResponse:
            return _answer(context, lambda: model_server.predict(request))

        # gRPC runs a method that carries this attribute on the pool named by it.
        predict.experimental_thread_pool = predict_pool  # type: ignore[attr-defined]
        self.Predict = predict

    def GetModelMetadata(  # noqa: N802
        self, request: get_model_metadata_pb2.GetModelMetadataRequest, context: grpc.ServicerContext
    ) -> get_model_metadata_pb2.GetModelMetadataResponse:
        """Describes the signatures."""
        return _answer(context, lambda: self._model_server.get_model_metadata(request))

    def Classify(self, request: classification_pb2.ClassificationRequest, context: grpc.ServicerContext) -> NoReturn:  # noqa: N802
        """Not offered: the signatures are not classifiers."""
        _unimplemented(context, "Classify")

    def Regress(self, request: regression_pb2.RegressionRequest, context: grpc.ServicerContext) -> NoReturn:  # noqa: N802
        """Not offered: the signatures are not regressors."""
        _unimplemented(context, "Regress")

    def MultiInference(self, request: inference_pb2.MultiInferenceRequest, context: grpc.ServicerContext) -> NoReturn:  # noqa: N802
        """Not offered: it combines Classify and Regress."""
        _unimplemented(context, "MultiInference")


class ModelServicer(model_service_pb2_grpc.ModelServiceServicer):
    """GetModelStatus.

    Args:
      model_server: the core.
    """

    def __init__(self, model_server: ModelServer):
        self._model_server = model_server

    def GetModelStatus(  # noqa: N802
        self, request: get_model_status_pb2.GetModelStatusRequest, context: grpc.ServicerContext
    ) -> get_model_status_pb2.GetModelStatusResponse:
        """Lists the versions and their states."""
        return _answer(context, lambda: self._model_server.get_model_status(request))

    def HandleReloadConfigRequest(  # noqa: N802
        self, request: model_management_pb2.ReloadConfigRequest, context: grpc.ServicerContext
    ) -> NoReturn:
        """Not offered: the model is given on the command line."""
        _unimplemented(context, "HandleReloadConfigRequest")


def _answer(context: grpc.ServicerContext, call: Callable[[], _Response]) -> _Response:
    remaining_seconds = context.time_remaining()
    if remaining_seconds is not None and remaining_seconds <= 0:
        context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "the deadline passed before work on the request began")
    if not context.is_active():
        context.abort(grpc.StatusCode.CANCELLED, "the caller gave up before work on the request began")
    try:
        return call()
    except StatusError as error:
        code, message = grpc.StatusCode[error.code.name], error.message
    except Exception as error:
        _LOG.exception("a request failed")
        code, message = grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}"
    context.abort(code, message)
    raise AssertionError("abort does not return")


def _unimplemented(context: grpc.ServicerContext, method: str) -> NoReturn:
    context.abort(grpc.StatusCode.UNIMPLEMENTED, f"{method} is not offered by this server")
    raise AssertionError("abort does not return")
