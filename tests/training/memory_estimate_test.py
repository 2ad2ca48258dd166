import pytest

from gnmt_tf.config import load_config
from gnmt_tf.training.memory_estimate import estimate_memory

CONFIG = load_config(
    None,
    ["model.num_encoder_layers=3", "model.num_decoder_layers=3", "model.num_units=10", "model.embedding_size=7"]
    + ["model.attention_units=5"],
)


def test_an_estimate_by_hand():
    estimate = estimate_memory(CONFIG, 1000, 50, batch_size=2, source_length=3, target_length=4)
    # Four LSTM layers on the source side (two directions below) and three above; one residual on either side.
    source = 4 * 60 + 10 + 7 + 5
    target = 3 * 60 + 10 + 7 + 10 + 3
    logits = 2 * (2 * 4) * 50
    assert estimate.activations == 4 * (2 * (3 * source + 4 * target) + logits)
    assert (estimate.weights, estimate.gradients, estimate.optimizer) == (4000, 4000, 8000)
    assert estimate.total == sum(estimate)


@pytest.mark.parametrize(
    ("change", "gradients", "optimizer"),
    [("training.average_decay=0.9", 4000, 12000), ("training.accumulate_batches=2", 8000, 8000)],
)
def test_averages_and_accumulation_take_their_part(change, gradients, optimizer):
    section, _, rest = change.partition(".")
    key, _, value = rest.partition("=")
    config = CONFIG.model_copy(update={section: CONFIG.training.model_copy(update={key: float(value)})})
    estimate = estimate_memory(config, 1000, 50, 2, 3, 4)
    assert (estimate.gradients, estimate.optimizer) == (gradients, optimizer)
