"""The model directory: everything that is needed to continue, evaluate, export or move a model.

Holds `config.yaml` (fully resolved), `vocabulary.json`, `checkpoints/latest`, `checkpoints/best`, perhaps
`checkpoints/averaged`, and `logs/`.
"""

import glob
import os
from typing import Literal, NamedTuple

import tensorflow as tf

from gnmt_tf.config import Config, UserError, load_config, to_yaml
from gnmt_tf.model.gnmt import GNMT
from gnmt_tf.text.segmenter import WordpieceSegmenter
from gnmt_tf.text.vocabulary import Vocabulary
from gnmt_tf.text.whole_file import whole_file

Which = Literal["best", "latest", "averaged"]


class ModelDirectory:
    """Paths of one model and the reading and writing of its small files.

    Args:
      path: the directory; it need not exist yet.
    """

    def __init__(self, path: str):
        self.path = path
        self.config_path = os.path.join(path, "config.yaml")
        self.vocabulary_path = os.path.join(path, "vocabulary.json")
        self.shortlist_path = os.path.join(path, "shortlist.npz")
        self.logs_path = os.path.join(path, "logs")

    def checkpoints_path(self, which: Which) -> str:
        """Where checkpoints of a kind lie."""
        return os.path.join(self.path, "checkpoints", which)

    def create(self) -> None:
        """Makes the directory and checks that it can be written to.

        Raises:
          UserError: it cannot.
        """
        try:
            for path in (self.checkpoints_path("latest"), self.checkpoints_path("best"), self.logs_path):
                os.makedirs(path, exist_ok=True)
            probe = os.path.join(self.path, ".writable")
            with open(probe, "w", encoding="utf-8"):
                pass
            os.remove(probe)
        except OSError as error:
            raise UserError(
                f"--model_dir {self.path}",
                "a directory that can be written to",
                os.strerror(error.errno or 0),
                "Choose another path or mend its permissions.",
            ) from None

    def write_config(self, config: Config) -> None:
        """Saves the resolved configuration, whole or not at all.

        Raises:
          UserError: the disk is full or the directory cannot be written to.
        """
        try:
            with whole_file(self.config_path) as file:
                file.write(to_yaml(config))
        except OSError as error:
            raise UserError(
                self.config_path,
                "a file that can be written to",
                os.strerror(error.errno or 0),
                "Free some space, or choose another --model_dir.",
            ) from None

    def read_config(self) -> Config:
        """The configuration the model was trained with.

        Raises:
          UserError: there is none.
        """
        if not os.path.exists(self.config_path):
            if self.has_checkpoints():
                raise UserError(
                    self.config_path,
                    "the configuration that the checkpoints beside it were trained with",
                    "no such file",
                    "Put config.yaml back.",
                )
            raise UserError(
                f"--model_dir {self.path}",
                "a model directory, with config.yaml in it",
                "no config.yaml" if os.path.isdir(self.path) else "no such directory",
                "Make one with `gnmt train --model_dir`.",
            )
        return load_config(self.config_path)

    def read_vocabulary(self) -> Vocabulary:
        """The vocabulary the model was trained with."""
        return Vocabulary.load(self.vocabulary_path)

    def checkpoint(self, which: Which) -> str | None:
        """Path prefix of the first choice among the checkpoints of a kind: the latest, or the best."""
        return next(reversed(self.checkpoints(which)), None)

    def checkpoints(self, which: Which) -> list[str]:
        """Path prefixes of all checkpoints of a kind, the first choice last."""
        return listed_checkpoints(self.checkpoints_path(which))

    def has_checkpoints(self) -> bool:
        """Whether any checkpoint file is there, readable or not."""
        paths = [self.checkpoints_path("best"), self.checkpoints_path("latest")]
        paths = [path for path in paths if os.path.isdir(path)]
        return any(name.endswith((".index", "checkpoint")) for path in paths for name in os.listdir(path))


_READ_ERRORS = (tf.errors.OpError, ValueError, IndexError, RuntimeError)
"""What TensorFlow raises for a checkpoint that is damaged, cut short or of another shape."""


class TrainingState(tf.Module):
    """What a checkpoint holds beside weights and optimizer.

    Args:
      vocabulary: whose fingerprint the checkpoint carries, since ids mean nothing without it.
      corpus_fingerprint: of the training pairs, since the order of batches means nothing without them.
    """

    def __init__(self, vocabulary: Vocabulary, corpus_fingerprint: str):
        super().__init__()
        self.elapsed_seconds = tf.Variable(0.0, dtype=tf.float64)
        self.best_bleu = tf.Variable(-1.0, dtype=tf.float64)
        self.best_log_perplexity = tf.Variable(float("inf"), dtype=tf.float64)
        self.best_step = tf.Variable(0, dtype=tf.int64)
        self.evaluated_step = tf.Variable(-1, dtype=tf.int64)
        self.evaluated_bleu = tf.Variable(-1.0, dtype=tf.float64)
        self.evaluated_log_perplexity = tf.Variable(float("inf"), dtype=tf.float64)
        self.evaluations_since_best = tf.Variable(0, dtype=tf.int64)
        self.skipped_steps = tf.Variable(0, dtype=tf.int64)
        self.skipped_in_a_row = tf.Variable(0, dtype=tf.int64)
        self.vocabulary_fingerprint = tf.Variable(vocabulary.fingerprint)
        self.corpus_fingerprint = tf.Variable(corpus_fingerprint)


