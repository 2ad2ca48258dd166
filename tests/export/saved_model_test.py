import json
import math
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from gnmt_tf.config import SearchConfig, UserError
from gnmt_tf.export.saved_model import export_saved_model
from gnmt_tf.search.translator import Translator
from gnmt_tf.training.model_directory import load_model

LINES = ["one two red cat .", "", "blue", "\u00a0 \t", "😀 two\u00a0red cat\u2028dog .", "<unk> </s> ##", "one " * 40]
SEARCH = SearchConfig(beam_width=3, max_source_pieces=12)

PROGRAM = """
import json, sys
import tensorflow as tf
import tensorflow_text
lines = json.loads(sys.argv[2])
model = tf.saved_model.load(sys.argv[1])
result = model.signatures["serving_default"](text=tf.constant(lines))
print(json.dumps([text.decode() for text in result["translation"].numpy()]))
assert not [name for name in sys.modules if name.startswith(("gnmt_tf", "tf_keras"))]
"""


@pytest.fixture(scope="module")
def exported(trained_model, tmp_path_factory):
    return export_saved_model(str(trained_model), str(tmp_path_factory.mktemp("export")), SEARCH)


@pytest.fixture(scope="module")
def signatures(exported):
    return tf.saved_model.load(exported.path).signatures


@pytest.fixture(scope="module")
def translations(trained_model):
    loaded = load_model(str(trained_model))
    return Translator(loaded.model, loaded.segmenter, SEARCH).translate(LINES)


def test_a_program_that_knows_only_tensorflow_translates_with_a_moved_export(trained_model, tmp_path, translations):
    model_dir = shutil.copytree(trained_model, tmp_path / "model")
    export = export_saved_model(str(model_dir), str(tmp_path / "export"), SEARCH)
    moved = tmp_path / "elsewhere"
    shutil.move(export.path, moved)
    shutil.rmtree(model_dir)
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(moved), json.dumps(LINES)],
        capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout.splitlines()[-1]) == [translation.text for translation in translations]


def test_serving_default_gives_what_the_translator_gives(signatures, translations):
    result = signatures["serving_default"](text=tf.constant(LINES))
    assert {name: (value.dtype, value.shape.as_list()) for name, value in result.items()} == {
        "translation": (tf.string, [7]), "score": (tf.float32, [7]), "truncated": (tf.bool, [7]),
    }  # fmt: skip
    for row, translation in enumerate(translations):
        assert result["translation"][row].numpy().decode() == translation.text
        assert float(result["score"][row]) == pytest.approx(translation.score, abs=1e-4)
        assert bool(result["truncated"][row]) == translation.truncated
    assert translations[-1].truncated


def test_n_best_gives_distinct_hypotheses_best_first_with_their_pieces_and_attention(signatures, translations):
    result = {name: value.numpy() for name, value in signatures["n_best"](text=tf.constant(LINES)).items()}
    assert result["score"].shape == (len(LINES), SEARCH.beam_width)
    for row, translation in enumerate(translations):
        scores = result["score"][row]
        if not translation.num_pieces:
            assert scores.tolist() == [0.0, -math.inf, -math.inf]
            assert set(result["translation"][row]) == {b""}
            continue
        assert result["translation"][row, 0].decode() == translation.text
        assert scores[0] == pytest.approx(translation.score, abs=1e-4)
        assert (np.diff(scores[scores > -math.inf]) <= 0).all()
        source = [piece for piece in result["source_pieces"][row] if piece]
        assert source[-1] == b"</s>"
        for n in np.flatnonzero(scores > -math.inf):
            target = [piece for piece in result["target_pieces"][row, n] if piece]
            assert target[-1] == b"</s>"
            probs = result["attention_probs"][row, n, : len(target), : len(source)]
            np.testing.assert_allclose(probs.sum(axis=-1), 1.0, atol=1e-5)
            assert not result["attention_probs"][row, n, len(target) :].any()
        kept = [tuple(result["target_pieces"][row, n]) for n in range(SEARCH.beam_width) if scores[n] > -math.inf]
        assert len(set(kept)) == len(kept)


def test_score_pair_gives_the_log_probability_the_search_found(signatures):
    lines = ["one two red cat .", "blue"]
    found = signatures["n_best"](text=tf.constant(lines))
    scored = signatures["score_pair"](text=tf.constant(lines), translation=found["translation"][:, 0])
    # With the penalties undone, the score of the search is log P: lp(Y) is known, so coverage alone remains.
    assert scored["num_pieces"].numpy().tolist() == [
        sum(bool(piece) for piece in pieces[0]) for pieces in found["target_pieces"].numpy()
    ]
    for row in range(2):
        lp = ((5 + int(scored["num_pieces"][row])) / 6) ** SEARCH.length_penalty_weight
        covered = found["attention_probs"][row, 0].numpy().sum(axis=0)
        real = [i for i, piece in enumerate(found["source_pieces"][row].numpy()) if piece]
        cp = SEARCH.coverage_penalty_weight * np.log(np.clip(covered[real], 1e-6, 1.0)).sum()
        assert float(scored["log_prob"][row]) == pytest.approx((float(found["score"][row, 0]) - cp) * lp, abs=1e-3)


def test_a_batch_of_blank_lines_alone_and_an_empty_batch_are_answered(signatures):
    blank = signatures["serving_default"](text=tf.constant(["", "  "]))
    assert blank["translation"].numpy().tolist() == [b"", b""]
    assert not blank["score"].numpy().any()
    assert not blank["truncated"].numpy().any()
    empty = signatures["serving_default"](text=tf.constant([], tf.string))
    assert empty["translation"].shape == [0]


def test_score_pair_refuses_unequal_numbers_of_rows(signatures):
    with pytest.raises(tf.errors.InvalidArgumentError, match="unequal numbers of rows"):
        signatures["score_pair"](text=tf.constant(["one", "two"]), translation=tf.constant(["un"]))


def test_bytes_that_are_no_utf8_get_an_answer(signatures):
    assert signatures["serving_default"](text=tf.constant([b"one \xff\xfe two"]))["translation"].shape == [1]


def test_versions_count_up_and_carry_vocabulary_and_warm_up_requests(trained_model, tmp_path):
    for version in (1, 2):
        export = export_saved_model(str(trained_model), str(tmp_path), SEARCH)
        assert export.version == version
        assert export.path == str(tmp_path / str(version))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2"]
    assert sorted(path.name for path in (tmp_path / "2" / "assets").iterdir()) == ["config.yaml", "vocabulary.json"]
    assert (tmp_path / "2" / "assets.extra" / "tf_serving_warmup_requests").stat().st_size


def test_an_export_directory_that_cannot_be_made_is_refused(trained_model, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="--export_dir"):
        export_saved_model(str(trained_model), str(tmp_path / "file"), SEARCH)
