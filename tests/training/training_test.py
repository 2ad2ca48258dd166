import csv
import io
import os
import resource
import signal
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from tiny_run import tiny_overrides, write_corpus

from gnmt_tf.config import UserError, load_config
from gnmt_tf.text.vocabulary import Vocabulary
from gnmt_tf.training.model_directory import ModelDirectory, load_model
from gnmt_tf.training.trainable import TrainableGNMT
from gnmt_tf.training.trainer import Outcome, train


def run_gnmt(*arguments, **options):
    command = [sys.executable, "-m", "gnmt_tf.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, **options)


def train_flags(model_dir, overrides):
    return ["train", "--model_dir", model_dir, *(f"--set={override}" for override in overrides)]


def logged(model_dir):
    """Loss of each step, and development BLEU of each evaluated one."""
    with open(os.path.join(model_dir, "logs", "training.csv"), newline="") as file:
        rows = list(csv.DictReader(file))
    losses = {int(row["step"]): float(row["loss"]) for row in rows if row["loss"]}
    return losses, {int(row["step"]): float(row["dev_bleu"]) for row in rows if row["dev_bleu"]}


def test_training_learns_and_leaves_what_the_next_command_needs(tmp_path):
    corpus, output = write_corpus(tmp_path, 200), io.StringIO()
    overrides = tiny_overrides(
        corpus, write_corpus(tmp_path, 10, seed=2), training__num_steps=60, training__evaluate_every_steps=30,
        model__init_scale=0.3, training__dropout=0.0,
    )  # fmt: skip
    result = train(load_config(None, overrides), str(tmp_path / "model"), output)
    assert (result.outcome, result.step) == (Outcome.FINISHED, 60)
    losses, bleu = logged(tmp_path / "model")
    assert losses[60] < 0.8 * losses[1]
    assert sorted(bleu) == [30, 60]
    assert "step 60/60" in output.getvalue()
    loaded = load_model(str(tmp_path / "model"), "latest")
    assert loaded.step == 60
    assert loaded.config.training.num_steps == 60
    events = list((tmp_path / "model" / "logs").glob("events.out.tfevents.*"))
    assert events


@pytest.mark.slow
def test_ctrl_c_saves_the_step_it_stopped_at(tmp_path):
    overrides = tiny_overrides(write_corpus(tmp_path, 60), training__num_steps=100000)
    process = subprocess.Popen(
        [sys.executable, "-m", "gnmt_tf.cli", *map(str, train_flags(tmp_path / "model", overrides))],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("step 10/"):
            break
    process.send_signal(signal.SIGINT)
    rest = process.stderr.read()
    assert process.wait() == 130
    assert "run the same command again to continue" in rest
    assert "Traceback" not in rest
    step = int(rest.split("Stopped and saved at step ")[1].split(";")[0])
    assert ModelDirectory(str(tmp_path / "model")).checkpoint("latest").endswith(f"ckpt-{step}")
    assert step >= 10


def test_a_preempted_evaluation_is_made_up_for_in_the_next_run(tmp_path, monkeypatch):
    corpus, dev = write_corpus(tmp_path, 60), write_corpus(tmp_path, 5, seed=2)
    overrides = tiny_overrides(corpus, dev, training__num_steps=8, training__evaluate_every_steps=3)
    undisturbed = train(load_config(None, overrides), str(tmp_path / "whole"), io.StringIO())

    def terminated(*arguments, progress, **_):
        os.kill(os.getpid(), signal.SIGTERM)
        progress(1)
        raise AssertionError("went on after the signal")

    with monkeypatch.context() as patch:
        patch.setattr("gnmt_tf.training.trainer.evaluate", terminated)
        stopped = train(load_config(None, overrides), str(tmp_path / "model"), io.StringIO())
    assert (stopped.outcome, stopped.step) == (Outcome.TERMINATED, 3)
    assert load_model(str(tmp_path / "model"), "latest").step == 3
    assert train(load_config(None, overrides), str(tmp_path / "model"), io.StringIO()) == undisturbed
    assert logged(tmp_path / "model") == logged(tmp_path / "whole")


@pytest.mark.slow
def test_a_full_disk_while_saving_leaves_the_checkpoint_before(tmp_path):
    # A limit on the size of files stands for the full disk: writing fails in the middle of the checkpoint.
    overrides = tiny_overrides(write_corpus(tmp_path, 60), training__num_steps=4)
    model_dir = tmp_path / "model"
    assert run_gnmt(*train_flags(model_dir, overrides)).returncode == 0
    before = load_model(str(model_dir), "latest")
    overrides.append("training.num_steps=8")
    limit = 20_000
    assert os.path.getsize(before.checkpoint + ".data-00000-of-00001") > limit
    full = run_gnmt(
        *train_flags(model_dir, overrides),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert full.returncode == 2, full.stderr
    assert "checkpoint of step 8" in full.stderr
    assert "goes on from" in full.stderr
    assert "Traceback" not in full.stderr
    assert load_model(str(model_dir), "latest").step == 4
    again = run_gnmt(*train_flags(model_dir, overrides))
    assert again.returncode == 0, again.stderr
    assert load_model(str(model_dir), "latest").step == 8


def test_a_finished_run_started_again_does_nothing(model_copy):
    output = io.StringIO()
    config = ModelDirectory(str(model_copy)).read_config()
    before = load_model(str(model_copy), "latest").checkpoint
    assert train(config, str(model_copy), output).step == config.training.num_steps
    assert load_model(str(model_copy), "latest").checkpoint == before


def test_a_changed_setting_is_refused_when_a_model_is_continued(model_copy):
    config = ModelDirectory(str(model_copy)).read_config()
    changed = config.model_copy(update={"data": config.data.model_copy(update={"batch_size": 9})})
    with pytest.raises(UserError, match=r"data\.batch_size \(8 -> 9\)"):
        train(changed, str(model_copy), io.StringIO())


def test_more_steps_are_no_reason_to_refuse(model_copy):
    config = ModelDirectory(str(model_copy)).read_config()
    longer = config.model_copy(update={"training": config.training.model_copy(update={"num_steps": 14})})
    output = io.StringIO()
    assert train(longer, str(model_copy), output).step == 14
    assert "Continuing after step 12" in output.getvalue()


def test_a_lost_newest_checkpoint_falls_back_on_the_one_before(model_copy):
    directory = ModelDirectory(str(model_copy))
    newest = directory.checkpoint("latest")
    for suffix in (".index", ".data-00000-of-00001"):
        os.remove(newest + suffix)
    assert load_model(str(model_copy), "latest").step < 12
    output = io.StringIO()
    assert train(directory.read_config(), str(model_copy), output).step == 12
    assert "Continuing after step 8" in output.getvalue()


def test_training_does_not_start_over_where_no_checkpoint_can_be_used(model_copy):
    directory = ModelDirectory(str(model_copy))
    for name in os.listdir(directory.checkpoints_path("latest")):
        if name.endswith(".index"):
            os.remove(os.path.join(directory.checkpoints_path("latest"), name))
    with pytest.raises(UserError, match="checkpoint files of which none can be used"):
        train(directory.read_config(), str(model_copy), io.StringIO())


def test_a_checkpoint_that_was_cut_short_is_named(model_copy):
    prefix = ModelDirectory(str(model_copy)).checkpoint("best")
    with open(prefix + ".data-00000-of-00001", "r+b") as file:
        file.truncate(100)
    with pytest.raises(UserError, match="checkpoint"):
        load_model(str(model_copy), "best")


def test_another_corpus_under_the_same_name_is_refused(trained_model, model_copy, tmp_path):
    config = ModelDirectory(str(model_copy)).read_config()
    source, target = write_corpus(tmp_path, 61)
    data = config.data.model_copy(update={"train_source": str(source), "train_target": str(target)})
    with pytest.raises(UserError, match="the sentence pairs the model was trained on so far"):
        train(config.model_copy(update={"data": data}), str(model_copy), io.StringIO())


def test_the_best_score_is_remembered_when_the_last_step_is_evaluated_after_it_was_saved(tmp_path):
    corpus, dev = write_corpus(tmp_path, 60), write_corpus(tmp_path, 5, seed=2)
    overrides = tiny_overrides(corpus, dev, training__num_steps=4, training__evaluate_every_steps=100)
    first = train(load_config(None, overrides), str(tmp_path / "model"), io.StringIO())
    assert first.best_step == 4
    output = io.StringIO()
    again = train(load_config(None, overrides), str(tmp_path / "model"), output)
    assert again == first
    assert "development BLEU" not in output.getvalue()


def test_training_that_goes_to_infinity_stops_with_a_reason_and_keeps_the_checkpoint_before(tmp_path):
    overrides = tiny_overrides(
        write_corpus(tmp_path, 60), training__adam_learning_rate=1e38, training__num_steps=40,
        training__checkpoint_every_steps=1000, training__constrained=False,
    )  # fmt: skip
    output = io.StringIO()
    with pytest.raises(
        UserError, match="a finite loss and gradient, got 11 steps in a row .* no longer finite|weights"
    ):
        train(load_config(None, overrides), str(tmp_path / "model"), output)
    assert output.getvalue().count(" skipped: loss ") == 11
    assert load_model(str(tmp_path / "model"), "latest").step == 0


def test_training_ends_when_the_best_score_stays_the_best(tmp_path):
    # A rate of almost nothing: the scores of all evaluations are those of the first.
    overrides = tiny_overrides(
        write_corpus(tmp_path, 60), write_corpus(tmp_path, 5, seed=2), training__num_steps=40,
        training__evaluate_every_steps=2, training__adam_learning_rate=1e-30, training__early_stopping_patience=3,
        training__dropout=0.0, training__clip_bound_start=1.0,
    )  # fmt: skip
    output = io.StringIO()
    result = train(load_config(None, overrides), str(tmp_path / "model"), output)
    assert (result.outcome, result.step, result.best_step) == (Outcome.FINISHED, 8, 2)
    assert "Ends here: 3 evaluations without a new best." in output.getvalue()
    again = train(load_config(None, overrides), str(tmp_path / "model"), io.StringIO())
    assert again == result


def test_the_rate_is_lowered_when_no_new_best_comes_and_stays_so_in_the_next_run(tmp_path):
    overrides = tiny_overrides(
        write_corpus(tmp_path, 60), write_corpus(tmp_path, 5, seed=2), training__num_steps=6,
        training__evaluate_every_steps=2, training__adam_learning_rate=1e-30, training__schedule="plateau",
        training__plateau_patience=1, training__dropout=0.0, training__clip_bound_start=1.0,
    )  # fmt: skip
    output = io.StringIO()
    train(load_config(None, overrides), str(tmp_path / "model"), output)
    assert output.getvalue().count("Learning rate lowered") == 2
    overrides = [*overrides, "training.num_steps=7"]
    train(load_config(None, overrides), str(tmp_path / "model"), output)
    with open(tmp_path / "model" / "logs" / "training.csv", newline="") as file:
        rates = {int(row["step"]): float(row["learning_rate"]) for row in csv.DictReader(file) if row["loss"]}
    assert rates[7] == pytest.approx(0.25e-30)


def test_the_model_to_use_is_the_average_and_training_goes_on_from_the_weights(tmp_path):
    corpus = write_corpus(tmp_path, 60)
    decay = {"training__average_decay": 0.9}
    plain, averaged = (
        tiny_overrides(corpus, training__num_steps=6, training__dropout=0.0, **changes) for changes in ({}, decay)
    )
    for name, overrides in (("plain", plain), ("averaged", averaged)):
        train(load_config(None, overrides), str(tmp_path / name), io.StringIO())
        train(load_config(None, [*overrides, "training.num_steps=12"]), str(tmp_path / name), io.StringIO())
    # The same losses: the average changes what is used, not what is trained.
    assert logged(tmp_path / "plain")[0] == logged(tmp_path / "averaged")[0]
    first, second = (load_model(str(tmp_path / name)).model.get_weights() for name in ("plain", "averaged"))
    assert any(not np.allclose(a, b, atol=1e-4) for a, b in zip(first, second, strict=True))


def test_out_of_memory_names_what_to_lower(tmp_path, monkeypatch):
    def no_memory(*_, **__):
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor with shape[64,1024]")

    monkeypatch.setattr(TrainableGNMT, "fit", no_memory)
    with pytest.raises(UserError, match=r"GiB \(weights .*data\.batch_size .*training\.accumulate_batches") as caught:
        train(load_config(None, tiny_overrides(write_corpus(tmp_path, 60))), str(tmp_path / "model"), io.StringIO())
    assert "OOM when allocating" in str(caught.value)


def test_a_model_trained_without_constraints_is_used_without_them(tmp_path):
    overrides = tiny_overrides(write_corpus(tmp_path, 60), training__num_steps=1, training__constrained=False)
    train(load_config(None, overrides), str(tmp_path / "model"), io.StringIO())
    assert load_model(str(tmp_path / "model")).model.inference_bounds == (np.inf, np.inf)


def test_a_vocabulary_left_by_a_run_that_never_trained_does_not_count(tmp_path):
    config = load_config(None, tiny_overrides(write_corpus(tmp_path, 60), training__num_steps=1))
    directory = ModelDirectory(str(tmp_path / "model"))
    directory.create()
    (tmp_path / "model" / "vocabulary.json").write_text("left over")
    train(config, str(tmp_path / "model"), io.StringIO())
    assert directory.read_vocabulary().size > 16


def test_a_vocabulary_made_with_other_settings_is_refused(trained_model, tmp_path):
    vocabulary = trained_model / "vocabulary.json"
    overrides = tiny_overrides(write_corpus(tmp_path, 20), data__vocabulary=vocabulary, text__lowercase=True)
    with pytest.raises(UserError, match="text.lowercase False, not True"):
        train(load_config(None, overrides), str(tmp_path / "model"), io.StringIO())


def test_a_missing_development_file_is_found_before_the_work_begins(tmp_path):
    corpus = write_corpus(tmp_path, 20)
    overrides = tiny_overrides(corpus, (tmp_path / "no.en", corpus[1]))
    with pytest.raises(UserError, match="no.en: expected a readable text file"):
        train(load_config(None, overrides), str(tmp_path / "model"), io.StringIO())
    assert not (tmp_path / "model").exists()


def test_a_vocabulary_that_does_not_fit_the_checkpoint_is_refused(model_copy):
    directory = ModelDirectory(str(model_copy))
    vocabulary = directory.read_vocabulary()
    Vocabulary((*vocabulary.pieces[:-2], *vocabulary.pieces[:-3:-1]), vocabulary.config).save(directory.vocabulary_path)
    with pytest.raises(UserError, match=r"vocabulary\.json: expected the vocabulary of the checkpoint"):
        load_model(str(model_copy))
    with pytest.raises(UserError, match=r"vocabulary\.json: expected the vocabulary of the checkpoint"):
        train(directory.read_config(), str(model_copy), io.StringIO())


def test_a_config_of_another_shape_is_refused(model_copy):
    directory = ModelDirectory(str(model_copy))
    config = directory.read_config()
    directory.write_config(config.model_copy(update={"model": config.model.model_copy(update={"num_units": 13})}))
    with pytest.raises(UserError, match=r"weights of the shape"):
        load_model(str(model_copy))


def test_a_damaged_checkpoint_is_named(model_copy):
    prefix = ModelDirectory(str(model_copy)).checkpoint("best")
    with open(prefix + ".index", "wb") as file:
        file.write(b"nothing")
    with pytest.raises(UserError, match="a whole checkpoint"):
        load_model(str(model_copy), "best")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("data.train_source", None, "data.train_source: expected a text file, got nothing"),
        ("data.train_source", "missing.en", "missing.en: expected a readable text file"),
        ("data.train_source", "empty.en", "equally many lines, got 0 and"),
        ("data.dev_source", "text2.en", "both or neither"),
    ],
)
def test_unusable_data_is_refused_with_its_name(tmp_path, monkeypatch, key, value, message):
    monkeypatch.chdir(tmp_path)
    corpus = write_corpus(tmp_path, 20)
    (tmp_path / "empty.en").write_text("")
    overrides = [*tiny_overrides(corpus), f"{key}={'null' if value is None else value}"]
    with pytest.raises(UserError, match=message.replace(".", r"\.")):
        train(load_config(None, overrides), str(tmp_path / "model"), io.StringIO())


def test_a_corpus_of_blank_and_endless_lines_has_no_usable_pair(tmp_path):
    source, target = tmp_path / "a.en", tmp_path / "a.fr"
    source.write_text("\n \n" + "one " * 5000 + "\n")
    target.write_text("un\ndeux\ntrois\n")
    with pytest.raises(UserError, match="3 pairs, of which 2 blank and 1 too long"):
        train(load_config(None, tiny_overrides((source, target))), str(tmp_path / "model"), io.StringIO())


def test_a_model_directory_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="a directory that can be written to"):
        train(load_config(None, tiny_overrides(write_corpus(tmp_path, 5))), str(tmp_path / "file" / "model"))


def test_a_moved_model_directory_still_loads(trained_model, tmp_path):
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for name in os.listdir(trained_model):
        tf.io.gfile.makedirs(str(moved))
        subprocess.run(["cp", "-r", str(trained_model / name), str(moved)], check=True)
    assert load_model(str(moved)).step == load_model(str(trained_model)).step
