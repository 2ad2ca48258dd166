"""The training step and the search compile for a TPU, without one."""

import json
import subprocess
import sys

import pytest

PROGRAM = """
import json
import tensorflow as tf
from gnmt_tf.config import load_config
from gnmt_tf.data.batch import Batch
from gnmt_tf.tpu.compile_check import compile_for_tpu, train_step_function
from gnmt_tf.training.trainable import TrainableGNMT

config = load_config(None, [
    "model.num_encoder_layers=3", "model.num_decoder_layers=3", "model.num_units=128", "model.attention_units=128",
    "model.embedding_size=128", "training.compute_dtype=bfloat16", "training.average_decay=0.999",
])
model = TrainableGNMT(config, 1024)
model.compile_for_training()
ids, lengths = tf.ones([32, 16], tf.int32), tf.fill([32], 16)
program = compile_for_tpu(train_step_function(model), [Batch(ids, lengths, ids, ids, lengths)], "v5e:2x2")
print(program)
print(json.dumps({"parameters": model.count_params()} | program._asdict()))
"""


@pytest.mark.slow
def test_the_training_step_compiles_for_a_tpu():
    # In a process of its own: the TPU library and TensorFlow are started in a certain order, and JAX stays out of the
    # other tests.
    result = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=400, check=False)
    assert result.returncode == 0, result.stderr[-3000:]
    *_, summary, last = result.stdout.splitlines()
    print(summary)
    program = json.loads(last)
    # Weights, two moments and the average are arguments, each of four bytes.
    assert program["argument_bytes"] >= 4 * 4 * program["parameters"]
    assert program["temporary_bytes"] > 0
    # One product of the projection alone, of the three that a step has, over all rows.
    assert program["flops"] > 2.0 * 128 * 1024 * 32 * 16


SEARCH = """
import json
import tensorflow as tf
from gnmt_tf.config import ModelConfig, SearchConfig
from gnmt_tf.model.gnmt import GNMT
from gnmt_tf.search.beam_search import beam_search
from gnmt_tf.tpu.compile_check import compile_for_tpu

config = ModelConfig(num_encoder_layers=3, num_decoder_layers=3, num_units=128, attention_units=128, embedding_size=128)
model = GNMT(config, 1024)

@tf.function(jit_compile=True, autograph=False)
def search(ids, lengths):
    memory = model.encode(ids, lengths)
    return tuple(beam_search(model, memory, lengths, SearchConfig(beam_width=4), max_steps=20))

program = compile_for_tpu(search, [tf.ones([8, 16], tf.int32), tf.fill([8], 16)], "v5e:2x2")
print(program)
print(json.dumps({"parameters": model.count_params()} | program._asdict()))
"""


@pytest.mark.slow
def test_the_search_compiles_for_a_tpu():
    result = subprocess.run([sys.executable, "-c", SEARCH], capture_output=True, text=True, timeout=400, check=False)
    assert result.returncode == 0, result.stderr[-3000:]
    *_, summary, last = result.stdout.splitlines()
    print(summary)
    program = json.loads(last)
    assert program["argument_bytes"] >= 4 * program["parameters"]
    # The result holds the attention of every step, [8, 1, 20, 16].
    assert program["output_bytes"] > 4 * 8 * 20 * 16
    # One product of the projection over all 32 rows.
    assert program["flops"] > 2.0 * 128 * 1024 * 32
