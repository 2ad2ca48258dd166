"""The quantised model in a SavedModel: weights in a file of its assets, packed once when it is loaded.

Reads the NumPy reference of a trained model; gives the Engine of `signatures.py`. The weights are no variables: those
would stay in memory beside the packed ones.
"""

import os
from typing import Any

import numpy as np
import tensorflow as tf

from gnmt_tf import ops
from gnmt_tf.config import SearchConfig, UserError
from gnmt_tf.data.batch import Batch
from gnmt_tf.quantization.int8_reference import Int8Reference
from gnmt_tf.search.history import BeamResult

WEIGHTS_NAME = "int8_weights.bin"

UNKNOWN_TO_THE_ENGINE = {"method": "beam", "no_repeat_ngram": 0, "diverse_groups": 1}
"""Settings that the quantised search has one value of."""


def engine_shape(reference: Int8Reference) -> ops.Int8Shape:
    """The sizes that go with the reference's weights."""
    config = reference.config
    return ops.Int8Shape(
        reference.vocab_size,
        config.num_encoder_layers,
        config.num_decoder_layers,
        config.num_units,
        config.attention_units,
        config.embedding_size,
        config.first_residual_layer,
        config.output_activation == "tanh",
        config.clip_bound,
        config.logit_bound,
    )


class Int8Weights(tf.saved_model.experimental.TrackableResource):
    """A quantised model that loads itself from a file, in Python and in TF Serving alike.

    Args:
      reference: what is written to the file.
      path: of the file; a SavedModel takes a copy of it with it.
    """

    def __init__(self, reference: Int8Reference, path: str):
        super().__init__()
        weights = reference.weights()
        with open(path, "wb") as file:
            for values in weights:
                file.write(values.tobytes())
        self._parts = [(values.dtype, values.shape) for values in weights]
        self._shape = engine_shape(reference)
        self.file = tf.saved_model.Asset(path)
        # Made and filled here and now: the first function that is traced with it would otherwise make one of its own.
        self._initialize()

    def _create_resource(self) -> tf.Tensor:
        # Every loaded copy has a model of its own.
        return ops.int8_model(shared_name=f"gnmt_int8_{os.urandom(8).hex()}")

    def _initialize(self) -> None:
        content, position, weights = tf.io.read_file(self.file.asset_path), 0, []
        for dtype, shape in self._parts:
            size = int(np.prod(shape)) * dtype.itemsize
            part = tf.io.decode_raw(tf.strings.substr(content, position, size), tf.as_dtype(dtype))
            weights.append(tf.reshape(part, shape))
            position += size
        ops.load_int8_model(self.resource_handle, weights, self._shape)


class Int8Engine:
    """The quantised model behind the signatures.

    Args:
      reference: the model.
      banned: ids that no translation may hold.
      search: settings of the export.
      folder: where the file of weights is written.

    Raises:
      UserError: a setting that the quantised search does not know.
    """

    def __init__(self, reference: Int8Reference, banned: tuple[int, ...], search: SearchConfig, folder: str):
        for key, value in UNKNOWN_TO_THE_ENGINE.items():
            if getattr(search, key) != value:
                raise UserError(
                    f"search.{key}",
                    f"{value} in an int8 export",
                    repr(getattr(search, key)),
                    f"Export with --set search.{key}={value}, or with --precision float.",
                )
        self._weights = Int8Weights(reference, os.path.join(folder, WEIGHTS_NAME))
        self.tracked: list[Any] = [self._weights, self._weights.file]
        self._banned = banned
        self.num_bytes = sum(values.nbytes for values in reference.weights())

    def search(
        self, source_ids: tf.Tensor, source_lengths: tf.Tensor, search: SearchConfig, keep_attention: bool
    ) -> BeamResult:
        """See Engine."""
        settings = ops.Int8Settings(
            search.beam_width,
            search.n_best,
            search.length_penalty_weight,
            search.coverage_penalty_weight,
            search.piece_margin,
            search.hypothesis_margin,
            search.early_stopping,
            search.max_length_factor,
            search.max_length_constant,
            search.min_length,
            self._banned,
            search.batch_size,
            keep_attention,
        )
        found = ops.translate(self._weights.resource_handle, source_ids, source_lengths, settings)
        return BeamResult(*found, failed_step=tf.constant(-1))

    def piece_log_probs(self, batch: Batch) -> tf.Tensor:
        """See Engine."""
        return ops.score(
            self._weights.resource_handle,
            batch.source_ids,
            batch.source_lengths,
            batch.target_output_ids,
            batch.target_lengths,
        )
