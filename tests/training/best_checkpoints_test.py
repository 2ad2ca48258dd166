import numpy as np
import pytest
import tensorflow as tf
from tiny_run import tiny_overrides, write_corpus

from gnmt_tf import cli
from gnmt_tf.config import UserError, load_config
from gnmt_tf.text.vocabulary import Vocabulary
from gnmt_tf.training.best_checkpoints import BestCheckpoints, average_checkpoints
from gnmt_tf.training.model_directory import ModelDirectory, TrainingState, load_checkpoint, load_model
from gnmt_tf.training.trainer import train


@pytest.fixture
def make(trained_model, tmp_path):
    """A keeper of the best over a checkpoint whose scores can be set, as after a restart whenever it is called."""
    state = TrainingState(Vocabulary.load(str(trained_model / "vocabulary.json")), "")
    checkpoint = tf.train.Checkpoint(state=state)

    def save(keep, *scored):
        best = BestCheckpoints(checkpoint, str(tmp_path), keep)
        for step, bleu in scored:
            if best.would_keep(bleu, 1.0):
                state.evaluated_bleu.assign(bleu)
                state.evaluated_log_perplexity.assign(1.0)
                best.save(step, bleu, 1.0)
        listed = tf.train.get_checkpoint_state(str(tmp_path)).all_model_checkpoint_paths
        assert sorted(path + ".index" for path in listed) == sorted(map(str, tmp_path.glob("*.index")))
        return [path.rpartition("ckpt-")[2] for path in listed]

    return save


def test_the_best_are_kept_and_the_best_of_all_is_last(make):
    assert make(3, (1, 5.0), (2, 9.0), (3, 7.0), (4, 6.0), (5, 8.0), (6, 1.0)) == ["3", "5", "2"]


def test_a_restarted_run_knows_the_scores_of_what_it_kept(make):
    assert make(2, (1, 5.0), (2, 9.0)) == ["1", "2"]
    assert make(2, (3, 4.0)) == ["1", "2"]
    assert make(2, (3, 7.0)) == ["3", "2"]


def test_the_same_step_again_takes_the_place_of_its_first_checkpoint(make):
    assert make(2, (1, 5.0), (2, 9.0), (1, 5.5)) == ["1", "2"]


@pytest.fixture
def model_dir(tmp_path):
    overrides = tiny_overrides(
        write_corpus(tmp_path, 60), write_corpus(tmp_path, 5, seed=2), training__keep_checkpoints=3,
        training__keep_best=2, training__evaluate_every_steps=3,
    )  # fmt: skip
    train(load_config(None, overrides), str(tmp_path / "model"))
    return str(tmp_path / "model")


@pytest.mark.parametrize(("which", "last", "count"), [("latest", None, 3), ("latest", 2, 2), ("best", None, 2)])
def test_the_average_is_that_of_the_weights(model_dir, which, last, count):
    directory = ModelDirectory(model_dir)
    prefixes = directory.checkpoints(which)[-count:]
    expected = [load_checkpoint(directory, prefix).model.get_weights() for prefix in prefixes]
    assert len(expected) == count
    averaged = average_checkpoints(model_dir, which, last)
    again = load_model(model_dir, "averaged")
    assert again.step == averaged.step == max(int(prefix.rpartition("-")[2]) for prefix in prefixes)
    for weight, *values in zip(again.model.get_weights(), *expected, strict=True):
        np.testing.assert_allclose(weight, np.mean(values, axis=0), atol=1e-7)


def test_the_command_averages_and_the_next_one_uses_it(model_dir, tmp_path, capsys):
    assert cli.run(["average", "--model_dir", model_dir, "--checkpoints", "latest"]) == 0
    assert capsys.readouterr().out.strip().endswith("averaged/ckpt-12")
    (tmp_path / "input").write_text("one red cat .\n")
    flags = ["--model_dir", model_dir, "--checkpoint", "averaged", "--input", str(tmp_path / "input")]
    assert cli.run(["translate", *flags]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_one_checkpoint_is_too_few_to_average(trained_model):
    with pytest.raises(UserError, match=r"at least 2 checkpoints, got 1\. Train with a higher training\.keep_best"):
        average_checkpoints(str(trained_model), "best")


def test_an_average_that_was_never_made_is_named(trained_model):
    with pytest.raises(UserError, match="averaged checkpoint, got none yet. Make it with `gnmt average`"):
        load_model(str(trained_model), "averaged")
