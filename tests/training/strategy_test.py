"""Training spread over several devices, each run in a process of its own: devices are chosen when TensorFlow starts."""

import json
import subprocess
import sys

import numpy as np
import pytest
from tiny_run import tiny_overrides, write_corpus

PROGRAM = """
import io, json, sys
import tensorflow as tf
from gnmt_tf.config import load_config
from gnmt_tf.training.model_directory import load_model
from gnmt_tf.training.trainer import train

num_devices, model_dir, overrides = json.loads(sys.argv[1])
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * num_devices)
strategy = tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(num_devices)]) if num_devices > 1 else None
train(load_config(None, overrides), model_dir, io.StringIO(), strategy)
"""


def losses(model_dir):
    lines = (model_dir / "logs" / "training.csv").read_text().splitlines()
    rows = [dict(zip(lines[0].split(","), line.split(","), strict=True)) for line in lines[1:]]
    return [float(row["loss"]) for row in rows if row["loss"]]


def run_on(num_devices, model_dir, overrides):
    command = [sys.executable, "-c", PROGRAM, json.dumps([num_devices, str(model_dir), overrides])]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def train_on(num_devices, model_dir, overrides):
    result = run_on(num_devices, model_dir, overrides)
    assert result.returncode == 0, result.stderr[-3000:]


def test_compiled_replicas_on_cpu_devices_are_refused(tmp_path):
    overrides = tiny_overrides(write_corpus(tmp_path, 20), training__jit_compile=True)
    result = run_on(2, tmp_path / "model", overrides)
    assert "training.jit_compile: expected false, with 2 replicas on CPU devices, got true" in result.stderr


@pytest.mark.slow
def test_several_devices_give_the_losses_of_one(tmp_path):
    # SGD, since Adam hides a gradient of the wrong scale, and blows up the rounding of gradients that are all but zero,
    # as those of the attention are at the start. Lengths differ, so that each device has another number of pieces; 10
    # pairs do not divide by 4. Weights start large enough for dropout to show.
    overrides = tiny_overrides(
        write_corpus(tmp_path, 60), training__num_steps=6, data__batch_size=10, training__dropout=0.3,
        training__adam_steps=0, training__sgd_learning_rate=0.5, training__accumulate_batches=2,
        model__init_scale=0.3,
    )  # fmt: skip
    train_on(1, tmp_path / "one", overrides)
    expected = losses(tmp_path / "one")
    assert len(expected) == 6
    for num_devices in (2, 4):
        train_on(num_devices, tmp_path / f"{num_devices}", overrides)
        np.testing.assert_allclose(losses(tmp_path / f"{num_devices}"), expected, rtol=1e-5)
