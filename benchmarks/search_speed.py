"""Measures the float beam search beside OpenNMT-py's, both with trained recurrent models of the same size.

    python -m venv .venv-opennmt && .venv-opennmt/bin/pip install OpenNMT-py==3.5.1 'numpy<2'
    python -m benchmarks.search_speed --model_dir model --source test.en --peer_python .venv-opennmt/bin/python \
      --train_source train.en --train_target train.de --make_peer peer
    python -m benchmarks.search_speed --model_dir model --source test.en --peer_python .venv-opennmt/bin/python \
      --peer_model peer/model_step_2000.pt
    python -m benchmarks.search_speed --quick --json rows.json

OpenNMT-py needs an interpreter of its own. `--make_peer` trains its model: as many layers and units as the model
directory's, the same pieces. Each measurement runs in a process of its own, the two programs in turn, `--rounds` times;
the median counts. Words are those of each program's own translations, at white space.

Metrics: words_per_second, peer_words_per_second, ratio_to_peer; a case names batch, threads and pruning.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.rows import Row, print_rows, write_json

PRUNINGS = {"no pruning": {"pruning_margin": None}, "both prunings": {"pruning_margin": 3.0}}
PEER_SCRIPT = Path(__file__).parent / "peers" / "opennmt_search.py"
QUICK_LINES = 8


def main(arguments: Sequence[str] | None = None) -> None:
    """Parses flags, measures, prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model_dir", help="of a trained model; with --quick a random one is made")
    parser.add_argument("--source", help="text to translate")
    parser.add_argument("--lines", type=int, help="only so many of its lines")
    parser.add_argument("--peer_python", help="interpreter that has OpenNMT-py; without it nothing is compared")
    parser.add_argument("--peer_model", help="trained OpenNMT-py model")
    parser.add_argument("--make_peer", help="folder to train that model in, instead of measuring")
    parser.add_argument("--train_source")
    parser.add_argument("--train_target")
    parser.add_argument("--peer_steps", type=int, default=2000)
    parser.add_argument("--width", type=int, default=5)
    parser.add_argument("--batches", default="1,32")
    parser.add_argument("--threads", default=",".join(str(n) for n in sorted({1, os.cpu_count() or 1})))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="a random model and a few lines: whether it runs")
    parser.add_argument("--json", help="file for the rows")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.measure:
        print(json.dumps(_measure(**json.loads(options.measure))))
        return
    with tempfile.TemporaryDirectory() as folder:
        if options.quick:
            options.model_dir, options.source = _quick_model(folder)
            options.rounds, options.threads, options.batches = 1, "1", "4"
        if not options.model_dir or not (options.source or options.make_peer):
            parser.error("give --model_dir and --source, or --quick")
        if options.make_peer:
            _make_peer(options)
            return
        rows = _compare(options, folder)
    print_rows(rows)
    if options.json:
        write_json(rows, options.json)


def _compare(options: argparse.Namespace, folder: str) -> list[Row]:
    lines = Path(options.source).read_text(encoding="utf-8").splitlines()[: options.lines]
    source, pieces = os.path.join(folder, "source"), os.path.join(folder, "pieces")
    _write_lines(source, lines)
    _write_lines(pieces, _segmented(options.model_dir, lines))
    rows: list[Row] = []
    for threads in map(int, options.threads.split(",")):
        for batch_size in map(int, options.batches.split(",")):
            ours: dict[str, list[float]] = {name: [] for name in PRUNINGS}
            peers = []
            for _ in range(options.rounds):
                for name, settings in PRUNINGS.items():
                    changes = {"beam_width": options.width, "batch_size": batch_size, **settings}
                    ours[name].append(_in_process(options.model_dir, source, threads, changes))
                if options.peer_python and options.peer_model:
                    peers.append(_peer(options, pieces, batch_size, threads))
            for name, speeds in ours.items():
                case = f"batch {batch_size}, {threads} threads, {name}"
                speed = statistics.median(speeds)
                rows.append(Row(case, "words_per_second", speed, "words/s"))
                if peers:
                    peer = statistics.median(peers)
                    rows.append(Row(case, "peer_words_per_second", peer, "words/s"))
                    rows.append(Row(case, "ratio_to_peer", speed / peer, ""))
    return rows


