"""A small trained model that several test files share."""

import shutil
from pathlib import Path

import pytest
from tiny_run import tiny_overrides, write_corpus


@pytest.fixture(scope="session")
def trained_model(tmp_path_factory) -> Path:
    """A model directory with a best and a latest checkpoint. Read it; copy it to change it (`model_copy`)."""
    from gnmt_tf.config import load_config
    from gnmt_tf.training.trainer import train

    folder = tmp_path_factory.mktemp("trained")
    overrides = tiny_overrides(write_corpus(folder, 60), write_corpus(folder, 10, seed=2))
    train(load_config(None, overrides), str(folder / "model"))
    return folder / "model"


@pytest.fixture
def model_copy(trained_model, tmp_path) -> Path:
    """A copy of `trained_model` that a test may damage."""
    return Path(shutil.copytree(trained_model, tmp_path / "model"))
