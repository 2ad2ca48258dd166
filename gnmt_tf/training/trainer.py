"""One training run: text to a model directory with checkpoints, from the start or from where the last run ended.

Reads a Config and its text files; gives a trained model directory. Running it again with the same arguments continues.
"""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from enum import Enum
from typing import NamedTuple, TextIO

import tensorflow as tf
import tf_keras as keras

from gnmt_tf.config import Config, TrainingConfig, UserError
from gnmt_tf.data.batches import BatchStream
from gnmt_tf.data.parallel_text import PieceCorpus, load_corpus, read_pairs
from gnmt_tf.data.piece_dropout import PieceDropout
from gnmt_tf.evaluation.evaluator import evaluate
from gnmt_tf.evaluation.log_perplexity import LogPerplexity
from gnmt_tf.search.shortlist import learn_shortlist
from gnmt_tf.search.translator import Translator
from gnmt_tf.text.segmenter import WordpieceSegmenter
from gnmt_tf.text.vocabulary import Vocabulary
from gnmt_tf.text.wordpiece_trainer import train_wordpieces
from gnmt_tf.training.callbacks import Checkpoints, DevScores, Evaluation, Stopping
from gnmt_tf.training.checks import (
    check_config,
    check_corpus,
    check_settings,
    check_strategy,
    checkpoint_to_continue,
    needed_paths,
)
from gnmt_tf.training.memory_estimate import GIB, MemoryEstimate, estimate_memory
from gnmt_tf.training.model_directory import LoadedModel, ModelDirectory, TrainingState, check_vocabulary, restore
from gnmt_tf.training.progress import Clock, Progress, SkippedSteps, TrainingLog, say
from gnmt_tf.training.trainable import TrainableGNMT

LESS_MEMORY = (
    "Lower data.batch_size (or data.batch_tokens), and raise training.accumulate_batches to keep as many pairs in a "
    "step."
)


class Outcome(Enum):
    """How a run ended."""

    FINISHED = "finished"
    INTERRUPTED = "interrupted"
    TERMINATED = "terminated"


class TrainingResult(NamedTuple):
    """The end of a run: its outcome, steps behind the model, best development BLEU (-1 without one) and its step."""

    outcome: Outcome
    step: int
    best_bleu: float
    best_step: int


class Start(NamedTuple):
    """What a new run begins with.

    Fields:
      initial: a trained model whose vocabulary and weights it takes over; None to begin from the seed.
      model_class: says what the model is trained on.
    """

    initial: LoadedModel | None = None
    model_class: type[TrainableGNMT] = TrainableGNMT


def train(
    config: Config,
    model_dir: str,
    output: TextIO = sys.stderr,
    strategy: tf.distribute.Strategy | None = None,
    start: Start | None = None,
) -> TrainingResult:
    """Trains a model, or goes on training it.

    Args:
      config: all settings; `data.train_source` and `data.train_target` are needed.
      model_dir: the model directory, made if missing.
      output: where progress is printed.
      strategy: spreads each batch over its replicas; by default one device does everything.
      start: what a new run begins with; by default maximum likelihood from the seed. A run that goes on where it ended
        needs its `model_class` again.

    Raises:
      UserError: unusable data, an unwritable directory, an initial model of another shape or vocabulary, a
        configuration that the directory's model was not trained with, or one that the strategy cannot be used with.
    """
    strategy, start = strategy or tf.distribute.get_strategy(), start or Start()
    check_strategy(config, strategy)
    train_paths = needed_paths(config)
    directory = ModelDirectory(model_dir)
    directory.create()
    prefix = checkpoint_to_continue(directory)
    if prefix:
        check_config(config, directory)
    vocabulary = _vocabulary(config, directory, train_paths, start.initial, output)
    segmenter = WordpieceSegmenter(vocabulary)
    corpus = _load(config, train_paths, segmenter, output)
    directory.write_config(config)

    # Weights start from the seed; nothing else in a run draws from the global generators.
    keras.utils.set_random_seed(config.training.seed)
    with strategy.scope():
        model = start.model_class(config, vocabulary.size)
        model.compile_for_training()
        if start.initial and not prefix:
            model.start_from(start.initial.model)
    state = TrainingState(vocabulary, corpus.fingerprint)
    checkpoint = tf.train.Checkpoint(
        model=model, optimizer=model.optimizer, state=state, step=model.optimizer.iterations
    )
    if prefix:
        check_vocabulary(prefix, vocabulary, directory.vocabulary_path)
        restore(checkpoint, prefix)
        # Checkpoints hold the averaged weights where a user of the model looks for weights.
        model.exchange_weights()
        check_corpus(state, corpus, train_paths)
        say(output, f"Continuing after step {model.step} ({prefix}).")
    if not os.path.exists(directory.shortlist_path):
        learn_shortlist(corpus, vocabulary, config.training.seed).save(directory.shortlist_path)
    return _fit(config, directory, model, segmenter, corpus, state, checkpoint, output)


