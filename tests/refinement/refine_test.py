"""`gnmt refine` and `gnmt train --initial_model`: runs that begin with a trained model."""

import csv
import io

import numpy as np
import pytest
from tiny_run import tiny_overrides, write_corpus

from gnmt_tf.cli import run
from gnmt_tf.config import UserError, load_config
from gnmt_tf.refinement.refine import refine, refinement_settings
from gnmt_tf.training.model_directory import ModelDirectory, load_model
from gnmt_tf.training.trainer import Start, train

SHORT = ["refinement.num_steps=6", "refinement.num_samples=3", "refinement.evaluate_every_steps=3"]


def rows(model_dir):
    with open(model_dir / "logs" / "training.csv", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_refined_model_is_a_model_directory_of_its_own(trained_model, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in trained_model.rglob("*")}
    sets = [f"--set={value}" for value in SHORT]
    assert run(["refine", f"--model_dir={trained_model}", f"--refined_dir={tmp_path / 'refined'}", *sets]) == 0
    assert {path: path.stat().st_mtime_ns for path in trained_model.rglob("*")} == before
    refined = load_model(str(tmp_path / "refined"), "latest")
    assert refined.step == 6
    assert refined.config.training.num_steps == 6
    rewards = [float(row["reward"]) for row in rows(tmp_path / "refined") if row["reward"]]
    assert len(rewards) == 6
    assert all(0.0 < reward < 1.0 for reward in rewards)
    assert refined.segmenter.vocabulary.pieces == load_model(str(trained_model)).segmenter.vocabulary.pieces


def test_a_refinement_goes_on_where_it_was_stopped(trained_model, tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    refine(str(trained_model), str(whole), SHORT, output=io.StringIO())
    refine(str(trained_model), str(broken), [*SHORT, "training.num_steps=3"], output=io.StringIO())
    output = io.StringIO()
    refine(str(trained_model), str(broken), [*SHORT, "training.num_steps=6"], output=output)
    assert "Continuing after step 3" in output.getvalue()
    assert "reward 0." in output.getvalue()
    weights = [load_model(str(path), "latest").model.get_weights() for path in (whole, broken)]
    for first, second in zip(*weights, strict=True):
        np.testing.assert_array_equal(first, second)


def test_refining_into_the_directory_of_the_model_itself_is_refused(trained_model, capsys):
    assert run(["refine", f"--model_dir={trained_model}", f"--refined_dir={trained_model}/."]) == 2
    assert "expected another directory than --model_dir" in capsys.readouterr().err


def test_an_explicit_setting_goes_before_those_of_the_section_refinement(trained_model):
    trained_with = ModelDirectory(str(trained_model)).read_config()
    config = refinement_settings(trained_with, ["refinement.learning_rate=0.5", "training.max_minutes=3"])
    assert config.training.adam_learning_rate == 0.5
    assert config.training.max_minutes == 3
    assert config.training.adam_steps == config.training.num_steps == config.refinement.num_steps
    assert config.model == trained_with.model


def test_training_can_begin_with_another_model(trained_model, tmp_path):
    text = write_corpus(tmp_path, 30, seed=5)
    overrides = tiny_overrides(text, training__num_steps=1, training__adam_learning_rate=1e-6)
    arguments = [f"--set={override}" for override in overrides]
    assert run(["train", f"--model_dir={tmp_path / 'new'}", f"--initial_model={trained_model}", *arguments]) == 0
    old, new = load_model(str(trained_model)), load_model(str(tmp_path / "new"))
    assert new.segmenter.vocabulary.fingerprint == old.segmenter.vocabulary.fingerprint
    for first, second in zip(old.model.get_weights(), new.model.get_weights(), strict=True):
        np.testing.assert_allclose(second, first, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model__num_units": 14}, "the shape that the config section `model` describes"),
        ({"model__num_encoder_layers": 3}, "the shape that the config section `model` describes"),
        ({"text__lowercase": "true"}, "text.lowercase False, not True"),
    ],
)
def test_a_model_of_another_shape_or_spelling_cannot_be_begun_with(trained_model, tmp_path, changes, message):
    config = load_config(None, tiny_overrides(write_corpus(tmp_path, 30, seed=5), **changes))
    with pytest.raises(UserError, match=message):
        train(config, str(tmp_path / "new"), io.StringIO(), start=Start(load_model(str(trained_model))))
    assert not ModelDirectory(str(tmp_path / "new")).has_checkpoints()
