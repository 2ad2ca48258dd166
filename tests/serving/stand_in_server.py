"""A stand-in for an exported model, and a server of it: the contract's signatures around upper-casing."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import grpc
import pytest
import tensorflow as tf
from tensorflow_serving.apis import model_service_pb2_grpc, predict_pb2, prediction_service_pb2_grpc

from gnmt_tf.serving.server.grpc_server import GrpcServer
from gnmt_tf.serving.server.model_server import ModelServer

SLOW_SECONDS = 0.6


class StandIn(tf.Module):
    """Upper-cases; a line that begins with "slow" takes SLOW_SECONDS, one that begins with "fail" fails."""

    def __init__(self):
        super().__init__()
        self.bias = tf.Variable(0.5)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def serving_default(self, text):
        translation, score = self._translate(text)
        return {"translation": translation, "score": score, "truncated": tf.strings.length(text) > 200}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def n_best(self, text):
        translation, score = self._translate(text)
        return {"translation": translation[:, None], "score": score[:, None]}

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.string, "text"), tf.TensorSpec([None], tf.string, "translation")]
    )
    def score_pair(self, text, translation):
        difference = tf.strings.length(text) - tf.strings.length(translation)
        return {"log_prob": tf.cast(difference, tf.float32), "num_pieces": tf.strings.length(translation)}

    def _translate(self, text):
        checks = tf.debugging.Assert(~tf.reduce_any(tf.strings.regex_full_match(text, "fail.*")), ["told to fail"])
        with tf.control_dependencies([checks]):
            start = tf.timestamp()
            seconds = tf.where(tf.reduce_any(tf.strings.regex_full_match(text, "slow.*")), SLOW_SECONDS, 0.0)
        end = start + tf.cast(seconds, tf.float64)
        waited = tf.while_loop(lambda now: now < end, lambda now: [tf.timestamp()], [start])[0]
        with tf.control_dependencies([waited]):
            blank = tf.strings.length(tf.strings.strip(text)) == 0
            translation = tf.where(blank, "", tf.strings.upper(text, encoding="utf-8"))
        return translation, tf.where(blank, 0.0, self.bias - tf.cast(tf.strings.length(text), tf.float32))


class RunningServer(NamedTuple):
    base_path: Path
    model_server: ModelServer
    grpc_server: GrpcServer
    channel: grpc.Channel
    prediction: prediction_service_pb2_grpc.PredictionServiceStub
    status: model_service_pb2_grpc.ModelServiceStub

    @property
    def address(self) -> str:
        return self.grpc_server.address


@contextlib.contextmanager
def running_server(base_path: Path, num_threads: int = 4, welcome: bool = True) -> Iterator[RunningServer]:
    model_server = ModelServer(str(base_path), "gnmt")
    server = GrpcServer(model_server, "127.0.0.1", 0, num_threads)
    server.start()
    try:
        if welcome:
            model_server.refresh()
            server.welcome()
        with grpc.insecure_channel(server.address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            prediction = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            status = model_service_pb2_grpc.ModelServiceStub(channel)
            yield RunningServer(base_path, model_server, server, channel, prediction, status)
    finally:
        server.stop(grace_seconds=0)


def predict_request(texts=("one", "two"), name="gnmt", signature="", **inputs) -> predict_pb2.PredictRequest:
    request = predict_pb2.PredictRequest()
    request.model_spec.name = name
    request.model_spec.signature_name = signature
    for key, values in (inputs or {"text": list(texts)}).items():
        request.inputs[key].CopyFrom(tf.make_tensor_proto(values))
    return request


def failure_of(call, *arguments, **options) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call(*arguments, **options)
    return caught.value.code(), caught.value.details()
