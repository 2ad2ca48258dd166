"""Lexical shortlists: the output projection over those target pieces only that the source makes likely.

Reads segmented training pairs; gives for each source piece its most probable target pieces, from IBM model 1 over a
sample of the pairs. Reads the sources of a batch; gives the pieces to search among. Without a shortlist the search is
exact.
"""

import os
import tempfile
import zipfile
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from gnmt_tf.config import UserError
from gnmt_tf.data.parallel_text import PieceCorpus
from gnmt_tf.layers.attention_sequence import AttentionMemory
from gnmt_tf.model.decoder import DecoderMemory, DecoderState, Rows
from gnmt_tf.model.gnmt import GNMT, GNMTStep
from gnmt_tf.search.ensemble import Ensemble
from gnmt_tf.text.vocabulary import SPECIAL_PIECES, Vocabulary

PIECES_KEPT = 100
"""Most target pieces kept for a source piece."""

MOST_CELLS = 20_000_000
"""Most pairs of a source and a target position that are counted; a larger corpus is sampled."""

ITERATIONS = 5
ROUNDED_TO = 64
"""A shortlist is filled up with frequent pieces to a multiple of this many."""


class Shortlist:
    """The table.

    Args:
      targets: int32 [vocab_size, PIECES_KEPT], the most probable target pieces of each source piece, best first; -1
        where there are no more.
      by_frequency: int32 [pieces], all target pieces of the training text, the most frequent first.
      vocabulary_fingerprint: of the vocabulary that ids are of.
    """

    def __init__(self, targets: np.ndarray, by_frequency: np.ndarray, vocabulary_fingerprint: str = ""):
        self.targets, self.by_frequency = targets, by_frequency
        self.vocabulary_fingerprint = vocabulary_fingerprint

    def candidates(
        self, source_ids: Iterable[int], per_piece: int, further: Iterable[int] = (), rounded_to: int = ROUNDED_TO
    ) -> np.ndarray:
        """The pieces to search among: int32, rising, the special pieces first.

        Args:
          source_ids: of a batch.
          per_piece: target pieces for each source piece; as many of the most frequent ones always belong to it.
          further: pieces that have to be among them.
          rounded_to: frequent pieces fill them up to a multiple of this many, as far as there are any.
        """
        rows = np.unique(np.fromiter(source_ids, np.int32))
        chosen = self.targets[rows, :per_piece].ravel()
        special = np.arange(len(SPECIAL_PIECES), dtype=np.int32)
        chosen = np.unique([*special, *chosen[chosen >= 0], *self.by_frequency[:per_piece], *further]).astype(np.int32)
        missing = -len(chosen) % rounded_to
        others = self.by_frequency[~np.isin(self.by_frequency, chosen)][:missing]
        return np.sort(np.concatenate([chosen, others])).astype(np.int32)

    def save(self, path: str) -> None:
        """Writes the table, whole or not at all."""
        descriptor, temporary = tempfile.mkstemp(dir=os.path.dirname(path) or ".", suffix=".npz")
        try:
            with os.fdopen(descriptor, "wb") as file:
                name = np.asarray(self.vocabulary_fingerprint)
                np.savez_compressed(file, targets=self.targets, by_frequency=self.by_frequency, vocabulary=name)
            os.replace(temporary, path)
        except BaseException:
            os.remove(temporary)
            raise

    @classmethod
    def load(cls, path: str, vocabulary_fingerprint: str) -> "Shortlist":
        """Reads a table.

        Raises:
          UserError: there is none, or it is damaged or of another vocabulary.
        """
        try:
            with np.load(path) as arrays:
                shortlist = cls(arrays["targets"], arrays["by_frequency"], str(arrays["vocabulary"]))
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
            reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else "no such table"
            raise UserError(
                path,
                "the table of pieces that occur together, which `gnmt train` writes",
                reason,
                "Train again for a moment with the training text there, or set search.shortlist=null.",
            ) from None
        if shortlist.vocabulary_fingerprint != vocabulary_fingerprint:
            raise UserError(
                path,
                f"a table of the vocabulary with the fingerprint {vocabulary_fingerprint}",
                f"one of another ({shortlist.vocabulary_fingerprint})",
                "Put back the one that was made with this vocabulary.",
            )
        return shortlist