def _fit(
    config: Config,
    directory: ModelDirectory,
    model: TrainableGNMT,
    segmenter: WordpieceSegmenter,
    corpus: PieceCorpus,
    state: TrainingState,
    checkpoint: tf.train.Checkpoint,
    output: TextIO,
) -> TrainingResult:
    training = config.training
    rate = config.data.piece_dropout
    piece_dropout = PieceDropout(segmenter.vocabulary, rate) if rate else None
    stream = BatchStream(corpus, config.data, training.seed, piece_dropout)
    _describe(model, stream, output)
    needed = _tell_memory(config, model, stream, output)
    first_step = model.step
    clock = Clock(state)
    log = TrainingLog(directory.logs_path, first_step)
    paths = directory.checkpoints_path("latest"), directory.checkpoints_path("best")
    checkpoints = Checkpoints(training, checkpoint, state, *paths, clock)
    stopping = Stopping(training, clock, output)
    evaluation = Evaluation(
        training, _dev_scorer(config, model, segmenter, stopping), state, log, clock, checkpoints, output
    )
    for callback in (checkpoints, evaluation):
        callback.set_model(model)
    with stopping:
        if not _is_over(training, first_step, clock) and not evaluation.stop_early():
            # The run before may have been stopped in the middle of an evaluation.
            evaluation.on_train_batch_end(0)
        if not (_is_over(training, first_step, clock) or model.stop_training):
            checkpoints.save()
            with _out_of_memory_explained(needed):
                model.fit(
                    _distributed(stream, first_step * training.accumulate_batches, model.distribute_strategy),
                    steps_per_epoch=training.num_steps - first_step,
                    verbose=0,
                    callbacks=[
                        SkippedSteps(training, state, output),
                        Progress(training, log, clock, output),
                        stopping,
                        evaluation,
                        checkpoints,
                    ],
                )
        if stopping.signal_number is None:
            evaluation.evaluate()
        checkpoints.save()
    outcome = {None: Outcome.FINISHED, 2: Outcome.INTERRUPTED}.get(stopping.signal_number, Outcome.TERMINATED)
    return TrainingResult(outcome, model.step, float(state.best_bleu), int(state.best_step))


def _is_over(training: TrainingConfig, step: int, clock: Clock) -> bool:
    return step >= training.num_steps or (
        training.max_minutes is not None and clock.seconds() >= training.max_minutes * 60.0
    )


def _vocabulary(
    config: Config, directory: ModelDirectory, paths: tuple[str, str], initial: LoadedModel | None, output: TextIO
) -> Vocabulary:
    """That of the model that is continued or begun with; else the given one; else one made from the training text."""
    if directory.has_checkpoints():
        return directory.read_vocabulary()
    if initial:
        vocabulary = initial.segmenter.vocabulary
        check_settings(vocabulary, config, f"--initial_model ({initial.checkpoint})")
    elif config.data.vocabulary:
        vocabulary = Vocabulary.load(config.data.vocabulary)
        check_settings(vocabulary, config, f"config key data.vocabulary ({config.data.vocabulary})")
    else:
        say(output, f"Making a vocabulary of {config.text.vocab_size} pieces.")

        def lines() -> Iterator[str]:
            for pair in read_pairs(*paths):
                yield from pair

        vocabulary = train_wordpieces(lines(), config.text)
    vocabulary.save(directory.vocabulary_path)
    return vocabulary


