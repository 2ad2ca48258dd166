"""A corpus and settings for a training run of seconds."""

import random
from pathlib import Path

WORDS = {"one": "un", "two": "deux", "three": "trois", "red": "rouge", "blue": "bleu", "cat": "chat", "dog": "chien"}


def write_corpus(folder: Path, num_pairs: int, seed: int = 1) -> tuple[Path, Path]:
    """Word-by-word translations of random word lists: source and target file."""
    chance = random.Random(seed)
    lines = [[chance.choice(list(WORDS)) for _ in range(chance.randint(1, 6))] for _ in range(num_pairs)]
    source, target = folder / f"text{seed}.en", folder / f"text{seed}.fr"
    source.write_text("".join(" ".join(words) + " .\n" for words in lines))
    target.write_text("".join(" ".join(WORDS[word] for word in words) + " .\n" for words in lines))
    return source, target


def tiny_overrides(train: tuple[Path, Path], dev: tuple[Path, Path] | None = None, **changes: object) -> list[str]:
    """Settings of a model that trains in seconds; `changes` are written section__key=value."""
    settings = {
        "text.vocab_size": 60, "data.batch_size": 8, "data.num_buckets": 1, "data.train_source": train[0],
        "data.train_target": train[1], "model.num_encoder_layers": 2, "model.num_decoder_layers": 2,
        "model.num_units": 12, "model.attention_units": 12, "model.embedding_size": 12, "training.num_steps": 12,
        "training.jit_compile": False, "training.log_every_steps": 1, "training.checkpoint_every_steps": 4,
        "training.evaluate_every_steps": 6, "training.adam_learning_rate": 0.01, "search.beam_width": 3,
    }  # fmt: skip
    if dev:
        settings |= {"data.dev_source": dev[0], "data.dev_target": dev[1]}
    settings |= {key.replace("__", "."): value for key, value in changes.items()}
    return [f"{key}={'null' if value is None else value}" for key, value in settings.items()]
