"""Fixtures that the tests of the server and the client share."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import tensorflow as tf
from stand_in_server import RunningServer, StandIn, running_server


@pytest.fixture(scope="session")
def version_directory(tmp_path_factory) -> Path:
    """A SavedModel to copy from."""
    path = tmp_path_factory.mktemp("stand_in") / "1"
    module = StandIn()
    signatures = {name: getattr(module, name) for name in ("serving_default", "n_best", "score_pair")}
    tf.saved_model.save(module, str(path), signatures)
    return path


@pytest.fixture
def base_path(version_directory, tmp_path) -> Path:
    """A model base directory of the test's own, with version 1."""
    shutil.copytree(version_directory, tmp_path / "model" / "1")
    return tmp_path / "model"


@pytest.fixture(scope="module")
def server(version_directory) -> Iterator[RunningServer]:
    """One server for all tests of a module, which leave it as it is."""
    with running_server(version_directory.parent) as running:
        yield running
