"""Decoding by what the quantised engine is measured against, each in a process of its own with its own threads.

    python -m benchmarks.peers.decoding --peer float --case case.json

Prints one number: seconds for all sentences of the case. A case says the shape, the beam, the batches and sentences;
every translation gets exactly as many pieces as its source, so that nothing depends on what random weights write.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple


class Case(NamedTuple):
    """What is decoded.

    Fields:
      num_layers: of encoder and decoder each.
      num_units: of every layer.
      vocab_size: pieces.
      beam_width: hypotheses of a sentence.
      batch_size: sentences decoded together.
      threads: that one sentence or batch may use.
      sources: piece ids, `</s>` last.
    """

    num_layers: int
    num_units: int
    vocab_size: int
    beam_width: int
    batch_size: int
    threads: int
    sources: list[list[int]]

    def batches(self) -> list[list[list[int]]]:
        """The sentences, sorted by length, batch by batch."""
        ordered = sorted(self.sources, key=len, reverse=True)
        return [ordered[start : start + self.batch_size] for start in range(0, len(ordered), self.batch_size)]


def padded(batch: Sequence[Sequence[int]]) -> list[list[int]]:
    """The same with zeros on the right."""
    longest = max(map(len, batch))
    return [[*ids, *[0] * (longest - len(ids))] for ids in batch]


def float_search(case: Case) -> Callable[[list[list[int]]], None]:
    """This project's search in float32: the one that a SavedModel without the engine runs."""
    from gnmt_tf.tensorflow_start import start_tensorflow

    start_tensorflow()
    import tensorflow as tf

    from gnmt_tf.config import ModelConfig, SearchConfig
    from gnmt_tf.model.gnmt import GNMT
    from gnmt_tf.search.beam_search import beam_search

    tf.config.threading.set_intra_op_parallelism_threads(case.threads)
    tf.config.threading.set_inter_op_parallelism_threads(case.threads)
    units, layers = case.num_units, case.num_layers
    shape = ModelConfig(
        num_encoder_layers=layers,
        num_decoder_layers=layers,
        num_units=units,
        attention_units=units,
        embedding_size=units,
    )
    model = GNMT(shape, case.vocab_size)
    # No hypothesis ends before its limit, which is the source's length.
    search = SearchConfig(
        beam_width=case.beam_width, min_length=1000, max_length_factor=1.0, max_length_constant=0, pruning_margin=None
    )
    ids, lengths = tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None], tf.int32)

    @tf.function(input_signature=[ids, lengths], autograph=False)
    def run(ids: tf.Tensor, lengths: tf.Tensor):
        return beam_search(model, model.encode(ids, lengths), lengths, search, keep_attention=False)

    def decode(batch: list[list[int]]) -> None:
        found = run(tf.constant(padded(batch)), tf.constant([len(ids) for ids in batch]))
        for value in tf.nest.flatten(found):
            value.numpy()

    return decode


def pytorch_int8(case: Case) -> Callable[[list[list[int]]], None]:
    """The network in PyTorch with dynamically quantised LSTMs and linear layers."""
    import torch

    from benchmarks.peers.pytorch_gnmt import PyTorchGNMT

    torch.set_num_threads(case.threads)
    model = PyTorchGNMT(case.vocab_size, case.num_units, case.num_layers, 0.0).eval()
    kinds = {torch.nn.LSTM, torch.nn.LSTMCell, torch.nn.Linear}
    quantized = torch.ao.quantization.quantize_dynamic(model, kinds, dtype=torch.qint8)

    def decode(batch: list[list[int]]) -> None:
        with torch.inference_mode():
            quantized.beam_search(torch.tensor(padded(batch)), case.beam_width, max(map(len, batch)))

    return decode


PEERS = {"float": float_search, "pytorch_int8": pytorch_int8}


def main(arguments: Sequence[str] | None = None) -> None:
    """Parses flags, decodes everything once to warm up, then measures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True, choices=list(PEERS))
    parser.add_argument("--case", required=True, help="JSON file with the fields of Case")
    options = parser.parse_args(arguments)
    case = Case(**json.loads(Path(options.case).read_text(encoding="utf-8")))
    decode = PEERS[options.peer](case)
    batches = case.batches()
    decode(batches[-1])
    start = time.perf_counter()
    for batch in batches:
        decode(batch)
    print(time.perf_counter() - start)


if __name__ == "__main__":
    main()
