"""Bazel builds the same ops as make, offline, and runs the engine's tests."""

import subprocess
import sys

import pytest
from engine_build import ROOT, make

TRANSLATE = """
import sys
import tensorflow as tf
if sys.argv[1]:
    load = tf.load_op_library
    tf.load_op_library = lambda path: load(sys.argv[1])
import tf_keras as keras
from gnmt_tf import ops
from gnmt_tf.config import ModelConfig
from gnmt_tf.export.int8 import engine_shape
from gnmt_tf.model.gnmt import GNMT
from gnmt_tf.quantization.int8_reference import Int8Reference

keras.utils.set_random_seed(5)
sizes = dict(num_encoder_layers=2, num_decoder_layers=2, num_units=12, attention_units=9, embedding_size=10)
reference = Int8Reference(GNMT(ModelConfig(**sizes, init_scale=0.5), 30))
model = ops.int8_model(shared_name="built")
ops.load_int8_model(model, [tf.constant(values) for values in reference.weights()], engine_shape(reference))
found = ops.translate(model, tf.constant([[5, 9, 17, 3], [8, 3, 0, 0]]), tf.constant([4, 2]))
print(found.ids.numpy().tolist(), [score.hex() for score in found.scores.numpy().astype(float).ravel()])
"""


@pytest.mark.slow
def test_bazel_builds_ops_that_translate_as_those_of_make_do_and_the_engine_passes_its_tests():
    make("ops", "bazel")
    lines = [
        subprocess.run([sys.executable, "-c", TRANSLATE, library], capture_output=True, text=True, check=True).stdout
        for library in ("", str(ROOT / "bazel-bin/libgnmt_ops.so"))
    ]
    assert lines[0].count("0x") == 2
    assert lines[0] == lines[1]
