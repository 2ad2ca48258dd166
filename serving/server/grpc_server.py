"""A gRPC server around the core: address, threads, health and an orderly end.

Reads the host and port to bind; gives a running server whose health says whether requests are welcome.
"""

import threading
from concurrent import futures

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from tensorflow_serving.apis import model_service_pb2_grpc, prediction_service_pb2_grpc

from gnmt_tf.serving.server.address import address_error, check_address
from gnmt_tf.serving.server.model_server import ModelServer
from gnmt_tf.serving.server.rpc import ModelServicer, PredictionServicer

SERVICE_NAMES = ("", "tensorflow.serving.PredictionService", "tensorflow.serving.ModelService")
"""What a health check may ask about; "" is the server as a whole."""

_STATUS_THREADS = 4
_JOIN_SECONDS = 0.5
_OPTIONS = (
    # Linux would let two servers share a port and split the clients between them without a word.
    ("grpc.so_reuseport", 0),
    # TF Serving sets no bound either: how much is sent at once is between client and model.
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
)


class GrpcServer:
    """The API on one address. It reports NOT_SERVING until `welcome` is called.

    Args:
      model_server: the core.
      host: name or address to bind.
      port: port to bind; 0 takes any free one.
      num_threads: predictions worked on at the same time; further ones wait.

    Raises:
      UserError: the address cannot be bound.
    """

    def __init__(self, model_server: ModelServer, host: str, port: int, num_threads: int):
        check_address(host, port)
        self._predict_pool = futures.ThreadPoolExecutor(num_threads, thread_name_prefix="predict")
        self._status_pool = futures.ThreadPoolExecutor(_STATUS_THREADS, thread_name_prefix="status")
        self._server = grpc.server(self._status_pool, options=_OPTIONS)
        prediction = PredictionServicer(model_server, self._predict_pool)
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(prediction, self._server)
        model_service_pb2_grpc.add_ModelServiceServicer_to_server(ModelServicer(model_server), self._server)
        self._health = health.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        self._set_health(health_pb2.HealthCheckResponse.NOT_SERVING)
        bracketed = f"[{host}]" if ":" in host else host
        try:
            bound_port = self._server.add_insecure_port(f"{bracketed}:{port}")
        except RuntimeError as error:
            raise address_error(host, port, " ".join(str(error).split())) from None
        self.address = f"{bracketed}:{bound_port}"

    def start(self) -> None:
        """Begins to answer."""
        self._server.start()

    def welcome(self) -> None:
        """Reports SERVING."""
        self._set_health(health_pb2.HealthCheckResponse.SERVING)

    def stop(self, grace_seconds: float) -> bool:
        """Reports NOT_SERVING, refuses new requests and lets those under way finish.

        Returns:
          Whether all of them finished within `grace_seconds`; the others were cut off, though their threads may still
          be at work.
        """
        self._health.enter_graceful_shutdown()
        self._server.stop(grace_seconds).wait()
        self._status_pool.shutdown(wait=False)
        # Joining the pool has no timeout of its own, so a thread that may be abandoned does it.
        joiner = threading.Thread(target=self._predict_pool.shutdown, kwargs={"cancel_futures": True}, daemon=True)
        joiner.start()
        joiner.join(_JOIN_SECONDS)
        return not joiner.is_alive()

    def _set_health(self, status: "health_pb2.HealthCheckResponse.ServingStatus") -> None:
        for name in SERVICE_NAMES:
            self._health.set(name, status)
