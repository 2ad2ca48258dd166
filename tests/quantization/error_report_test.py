"""What `gnmt quantize` shows: errors of rows, and what is held at the end of a range."""

import csv
import io

import numpy as np
import pytest
import tf_keras as keras

from gnmt_tf.config import ModelConfig
from gnmt_tf.data.parallel_text import PieceCorpus, Pieces
from gnmt_tf.evaluation.log_perplexity import LogPerplexity
from gnmt_tf.model.gnmt import GNMT
from gnmt_tf.quantization.error_report import draw_errors, range_table, weight_table, write_rows
from gnmt_tf.quantization.ranges import measure_ranges
from gnmt_tf.quantization.weight_errors import row_name, weight_errors

VOCAB_SIZE = 30
NAMES = [
    "source_embedding", "target_embedding", "encoder/forward", "encoder/backward", "encoder/layer_2", "encoder/layer_3",
    "decoder/bottom", "decoder/layer_2", "decoder/layer_3", "output_projection",
]  # fmt: skip


def make_model(**changes):
    settings = {
        "num_encoder_layers": 3, "num_decoder_layers": 3, "num_units": 10, "attention_units": 8, "embedding_size": 12,
        "init_scale": 0.4,
    } | changes  # fmt: skip
    keras.utils.set_random_seed(1)
    return GNMT(ModelConfig(**settings), VOCAB_SIZE)


def make_corpus(num_pairs, seed=3):
    rng = np.random.default_rng(seed)
    sides = []
    for _ in range(2):
        lengths = rng.integers(1, 9, num_pairs)
        ids = rng.integers(4, VOCAB_SIZE, lengths.sum()).astype(np.int32)
        sides.append(Pieces(ids, np.concatenate([[0], np.cumsum(lengths)])))
    return PieceCorpus(*sides, 0, 0)


def test_a_row_with_an_outlier_is_the_worst_of_its_matrix():
    model = make_model()
    kernel = model.encoder.upper_layers[0].kernel.numpy()
    kernel[5, 2 * 10 + 7] = 30.0  # The forget gate of unit 7.
    model.encoder.upper_layers[0].kernel.assign(kernel)
    found = {matrix.name: matrix for matrix in weight_errors(model)}
    assert list(found) == NAMES
    matrix = found["encoder/layer_2"]
    assert matrix.row_errors.shape == (40,)
    assert matrix.row_size == 30
    assert matrix.row_max[27] == 30.0
    # Small rows: half a step of 1/127 of the largest element, over the root mean square of uniform weights.
    assert np.all(found["encoder/layer_3"].row_errors < 0.01)
    assert found["encoder/layer_3"].error == pytest.approx(3**0.5 / (127 * 12**0.5), rel=0.15)
    # Beside 30, everything in [-0.4, 0.4] is rounded to four steps.
    dropped = np.delete(np.concatenate([kernel, model.encoder.upper_layers[0].recurrent_kernel.numpy()])[:, 27], 5)
    lost = dropped - np.rint(dropped / 30 * 127) * (30 / 127)
    assert matrix.row_errors[27] == pytest.approx(np.sqrt((lost**2).sum() / (30.0**2 + (dropped**2).sum())), rel=1e-4)
    pieces = [f"piece {number}" for number in range(VOCAB_SIZE)]
    line = weight_table(list(found.values()), pieces).splitlines()[1 + NAMES.index("encoder/layer_2")]
    assert line.startswith("encoder/layer_2")
    assert row_name("encoder/layer_2", 27, 40, pieces) == "f 7"
    assert row_name("output_projection", 27, VOCAB_SIZE, pieces) == "piece 27"


def test_every_row_is_in_the_file_the_worst_first():
    found = weight_errors(make_model())
    file = io.StringIO()
    write_rows(found, [str(number) for number in range(VOCAB_SIZE)], file)
    rows = list(csv.DictReader(io.StringIO(file.getvalue())))
    assert len(rows) == sum(len(matrix.row_errors) for matrix in found)
    for matrix in found:
        of_matrix = [row for row in rows if row["matrix"] == matrix.name]
        errors = [float(row["relative_error"]) for row in of_matrix]
        assert errors == sorted(errors, reverse=True)
        assert sorted(int(row["row"]) for row in of_matrix) == list(range(len(of_matrix)))


def test_a_row_of_zeros_has_no_error():
    model = make_model()
    embeddings = model.source_embedding.embeddings.numpy()
    embeddings[3] = 0.0
    model.source_embedding.embeddings.assign(embeddings)
    matrix = weight_errors(model)[0]
    assert matrix.row_errors[3] == matrix.row_max[3] == 0.0
    assert np.isfinite(matrix.error)


def test_small_weights_are_nowhere_at_the_end_of_a_range():
    model, corpus = make_model(), make_corpus(6)
    done = []
    ranges = measure_ranges(model, corpus, done.append)
    assert done == [1, 2, 3, 4, 5, 6]
    assert [layer.name for layer in ranges.layers] == [name for name in NAMES if "embedding" not in name]
    for layer in ranges.layers:
        assert layer.gates_cut == layer.states_cut == layer.outputs_cut == 0.0
        assert 0.001 < layer.input_error < 0.02
    assert ranges.log_perplexity == pytest.approx(LogPerplexity(model, 4)(corpus), abs=0.01)


def test_a_layer_that_is_cut_shows_where():
    model, corpus = make_model(), make_corpus(6)
    layer = model.decoder.upper_layers[1]
    layer.bias.assign(np.repeat(np.array([50.0, 50.0, 50.0, 0.0], np.float32), 10))
    projection = model.output_projection
    projection.bias.assign(np.concatenate([[1000.0] * 15, np.zeros(15)]).astype(np.float32))
    ranges = {found.name: found for found in measure_ranges(model, corpus).layers}
    cut = ranges["decoder/layer_3"]
    assert cut.gates_cut == pytest.approx(0.75)
    # A state comes to its bound at the second step.
    steps = int(corpus.target.lengths.sum())
    assert cut.states_cut == pytest.approx((steps - 6) / steps)
    assert ranges["output_projection"].outputs_cut == pytest.approx(0.5)
    assert ranges["decoder/layer_2"].gates_cut == ranges["decoder/layer_2"].states_cut == 0.0
    table = range_table(measure_ranges(model, corpus)).splitlines()
    assert table[0].split() == ["ranges,", "%", "gates", "cut", "states", "cut", "sums", "cut", "input", "error"]
    assert "75.000" in table[1 + list(ranges).index("decoder/layer_3")]


def test_the_figure_has_a_panel_for_what_was_measured():
    model = make_model()
    errors = weight_errors(model)
    assert len(draw_errors(errors, None).axes) == 1
    figure = draw_errors(errors, measure_ranges(model, make_corpus(2)))
    assert [axes.get_xlabel() for axes in figure.axes] == [
        "error of a row, % of the row (RMS)", "held at the end of the range, %",
    ]  # fmt: skip


@pytest.mark.parametrize("most", [1, 3, 7, 50])
def test_a_sample_of_a_corpus_is_spread_over_it(most):
    corpus = make_corpus(7)
    sample = corpus.sample(most)
    assert sample.num_pairs == min(most, 7)
    rows = [7 * number // sample.num_pairs for number in range(sample.num_pairs)]
    for row, number in zip(rows, range(sample.num_pairs), strict=True):
        np.testing.assert_array_equal(sample.source[number], corpus.source[row])
        np.testing.assert_array_equal(sample.target[number], corpus.target[row])
