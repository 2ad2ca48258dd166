"""What a client of TF Serving sees, over a real connection."""

import time
from concurrent import futures

import grpc
import numpy as np
import pytest
import tensorflow as tf
from grpc_health.v1 import health_pb2, health_pb2_grpc
from stand_in_server import failure_of, predict_request, running_server
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_management_pb2,
    predict_pb2,
    regression_pb2,
)

from gnmt_tf.serving.server.grpc_server import SERVICE_NAMES


def test_translates_a_batch_and_says_what_answered(server):
    response = server.prediction.Predict(predict_request(["añb", " ", "x" * 300]), timeout=10)
    assert list(response.outputs["translation"].string_val) == ["AÑB".encode(), b"", b"X" * 300]
    assert list(response.outputs["score"].float_val) == [0.5 - 4, 0.0, 0.5 - 300]
    assert list(response.outputs["truncated"].bool_val) == [False, False, True]
    assert response.outputs["score"].tensor_shape.dim[0].size == 3
    assert response.model_spec.name == "gnmt"
    assert response.model_spec.version.value == 1
    assert response.model_spec.signature_name == "serving_default"


def test_numbers_arrive_in_the_typed_fields_and_not_as_packed_bytes(server):
    request = predict_request(signature="score_pair", text=["abc", "d"], translation=["a", "dddd"])
    outputs = server.prediction.Predict(request, timeout=10).outputs
    assert list(outputs["log_prob"].float_val) == [2.0, -3.0]
    assert list(outputs["num_pieces"].int_val) == [1, 4]
    assert all(output.tensor_content == b"" for output in outputs.values())
    np.testing.assert_array_equal(tf.make_ndarray(outputs["num_pieces"]), np.array([1, 4], np.int32))


def test_an_empty_batch_gives_an_empty_answer(server):
    request = predict_request(text=np.array([], object))
    request.inputs["text"].CopyFrom(tf.make_tensor_proto([], tf.string, [0]))
    outputs = server.prediction.Predict(request, timeout=10).outputs
    assert tf.make_ndarray(outputs["score"]).shape == (0,)


def test_a_value_sent_once_fills_the_whole_shape(server):
    request = predict_request()
    request.inputs["text"].CopyFrom(tf.make_tensor_proto("ab", tf.string, [3]))
    response = server.prediction.Predict(request, timeout=10)
    assert list(response.outputs["translation"].string_val) == [b"AB"] * 3


def test_the_output_filter_picks_outputs(server):
    request = predict_request()
    request.output_filter.append("score")
    assert set(server.prediction.Predict(request, timeout=10).outputs) == {"score"}


def test_the_live_version_may_be_asked_for_by_number(server):
    request = predict_request()
    request.model_spec.version.value = 1
    assert server.prediction.Predict(request, timeout=10).model_spec.version.value == 1


def test_an_unknown_model_or_version_is_not_found(server):
    request = predict_request()
    request.model_spec.version.value = 7
    assert failure_of(server.prediction.Predict, predict_request(name="other")) == (
        grpc.StatusCode.NOT_FOUND,
        "Servable not found for request: Latest(other)",
    )
    assert failure_of(server.prediction.Predict, request) == (
        grpc.StatusCode.NOT_FOUND,
        "Servable not found for request: Specific(gnmt, 7)",
    )


def _with_filter(*names):
    request = predict_request()
    request.output_filter.extend(names)
    return request


def _with_tensor(**fields):
    request = predict_request()
    tensor = request.inputs["text"]
    tensor.Clear()
    tensor.dtype = fields["dtype"]
    tensor.string_val.extend(fields.get("string_val", []))
    for size in fields["shape"]:
        tensor.tensor_shape.dim.add(size=size)
    return request


def _with_label():
    request = predict_request()
    request.model_spec.version_label = "stable"
    return request