def _in_process(model_dir: str, source: str, threads: int, changes: dict[str, Any]) -> float:
    arguments = json.dumps({"model_dir": model_dir, "source": source, "threads": threads, "changes": changes})
    command = [sys.executable, "-m", "benchmarks.search_speed", "--measure", arguments]
    return _last_json(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def _measure(model_dir: str, source: str, threads: int, changes: dict[str, Any]) -> float:
    """Words per second of this project, measured in this process."""
    from gnmt_tf.tensorflow_start import start_tensorflow

    start_tensorflow()
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    from gnmt_tf.evaluation.evaluator import evaluate
    from gnmt_tf.training.loaded_models import load_models

    loaded = load_models(model_dir)
    lines = Path(source).read_text(encoding="utf-8").splitlines()
    # At batch 1 one sentence is to be translated after the other.
    parallel = threads if changes["batch_size"] > 1 else 1
    search = loaded.config.search.model_copy(update={"parallel_batches": parallel, **changes})
    return evaluate(loaded.translator(search), lines, lines).words_per_second


def _peer(options: argparse.Namespace, pieces: str, batch_size: int, threads: int) -> float:
    values = map(str, (options.peer_model, pieces, options.width, batch_size, threads))
    run = subprocess.run(
        [options.peer_python, str(PEER_SCRIPT), *values], check=True, stdout=subprocess.PIPE, text=True
    )
    found = _last_json(run.stdout)
    return found["words"] / found["seconds"]


def _last_json(output: str) -> Any:
    return json.loads(output.strip().splitlines()[-1])


def _segmented(model_dir: str, lines: list[str]) -> list[str]:
    from gnmt_tf.text.segmenter import WordpieceSegmenter
    from gnmt_tf.training.model_directory import ModelDirectory

    segmenter = WordpieceSegmenter(ModelDirectory(model_dir).read_vocabulary())
    return [" ".join(segmenter.pieces(line)) for line in lines]


def _write_lines(path: str, lines: list[str]) -> None:
    Path(path).write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def _make_peer(options: argparse.Namespace) -> None:
    """Trains a model of OpenNMT-py with the pieces, layers and units of the model directory."""
    import yaml

    from gnmt_tf.text.vocabulary import SPECIAL_PIECES
    from gnmt_tf.training.model_directory import ModelDirectory

    directory, folder = ModelDirectory(options.model_dir), Path(options.make_peer).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    model = directory.read_config().model
    if model.num_encoder_layers != model.num_decoder_layers:
        sys.exit(
            "search_speed: OpenNMT-py gives each decoder layer the state of one encoder layer: expected as many "
            f"encoder as decoder layers in {options.model_dir}, "
            f"got {model.num_encoder_layers} and {model.num_decoder_layers}."
        )
    for side, path in (("source", options.train_source), ("target", options.train_target)):
        lines = Path(path).read_text(encoding="utf-8").splitlines()
        _write_lines(str(folder / f"train.{side}"), _segmented(options.model_dir, lines))
    # OpenNMT-py cuts the lines of its vocabulary at any white space, which some piece may be.
    pieces = [piece for piece in directory.read_vocabulary().pieces[len(SPECIAL_PIECES) :] if piece.split() == [piece]]
    _write_lines(str(folder / "vocabulary"), [f"{piece}\t1" for piece in pieces])
    settings = {
        "save_model": str(folder / "model"),
        "data": {"train": {"path_src": str(folder / "train.source"), "path_tgt": str(folder / "train.target")}},
        "src_vocab": str(folder / "vocabulary"),
        "tgt_vocab": str(folder / "vocabulary"),
        "encoder_type": "brnn",
        "decoder_type": "rnn",
        "rnn_type": "LSTM",
        "enc_layers": model.num_encoder_layers,
        "dec_layers": model.num_decoder_layers,
        "hidden_size": model.num_units,
        "word_vec_size": model.embedding_size,
        "global_attention": "mlp",
        "batch_size": 64,
        "batch_type": "sents",
        "optim": "adam",
        "learning_rate": 0.002,
        "dropout": [0.3],
        "train_steps": options.peer_steps,
        "save_checkpoint_steps": options.peer_steps,
        "report_every": 100,
        "num_workers": 0,
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    subprocess.run([options.peer_python, "-m", "onmt.bin.train", "-config", str(folder / "config.yaml")], check=True)


def _quick_model(folder: str) -> tuple[str, str]:
    """A model directory with random weights, and a few lines to translate."""
    from gnmt_tf.tensorflow_start import start_tensorflow

    start_tensorflow()
    from gnmt_tf.config import load_config
    from gnmt_tf.model.gnmt import GNMT
    from gnmt_tf.text.segmenter import WordpieceSegmenter
    from gnmt_tf.text.wordpiece_trainer import train_wordpieces
    from gnmt_tf.training.best_checkpoints import list_checkpoints
    from gnmt_tf.training.model_directory import LoadedModel, ModelDirectory

    lines = [" ".join(f"word{(3 * i + k) % 17}" for k in range(4 + i % 5)) for i in range(QUICK_LINES)]
    sizes = {"num_encoder_layers": 2, "num_decoder_layers": 2, "num_units": 32, "attention_units": 32}
    overrides = [f"model.{key}={value}" for key, value in (sizes | {"embedding_size": 32}).items()]
    config = load_config(None, ["text.vocab_size=60", *overrides])
    directory = ModelDirectory(os.path.join(folder, "model"))
    directory.create()
    directory.write_config(config)
    vocabulary = train_wordpieces(lines, config.text)
    vocabulary.save(directory.vocabulary_path)
    model = GNMT(config.model, vocabulary.size)
    prefix = os.path.join(directory.checkpoints_path("latest"), "ckpt-0")
    LoadedModel(model, WordpieceSegmenter(vocabulary), config, prefix, 0).save(prefix, 0)
    list_checkpoints(directory.checkpoints_path("latest"), [prefix])
    source = os.path.join(folder, "lines")
    _write_lines(source, lines)
    return directory.path, source


if __name__ == "__main__":
    main()
