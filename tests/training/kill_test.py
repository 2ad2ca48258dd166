"""Runs that are killed at any moment and started again with the same command end as if they had never stopped."""

import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from tiny_run import tiny_overrides, write_corpus

from gnmt_tf.training.curves import read_curve
from gnmt_tf.training.model_directory import load_model


def start(model_dir, overrides):
    flags = [f"--set={override}" for override in overrides]
    command = [sys.executable, "-m", "gnmt_tf.cli", "train", "--model_dir", str(model_dir), *flags]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def run_to_the_end(model_dir, overrides):
    process = start(model_dir, overrides)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return errors


def kill_after(model_dir, overrides, seconds):
    """Kills a run so many seconds after it began to train."""
    process = start(model_dir, overrides)
    for line in process.stderr:
        if line.startswith("step "):
            break
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    process.communicate()


def assert_same_run(model_dir, other):
    assert read_curve(str(model_dir)).points == read_curve(str(other)).points
    for which in ("latest", "best"):
        first, second = load_model(str(model_dir), which), load_model(str(other), which)
        assert first.step == second.step
        for expected, got in zip(first.model.get_weights(), second.model.get_weights(), strict=True):
            np.testing.assert_array_equal(got, expected)


@pytest.mark.slow
def test_a_killed_run_goes_on_as_if_it_had_never_stopped(tmp_path):
    corpus, dev = write_corpus(tmp_path, 200), write_corpus(tmp_path, 5, seed=2)
    # A checkpoint at every step, so that many a kill comes in the middle of saving one.
    settings = {
        "training__num_steps": 60, "training__checkpoint_every_steps": 1, "training__dropout": 0.3,
        "model__num_encoder_layers": 1, "model__num_decoder_layers": 1,
        "training__jit_compile": True,
    }  # fmt: skip
    overrides = tiny_overrides(corpus, dev, **settings | {"training__evaluate_every_steps": 20})
    run_to_the_end(tmp_path / "whole", overrides)
    kill_after(tmp_path / "killed", overrides, seconds=0.3)
    assert "Continuing after step" in run_to_the_end(tmp_path / "killed", overrides)
    assert_same_run(tmp_path / "killed", tmp_path / "whole")
