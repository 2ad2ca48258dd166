"""The client library: lines in, translations out, over the Predict RPC of TF Serving.

Reads lines or batches of them; gives translations in the same order, with a bounded number of requests under way.
Works with `gnmt serve` and with TensorFlow's own model server.
"""

import queue
import re
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import grpc

from gnmt_tf.config import UserError
from gnmt_tf.serving.client import messages
from gnmt_tf.serving.client.responses import Translation, translations_of

SIGNATURE_NAME = "serving_default"
_PREDICT = "/tensorflow.serving.PredictionService/Predict"
_STATUS = "/tensorflow.serving.ModelService/GetModelStatus"
_STATE_NAMES = {0: "UNKNOWN", 10: "START", 20: "LOADING", 30: "AVAILABLE", 40: "UNLOADING", 50: "END"}
_MAX_BACKOFF_SECONDS = 5.0


class VersionStatus(NamedTuple):
    """One version of the model as the server sees it: `state` is START, LOADING, AVAILABLE, UNLOADING or END."""

    version: int
    state: str
    error: str


class TranslationError(UserError):
    """The server did not translate; `code` is gRPC's name for why, such as UNAVAILABLE or DEADLINE_EXCEEDED."""

    def __init__(self, code: str, argument: str, expected: str, actual: str, remedy: str):
        super().__init__(argument, expected, actual, remedy)
        self.code = code


class _Request(NamedTuple):
    lines: Sequence[str]
    message: object
    future: grpc.Future


