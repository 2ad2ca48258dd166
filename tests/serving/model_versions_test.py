"""Which version is live, and what happens to it when directories come, go or are broken."""

import os
import shutil
import threading

import pytest
import tensorflow as tf
from stand_in_server import predict_request, running_server
from tensorflow_serving.apis import get_model_status_pb2, prediction_log_pb2

from gnmt_tf.config import UserError
from gnmt_tf.export.warmup import WARMUP_FILE, write_warmup_requests
from gnmt_tf.serving.server.model_server import ModelServer
from gnmt_tf.serving.server.polling import VersionPoller
from gnmt_tf.serving.server.versions import check_layout, find_versions

State = get_model_status_pb2.ModelVersionStatus


def states_of(model_server: ModelServer) -> dict[int, tuple[int, str]]:
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = "gnmt"
    entries = model_server.get_model_status(request).model_version_status
    return {entry.version: (entry.state, entry.status.error_message) for entry in entries}


def add_broken_version(base_path, version: int) -> None:
    shutil.copytree(base_path / "1", base_path / str(version))
    (base_path / str(version) / "variables" / "variables.index").write_bytes(b"not a checkpoint")


def test_versions_are_numbers_with_a_saved_model(tmp_path):
    for name in ("2", "10", "007", "latest", "-3", "4", "9" * 30):
        (tmp_path / name).mkdir()
        if name != "4":
            (tmp_path / name / "saved_model.pb").touch()
    (tmp_path / "11").touch()
    assert find_versions(str(tmp_path)) == {
        2: str(tmp_path / "2"),
        7: str(tmp_path / "007"),
        10: str(tmp_path / "10"),
    }


def test_a_directory_with_nothing_to_serve_is_told_the_layout(tmp_path, version_directory):
    cases = {
        str(tmp_path / "absent"): ["no such directory", "gnmt export"],
        str(tmp_path): ["without a version", "gnmt export"],
        str(version_directory): ["a single version", "directory above"],
        str(version_directory / "saved_model.pb"): ["a file"],
    }
    for path, words in cases.items():
        with pytest.raises(UserError) as caught:
            check_layout(path)
        message = str(caught.value)
        assert [word for word in [*words, os.path.join(path, "1", "saved_model.pb")] if word not in message] == []
    (tmp_path / "3").mkdir()
    with pytest.raises(UserError, match="whose versions \\(3\\) have no saved_model.pb"):
        check_layout(str(tmp_path))


def test_a_newer_version_takes_over_without_a_failed_request(base_path):
    with running_server(base_path) as server:
        versions, failures, ended = set(), [], threading.Event()

        def ask():
            while not ended.is_set():
                try:
                    versions.add(server.prediction.Predict(predict_request(), timeout=30).model_spec.version.value)
                except Exception as error:
                    failures.append(error)

        clients = [threading.Thread(target=ask) for _ in range(3)]
        for client in clients:
            client.start()
        shutil.copytree(base_path / "1", base_path / "2")
        poller = VersionPoller(server.model_server, poll_seconds=0.05)
        poller.start()
        while 2 not in versions and not failures:
            ended.wait(0.05)
        ended.set()
        for client in clients:
            client.join()
        assert poller.stop(timeout_seconds=10)
        assert failures == []
        assert versions == {1, 2}
        assert states_of(server.model_server) == {2: (State.AVAILABLE, ""), 1: (State.END, "")}


def test_a_broken_newer_version_leaves_the_old_one_and_is_tried_again_when_mended(base_path, caplog):
    model_server = ModelServer(str(base_path), "gnmt")
    assert model_server.refresh()
    add_broken_version(base_path, 2)
    assert not model_server.refresh()
    assert not model_server.refresh()
    assert model_server.live_version == 1
    assert len([record for record in caplog.records if "version 2 cannot be served" in record.message]) == 1
    state, message = states_of(model_server)[2]
    assert state == State.END
    assert "cannot load" in message
    assert model_server.errors == [f"version 2: {message}"]
    shutil.copy(base_path / "1" / "variables" / "variables.index", base_path / "2" / "variables" / "variables.index")
    assert model_server.refresh()
    assert model_server.live_version == 2
    assert model_server.errors == []


