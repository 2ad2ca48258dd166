"""Configuration: what is refused and in which words, what is kept, and that nothing is lost on the way to YAML."""

import tempfile
from pathlib import Path
from typing import Any

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnmt_tf.config import Config, UserError, load_config, to_yaml

CONFIG_FOLDER = Path(__file__).resolve().parent.parent / "configs"
CONFIG_FILES = sorted(CONFIG_FOLDER.glob("*.yaml"))

OVERRIDES = st.fixed_dictionaries(
    {},
    optional={
        "text.lowercase": st.booleans(),
        "text.unicode_form": st.sampled_from(["none", "nfc", "nfkc"]),
        "data.source_language": st.sampled_from(["en", "'no'", "日本"]),
        "data.train_source": st.sampled_from(["null", "a b.txt", "'1'", "ü.gz"]),
        "model.num_units": st.integers(1, 4096),
        "model.forget_gate_bias": st.floats(-5, 5),
        "training.dropout": st.floats(0, 0.99),
        "training.adam_learning_rate": st.floats(1e-30, 1e30),
        "training.max_minutes": st.one_of(st.none(), st.floats(0.1, 1e6)),
        "search.pruning_margin": st.one_of(st.none(), st.floats(0.1, 100)),
    },
)


def as_overrides(values: dict[str, Any]) -> list[str]:
    return [f"{key}={'null' if value is None else value}" for key, value in values.items()]


def yaml_round_trip(config: Config) -> Config:
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as file:
        file.write(to_yaml(config))
        file.flush()
        return load_config(file.name)


def refused(path: Path | None = None, overrides: tuple[str, ...] = ()) -> UserError:
    with pytest.raises(UserError) as caught:
        load_config(str(path) if path else None, overrides)
    return caught.value


def test_defaults_are_the_papers_values() -> None:
    config = load_config()

    assert (config.model.num_encoder_layers, config.model.num_decoder_layers, config.model.num_units) == (8, 8, 1024)
    assert (config.training.adam_learning_rate, config.training.adam_steps) == (2e-4, 60_000)
    assert (config.search.length_penalty_weight, config.search.coverage_penalty_weight) == (0.2, 0.2)


@pytest.mark.parametrize(
    ("override", "nearest"),
    [
        ("model.num_unit=3", "model.num_units"),
        ("modle.num_units=3", "model.num_units"),
        ("model.units=3", "model.num_units"),
        ("serach.beam_width=3", "search.beam_width"),
        ("training.drop_out=0.1", "training.dropout"),
    ],
)
def test_a_misspelt_key_is_told_the_nearest_known_one(override: str, nearest: str) -> None:
    error = refused(overrides=(override,))

    assert override.partition("=")[0] in error.argument
    assert f"Did you mean '{nearest}'?" in error.remedy


@pytest.mark.parametrize(
    ("text", "key", "nearest"),
    [
        ("model:\n  num_unit: 3\n", "model.num_unit", "model.num_units"),
        ("modle:\n  num_units: 3\n", "modle.num_units", "model.num_units"),
        ("num_units: 3\n", "num_units", "model.num_units"),
    ],
)
def test_a_misspelt_key_in_a_file_names_the_key_and_the_file(tmp_path: Path, text: str, key: str, nearest: str) -> None:
    (tmp_path / "c.yaml").write_text(text)

    error = refused(tmp_path / "c.yaml")

    assert error.argument == f"config key {key} ({tmp_path}/c.yaml)"
    assert f"Did you mean '{nearest}'?" in error.remedy


@pytest.mark.parametrize("override", ["model.num_units", "num_units=3", "a.b.c=3", "=3", "", ".=", "model.=3", ".x=3"])
def test_an_override_that_is_not_section_key_value_is_refused(override: str) -> None:
    error = refused(overrides=(override,))

    assert error.expected == "section.key=value"
    assert error.actual == repr(override)


def test_an_override_without_its_section_is_shown_with_it() -> None:
    assert refused(overrides=("num_units=3",)).remedy == "Write for instance --set model.num_units=3."


@pytest.mark.parametrize(
    ("override", "section", "key", "value"),
    [
        ("model.num_units=64", "model", "num_units", 64),
        (" model.num_units = 64", "model", "num_units", 64),
        ("training.adam_learning_rate=2e-3", "training", "adam_learning_rate", 0.002),
        ("training.dropout=0", "training", "dropout", 0.0),
        ("text.lowercase=true", "text", "lowercase", True),
        ("search.pruning_margin=null", "search", "pruning_margin", None),
        ("search.pruning_margin=", "search", "pruning_margin", None),
        ("data.train_source=a=b.txt", "data", "train_source", "a=b.txt"),
        ("data.target_language='no'", "data", "target_language", "no"),
        ("data.train_source=[x", "data", "train_source", "[x"),
    ],
)
def test_the_value_of_an_override_is_read_as_yaml(override: str, section: str, key: str, value: object) -> None:
    assert getattr(getattr(load_config(overrides=[override]), section), key) == value


