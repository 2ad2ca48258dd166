"""Runs that are killed at any moment and started again with the same command end as if they had never stopped."""

import random
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


def kill(model_dir, overrides, steps, seconds):
    """Kills a run so many steps and seconds after it began to train; tells whether it was still running."""
    process = start(model_dir, overrides)
    for line in process.stderr:
        steps -= line.startswith("step ")
        if steps <= 0:
            break
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return process.returncode == -signal.SIGKILL


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
        "training__num_steps": 60, "training__checkpoint_every_steps": 1, "training__evaluate_every_steps": 20,
        "training__dropout": 0.3, "training__jit_compile": True,
        "model__num_encoder_layers": 1, "model__num_decoder_layers": 1,
    }  # fmt: skip
    overrides = tiny_overrides(corpus, dev, **settings)
    run_to_the_end(tmp_path / "whole", overrides)
    assert kill(tmp_path / "killed", overrides, steps=1, seconds=0.3)
    assert "Continuing after step" in run_to_the_end(tmp_path / "killed", overrides)
    assert_same_run(tmp_path / "killed", tmp_path / "whole")


@pytest.mark.slow
def test_a_run_killed_ten_times_under_the_full_recipe_ends_as_if_it_had_never_stopped(tmp_path):
    corpus, dev = write_corpus(tmp_path, 200), write_corpus(tmp_path, 3, seed=2)
    settings = {
        "training__num_steps": 100, "training__checkpoint_every_steps": 1, "training__evaluate_every_steps": 8,
        "training__dropout": 0.3, "training__label_smoothing": 0.1, "training__accumulate_batches": 2,
        "training__average_decay": 0.9, "training__schedule": "plateau", "training__plateau_patience": 1,
        "training__warmup_steps": 10, "training__keep_best": 2, "training__clip_bound_steps": 30,
        "data__piece_dropout": 0.2, "search__beam_width": 1,
        "model__num_encoder_layers": 1, "model__num_decoder_layers": 1,
    }  # fmt: skip
    overrides = tiny_overrides(corpus, dev, **settings)
    run_to_the_end(tmp_path / "whole", overrides)
    chance = random.Random(11)
    kills = sum(kill(tmp_path / "killed", overrides, chance.randint(1, 6), chance.uniform(0.0, 0.1)) for _ in range(10))
    assert kills == 10
    # It has come some way, and does not simply start again.
    step = int(run_to_the_end(tmp_path / "killed", overrides).split("Continuing after step ")[1].split()[0])
    assert step >= 10
    assert_same_run(tmp_path / "killed", tmp_path / "whole")