@pytest.mark.parametrize(
    ("request_of", "words"),
    [
        (lambda: predict_pb2.PredictRequest(), ["Missing ModelSpec"]),
        (_with_label, ["version label: stable"]),
        (lambda: predict_request(signature="nbest"), ['"nbest" not found', "{n_best,score_pair,serving_default}"]),
        (lambda: predict_request(signature="__saved_model_init_op"), ["not found"]),
        (lambda: predict_request(other=["a"]), ["Sent extra: {other}", "Missing but required: {text}"]),
        (lambda: predict_request(text=["a"], more=["a"]), ["2!=1", "Sent extra: {more}", "required: {}"]),
        (lambda: predict_request(signature="score_pair"), ["1!=2", "Missing but required: {translation}"]),
        (lambda: predict_request(text=[1.5, 2.5]), ['"text": expected string [-1], got float32 [2]']),
        (lambda: predict_request(text=[["a"], ["b"]]), ['"text": expected string [-1], got string [2, 1]']),
        (lambda: predict_request(text="a"), ["expected string [-1], got string []"]),
        (lambda: _with_filter("scores"), ["not found in signature: scores", "{score,translation,truncated}"]),
        (lambda: _with_filter("score", "score"), ["duplicate output tensor alias: score"]),
        (lambda: _with_tensor(dtype=7, shape=[-3]), ["tensor parsing error: text"]),
        (lambda: _with_tensor(dtype=7, shape=[2], string_val=[b"a", b"b", b"c"]), ["tensor parsing error: text"]),
        (lambda: _with_tensor(dtype=7, shape=[10**12], string_val=[b"a"]), ["tensor parsing error: text"]),
        (lambda: _with_tensor(dtype=99, shape=[1]), ["expected string [-1], got unknown type 99"]),
        (lambda: predict_request(["fail now"]), ["told to fail"]),
    ],
)
def test_a_request_that_does_not_fit_is_told_what_was_expected(server, request_of, words):
    code, details = failure_of(server.prediction.Predict, request_of(), timeout=10)
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert [word for word in words if word not in details] == [], details


def test_metadata_describes_every_signature(server):
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    request.model_spec.name = "gnmt"
    response = server.prediction.GetModelMetadata(request, timeout=10)
    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert response.metadata["signature_def"].Unpack(signatures)
    assert response.model_spec.version.value == 1
    assert {"serving_default", "n_best", "score_pair"} <= set(signatures.signature_def)
    assert set(signatures.signature_def["score_pair"].inputs) == {"text", "translation"}


def test_metadata_of_an_unknown_field_or_model_is_refused(server):
    request = get_model_metadata_pb2.GetModelMetadataRequest()
    request.model_spec.name = "gnmt"
    assert failure_of(server.prediction.GetModelMetadata, request)[0] == grpc.StatusCode.INVALID_ARGUMENT
    request.metadata_field.append("weights")
    assert "weights is not supported" in failure_of(server.prediction.GetModelMetadata, request)[1]
    request.metadata_field[0] = "signature_def"
    request.model_spec.name = "other"
    assert failure_of(server.prediction.GetModelMetadata, request)[0] == grpc.StatusCode.NOT_FOUND


def test_status_lists_the_versions(server):
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = "gnmt"
    (entry,) = server.status.GetModelStatus(request, timeout=10).model_version_status
    assert (entry.version, entry.state) == (1, get_model_status_pb2.ModelVersionStatus.AVAILABLE)
    assert entry.status.error_code == 0
    request.model_spec.version.value = 3
    assert failure_of(server.status.GetModelStatus, request) == (
        grpc.StatusCode.NOT_FOUND,
        "Could not find version 3 of model gnmt",
    )
    request.model_spec.name = "other"
    request.model_spec.ClearField("version")
    assert failure_of(server.status.GetModelStatus, request)[1] == "Could not find any versions of model other"


