"""What has to hold before a run starts or goes on: what does not raises a UserError.

Reads a Config, the model directory and what is in it.
"""

import tensorflow as tf

from gnmt_tf.config import Config, UserError
from gnmt_tf.data.parallel_text import PieceCorpus
from gnmt_tf.text.lines import read_lines
from gnmt_tf.text.vocabulary import Vocabulary
from gnmt_tf.training.model_directory import ModelDirectory, TrainingState

CHANGEABLE_KEYS = frozenset(
    "training." + key
    for key in (
        "num_steps",
        "max_minutes",
        "evaluate_every_steps",
        "checkpoint_every_steps",
        "keep_checkpoints",
        "keep_best",
        "log_every_steps",
        "early_stopping_patience",
        "max_skipped_steps",
        "evaluate_beam_width",
        "jit_compile",
    )
)
"""What may differ when a run is continued; any key of `search`, and the paths of files, may too."""

PATH_KEYS = frozenset(
    "data." + key for key in ("train_source", "train_target", "dev_source", "dev_target", "vocabulary")
)


def check_strategy(config: Config, strategy: tf.distribute.Strategy) -> None:
    """Refuses what XLA cannot do: several replicas on CPU devices."""
    if strategy.num_replicas_in_sync == 1 or not config.training.jit_compile:
        return
    if all("CPU" in device.upper() for device in strategy.extended.worker_devices):
        # XLA looks for the variables of every replica on the first CPU device.
        raise UserError(
            "config key training.jit_compile",
            f"false, with {strategy.num_replicas_in_sync} replicas on CPU devices",
            "true",
            "Set it to false, or train on one device.",
        )


def needed_paths(config: Config) -> tuple[str, str]:
    """The training files; refuses a config without them, with one development file alone, or with a missing one."""
    data = config.data
    for key, value in (("data.train_source", data.train_source), ("data.train_target", data.train_target)):
        if not value:
            raise UserError(f"config key {key}", "a text file", "nothing", f"Give one with --set {key}=FILE.")
    if bool(data.dev_source) != bool(data.dev_target):
        raise UserError(
            "config keys data.dev_source, data.dev_target", "both or neither", "only one", "Give the other one too."
        )
    for path in (data.dev_source, data.dev_target):
        if path:
            # A missing file is better found now than after minutes of work on the training text.
            next(read_lines(path), None)
    return str(data.train_source), str(data.train_target)


def checkpoint_to_continue(directory: ModelDirectory) -> str | None:
    """The latest checkpoint, None in a new directory; refuses one whose checkpoints are all damaged."""
    prefix = directory.checkpoint("latest")
    if prefix is None and directory.has_checkpoints():
        raise UserError(
            f"--model_dir {directory.path}",
            "a whole checkpoint, or none at all",
            "checkpoint files of which none can be used",
            "Copy checkpoints/latest again, or train into a new directory.",
        )
    return prefix


def check_corpus(state: TrainingState, corpus: PieceCorpus, paths: tuple[str, str]) -> None:
    """Refuses to go on with other sentence pairs."""
    trained_on = state.corpus_fingerprint.numpy().decode()
    if trained_on != corpus.fingerprint:
        raise UserError(
            ", ".join(paths),
            f"the sentence pairs the model was trained on so far (fingerprint {trained_on})",
            f"{corpus.num_pairs} others ({corpus.fingerprint})",
            "Give the same files, or train into a new directory.",
        )


def check_config(config: Config, directory: ModelDirectory) -> None:
    """Refuses to continue a model with settings that would make it another one."""
    old, new = directory.read_config().model_dump(), config.model_dump()
    differing = [
        f"{section}.{key} ({old[section][key]!r} -> {value!r})"
        for section, values in new.items()
        for key, value in values.items()
        if section != "search" and f"{section}.{key}" not in CHANGEABLE_KEYS | PATH_KEYS and old[section][key] != value
    ]
    if differing:
        raise UserError(
            f"--model_dir {directory.path}",
            "the settings its model was trained with so far",
            ", ".join(differing),
            "Undo the change, or train into a new directory. These may change on the way: search.*, paths of files, "
            + ", ".join(sorted(CHANGEABLE_KEYS))
            + ".",
        )


def check_settings(vocabulary: Vocabulary, config: Config, origin: str) -> None:
    """Refuses a given vocabulary (`origin` says where it is from) that reads text otherwise than the settings say."""
    made_with, asked_for = vocabulary.config.model_dump(), config.text.model_dump()
    # How many pieces there are to be is a wish; what they are made of decides how text is read.
    differing = [
        f"text.{key} {made_with[key]!r}, not {value!r}"
        for key, value in asked_for.items()
        if key in ("unicode_form", "lowercase", "split_digits") and made_with[key] != value
    ]
    if differing:
        raise UserError(
            origin,
            "a vocabulary made with the settings in `text`",
            "one made with " + ", ".join(differing),
            "Make it again with `gnmt vocab`, or change the settings.",
        )