def learn_shortlist(corpus: PieceCorpus, vocabulary: Vocabulary, seed: int = 0) -> Shortlist:
    """Learns which target pieces go with a source piece: IBM model 1, p(target | source), with no empty source word.

    Args:
      corpus: the training pairs.
      vocabulary: shared by both sides.
      seed: of the sample, if the corpus is too large to be counted whole.
    """
    sources, targets, vocab_size = corpus.source, corpus.target, vocabulary.size
    sizes = (sources.lengths - 1) * (targets.lengths - 1)
    order = np.random.default_rng(seed).permutation(corpus.num_pairs)
    order = order[: max(1, int(np.searchsorted(np.cumsum(sizes[order]), MOST_CELLS)))]
    cells, groups, count = [], [], 0
    for pair in order:
        source, target = sources[pair].astype(np.int64), targets[pair].astype(np.int64)
        cells.append((target[:, None] + source[None, :] * vocab_size).ravel())
        groups.append(np.repeat(np.arange(count, count + len(target)), len(source)))
        count += len(target)
    # A cell is a (source piece, target piece); the cells of a group are the ways to explain one target position.
    keys, cell = np.unique(np.concatenate(cells), return_inverse=True)
    group = np.concatenate(groups)
    source_of = keys // vocab_size
    probs = np.ones(len(keys))
    for _ in range(ITERATIONS):
        weights = probs[cell]
        weights /= np.bincount(group, weights, count)[group]
        counts = np.bincount(cell, weights, len(keys))
        probs = counts / np.bincount(source_of, counts, vocab_size)[source_of]
    table = np.full([vocab_size, PIECES_KEPT], -1, np.int32)
    best_first = np.lexsort((keys, -probs, source_of))
    source_of, target_of = source_of[best_first], (keys % vocab_size)[best_first]
    rank = np.arange(len(keys)) - np.searchsorted(source_of, source_of)
    kept = rank < PIECES_KEPT
    table[source_of[kept], rank[kept]] = target_of[kept]
    frequencies = np.bincount(targets.ids, minlength=vocab_size)
    by_frequency = np.argsort(-frequencies, kind="stable")[: int((frequencies > 0).sum())]
    return Shortlist(table, by_frequency.astype(np.int32), vocabulary.fingerprint)


class ShortlistedModel:
    """A model whose pieces are the candidates alone, counted from 0 in their order.

    Args:
      model: the network.
      candidate_ids: int32 [candidates], the pieces that these are.
    """

    def __init__(self, model: GNMT, candidate_ids: tf.Tensor):
        self.model, self.candidate_ids = model, candidate_ids
        self._projection = model.partial_projection(candidate_ids)

    def encode(self, source_ids: tf.Tensor, source_lengths: tf.Tensor) -> AttentionMemory:
        """As the model's."""
        return self.model.encode(source_ids, source_lengths)

    def start(self, memory: Any) -> DecoderMemory:
        """See StepModel."""
        return self.model.start(memory)

    def initial_state(self, num_rows: int | tf.Tensor) -> DecoderState:
        """See StepModel."""
        return self.model.initial_state(num_rows)

    def decode_step(self, ids: tf.Tensor, state: DecoderState, memory: DecoderMemory, rows: Rows) -> GNMTStep:
        """See StepModel."""
        step = self.model.decoder_step(tf.gather(self.candidate_ids, ids), state, memory, rows)
        return GNMTStep(self._projection(step.outputs), step.state, step.attention_probs)


def shortlisted(model: GNMT | Ensemble, candidate_ids: tf.Tensor) -> Any:
    """A model, or an ensemble, whose pieces are the candidates alone."""
    if isinstance(model, Ensemble):
        return Ensemble([ShortlistedModel(one, candidate_ids) for one in model.models])  # type: ignore[misc]
    return ShortlistedModel(model, candidate_ids)