def test_an_override_wins_over_the_file_and_the_last_one_over_the_others(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("model:\n  num_units: 3\n  embedding_size: 5\n")

    config = load_config(str(tmp_path / "c.yaml"), ["model.num_units=7", "model.num_units=9"])

    assert (config.model.num_units, config.model.embedding_size) == (9, 5)


@pytest.mark.parametrize("text", ["", "# nothing\n", "model:\n", "\ufeffmodel:\r\n"])
def test_an_empty_file_or_section_means_the_defaults(tmp_path: Path, text: str) -> None:
    (tmp_path / "c.yaml").write_text(text, encoding="utf-8", newline="")

    assert load_config(str(tmp_path / "c.yaml")) == Config()
    assert load_config(str(tmp_path / "c.yaml"), ["model.num_units=3"]).model.num_units == 3


@pytest.mark.parametrize(
    "content",
    [b"model: [\n", b"mo\xff:\n", b"a: b: c\n", b"date: 2020-13-45\n", b"? {a: b}\n: 3\n", b"a: \x00\n", b"\t- x\n"],
)
def test_a_file_that_is_no_yaml_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "c.yaml").write_bytes(content)

    error = refused(tmp_path / "c.yaml")

    assert error.expected == "valid YAML"
    assert "\n" not in str(error)


@pytest.mark.parametrize("content", ["- a\n- b\n", "just words\n", "3\n"])
def test_a_file_without_sections_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "c.yaml").write_text(content)

    assert refused(tmp_path / "c.yaml").expected.startswith("sections such as")


@pytest.mark.parametrize("content", ["model: 3\n", "model: [1]\n", "1: 2\n", "model: {1: 2}\n"])
def test_a_section_that_holds_no_settings_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "c.yaml").write_text(content)

    assert "config key" in refused(tmp_path / "c.yaml").argument
    assert "config key" in refused(tmp_path / "c.yaml", ("model.num_units=3",)).argument


def test_a_missing_file_and_a_folder_are_refused_by_name(tmp_path: Path) -> None:
    assert str(refused(tmp_path / "none.yaml")).startswith(f"--config {tmp_path}/none.yaml: ")
    assert refused(tmp_path / "none.yaml").actual == "No such file or directory"
    assert refused(tmp_path).actual == "Is a directory"


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("model.num_units=0", "greater than 0"),
        ("model.num_units=1.5", "integer"),
        ("model.num_units=many", "integer"),
        ("model.num_units=", "integer"),
        ("model.num_units=true", "not true or false"),
        ("model.num_units=[1]", "integer"),
        ("model.first_residual_layer=1", "greater than or equal to 3"),
        ("text.vocab_size=15", "greater than or equal to 16"),
        ("text.unicode_form=nfd", "'none', 'nfc' or 'nfkc'"),
        ("text.lowercase=perhaps", "boolean"),
        ("data.target_language=no", "quote it"),
        ("training.dropout=1", "less than 1"),
        ("training.dropout=-0.1", "greater than or equal to 0"),
        ("training.dropout=.nan", "finite"),
        ("training.adam_learning_rate=.inf", "finite"),
        ("training.max_minutes=true", "not true or false"),
        ("search.pruning_margin=0", "greater than 0"),
        ("search.n_best=9", "search.n_best (9) at most search.beam_width (8)"),
    ],
)
def test_a_value_out_of_range_is_told_the_range(override: str, expected: str) -> None:
    error = refused(overrides=(override,))

    assert expected in error.expected
    assert "(--set)" in error.argument


def test_a_tied_projection_needs_equal_widths() -> None:
    error = refused(overrides=("model.tie_output_projection=true", "model.embedding_size=512"))
    assert "model.embedding_size (512) equal to model.num_units (1024)" in error.expected
    assert load_config(overrides=["model.tie_output_projection=true"]).model.tie_output_projection


def test_an_n_best_as_large_as_the_beam_is_accepted() -> None:
    assert load_config(overrides=["search.n_best=8"]).search.n_best == 8


def test_the_configuration_cannot_be_changed() -> None:
    config = load_config()

    with pytest.raises(pydantic.ValidationError):
        config.model.num_units = 3
    with pytest.raises(pydantic.ValidationError):
        config.model = config.model
    assert hash(config) == hash(load_config())


@given(OVERRIDES)
def test_any_configuration_survives_the_way_through_yaml(values: dict[str, Any]) -> None:
    config = load_config(overrides=as_overrides(values))

    assert yaml_round_trip(config) == config
    assert yaml_round_trip(config).fingerprint == config.fingerprint


def test_the_fingerprint_changes_with_every_single_setting() -> None:
    changes = ["text.lowercase=true", "data.batch_size=127", "model.clip_bound=2", "training.seed=2", "search.n_best=2"]

    fingerprints = {load_config(overrides=[change]).fingerprint for change in changes} | {load_config().fingerprint}

    assert len(fingerprints) == len(changes) + 1
    assert all(len(fingerprint) == 12 and int(fingerprint, 16) >= 0 for fingerprint in fingerprints)


def test_the_fingerprint_does_not_depend_on_how_a_value_was_written() -> None:
    assert load_config(overrides=["model.num_units=1024"]).fingerprint == load_config().fingerprint
    assert load_config(overrides=["training.dropout=2e-1"]).fingerprint == load_config().fingerprint


def test_configurations_ship_with_the_project() -> None:
    assert CONFIG_FOLDER / "tiny.yaml" in CONFIG_FILES


@pytest.mark.parametrize("path", CONFIG_FILES, ids=lambda path: path.name)
def test_every_shipped_configuration_loads(path: Path) -> None:
    assert load_config(str(path)) != Config()