def test_a_restart_beside_a_broken_newest_version_serves_the_one_below(base_path):
    add_broken_version(base_path, 2)
    (base_path / "3").mkdir()
    (base_path / "3" / "saved_model.pb").write_bytes(b"\xff\xff")
    model_server = ModelServer(str(base_path), "gnmt")
    assert model_server.refresh()
    assert model_server.live_version == 1
    assert [error.split(":")[0] for error in model_server.errors] == ["version 3", "version 2"]


def test_removing_the_live_version_rolls_back_and_removing_all_keeps_it(base_path):
    shutil.copytree(base_path / "1", base_path / "2")
    model_server = ModelServer(str(base_path), "gnmt")
    model_server.refresh()
    assert model_server.live_version == 2
    shutil.rmtree(base_path / "2")
    assert model_server.refresh()
    assert model_server.live_version == 1
    shutil.rmtree(base_path / "1")
    assert not model_server.refresh()
    assert model_server.predict(predict_request(["ab"])).outputs["translation"].string_val[0] == b"AB"


def test_warm_up_requests_cover_the_three_signatures_and_a_model_that_passes_them_loads(base_path):
    path = write_warmup_requests(str(base_path / "1"), ["one", "", "two three"], "gnmt")
    assert path == str(base_path / "1" / "assets.extra" / "tf_serving_warmup_requests")
    logs = [
        prediction_log_pb2.PredictionLog.FromString(record)
        for record in tf.data.TFRecordDataset(path).as_numpy_iterator()
    ]
    requests = {log.predict_log.request.model_spec.signature_name: log.predict_log.request for log in logs}
    assert {name: set(request.inputs) for name, request in requests.items()} == {
        "serving_default": {"text"},
        "n_best": {"text"},
        "score_pair": {"text", "translation"},
    }
    assert {request.model_spec.name for request in requests.values()} == {"gnmt"}
    assert list(requests["n_best"].inputs["text"].string_val) == [b"one", b"", b"two three"]
    assert ModelServer(str(base_path), "gnmt").refresh()


def test_a_failing_warm_up_makes_loading_fail(base_path):
    write_warmup_requests(str(base_path / "1"), ["fail this"], "gnmt")
    model_server = ModelServer(str(base_path), "gnmt")
    assert not model_server.refresh()
    assert "warm-up request 1 failed" in model_server.errors[0]
    assert "told to fail" in model_server.errors[0]


def test_damaged_or_foreign_warm_up_records_make_loading_fail(base_path):
    path = base_path / "1" / WARMUP_FILE
    path.parent.mkdir()
    path.write_bytes(b"not a TFRecord file, but longer than its header")
    model_server = ModelServer(str(base_path), "gnmt")
    assert not model_server.refresh()
    assert "cannot read warm-up requests" in model_server.errors[0]
    with tf.io.TFRecordWriter(str(path)) as writer:
        log = prediction_log_pb2.PredictionLog(classify_log=prediction_log_pb2.ClassifyLog())
        writer.write(log.SerializeToString())
    assert not model_server.refresh()
    assert "record 1: unsupported log type classify_log" in model_server.errors[0]


def test_warm_up_needs_a_text_and_an_exported_model(base_path, tmp_path):
    with pytest.raises(UserError, match="at least one sentence"):
        write_warmup_requests(str(base_path / "1"), [], "gnmt")
    with pytest.raises(UserError, match=r"no saved_model\.pb"):
        write_warmup_requests(str(tmp_path), ["a"], "gnmt")


def test_warm_up_without_the_serving_extra_names_the_package(base_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tensorflow_serving.apis", None)
    with pytest.raises(UserError, match=r"pip install 'gnmt_tf\[serve\]'"):
        write_warmup_requests(str(base_path / "1"), ["a"], "gnmt")