class TranslationClient:
    """A connection to one server; usable as a context manager.

    Args:
      address: HOST:PORT.
      model_name: the name that the server knows the model by.
      timeout_seconds: for each try of each request, the time it waits in the server's queue included.
      batch_size: lines in a request made by `translate`.
      in_flight: requests under way at the same time.
      retries: how often a request is repeated when the server is UNAVAILABLE; no other failure is repeated.
      backoff_seconds: wait before the first repetition; doubled for each further one, up to 5 s.

    Raises:
      UserError: an address without a port.
    """

    def __init__(
        self,
        address: str,
        model_name: str = "gnmt",
        timeout_seconds: float = 60.0,
        batch_size: int = 32,
        in_flight: int = 4,
        retries: int = 4,
        backoff_seconds: float = 0.2,
    ):
        if not re.fullmatch(r"\S+:\d{1,5}", address):
            raise UserError("server address", "HOST:PORT", repr(address), "Give for instance 127.0.0.1:8500.")
        self.address, self.model_name, self.timeout_seconds = address, model_name, timeout_seconds
        self.batch_size, self.in_flight = batch_size, in_flight
        self.retries, self.backoff_seconds = retries, backoff_seconds
        self._channel = grpc.insecure_channel(address, options=_channel_options(address))
        self._predict = self._channel.unary_unary(
            _PREDICT,
            request_serializer=messages.PredictRequest.SerializeToString,
            response_deserializer=messages.PredictResponse.FromString,
        )
        self._status = self._channel.unary_unary(
            _STATUS,
            request_serializer=messages.GetModelStatusRequest.SerializeToString,
            response_deserializer=messages.GetModelStatusResponse.FromString,
        )

    def __enter__(self) -> "TranslationClient":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection; requests under way are cancelled."""
        self._channel.close()

    def translate(self, lines: Sequence[str]) -> list[Translation]:
        """Translates `lines`, one result for each, in order.

        Raises:
          TranslationError: the server cannot be reached, does not know the model, is too slow, or refuses.
        """
        batches = (lines[start : start + self.batch_size] for start in range(0, len(lines), self.batch_size))
        return [translation for batch in self.translate_batches(batches) for translation in batch]

    def translate_batches(self, batches: Iterable[Sequence[str]]) -> Iterator[list[Translation]]:
        """Translates each batch in a request of its own; results come in order, each as soon as it can.

        `batches` is consumed by another thread, at most `in_flight` ahead of the results, so it may block without
        holding up results that are there.

        Raises:
          TranslationError: as for `translate`, after the results of the batches before.
        """
        requests: queue.Queue[_Request | BaseException | None] = queue.Queue()
        room = threading.Semaphore(self.in_flight)
        stopped = threading.Event()
        feeder = threading.Thread(target=self._feed, args=(batches, requests, room, stopped), daemon=True)
        feeder.start()
        try:
            while (request := requests.get()) is not None:
                if isinstance(request, BaseException):
                    raise request
                response = self._result(request)
                room.release()
                yield translations_of(response, len(request.lines), f"server {self.address}")
        finally:
            stopped.set()
            room.release()
            while not requests.empty():
                request = requests.get()
                if isinstance(request, _Request):
                    request.future.cancel()

    def status(self) -> list[VersionStatus]:
        """The versions of the model that the server knows, in its order.

        Raises:
          TranslationError: the server cannot be reached or does not know the model.
        """
        request = messages.GetModelStatusRequest()
        request.model_spec.name = self.model_name
        try:
            response = self._status(request, timeout=self.timeout_seconds)
        except grpc.RpcError as error:
            raise self._error(error) from None
        return [
            VersionStatus(entry.version, _STATE_NAMES.get(entry.state, str(entry.state)), entry.status.error_message)
            for entry in response.model_version_status
        ]

    def _feed(
        self,
        batches: Iterable[Sequence[str]],
        requests: "queue.Queue[_Request | BaseException | None]",
        room: threading.Semaphore,
        stopped: threading.Event,
    ) -> None:
        try:
            for batch in batches:
                room.acquire()
                if stopped.is_set():
                    return
                message = self._message(batch)
                requests.put(_Request(batch, message, self._predict.future(message, timeout=self.timeout_seconds)))
            requests.put(None)
        except BaseException as error:
            # Raised again where the results are consumed.
            requests.put(error)

    def _message(self, lines: Sequence[str]) -> object:
        request = messages.PredictRequest()
        request.model_spec.name = self.model_name
        request.model_spec.signature_name = SIGNATURE_NAME
        tensor = request.inputs.add(key="text").value
        tensor.dtype = messages.DT_STRING
        tensor.tensor_shape.dim.add(size=len(lines))
        try:
            tensor.string_val.extend(line.encode() for line in lines)
        except UnicodeEncodeError as error:
            raise UserError(
                "text", "Unicode that UTF-8 can hold", repr(error.object[:40]), "Take out the lone surrogate."
            ) from None
        return request

    def _result(self, request: _Request) -> object:
        future = request.future
        for attempt in range(self.retries + 1):
            try:
                return future.result()
            except grpc.RpcError as error:
                if error.code() != grpc.StatusCode.UNAVAILABLE or attempt == self.retries:
                    raise self._error(error) from None
            time.sleep(min(self.backoff_seconds * 2**attempt, _MAX_BACKOFF_SECONDS))
            future = self._predict.future(request.message, timeout=self.timeout_seconds)
        raise AssertionError("the last attempt returns or raises")

    def _error(self, error: grpc.RpcError) -> TranslationError:
        code, details = error.code(), " ".join((error.details() or "").split()) or "no details"
        expected, actual, remedy = "a translation", f"{code.name} ({details})", "See the server's log."
        if code == grpc.StatusCode.UNAVAILABLE:
            expected, remedy = "a server that can be reached", "Start one with `gnmt serve`, or give another address."
        elif code == grpc.StatusCode.NOT_FOUND:
            expected = f"a server of the model {self.model_name!r}"
            remedy = "Give the --model_name that the server was started with."
        elif code == grpc.StatusCode.DEADLINE_EXCEEDED:
            expected = f"an answer within {self.timeout_seconds:g} s"
            remedy = "Allow more time (timeout_seconds), or send less at once (batch_size, in_flight)."
        elif code == grpc.StatusCode.INVALID_ARGUMENT:
            remedy = f"The model needs the signature {SIGNATURE_NAME} with the input text, as `gnmt export` writes it."
        return TranslationError(code.name, f"server {self.address}", expected, actual, remedy)


def _channel_options(address: str) -> list[tuple[str, int]]:
    options = [
        ("grpc.max_receive_message_length", -1),
        ("grpc.max_send_message_length", -1),
        # gRPC's own pause before it connects again (up to two minutes) is longer than this client's retries.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 1000),
        # Despite its name this bounds how long one attempt to connect may take (20 s by default).
        ("grpc.min_reconnect_backoff_ms", 5000),
        # Two clients in one process must not share a connection that one of them closes or finds broken.
        ("grpc.use_local_subchannel_pool", 1),
    ]
    host = address.rpartition(":")[0].strip("[]")
    if host in ("localhost", "::1") or host.startswith("127."):
        # A proxy named in the environment is meant for the world outside.
        options.append(("grpc.enable_http_proxy", 0))
    return options