def _load(config: Config, paths: tuple[str, str], segmenter: WordpieceSegmenter, output: TextIO) -> PieceCorpus:
    start = time.monotonic()
    corpus = load_corpus(
        *paths,
        segmenter,
        config.data.max_source_pieces,
        config.data.max_target_pieces,
        lambda count: (
            say(output, f"Read {count:,} pairs, {count / (time.monotonic() - start):,.0f}/s.")
            if count % 100_000 == 0
            else None
        ),
    )
    say(
        output,
        f"{corpus.num_pairs:,} sentence pairs; left out: {corpus.num_blank:,} blank, {corpus.num_too_long:,} too long.",
    )
    return corpus


def _describe(model: TrainableGNMT, stream: BatchStream, output: TextIO) -> None:
    shapes = ", ".join(
        f"{size}x{bucket.source_length}+{bucket.target_length}"
        for bucket, size in zip(stream.buckets, stream.batch_sizes, strict=True)
    )
    padding = "padding and room for piece dropout" if stream.piece_dropout else "padding"
    say(
        output,
        f"{model.count_params():,} parameters, {stream.steps_per_epoch:,} steps a pass, batch shapes {shapes} "
        f"({stream.padding_share:.0%} {padding}), each compiled when it first comes.",
    )


def _distributed(
    stream: BatchStream, first_batch: int, strategy: tf.distribute.Strategy
) -> tf.data.Dataset | tf.distribute.DistributedDataset:
    """The batches from `first_batch` on, each cut into one share for every replica."""
    num_replicas = strategy.num_replicas_in_sync
    if num_replicas == 1:
        return stream.dataset(first_batch)

    def dataset(context: tf.distribute.InputContext) -> tf.data.Dataset:
        here = num_replicas // context.num_input_pipelines
        first = context.input_pipeline_id * here
        return stream.dataset(first_batch, range(first, first + here), num_replicas)

    return strategy.distribute_datasets_from_function(dataset)


def _tell_memory(config: Config, model: TrainableGNMT, stream: BatchStream, output: TextIO) -> MemoryEstimate:
    sizes = [
        (size, bucket.source_length, bucket.target_length)
        for bucket, size in zip(stream.buckets, stream.batch_sizes, strict=True)
    ]
    needed = max(estimate_memory(config, model.count_params(), model.vocab_size, *size) for size in sizes)
    say(output, f"A step needs about {needed}.")
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if not tf.config.list_physical_devices("GPU") and needed.total > machine:
        say(output, f"Warning: this machine has {machine / GIB:.1f} GiB. {LESS_MEMORY}")
    return needed


@contextlib.contextmanager
def _out_of_memory_explained(needed: MemoryEstimate) -> Iterator[None]:
    try:
        yield
    except (MemoryError, tf.errors.ResourceExhaustedError) as error:
        reason = (str(error).strip() or "out of memory").splitlines()[0]
        raise UserError("memory", f"about {needed} for a step", reason, LESS_MEMORY) from None


def _dev_scorer(
    config: Config, model: TrainableGNMT, segmenter: WordpieceSegmenter, stopping: Stopping
) -> Callable[[], DevScores] | None:
    data, training = config.data, config.training
    if not data.dev_source:
        return None
    paths = str(data.dev_source), str(data.dev_target)
    pairs = list(read_pairs(*paths))
    corpus = load_corpus(*paths, segmenter, data.max_source_pieces, data.max_target_pieces)
    # Scores of different steps are compared, so the search is the plain one whatever the model is to be used with.
    plain = {"method": "beam", "n_best": 1, "diverse_groups": 1, "shortlist": None, "jit_compile": False}
    search = config.search.model_copy(update={"beam_width": training.evaluate_beam_width, **plain})
    translator = Translator(model, segmenter, search)
    log_perplexity = LogPerplexity(model, search.batch_size)

    def score() -> DevScores:
        evaluation = evaluate(
            translator,
            [source for source, _ in pairs],
            [target for _, target in pairs],
            # A model that writes no capitals is not measured by them.
            lowercase=segmenter.vocabulary.config.lowercase,
            progress=stopping.check,
        )
        return DevScores(evaluation.scores.bleu, log_perplexity(corpus))

    return score
