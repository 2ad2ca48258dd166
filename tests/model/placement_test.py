"""Parts of the model on devices of their own, in another process: devices are chosen when TensorFlow starts."""

import json
import subprocess
import sys

PROGRAM = """
import json
import numpy as np
import tensorflow as tf
import tf_keras as keras
from gnmt_tf.config import load_config
from gnmt_tf.data.batch import Batch
from gnmt_tf.layers.placement import ONE_DEVICE, Placement
from gnmt_tf.training.trainable import TrainableGNMT

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 3)
config = load_config(None, [
    "model.num_encoder_layers=3", "model.num_decoder_layers=2", "model.num_units=6", "model.attention_units=5",
    "model.embedding_size=6", "training.jit_compile=false", "training.dropout=0.2",
])
devices = {"encoder/1": "CPU:1", "encoder/3": "CPU:2", "decoder/2": "CPU:1", "output_projection": "CPU:2"}
ids, lengths = tf.constant(np.random.default_rng(1).integers(4, 11, [3, 4]), tf.int32), tf.constant([4, 2, 3])
batch = Batch(ids, lengths, ids, ids, lengths)
results = {}
for name, placement in (("one", ONE_DEVICE), ("several", Placement(devices))):
    keras.utils.set_random_seed(3)
    model = TrainableGNMT(config, 11, placement)
    model.compile_for_training()
    train = model.make_train_function()
    losses = [float(train(iter([batch]))["loss"]) for _ in range(3)]
    where = {weight.name: weight.device[-5:] for weight in model.trainable_variables}
    results[name] = {"losses": losses, "where": where, "logits": float(tf.reduce_sum(model(batch)))}
print(json.dumps(results))
"""


def test_parts_on_several_devices_give_what_one_device_gives():
    result = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=200, check=False)
    assert result.returncode == 0, result.stderr[-3000:]
    one, several = (json.loads(result.stdout.splitlines()[-1])[name] for name in ("one", "several"))
    assert set(one["where"].values()) == {"CPU:0"}
    expected = {"encoder/forward/": "CPU:1", "encoder/layer_3/": "CPU:2", "encoder/layer_2/": "CPU:0",
                "decoder/bottom/": "CPU:0", "decoder/layer_2/": "CPU:1", "output_projection/": "CPU:2"}  # fmt: skip
    for prefix, device in expected.items():
        assert {where for name, where in several["where"].items() if name.startswith(prefix)} == {device}
    assert several["losses"] == one["losses"]
    assert several["logits"] == one["logits"]