class LoadedModel(NamedTuple):
    """A trained model, ready to translate.

    Fields:
      model: with its weights.
      segmenter: of its vocabulary.
      config: it was trained with.
      checkpoint: path prefix of the checkpoint.
      step: training steps behind it.
    """

    model: GNMT
    segmenter: WordpieceSegmenter
    config: Config
    checkpoint: str
    step: int

    def save(self, prefix: str, step: int) -> None:
        """Writes the weights as a checkpoint of their own, for inference only."""
        state = TrainingState(self.segmenter.vocabulary, "")
        write_checkpoint(
            tf.train.Checkpoint(model=self.model, state=state, step=tf.Variable(step, dtype=tf.int64)), prefix
        )


def load_model(path: str, which: Which | None = None) -> LoadedModel:
    """Loads a model for inference.

    Args:
      path: a model directory.
      which: the `best` checkpoint by development BLEU, the `latest`, or the `averaged` one; by default the best if
        there is one.

    Raises:
      UserError: no checkpoint, a damaged one, or one made with another vocabulary or shape.
    """
    directory = ModelDirectory(path)
    directory.read_config()
    kinds: list[Which] = [which] if which else ["best", "latest"]
    found = [checkpoint for kind in kinds if (checkpoint := directory.checkpoint(kind))]
    if not found:
        remedy = (
            "Make it with `gnmt average`." if which == "averaged" else "Let `gnmt train` run until it has saved one."
        )
        raise UserError(f"--model_dir {path}", f"{which or 'a'} checkpoint", "none yet", remedy)
    return load_checkpoint(directory, found[0])


def load_checkpoint(directory: ModelDirectory, prefix: str) -> LoadedModel:
    """Loads one checkpoint of a model directory; errors as `load_model`."""
    config, vocabulary = directory.read_config(), directory.read_vocabulary()
    check_vocabulary(prefix, vocabulary, directory.vocabulary_path)
    model = GNMT(config.model, vocabulary.size, config.training.constrained)
    step = tf.Variable(0, dtype=tf.int64)
    restore(tf.train.Checkpoint(model=model, step=step), prefix)
    for weight in model.weights:
        if not bool(tf.reduce_all(tf.math.is_finite(weight))):
            raise UserError(
                f"checkpoint {prefix}",
                "finite weights",
                f"NaN or Inf in {weight.name}",
                "Training had diverged there: use an earlier checkpoint.",
            )
    return LoadedModel(model, WordpieceSegmenter(vocabulary), config, prefix, int(step))


def listed_checkpoints(path: str) -> list[str]:
    """Path prefixes of the checkpoints that a directory's list names and that are there, in the list's order."""
    state = tf.train.get_checkpoint_state(path)
    prefixes = state.all_model_checkpoint_paths if state else []
    return [prefix for prefix in prefixes if os.path.exists(prefix + ".index")]


def write_checkpoint(checkpoint: tf.train.Checkpoint, prefix: str) -> None:
    """Writes the files of one checkpoint, and leaves none when that fails.

    Raises:
      tf.errors.OpError, OSError: the disk is full or the directory cannot be written to.
    """
    try:
        checkpoint.write(prefix)
    except BaseException:
        for path in glob.glob(glob.escape(prefix) + ".*"):
            os.remove(path)
        raise


def score_of(prefix: str) -> tuple[float, float]:
    """Development BLEU of a checkpoint's weights, and log perplexity with its sign turned."""
    reader = tf.train.load_checkpoint(prefix)
    names = ("evaluated_bleu", "evaluated_log_perplexity")
    bleu, log_perplexity = (float(reader.get_tensor(f"state/{name}/.ATTRIBUTES/VARIABLE_VALUE")) for name in names)
    return bleu, -log_perplexity


def restore(checkpoint: tf.train.Checkpoint, prefix: str) -> None:
    """Restores every object of `checkpoint` from the files at `prefix`.

    Raises:
      UserError: the files are damaged or were made with another shape of model.
    """
    try:
        checkpoint.read(prefix).assert_existing_objects_matched().expect_partial()
    except (AssertionError, *_READ_ERRORS) as error:
        raise UserError(
            f"checkpoint {prefix}",
            "weights of the shape that config.yaml and the vocabulary ask for",
            _first_line(error),
            "Use the config.yaml and vocabulary.json it was trained with.",
        ) from None


def check_vocabulary(prefix: str, vocabulary: Vocabulary, name: str) -> None:
    """Compares the vocabulary with the one a checkpoint was made with.

    Raises:
      UserError: they differ, or the checkpoint cannot be read.
    """
    try:
        reader = tf.train.load_checkpoint(prefix)
        trained_with = reader.get_tensor("state/vocabulary_fingerprint/.ATTRIBUTES/VARIABLE_VALUE").decode()
    except _READ_ERRORS as error:
        raise UserError(
            f"checkpoint {prefix}",
            "a whole checkpoint of this program",
            _first_line(error),
            "Copy it again, or remove its files to fall back on the one before.",
        ) from None
    if trained_with != vocabulary.fingerprint:
        raise UserError(
            name,
            f"the vocabulary of the checkpoint (fingerprint {trained_with})",
            f"another one ({vocabulary.fingerprint}, {vocabulary.size} pieces)",
            "Put the vocabulary.json that the model was trained with beside it, or train into a new directory.",
        )


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
