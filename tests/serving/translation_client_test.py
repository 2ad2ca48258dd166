"""The client library against a real server, and against servers that misbehave."""

import socket
import threading
import time
from concurrent import futures

import grpc
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from stand_in_server import SLOW_SECONDS, running_server
from tensorflow_serving.apis import get_model_status_pb2, predict_pb2, prediction_service_pb2_grpc

from gnmt_tf.config import UserError
from gnmt_tf.serving.client import messages
from gnmt_tf.serving.client.line_batches import batches_when_idle
from gnmt_tf.serving.client.responses import Translation, translations_of
from gnmt_tf.serving.client.translation_client import TranslationClient, TranslationError, VersionStatus
from gnmt_tf.serving.server.tensors import proto_from_array


@pytest.fixture(scope="module")
def client(server):
    with TranslationClient(server.address, batch_size=3, in_flight=2) as client:
        yield client


class ScriptedServicer(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Answers Predict with what a test gives, and remembers how many calls there were at once."""

    def __init__(self, answer):
        self.answer, self.num_calls, self.most_at_once, self._at_once = answer, 0, 0, 0
        self._lock = threading.Lock()

    def Predict(self, request, context):  # noqa: N802
        with self._lock:
            self.num_calls += 1
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            number = self.num_calls
        try:
            return self.answer(number, [text.decode() for text in request.inputs["text"].string_val], context)
        finally:
            with self._lock:
                self._at_once -= 1


@pytest.fixture
def scripted():
    """Starts a server with a scripted answer; gives the servicer and the address."""
    servers = []

    def start(answer):
        servicer = ScriptedServicer(answer)
        server = grpc.server(futures.ThreadPoolExecutor(16), options=[("grpc.so_reuseport", 0)])
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(servicer, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        servers.append(server)
        return servicer, f"127.0.0.1:{port}"

    yield start
    for server in servers:
        server.stop(0)


def echo(texts) -> predict_pb2.PredictResponse:
    response = predict_pb2.PredictResponse()
    response.outputs["translation"].CopyFrom(proto_from_array(np.array([text.encode() for text in texts], object)))
    response.outputs["score"].CopyFrom(proto_from_array(np.arange(len(texts), dtype=np.float32)))
    response.outputs["truncated"].CopyFrom(proto_from_array(np.arange(len(texts)) == 1))
    return response


def as_client_message(response: predict_pb2.PredictResponse) -> messages.PredictResponse:
    return messages.PredictResponse.FromString(response.SerializeToString())


def test_translates_lines_in_order_over_several_requests(client):
    lines = [f"line {number}" for number in range(20)] + ["", "x" * 300]
    results = client.translate(lines)
    assert [result.text for result in results] == [line.upper() for line in lines]
    assert results[0] == Translation("LINE 0", 0.5 - 6, False)
    assert results[20] == Translation("", 0.0, False)
    assert results[21].truncated


def test_nothing_to_translate_gives_nothing(client):
    assert client.translate([]) == []


def test_three_thousand_lines_of_which_a_quarter_are_blank_keep_their_places(server):
    lines = ["   "[: number % 3] if number % 4 == 0 else f"zeile {number} ü" for number in range(3000)]
    with TranslationClient(server.address) as client:
        results = client.translate(lines)
    assert [result.text for result in results] == ["" if not line.strip() else line.upper() for line in lines]


def test_status_names_the_versions(client):
    assert client.status() == [VersionStatus(1, "AVAILABLE", "")]


def test_a_line_feed_inside_a_translation_becomes_a_space(client):
    assert client.translate(["two\nlines"])[0].text == "TWO LINES"


def test_requests_under_way_are_bounded_and_overlap(scripted):
    def answer(number, texts, context):
        time.sleep(0.05)
        return echo(texts)

    servicer, address = scripted(answer)
    with TranslationClient(address, batch_size=1, in_flight=3) as client:
        assert [result.text for result in client.translate(list("abcdefghijkl"))] == list("abcdefghijkl")
    assert servicer.most_at_once == 3
    assert servicer.num_calls == 12


def test_a_slow_first_request_does_not_change_the_order(scripted):
    def answer(number, texts, context):
        time.sleep(0.3 if texts == ["a"] else 0)
        return echo(texts)

    _, address = scripted(answer)
    with TranslationClient(address, batch_size=1) as client:
        assert [result.text for result in client.translate(list("abcd"))] == list("abcd")


def test_results_come_while_later_batches_are_still_awaited(client):
    more = threading.Event()

    def batches():
        yield ["first"]
        assert more.wait(10)
        yield ["second"]

    results = client.translate_batches(batches())
    assert next(results)[0].text == "FIRST"
    more.set()
    assert [batch[0].text for batch in results] == ["SECOND"]


def test_a_consumer_that_stops_early_leaves_no_feeder_behind(client):
    results = client.translate_batches([str(number)] for number in range(10_000))
    next(results)
    before = threading.active_count()
    results.close()
    deadline = time.monotonic() + 5
    while threading.active_count() >= before and time.monotonic() < deadline:
        time.sleep(0.02)
    assert threading.active_count() < before


def test_what_the_batches_raise_comes_after_the_results_before_it(client):
    def batches():
        yield ["good"]
        raise UserError("input:2", "valid UTF-8", "byte 0xff", "Mend it.")

    results = client.translate_batches(batches())
    assert next(results)[0].text == "GOOD"
    with pytest.raises(UserError, match="input:2"):
        next(results)


def test_only_unavailable_is_tried_again(scripted):
    def unavailable_twice(number, texts, context):
        if number <= 2:
            context.abort(grpc.StatusCode.UNAVAILABLE, "starting")
        return echo(texts)

    servicer, address = scripted(unavailable_twice)
    with TranslationClient(address, backoff_seconds=0.01) as client:
        assert client.translate(["a"])[0].text == "a"
    assert servicer.num_calls == 3

    servicer, address = scripted(lambda number, texts, context: context.abort(grpc.StatusCode.INTERNAL, "out\nof luck"))
    with (
        TranslationClient(address) as client,
        pytest.raises(TranslationError, match=r"INTERNAL \(out of luck\)") as caught,
    ):
        client.translate(["a"])
    assert caught.value.code == "INTERNAL"
    assert servicer.num_calls == 1


def test_a_server_that_is_away_for_a_moment_is_waited_for(base_path):
    with running_server(base_path, welcome=False) as server, TranslationClient(server.address) as client:
        threading.Timer(0.4, server.model_server.refresh).start()
        assert client.translate(["late"])[0].text == "LATE"


def test_an_unreachable_server_is_named_with_what_to_do():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        with (
            TranslationClient(address, retries=1, backoff_seconds=0.01) as client,
            pytest.raises(TranslationError) as caught,
        ):
            client.translate(["a"])
    message = str(caught.value)
    assert caught.value.code == "UNAVAILABLE"
    assert [word for word in (address, "Connection refused", "gnmt serve") if word not in message] == []
    assert "\n" not in message


def test_an_unknown_model_is_named(server):
    with TranslationClient(server.address, model_name="other") as client:
        for call in (lambda: client.translate(["a"]), client.status):
            with pytest.raises(TranslationError, match=r"a server of the model 'other'.*model_name"):
                call()


def test_a_deadline_that_passes_is_named_in_seconds(server):
    with TranslationClient(server.address, timeout_seconds=SLOW_SECONDS / 4) as client:
        with pytest.raises(TranslationError, match=r"within 0\.15 s.*Allow more time") as caught:
            client.translate(["slow"])
        assert caught.value.code == "DEADLINE_EXCEEDED"


def test_an_address_without_a_port_is_refused():
    with pytest.raises(UserError, match="HOST:PORT"):
        TranslationClient("localhost")


def test_text_that_is_not_unicode_is_refused(client):
    with pytest.raises(UserError, match="surrogate"):
        client.translate(["\ud800"])


@pytest.mark.parametrize("packed", [False, True])
def test_numbers_are_read_as_values_or_as_packed_bytes(packed):
    response = echo(["a", "b", "c"])
    if packed:
        response.outputs["score"].ClearField("float_val")
        response.outputs["score"].tensor_content = np.arange(3, dtype="<f4").tobytes()
        response.outputs["truncated"].ClearField("bool_val")
        response.outputs["truncated"].tensor_content = bytes([0, 1, 0])
    assert translations_of(as_client_message(response), 3, "server") == [
        Translation("a", 0.0, False),
        Translation("b", 1.0, True),
        Translation("c", 2.0, False),
    ]


def test_a_model_of_another_kind_is_refused_and_not_misread():
    response = echo(["a", "b"])
    with pytest.raises(UserError, match="for 3 lines"):
        translations_of(as_client_message(response), 3, "server")
    del response.outputs["score"]
    with pytest.raises(UserError, match="got outputs translation, truncated"):
        translations_of(as_client_message(response), 2, "server")


@settings(max_examples=30, deadline=None)
@given(st.text(max_size=9), st.lists(st.binary(max_size=9), max_size=3), st.text(max_size=9))
def test_requests_have_the_bytes_of_the_generated_messages(name, texts, signature):
    mine = messages.PredictRequest()
    mine.model_spec.name, mine.model_spec.signature_name = name, signature
    tensor = mine.inputs.add(key="text").value
    tensor.dtype = messages.DT_STRING
    tensor.tensor_shape.dim.add(size=len(texts))
    tensor.string_val.extend(texts)
    generated = predict_pb2.PredictRequest.FromString(mine.SerializeToString())
    assert (generated.model_spec.name, generated.model_spec.signature_name) == (name, signature)
    assert generated.inputs["text"].dtype == tf.string.as_datatype_enum
    assert list(generated.inputs["text"].string_val) == texts
    assert generated.ByteSize() == len(mine.SerializeToString())


def test_statuses_have_the_bytes_of_the_generated_messages():
    generated = get_model_status_pb2.GetModelStatusResponse()
    entry = generated.model_version_status.add(version=12, state=get_model_status_pb2.ModelVersionStatus.END)
    entry.status.error_code, entry.status.error_message = 3, "why"
    (mine,) = messages.GetModelStatusResponse.FromString(generated.SerializeToString()).model_version_status
    assert (mine.version, mine.state, mine.status.error_code, mine.status.error_message) == (12, 50, 3, "why")


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(max_size=3)), st.integers(1, 7))
def test_batches_hold_every_line_once_and_in_order(lines, batch_size):
    batches = list(batches_when_idle(lines, batch_size, idle_seconds=60))
    assert [line for batch in batches for line in batch] == lines
    assert [len(batch) for batch in batches[:-1]] == [batch_size] * (len(batches) - 1)
    assert all(batches)


def test_a_batch_is_given_up_on_when_no_line_comes():
    more = threading.Event()

    def lines():
        yield from "ab"
        assert more.wait(10)
        yield from "cde"

    batches = batches_when_idle(lines(), 3, idle_seconds=0.05)
    assert next(batches) == ["a", "b"]
    more.set()
    assert list(batches) == [["c", "d", "e"]]


def test_lines_before_an_unreadable_one_still_come():
    def lines():
        yield from "ab"
        raise UserError("input:3", "valid UTF-8", "byte 0xff", "Mend it.")

    batches = batches_when_idle(lines(), 32)
    assert next(batches) == ["a", "b"]
    with pytest.raises(UserError, match="input:3"):
        next(batches)
