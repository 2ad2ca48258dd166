"""`examples/demo.sh` with a stand-in for `gnmt`: order, restarts, failures, and no server left behind."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
STEPS = ["demo-data", "vocab", "train", "evaluate", "export", "serve", "client"]

STAND_IN = r"""#!/bin/bash
# Writes what the real program would, notes each call, and fails or hangs in the step it is told to.
set -eu
command=$1; shift
echo "$command" >>calls
case "${HANG:-}" in
  "$command") touch hanging; trap 'exit 130' INT; while :; do sleep 0.05; done ;;
esac
[ "${FAIL:-}" != "$command" ] || { echo "gnmt $command: expected more" >&2; exit 2; }
case $command in
  demo-data)
    mkdir -p demo/data
    for n in 1 2 3 4 5 6 7 8 9 10; do echo "source $n" >>demo/data/test.en; echo "target $n" >>demo/data/test.fr; done
    cp demo/data/test.en demo/data/train.en; cp demo/data/test.fr demo/data/train.fr ;;
  vocab) echo '{}' >demo/vocabulary.json ;;
  train) mkdir -p demo/model; echo same >demo/model/checkpoint; echo x >>demo/model/events.1 ;;
  evaluate)
    echo '{"bleu": 91.25, "chrf": 95.5, "exact_match": 0.875, "sentences_per_second": 30.0,
      "words_per_second": 240.0, "log_perplexity": 0.0421, "signature": "nrefs:1|case:mixed"}' >demo/evaluation.json ;;
  export) mkdir -p demo/export/1 ;;
  serve)
    echo $$ >server_pid
    [ "${FAIL:-}" != ready ] || sleep 60
    echo "Serving gnmt version 1 on 127.0.0.1:4321" >&2
    trap 'echo stopped >server_stopped; exit 0' TERM
    while :; do sleep 0.05; done ;;
  client)
    [ "$1 $2" = "--server 127.0.0.1:4321" ]
    sed -e s/source/target/ -e 's/target 9/cible 9/' demo/sample.en >demo/sample.translated.fr ;;
esac
"""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "demo_en_fr.yaml").write_text("model: {}\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "gnmt").write_text(STAND_IN)
    (tmp_path / "bin" / "gnmt").chmod(0o755)
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    yield tmp_path
    assert not server_is_alive(tmp_path)


def start(project: Path, **settings: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(project / "examples" / "demo.sh")],
        env={**os.environ, "PATH": f"{project}/bin:{os.environ['PATH']}", **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # Its own process group, as a terminal gives it, and a Ctrl-C that is not ignored.
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def run(project: Path, **settings: str) -> tuple[int, str]:
    process = start(project, **settings)
    output, _ = process.communicate(timeout=60)
    return process.returncode, output


def calls(project: Path) -> list[str]:
    made = (project / "calls").read_text().split()
    (project / "calls").unlink()
    return made


def server_is_alive(project: Path) -> bool:
    if not (project / "server_pid").exists():
        return False
    return Path(f"/proc/{(project / 'server_pid').read_text().strip()}").exists()


def test_every_step_runs_in_order_and_is_shown_before_it_runs(project: Path) -> None:
    status, output = run(project)

    assert (status, calls(project)) == (0, STEPS)
    assert [line.split()[2] for line in output.splitlines() if line.startswith("$ gnmt")] == STEPS
    assert "$ gnmt train --config configs/demo_en_fr.yaml --model_dir demo/model\n" in output
    assert (project / "server_stopped").exists()


def test_the_summary_shows_the_scores_and_five_translations_with_the_reference_of_a_wrong_one(project: Path) -> None:
    _, output = run(project)

    summary = output.partition("== Summary\n")[2]
    assert "91.25   (nrefs:1|case:mixed)" in summary
    assert "87.5 % of the test sentences" in summary
    assert "30.0 sentences/s" in summary
    assert [line for line in summary.splitlines() if line.startswith("  en")] == [
        f"  en  source {number}" for number in (1, 3, 5, 7, 9)
    ]
    assert "  fr  target 7\n  en  source 9\n  fr  cible 9\n      reference: target 9\n" in summary


def test_a_second_run_repeats_only_what_is_quick(project: Path) -> None:
    run(project)
    calls(project)

    status, output = run(project)

    assert (status, calls(project)) == (0, ["train", "serve", "client"])
    assert output.count("done before") == 4


def test_a_changed_configuration_is_not_taken_for_done(project: Path) -> None:
    run(project)
    calls(project)
    (project / "configs" / "demo_en_fr.yaml").write_text("model: {num_units: 3}\n")

    run(project)

    assert calls(project) == ["vocab", "train", "serve", "client"]


@pytest.mark.parametrize("step", STEPS)
def test_a_failing_step_is_named_and_the_next_run_goes_on_from_it(project: Path, step: str) -> None:
    status, output = run(project, FAIL=step)

    assert status != 0
    assert f"gnmt {step}: expected more" in output
    assert "demo: FAILED" in output.splitlines()[-1]
    assert calls(project) == STEPS[: STEPS.index(step) + 1]
    assert not server_is_alive(project)

    status, _ = run(project)

    assert status == 0
    assert step in calls(project)


@pytest.mark.parametrize("step", ["train", "client"])
@pytest.mark.parametrize(("sent", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_everything_and_says_how_to_go_on(
    project: Path, step: str, sent: signal.Signals, status: int
) -> None:
    process = start(project, HANG=step)
    while not (project / "hanging").exists():
        assert process.poll() is None
        time.sleep(0.02)

    os.killpg(process.pid, sent)
    output, _ = process.communicate(timeout=60)

    assert process.returncode == status
    assert "Run `make demo` again to go on from there." in output
    assert not server_is_alive(project)


def test_a_server_that_never_becomes_ready_is_given_up_on(project: Path) -> None:
    status, output = run(project, FAIL="ready", DEMO_SERVER_TIMEOUT_SECONDS="1")

    assert status == 1
    assert "the server was not ready after 1 s" in output
    assert not server_is_alive(project)


def test_a_missing_configuration_is_named(project: Path) -> None:
    (project / "configs" / "demo_en_fr.yaml").unlink()

    status, output = run(project)

    assert status == 1
    assert "demo: configs/demo_en_fr.yaml is missing" in output


@pytest.mark.parametrize(
    ("evaluation", "message"),
    [("{}", "evaluation.json: expected the key 'bleu'"), ("{", "demo_summary: "), (None, "demo_summary: ")],
)
def test_a_summary_without_scores_says_what_is_missing(tmp_path: Path, evaluation: str | None, message: str) -> None:
    if evaluation is not None:
        (tmp_path / "evaluation.json").write_text(evaluation)

    result = subprocess.run(
        [sys.executable, str(EXAMPLES / "demo_summary.py"), str(tmp_path), "61"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.returncode == 1
    assert message in result.stderr
    assert "Traceback" not in result.stderr
