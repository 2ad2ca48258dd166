"""Frozen, validated configuration: the only reader of YAML, and the only place where a default lives.

Reads a YAML file and `key.path=value` overrides; gives one immutable `Config` that every other package takes
its settings from. The defaults are the paper's (arXiv 1609.08144); the files under `configs/` hold what differs.
"""

import difflib
import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import pydantic
import yaml


class UserError(Exception):
    """A mistake of the caller's that a person can mend: shown without a traceback, exit status 2.

    Args:
      argument: what was wrong: a flag, a config key, or `file:line`.
      expected: what it had to be.
      actual: what it was.
      remedy: what to do now.
    """

    def __init__(self, argument: str, expected: str, actual: str, remedy: str):
        super().__init__(f"{argument}: expected {expected}, got {actual}. {remedy}")
        self.argument, self.expected, self.actual, self.remedy = argument, expected, actual, remedy


class _Section(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @pydantic.field_validator("*", mode="before")
    @classmethod
    def _only_switches_are_true_or_false(cls, value: Any, info: pydantic.ValidationInfo) -> Any:
        # Pydantic would read `num_units: true` as 1, and YAML reads the language code `no` as false.
        if isinstance(value, bool) and cls.model_fields[str(info.field_name)].annotation is not bool:
            raise ValueError("a value that is not true or false (quote it if it is a word)")
        return value


PositiveInt = Annotated[int, pydantic.Field(gt=0)]
Fraction = Annotated[float, pydantic.Field(ge=0.0, lt=1.0)]
NonNegative = Annotated[float, pydantic.Field(ge=0.0)]
Positive = Annotated[float, pydantic.Field(gt=0.0)]


class TextConfig(_Section):
    """Segmentation (paper, section 4)."""

    vocab_size: Annotated[int, pydantic.Field(ge=16)] = 32000
    """Pieces in the shared source and target vocabulary, the special ones included."""
    alphabet_size: PositiveInt = 500
    """Most characters kept as pieces of their own; rarer ones become the unknown piece."""
    unicode_form: Literal["none", "nfc", "nfkc"] = "nfc"
    """Unicode normalisation applied before segmentation."""
    lowercase: bool = False
    """Whether text is lowercased before segmentation."""
    split_digits: bool = True
    """Whether every decimal digit is a piece of its own, so that numbers can be copied."""
    max_piece_characters: PositiveInt = 24
    """Longest piece, in characters, the word-boundary mark included."""


class DataConfig(_Section):
    """Parallel text and how it becomes batches."""

    source_language: str = "en"
    target_language: str = "fr"
    train_source: str | None = None
    train_target: str | None = None
    dev_source: str | None = None
    dev_target: str | None = None
    vocabulary: str | None = None
    """A vocabulary file; without one, training makes it from the training text."""
    max_source_pieces: PositiveInt = 100
    """Pairs with a longer source side are left out of training (`</s>` included)."""
    max_target_pieces: PositiveInt = 100
    batch_size: PositiveInt = 128
    """Sentence pairs in a training batch."""
    batch_tokens: PositiveInt | None = None
    """Source and target positions in a training batch, padding counted; when given, it decides instead of `batch_size`
    how many pairs of each length a batch has."""
    piece_dropout: Fraction = 0.0
    """Subword regularisation: probability with which training passes over the longest matching piece and tries the next
    shorter one, on both sides and anew in every pass; 0.05 to 0.2 helps when there is little text."""
    num_buckets: PositiveInt | None = None
    """Static shapes that training is compiled for, chosen from the lengths of the corpus; by default the fewest with
    less than 10 % padding, the room for piece dropout not counted."""


class ModelConfig(_Section):
    """Shape of GNMT (paper, sections 3 and 6)."""

    num_encoder_layers: Annotated[int, pydantic.Field(ge=1)] = 8
    num_decoder_layers: Annotated[int, pydantic.Field(ge=1)] = 8
    num_units: PositiveInt = 1024
    attention_units: PositiveInt = 1024
    embedding_size: PositiveInt = 1024
    first_residual_layer: Annotated[int, pydantic.Field(ge=3)] = 3
    """The lowest layer, counted from 1 at the bottom, whose input is added to its output (eq. 6); below the third the
    widths differ."""
    output_activation: Literal["linear", "tanh"] = "linear"
    """What the cell state passes through before the output gate; eq. 11 prints none."""
    forget_gate_bias: float = 1.0
    init_scale: Positive = 0.04
    """Weights start uniform in [-init_scale, init_scale]."""
    embedding_init_scale: Positive | None = None
    """The same for the embeddings alone; by default `init_scale`."""
    share_embeddings: bool = False
    """Whether source and target share one embedding matrix."""
    tie_output_projection: bool = False
    """Whether the output projection's weights are the target embeddings; both widths then have to be the same."""
    logit_bound: Positive = 25.0
    """Gamma of eq. 13."""
    clip_bound: Positive = 1.0
    """Delta of eq. 10 in inference, and the value that the training schedule ends at."""

    @pydantic.model_validator(mode="after")
    def _tied_widths_are_equal(self) -> "ModelConfig":
        if self.tie_output_projection and self.embedding_size != self.num_units:
            raise ValueError(
                f"model.embedding_size ({self.embedding_size}) equal to model.num_units ({self.num_units}) when "
                "model.tie_output_projection is true"
            )
        return self


class TrainingConfig(_Section):
    """Maximum-likelihood training (paper, sections 3 and 5, eq. 7)."""

    seed: Annotated[int, pydantic.Field(ge=0, lt=2**32)] = 1
    num_steps: PositiveInt = 2_000_000
    max_minutes: Positive | None = None
    """Training also ends after this much wall time, summed over restarts."""
    dropout: Fraction = 0.2
    """Share of every layer's inputs that is zeroed in training."""
    source_dropout: Fraction = 0.0
    """Share of the source pieces whose whole embedding is zeroed in training (word dropout)."""
    target_dropout: Fraction = 0.0
    """The same for the target pieces that the decoder reads."""
    label_smoothing: Fraction = 0.0
    """Share of every target piece's probability that the loss spreads evenly over the vocabulary."""
    gradient_norm: Positive = 5.0
    accumulate_batches: PositiveInt = 1
    """Batches whose gradients are summed for one step."""
    schedule: Literal["paper", "inverse_sqrt", "plateau"] = "paper"
    """How the learning rate moves: as in the paper (the keys `halve_*`), as 1 / sqrt(step) after the warm-up, or by
    `plateau_factor` whenever `plateau_patience` evaluations in a row have brought no new best."""
    warmup_steps: Annotated[int, pydantic.Field(ge=0)] = 0
    """Steps over which the learning rate rises linearly from zero, in any schedule."""
    plateau_factor: Annotated[float, pydantic.Field(gt=0.0, lt=1.0)] = 0.5
    plateau_patience: PositiveInt = 2
    average_decay: Annotated[float, pydantic.Field(gt=0.0, lt=1.0)] | None = None
    """Decay, per step, of an exponential moving average of the weights, which then is the model that is evaluated,
    saved and used; null for none."""
    adam_learning_rate: Positive = 2e-4
    adam_steps: Annotated[int, pydantic.Field(ge=0)] = 60_000
    """Steps with Adam before plain SGD takes over."""
    sgd_learning_rate: Positive = 0.5
    halve_after_step: Annotated[int, pydantic.Field(ge=0)] = 1_200_000
    """From this step on the learning rate is halved every `halve_every_steps`, in either phase."""
    halve_every_steps: PositiveInt = 200_000
    clip_bound_start: Positive = 8.0
    """Delta at the first step."""
    clip_bound_steps: PositiveInt | None = None
    """Steps over which delta falls linearly to `model.clip_bound`; by default all of `num_steps`."""
    constrained: bool = True
    """Whether the clipping of eq. 10 and 13 applies in training."""
    fake_quantization: bool = False
    """Whether the loss sees the weights rounded to int8 rows (eq. 12), for fine-tuning a trained model that the int8
    engine will run."""
    evaluate_every_steps: PositiveInt = 2000
    """Steps between evaluations on the development set, each of which saves a checkpoint."""
    early_stopping_patience: PositiveInt | None = None
    """Training ends after so many evaluations in a row without a new best; null for never."""
    max_skipped_steps: Annotated[int, pydantic.Field(ge=0)] = 10
    """Steps with an infinite or undefined gradient are skipped; more than so many in a row end the run."""
    evaluate_beam_width: PositiveInt = 1
    """Width of the search in these evaluations; 1 is greedy."""
    checkpoint_every_steps: PositiveInt = 1000
    keep_checkpoints: PositiveInt = 2
    """Latest checkpoints kept."""
    keep_best: PositiveInt = 1
    """Best checkpoints kept beside them, by development BLEU."""
    log_every_steps: PositiveInt = 50
    compute_dtype: Literal["float32", "bfloat16"] = "float32"
    """Of activations and products in training; weights, optimizer, softmax and loss are float32 either way."""
    jit_compile: bool = True
    """Whether the training step is compiled by XLA."""

    @pydantic.model_validator(mode="after")
    def _quantised_models_are_constrained(self) -> "TrainingConfig":
        if self.fake_quantization and not self.constrained:
            raise ValueError("training.constrained true when training.fake_quantization is true")
        return self


class RefinementConfig(_Section):
    """Refinement by expected reward, after maximum likelihood (paper, section 5, eq. 8 and 9): `gnmt refine`."""

    num_samples: Annotated[int, pydantic.Field(ge=2)] = 15
    """Sequences drawn for each source sentence at each step."""
    ml_weight: NonNegative = 0.017
    """Alpha of eq. 9: what maximum likelihood weighs beside the expected reward."""
    learning_rate: Positive = 1e-5
    """Of Adam, constant."""
    num_steps: PositiveInt = 100_000
    dropout: Fraction = 0.0
    """Takes the place of `training.dropout`; word and piece dropout are off."""
    evaluate_every_steps: PositiveInt = 1000
    early_stopping_patience: PositiveInt | None = 5
    """Refinement ends after so many evaluations in a row without a new best; null for never."""


class SearchConfig(_Section):
    """Beam search (paper, section 7) and its variants."""

    method: Literal["beam", "sample"] = "beam"
    """Beam search, or `n_best` independent random samples, those with higher scores first."""
    beam_width: Annotated[int, pydantic.Field(gt=0, le=1024)] = 8
    """Hypotheses of a sentence that are kept at every step."""
    length_penalty_weight: NonNegative = 0.2
    """Alpha of eq. 14."""
    coverage_penalty_weight: NonNegative = 0.2
    """Beta of eq. 14."""
    pruning_margin: Positive | None = 3.0
    """The paper's "beamsize", in nats, for both prunings; null turns them off."""
    prunings: Literal["both", "pieces", "hypotheses"] = "both"
    """Which of the two prunings `pruning_margin` is for: that of improbable pieces at each step, or that of complete
    hypotheses below the best one."""
    early_stopping: bool = True
    """Whether a search ends as soon as no live hypothesis can win, which changes no result; without, it runs on until
    the length limit."""
    max_length_factor: Annotated[float, pydantic.Field(gt=0.0, le=100.0)] = 2.0
    max_length_constant: Annotated[int, pydantic.Field(ge=0, le=1_000_000)] = 10
    """A hypothesis ends at factor x source pieces + constant."""
    min_length: Annotated[int, pydantic.Field(ge=0, le=1_000_000)] = 0
    """Fewest pieces before `</s>`; the length limit goes before it."""
    n_best: PositiveInt = 1
    """Hypotheses to give; of a beam search those with the same text count once."""
    source_prefix: str = ""
    """Text put before every source line, such as the token that names the target language to a multilingual model."""
    banned_pieces: tuple[str, ...] = ()
    """Pieces of the vocabulary that no translation may hold, `<unk>` among them if wanted."""
    no_repeat_ngram: Annotated[int, pydantic.Field(ge=0, le=100)] = 0
    """No translation holds the same so many pieces in a row twice; 0 for no such rule."""
    diverse_groups: PositiveInt = 1
    """Diverse beam search: the beam is cut into so many groups, searched one after the other at every step. The n best
    are the best of all groups."""
    diversity_strength: NonNegative = 0.5
    """What a piece costs, in nats, for each time that an earlier group took it at the same step."""
    temperature: Positive = 1.0
    """Of sampling: logits are divided by it."""
    sampling_top_k: PositiveInt | None = None
    """Sampling chooses among so many most probable pieces; null for all."""
    sampling_top_p: Annotated[float, pydantic.Field(gt=0.0, le=1.0)] = 1.0
    """Sampling chooses among the fewest most probable pieces that together have this probability."""
    seed: Annotated[int, pydantic.Field(ge=0, lt=2**32)] = 1
    """Of sampling."""
    batch_size: PositiveInt = 32
    """Sentences of similar length decoded together."""
    batch_tokens: PositiveInt | None = 4096
    """Most source positions decoded together, padding counted, beside `batch_size`; null for no such limit."""
    parallel_batches: Annotated[int, pydantic.Field(ge=1, le=64)] | None = None
    """Batches searched side by side, which uses several cores better than one batch does; it changes no result. Null
    for as many as there are cores, at most 4."""
    max_source_pieces: Annotated[int, pydantic.Field(gt=1, le=1_000_000)] = 1024
    """Longer sources are cut, and the result is flagged `truncated`."""
    shortlist: Annotated[int, pydantic.Field(ge=1, le=100)] | None = None
    """Search among so many likely target pieces for each source piece of a batch, and as many frequent ones; null for
    all pieces, which is exact and does not depend on the batch."""
    long_lines: Literal["cut", "split"] = "cut"
    """What becomes of longer sources: `split` cuts them at the ends of sentences first."""
    jit_compile: bool = False
    """Whether the search is compiled by XLA, once for each of a few source lengths."""

    @property
    def piece_margin(self) -> float | None:
        """The margin of the first pruning, or None."""
        return None if self.prunings == "hypotheses" else self.pruning_margin

    @property
    def hypothesis_margin(self) -> float | None:
        """The margin of the second pruning, or None."""
        return None if self.prunings == "pieces" or self.method == "sample" else self.pruning_margin

    @pydantic.model_validator(mode="after")
    def _settings_go_together(self) -> "SearchConfig":
        if self.n_best > self.beam_width and self.method == "beam":
            raise ValueError(f"search.n_best ({self.n_best}) at most search.beam_width ({self.beam_width})")
        if self.beam_width % self.diverse_groups:
            raise ValueError(
                f"search.beam_width ({self.beam_width}) a multiple of search.diverse_groups ({self.diverse_groups})"
            )
        if self.diverse_groups > 1 and self.method == "sample":
            raise ValueError("search.diverse_groups 1 when search.method is sample")
        return self


class Config(_Section):
    """Everything a run depends on."""

    text: TextConfig = TextConfig()
    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    training: TrainingConfig = TrainingConfig()
    refinement: RefinementConfig = RefinementConfig()
    search: SearchConfig = SearchConfig()

    @property
    def fingerprint(self) -> str:
        """Twelve hex digits that change when any setting does."""
        return hashlib.sha256(to_yaml(self).encode()).hexdigest()[:12]


def load_config(path: str | None = None, overrides: Sequence[str] = ()) -> Config:
    """Reads a YAML file and applies `key.path=value` overrides to it.

    Args:
      path: the YAML file, or None for the defaults alone.
      overrides: strings such as `model.num_units=512`; the value is read as YAML.

    Raises:
      UserError: an unreadable file, an unknown key (the nearest known one is named) or a value out of range.
    """
    values: dict[str, Any] = _read_yaml(path) if path else {}
    for override in overrides:
        _apply_override(values, override)
    origins = [path or ""] + ["--set"] * bool(overrides)
    return _validate(values, " and ".join(origin for origin in origins if origin))


def apply_overrides(config: Config, overrides: Sequence[str]) -> Config:
    """A configuration with `key.path=value` overrides applied; errors as `load_config`."""
    values = config.model_dump()
    for override in overrides:
        _apply_override(values, override)
    return _validate(values, "--set")


def to_yaml(config: Config) -> str:
    """The fully resolved configuration as YAML text that `load_config` reads back."""
    return yaml.safe_dump(config.model_dump(), sort_keys=False, allow_unicode=True)


def _read_yaml(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            values = yaml.safe_load(file)
    except OSError as error:
        raise UserError(
            f"--config {path}", "a readable YAML file", os.strerror(error.errno or 0), "Check the path."
        ) from None
    except (yaml.YAMLError, ValueError) as error:
        raise UserError(
            f"--config {path}", "valid YAML", " ".join(str(error).split()), "Mend the file at that place."
        ) from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise UserError(
            f"--config {path}",
            "sections such as `model:` with keys below them",
            f"a {type(values).__name__}",
            "See `gnmt config` for the full form.",
        )
    return values


def _apply_override(values: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    parts = key.strip().split(".")
    if not equals or len(parts) != 2 or not all(parts):
        raise UserError(
            f"--set {override}",
            "section.key=value",
            repr(override),
            f"Write for instance --set {_nearest_key(key.strip())}={text or 'VALUE'}.",
        )
    try:
        value = yaml.safe_load(text) if text.strip() else None
    except (yaml.YAMLError, ValueError):
        value = text
    section = values.setdefault(parts[0], {})
    if section is None:
        section = values[parts[0]] = {}
    if isinstance(section, dict):
        section[parts[1]] = value


def _validate(values: Mapping[str, Any], origin: str) -> Config:
    # A section that is present but empty in YAML reads as null and means "all defaults".
    filled = {key: {} if value is None and key in Config.model_fields else value for key, value in values.items()}
    try:
        return Config.model_validate(filled)
    except pydantic.ValidationError as error:
        raise _user_error(error.errors()[0], origin) from None


def _user_error(first: Any, origin: str) -> UserError:
    """The first of pydantic's complaints in our words."""
    key, given = ".".join(str(part) for part in first["loc"]), first["input"]
    if first["type"] == "extra_forbidden":
        if "." not in key and isinstance(given, dict) and given:
            # The section itself is misspelt: the key below it says more about what was meant.
            key = f"{key}.{next(iter(given))}"
        return UserError(
            f"config key {key} ({origin})",
            "a known key",
            repr(key),
            f"Did you mean {_nearest_key(key)!r}? `gnmt config` prints all keys.",
        )
    if first["type"] in ("model_type", "invalid_key"):
        expected = "names of settings, each with its value"
    else:
        expected = first["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    return UserError(
        f"config key {key} ({origin})",
        expected,
        "the given combination" if len(first["loc"]) == 1 and isinstance(given, dict) else repr(given),
        "`gnmt config` prints every key with its value.",
    )


def _nearest_key(key: str) -> str:
    """The known `section.key` most like `key`, which may lack its section."""
    known = [f"{name}.{inner}" for name, section in _sections().items() for inner in section.model_fields]
    if "." not in key:
        by_last_part = {name.rpartition(".")[2]: name for name in reversed(known)}
        return by_last_part[difflib.get_close_matches(key, by_last_part, n=1, cutoff=0.0)[0]]
    return difflib.get_close_matches(key, known, n=1, cutoff=0.0)[0]


def _sections() -> dict[str, type[_Section]]:
    annotations = {name: field.annotation for name, field in Config.model_fields.items()}
    return {
        name: section
        for name, section in annotations.items()
        if isinstance(section, type) and issubclass(section, _Section)
    }