def test_what_is_not_offered_says_unimplemented(server):
    calls = [
        (server.prediction.Classify, classification_pb2.ClassificationRequest()),
        (server.prediction.Regress, regression_pb2.RegressionRequest()),
        (server.prediction.MultiInference, inference_pb2.MultiInferenceRequest()),
        (server.status.HandleReloadConfigRequest, model_management_pb2.ReloadConfigRequest()),
        (server.channel.unary_unary("/tensorflow.serving.SessionService/SessionRun"), b""),
    ]
    codes = [failure_of(call, request, timeout=10)[0] for call, request in calls]
    assert codes == [grpc.StatusCode.UNIMPLEMENTED] * len(calls)


def test_many_clients_at_once_each_get_their_own_answer(server):
    def ask(number):
        response = server.prediction.Predict(predict_request([f"line {number}", f"other {number}"]), timeout=30)
        return list(response.outputs["translation"].string_val)

    with futures.ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(ask, range(200)))
    assert answers == [[f"LINE {number}".encode(), f"OTHER {number}".encode()] for number in range(200)]


def test_health_tells_serving_from_loading_and_answers_while_all_threads_predict(base_path):
    with running_server(base_path, num_threads=1, welcome=False) as starting:
        stub = health_pb2_grpc.HealthStub(starting.channel)

        def health_of(service):
            return stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=5).status

        assert {health_of(name) for name in SERVICE_NAMES} == {health_pb2.HealthCheckResponse.NOT_SERVING}
        code, _ = failure_of(starting.prediction.Predict, predict_request())
        assert code == grpc.StatusCode.UNAVAILABLE
        assert failure_of(starting.prediction.Predict, predict_request(name="x"))[0] == grpc.StatusCode.NOT_FOUND
        starting.model_server.refresh()
        starting.grpc_server.welcome()
        slow = [starting.prediction.Predict.future(predict_request(["slow"]), timeout=30) for _ in range(3)]
        assert {health_of(name) for name in SERVICE_NAMES} == {health_pb2.HealthCheckResponse.SERVING}
        assert failure_of(stub.Check, health_pb2.HealthCheckRequest(service="x"))[0] == grpc.StatusCode.NOT_FOUND
        assert not slow[-1].done()
        assert [call.result().outputs["translation"].string_val[0] for call in slow] == [b"SLOW"] * 3


def test_a_request_whose_caller_has_gone_is_not_begun(base_path):
    with running_server(base_path, num_threads=1) as busy:
        begun = []
        answer = busy.model_server.predict
        busy.model_server.predict = lambda request: (
            begun.append(request.inputs["text"].string_val[0]) or answer(request)
        )
        first = busy.prediction.Predict.future(predict_request(["slow"]), timeout=30)
        time.sleep(0.1)
        late = busy.prediction.Predict.future(predict_request(["too late"]), timeout=0.1)
        cancelled = busy.prediction.Predict.future(predict_request(["cancelled"]), timeout=30)
        time.sleep(0.1)
        cancelled.cancel()
        assert late.exception().code() == grpc.StatusCode.DEADLINE_EXCEEDED
        assert first.result().outputs["translation"].string_val[0] == b"SLOW"
        assert busy.prediction.Predict(predict_request(["after"]), timeout=10).model_spec.version.value == 1
        assert begun == [b"slow", b"after"]


def test_stopping_lets_a_request_under_way_finish(base_path):
    with running_server(base_path) as stopping:
        under_way = stopping.prediction.Predict.future(predict_request(["slow"]), timeout=30)
        time.sleep(0.2)
        assert stopping.grpc_server.stop(grace_seconds=10)
        assert under_way.result().outputs["translation"].string_val[0] == b"SLOW"
        assert failure_of(stopping.prediction.Predict, predict_request())[0] == grpc.StatusCode.UNAVAILABLE


def test_stopping_without_grace_says_that_work_was_left(base_path):
    with running_server(base_path) as stopping:
        under_way = stopping.prediction.Predict.future(predict_request(["slow " * 3]), timeout=30)
        time.sleep(0.05)
        start = time.monotonic()
        stopping.grpc_server.stop(grace_seconds=0)
        assert time.monotonic() - start < 5
        assert under_way.exception().code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
