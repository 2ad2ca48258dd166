"""One trained model, or several as an ensemble, as commands name them."""

import os
from collections.abc import Sequence
from typing import NamedTuple

from gnmt_tf.config import Config, SearchConfig, UserError
from gnmt_tf.model.gnmt import GNMT
from gnmt_tf.search.ensemble import Ensemble
from gnmt_tf.search.shortlist import Shortlist
from gnmt_tf.search.translator import Translator
from gnmt_tf.text.segmenter import WordpieceSegmenter
from gnmt_tf.training.model_directory import LoadedModel, ModelDirectory, Which, load_checkpoint, load_model


class LoadedModels(NamedTuple):
    """What the search needs, and where it comes from.

    Fields:
      model: one network, or several as an ensemble.
      segmenter: of the vocabulary that all of them share.
      config: of the first model.
      checkpoints: path prefixes, the first model's first.
      step: training steps behind the first model.
      model_dir: of the first model.
    """

    model: GNMT | Ensemble
    segmenter: WordpieceSegmenter
    config: Config
    checkpoints: tuple[str, ...]
    step: int
    model_dir: str

    def translator(self, search: SearchConfig, keep_attention: bool = False) -> Translator:
        """A translator with these settings.

        Raises:
          UserError: as Translator and `Shortlist.load`.
        """
        shortlist = None
        if search.shortlist is not None:
            path = ModelDirectory(self.model_dir).shortlist_path
            shortlist = Shortlist.load(path, self.segmenter.vocabulary.fingerprint)
        return Translator(self.model, self.segmenter, search, keep_attention, shortlist)


def load_models(model_dir: str, which: Which | None = None, ensemble: Sequence[str] = ()) -> LoadedModels:
    """Loads a model and those to average with.

    Args:
      model_dir: of the first model.
      which: its checkpoint; see `load_model`.
      ensemble: further model directories, or path prefixes of checkpoints in one.

    Raises:
      UserError: as `load_model`, or vocabularies that differ.
    """
    first = load_model(model_dir, which)
    models = [first, *(_load(path) for path in ensemble)]
    wanted = first.segmenter.vocabulary.fingerprint
    for path, loaded in zip(ensemble, models[1:], strict=True):
        found = loaded.segmenter.vocabulary.fingerprint
        if found != wanted:
            raise UserError(
                f"--ensemble {path}",
                f"a model with the vocabulary of {model_dir} (fingerprint {wanted})",
                f"another vocabulary ({found})",
                "Train its members with the same data.vocabulary.",
            )
    model = first.model if len(models) == 1 else Ensemble([loaded.model for loaded in models])
    checkpoints = tuple(loaded.checkpoint for loaded in models)
    return LoadedModels(model, first.segmenter, first.config, checkpoints, first.step, model_dir)


def _load(path: str) -> LoadedModel:
    prefix = os.path.normpath(path).removesuffix(".index")
    if not os.path.exists(prefix + ".index"):
        return load_model(path)
    # DIR/checkpoints/KIND/NAME
    return load_checkpoint(ModelDirectory(os.path.dirname(os.path.dirname(os.path.dirname(prefix)))), prefix)
