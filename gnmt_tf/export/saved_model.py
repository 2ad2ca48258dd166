"""A model directory to a versioned SavedModel that TF Serving, `gnmt serve` and any TensorFlow program load.

Reads a model directory; gives EXPORT_DIR/VERSION with the weights, the signatures, the vocabulary as an asset and
warm-up requests.
"""

import os
import shutil
import tempfile
from typing import TYPE_CHECKING, Literal, NamedTuple

import tensorflow as tf

from gnmt_tf.config import Config, SearchConfig, UserError, to_yaml
from gnmt_tf.export.signatures import FloatEngine, TranslationModule
from gnmt_tf.export.warmup import write_warmup_requests
from gnmt_tf.model.gnmt import GNMT
from gnmt_tf.quantization.int8_reference import Int8Reference
from gnmt_tf.search.engine import Engine
from gnmt_tf.search.translator import banned_ids
from gnmt_tf.text.vocabulary import Vocabulary
from gnmt_tf.training.model_directory import ModelDirectory, Which, load_model

if TYPE_CHECKING:
    from gnmt_tf.export.int8 import Int8Engine

Precision = Literal["float", "int8"]

WARMUP_TEXTS = ("a", "a b c d e f g h", "a b c d e f g h i j k l m n o p q r s t u v w x y z")
"""Warm-up runs the graph once at load; what the text says does not matter, several lengths do."""


class Export(NamedTuple):
    """Where a model was written, and the training step it comes from."""

    path: str
    version: int
    step: int


def export_saved_model(
    model_dir: str,
    export_dir: str,
    search: SearchConfig | None = None,
    which: Which | None = None,
    model_name: str = "gnmt",
    warmup: bool = True,
    precision: Precision = "float",
) -> Export:
    """Writes the next version of a SavedModel under `export_dir`.

    The version directory appears whole, under its final name, so that a server that watches `export_dir` never loads
    half a model.

    Args:
      model_dir: of a trained model.
      export_dir: base directory; versions are numbered from 1.
      search: settings that the signatures hold; by default those of the model directory.
      which: the checkpoint; see `load_model`.
      model_name: that warm-up requests name.
      warmup: whether to write warm-up requests (needs the `serve` extra).
      precision: `float` needs stock TensorFlow and tensorflow_text only, `int8` also `gnmt_tf.ops`.

    Raises:
      UserError: no model, one that cannot be quantised, settings that an export does not know, or a directory that
        cannot be written to.
    """
    loaded = load_model(model_dir, which)
    directory = ModelDirectory(model_dir)
    search = search or loaded.config.search
    for key, value in {"shortlist": None, "long_lines": "cut"}.items():
        if getattr(search, key) != value:
            wanted = "null" if value is None else value
            raise UserError(
                f"search.{key}",
                f"{wanted} in an export",
                repr(getattr(search, key)),
                f"Export with --set search.{key}={wanted}.",
            )
    path = temporary = ""
    try:
        version = _next_version(export_dir)
        path = os.path.join(export_dir, str(version))
        temporary = os.path.join(export_dir, f".{version}.partial")
        shutil.rmtree(temporary, ignore_errors=True)
        os.makedirs(temporary)
        with tempfile.TemporaryDirectory() as assets:
            config_path = os.path.join(assets, "config.yaml")
            with open(config_path, "w", encoding="utf-8") as file:
                file.write(to_yaml(_config_of_export(loaded.config, search)))
            vocabulary = loaded.segmenter.vocabulary
            engine: Engine = FloatEngine(loaded.model, banned_ids(search, vocabulary))
            if precision == "int8":
                engine = int8_engine(loaded.model, vocabulary, search, assets)
            module = TranslationModule(engine, vocabulary, search, [directory.vocabulary_path, config_path])
            tf.saved_model.save(module, temporary, signatures=module.signatures)
        if warmup:
            write_warmup_requests(temporary, list(WARMUP_TEXTS), model_name)
        os.rename(temporary, path)
    except (OSError, tf.errors.OpError) as error:
        raise UserError(
            f"--export_dir {export_dir}",
            "a directory that can be written to",
            str(error).splitlines()[0],
            "Choose another path, mend its permissions or free some space.",
        ) from None
    finally:
        if temporary:
            shutil.rmtree(temporary, ignore_errors=True)
    return Export(path, version, loaded.step)


def int8_engine(model: GNMT, vocabulary: Vocabulary, search: SearchConfig, folder: str) -> "Int8Engine":
    """The quantised model.

    Args:
      model: trained.
      vocabulary: it was trained with.
      search: settings it is to be used with.
      folder: where its file of weights is written; it is read until the engine is loaded.

    Raises:
      UserError: the ops are not built, the model cannot be quantised, or a setting is unknown to the engine.
    """
    # The ops are built apart, and only who wants them needs them.
    try:
        from gnmt_tf.export.int8 import Int8Engine
    except (ImportError, tf.errors.NotFoundError) as error:
        raise UserError("int8", "the ops of the quantised engine", str(error), "Run `make ops`.") from None
    return Int8Engine(Int8Reference(model), banned_ids(search, vocabulary), search, folder)


def _next_version(export_dir: str) -> int:
    names = os.listdir(export_dir) if os.path.isdir(export_dir) else []
    return max((int(name) for name in names if name.isascii() and name.isdigit()), default=0) + 1


def _config_of_export(config: Config, search: SearchConfig) -> Config:
    """The settings the signatures hold; where the training text lay is nobody's business there."""
    nowhere = dict.fromkeys(("train_source", "train_target", "dev_source", "dev_target", "vocabulary"))
    return config.model_copy(update={"search": search, "data": config.data.model_copy(update=nowhere)})
