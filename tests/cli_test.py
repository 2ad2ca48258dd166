"""The `gnmt` program: what it answers to right and wrong command lines, and with which exit status."""

import importlib.metadata
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import yaml
from absl import flags

import gnmt_tf
from gnmt_tf import cli
from gnmt_tf.config import UserError

COMMANDS = sorted(point.name for point in importlib.metadata.entry_points(group=cli.ENTRY_POINT_GROUP))
GNMT = [sys.executable, "-m", "gnmt_tf.cli"]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], int | None]], None]:
    """Replaces the installed commands with one named `probe`, which has a flag --size and runs what is given."""

    def install_probe(action: Callable[[], int | None]) -> None:
        module = ModuleType("probe", "Probe something.\n\nAt length.")
        module.define_flags = lambda values: flags.DEFINE_integer("size", 1, "How large.", flag_values=values)  # type: ignore[attr-defined]
        module.run = lambda values, arguments: action()  # type: ignore[attr-defined]
        monkeypatch.setattr(cli, "_commands", lambda: {"probe": SimpleNamespace(load=lambda: module)})

    return install_probe


def test_help_lists_every_command_with_its_summary(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--help"]) == 0

    lines = capsys.readouterr().out.splitlines()
    for name in COMMANDS:
        (line,) = [line for line in lines if line.split()[:1] == [name]]
        assert len(line.split()) > 2


def test_without_a_command_the_help_comes_with_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([]) == 2
    assert capsys.readouterr().out.startswith("Usage: gnmt COMMAND")


def test_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out == f"gnmt_tf {gnmt_tf.__version__}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_shows_each_of_its_flags(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    (point,) = importlib.metadata.entry_points(group=cli.ENTRY_POINT_GROUP, name=name)
    module = point.load()
    values = flags.FlagValues()
    module.define_flags(values)

    assert cli.run([name, "--help"]) == 0

    shown = capsys.readouterr().out
    summary = module.__doc__.splitlines()[0]
    usage = " ".join(["gnmt", name, *getattr(module, "ARGUMENTS", "").split(), "[--flags]"])
    assert shown.startswith(f"Usage: {usage}\n\n{summary}\n")
    assert summary.endswith(".")
    for flag in values:
        assert f"--{flag}:" in shown or f"--[no]{flag}:" in shown
        assert values[flag].help
    assert module.run.__doc__


@pytest.mark.parametrize(("name", "nearest"), [("cnfig", "config"), ("trian", "train"), ("", ""), ("--frobnicate", "")])
def test_an_unknown_command_is_told_the_nearest(name: str, nearest: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([name]) == 2

    message = capsys.readouterr().err
    assert message.startswith(f"gnmt: no command {name!r}; did you mean '{nearest}")
    assert message.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["config", "--frobnicate=3"], "gnmt config: Unknown command line flag 'frobnicate'"),
        (["config", "--beam_width=3"], "gnmt config: Unknown command line flag 'beam_width'"),
        (["config", "--cnfig=x"], "gnmt config: Unknown command line flag 'cnfig'. Did you mean: config"),
        (["config", "--config"], "gnmt config: Missing value for flag --config"),
        (["config", "--flagfile=none"], "gnmt config: "),
    ],
)
def test_a_flag_the_command_does_not_have_gives_one_line_and_status_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(arguments) == 2

    shown = capsys.readouterr()
    assert shown.err.startswith(message)
    assert shown.err.endswith("; see `gnmt config --help`.\n")
    assert shown.err.count("\n") == 1
    assert shown.out == ""


def test_an_argument_that_is_no_flag_is_refused(
    install: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    install(lambda: pytest.fail("the command ran"))

    assert cli.run(["probe", "--size=2", "stray"]) == 2
    assert capsys.readouterr().err.startswith("gnmt probe: unexpected argument 'stray': every setting is a flag")


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_runs_with_a_stray_argument(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([name, "stray"]) == 2
    assert capsys.readouterr().err.startswith(f"gnmt {name}: ")


def test_a_value_of_the_wrong_type_gives_one_line(
    install: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    install(lambda: None)

    assert cli.run(["probe", "--size=big"]) == 2
    message = capsys.readouterr().err
    assert "--size=big" in message
    assert message.count("\n") == 1


@pytest.mark.parametrize(("returned", "status"), [(None, 0), (0, 0), (1, 1), (3, 3)])
def test_the_exit_status_is_what_the_command_returned(
    install: Callable[..., None], returned: int | None, status: int
) -> None:
    install(lambda: returned)

    assert cli.run(["probe", "--size=2"]) == status


def test_a_users_mistake_gives_one_line_and_status_2(
    install: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise UserError("--size", "at least 1", "0", "Give\na larger one.")

    install(fail)

    assert cli.run(["probe"]) == 2
    assert capsys.readouterr().err == "gnmt probe: --size: expected at least 1, got 0. Give a larger one.\n"


def test_a_defect_is_not_disguised_as_a_users_mistake(install: Callable[..., None]) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    install(fail)

    with pytest.raises(ZeroDivisionError):
        cli.run(["probe"])


def test_ctrl_c_gives_status_130_and_one_line(install: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    install(interrupt)

    assert cli.run(["probe"]) == 130
    assert capsys.readouterr().err == "gnmt probe: interrupted.\n"


def test_ctrl_c_while_a_real_command_waits_ends_it_without_a_traceback(tmp_path: Path) -> None:
    pipe = tmp_path / "never_written.yaml"
    os.mkfifo(pipe)
    process = subprocess.Popen(
        [*GNMT, "config", f"--config={pipe}"],
        stderr=subprocess.PIPE,
        text=True,
        # A shell that started the tests in the background may have left the signal ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    # Opening the other end returns once the command has opened its own.
    with open(pipe, "w"):
        process.send_signal(signal.SIGINT)
        _, message = process.communicate(timeout=60)

    assert (process.returncode, message) == (130, "gnmt config: interrupted.\n")


def test_a_reader_that_has_gone_is_no_error() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)

    result = subprocess.run([*GNMT, "config"], stdout=write_end, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write_end)

    assert (result.returncode, result.stderr) == (0, "")


def test_config_prints_what_the_flags_describe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c.yaml").write_text("model:\n  num_units: 3\n")

    assert (
        cli.run(["config", f"--config={tmp_path}/c.yaml", "--set", "training.seed=5", "--set=data.batch_size=2"]) == 0
    )

    printed = yaml.safe_load(capsys.readouterr().out)
    assert (printed["model"]["num_units"], printed["training"]["seed"], printed["data"]["batch_size"]) == (3, 5, 2)


def test_main_exits_with_the_status() -> None:
    with pytest.raises(SystemExit) as exit_info:
        cli.main(["no-such-command"])

    assert exit_info.value.code == 2
