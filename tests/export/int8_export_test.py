"""An int8 SavedModel: its signatures, in a program of its own, and beside the float one."""

import json
import subprocess
import sys

import numpy as np
import pytest
from engine_build import built_ops
from tiny_run import write_corpus

from gnmt_tf.cli import run
from gnmt_tf.config import UserError
from gnmt_tf.export.saved_model import export_saved_model, int8_engine
from gnmt_tf.quantization.int8_reference import Int8Reference
from gnmt_tf.search.translator import Translator
from gnmt_tf.training.model_directory import load_model

LINES = ["one two red cat .", "", "blue dog three .", "   ", "漢字 two", "cat " * 40]

PROGRAM = """
import json, sys
import tensorflow as tf
import tensorflow_text
import gnmt_tf.ops
assert not [name for name in sys.modules if name.startswith("gnmt_tf.") and not name.startswith("gnmt_tf.ops")]
model = tf.saved_model.load(sys.argv[1])
text = tf.constant(json.loads(sys.argv[2]))
found = {name: function(text=text) for name, function in model.signatures.items() if name != "score_pair"}
first = {name: value.numpy().tolist() for name, value in found["serving_default"].items()}
pair = model.signatures["score_pair"](text=text, translation=found["serving_default"]["translation"])
print(json.dumps({
    "translation": [line.decode() for line in first["translation"]],
    "score": first["score"],
    "truncated": first["truncated"],
    "best": [row[0].decode() for row in found["n_best"]["translation"].numpy().tolist()],
    "shapes": {name: value.shape.as_list() for name, value in found["n_best"].items()},
    "attention": float(tf.reduce_max(tf.reduce_sum(found["n_best"]["attention_probs"], axis=-1))),
    "log_prob": pair["log_prob"].numpy().tolist(),
    "num_pieces": pair["num_pieces"].numpy().tolist(),
}))
"""


@pytest.fixture(scope="module")
def export(trained_model, tmp_path_factory):
    built_ops()
    base = tmp_path_factory.mktemp("export")
    assert run(["export", f"--model_dir={trained_model}", f"--export_dir={base}/old", "--precision=int8"]) == 0
    # Where it was made does not matter.
    (base / "old").rename(base / "moved")
    return base / "moved" / "1"


def test_a_program_that_knows_only_the_ops_translates_with_a_moved_export(export, trained_model):
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(export), json.dumps(LINES)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr[-3000:]
    found = json.loads(result.stdout.splitlines()[-1])
    assert found["translation"][1] == found["translation"][3] == ""
    assert found["score"][1] == found["score"][3] == 0.0
    assert found["best"] == found["translation"]
    assert found["shapes"]["translation"] == [6, 3]
    assert found["shapes"]["attention_probs"][:2] == [6, 3]
    assert found["attention"] == pytest.approx(1.0, abs=1e-5)
    # What score_pair says is what the reference says of the same pieces.
    loaded = load_model(str(trained_model))
    reference = Int8Reference(loaded.model)
    source = np.array([*loaded.segmenter.encode(LINES[0]), 3])
    target = [*loaded.segmenter.encode(found["translation"][0]), 3]
    memory, state, total = reference.encode(source), reference.initial_state(1), 0.0
    for before, piece in zip([2, *target[:-1]], target, strict=True):
        step = reference.step(np.array([before]), state, memory)
        state, total = step.state, total + float(step.log_probs[0, piece])
    assert found["num_pieces"][0] == len(target)
    assert found["log_prob"][0] == pytest.approx(total, rel=1e-5)


def test_the_file_of_weights_is_an_asset_and_there_are_no_float_weights(export):
    assert (export / "assets" / "int8_weights.bin").stat().st_size > 1000
    assert (export / "assets.extra" / "tf_serving_warmup_requests").exists()
    variables = export / "variables" / "variables.data-00000-of-00001"
    assert not variables.exists() or variables.stat().st_size < 1000


@pytest.mark.parametrize(("key", "value"), [("method", "sample"), ("no_repeat_ngram", 2), ("diverse_groups", 3)])
def test_a_setting_that_the_quantised_search_does_not_know_is_refused(trained_model, tmp_path, key, value):
    search = load_model(str(trained_model)).config.search.model_copy(update={key: value})
    with pytest.raises(UserError, match=f"search.{key}: expected .* in an int8 export"):
        export_saved_model(str(trained_model), str(tmp_path), search, precision="int8")
    assert not list(tmp_path.iterdir())


def test_the_quantisation_report_compares_float_and_int8(trained_model, tmp_path, capsys):
    source, target = write_corpus(tmp_path, 12, seed=4)
    arguments = [f"--source={source}", f"--reference={target}", f"--output={tmp_path}/table1"]
    assert run(["report", "quantization", str(trained_model), *arguments]) == 0
    header, float_row, int8_row, *paths = capsys.readouterr().out.splitlines()
    assert header.split() == ["BLEU", "log", "ppl", "seconds", "speed", "MiB", "changed"]
    assert float_row.split()[0] == "float"
    assert float_row.split()[-1] == "0"
    assert int8_row.split()[0] == "int8"
    log_perplexities = [float(row.split()[2]) for row in (float_row, int8_row)]
    assert log_perplexities[0] == pytest.approx(log_perplexities[1], abs=0.05)
    assert paths == [f"{tmp_path}/table1.png", f"{tmp_path}/table1.csv"]
    assert (
        (tmp_path / "table1.csv").read_text().startswith("name,bleu,log_perplexity,seconds,speed,mebibytes,changed\n")
    )


def test_a_translator_over_the_engine_does_what_it_can_and_refuses_the_rest(trained_model, tmp_path):
    loaded = load_model(str(trained_model))
    search = loaded.config.search.model_copy(update={"n_best": 2})
    engine = int8_engine(loaded.model, loaded.segmenter.vocabulary, search, str(tmp_path))
    translator = Translator(loaded.model, loaded.segmenter, search, engine=engine)
    found = translator.translate(LINES)
    assert [translation.text for translation in found][1] == ""
    assert len(found[0].hypotheses) == 2
    alone = [translator.translate([line])[0] for line in LINES]
    assert [translation.hypotheses for translation in alone] == [translation.hypotheses for translation in found]
    with pytest.raises(UserError, match="none with the quantised engine"):
        translator.translate(["one two"], prefixes=["un"])
    with pytest.raises(UserError, match="with the quantised engine"):
        Translator(loaded.model, loaded.segmenter, search.model_copy(update={"jit_compile": True}), engine=engine)
