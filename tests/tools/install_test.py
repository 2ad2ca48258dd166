"""`tools/install.sh` with stand-ins for Python and apt-get: which packages it asks for, and what it says."""

import subprocess
from pathlib import Path

import pytest

INSTALL = Path(__file__).resolve().parents[2] / "tools" / "install.sh"

# Answers the version questions with $VERSION, makes an environment that holds itself, and notes the rest.
PYTHON = """#!/bin/bash
case "$*" in
  *"< (3, 10)"*) [ "${VERSION#3.}" -ge 10 ] ;;
  *"import ensurepip"*) [ -z "$NO_ENSUREPIP" ] ;;
  *print*) echo "$VERSION" ;;
  "-m venv"*) mkdir -p "${@: -1}/bin"; cp "$0" "${@: -1}/bin/python"; echo "python $*" >>calls ;;
  "-m pip --version") ;;
  *) echo "python $*" >>calls ;;
esac
"""
NOTED = '#!/bin/bash\necho "$(basename "$0") $*" >>calls\n'


def install(folder: Path, programs: dict[str, str], **settings: str) -> subprocess.CompletedProcess[str]:
    """Runs the script with nothing on PATH but these programs and a few of the system's."""
    for name in ("bash", "basename", "env", "cp", "mkdir", "grep"):
        (folder / "bin").mkdir(exist_ok=True)
        (folder / "bin" / name).symlink_to(f"/usr/bin/{name}")
    for name, text in programs.items():
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    (folder / "lock.txt").write_text("# made by a test\na==1\nb==2\n")
    return subprocess.run(
        ["/usr/bin/bash", str(INSTALL), "venv", "lock.txt"],
        cwd=folder,
        env={"PATH": f"{folder}/bin", "VERSION": "3.11", "NO_ENSUREPIP": "", **settings},
        capture_output=True,
        text=True,
        check=False,
    )


def calls(folder: Path) -> list[str]:
    return (folder / "calls").read_text().splitlines()


def test_the_locked_python_gets_the_locked_packages(tmp_path: Path) -> None:
    result = install(tmp_path, {"python3.11": PYTHON})

    assert result.returncode == 0, result.stderr
    assert calls(tmp_path) == ["python -m venv --clear venv", "python -m pip install --quiet --requirement lock.txt"]
    assert "installing the 2 packages of lock.txt" in result.stdout


def test_another_python_gets_the_ranges_and_a_line_says_so(tmp_path: Path) -> None:
    result = install(tmp_path, {"python3": PYTHON}, VERSION="3.12")

    assert result.returncode == 0, result.stderr
    assert "python -m pip install --quiet .[serve,dev]" in calls(tmp_path)
    assert "Python 3.12: lock.txt is for 3.11, so the ranges of pyproject.toml are installed instead" in result.stdout


def test_an_environment_that_works_is_kept(tmp_path: Path) -> None:
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "bin" / "python").write_text(PYTHON)
    (tmp_path / "venv" / "bin" / "python").chmod(0o755)

    result = install(tmp_path, {})

    assert result.returncode == 0, result.stderr
    assert calls(tmp_path) == ["python -m pip install --quiet --requirement lock.txt"]


@pytest.mark.parametrize(("user", "prefix"), [("0", ""), ("1000", "sudo ")])
def test_a_missing_venv_module_is_installed_and_the_command_is_shown(tmp_path: Path, user: str, prefix: str) -> None:
    programs = {
        "python3.11": PYTHON,
        "apt-get": NOTED,
        "sudo": '#!/bin/bash\n"$@"\n',
        "id": f"#!/bin/bash\necho {user}\n",
    }

    result = install(tmp_path, programs, NO_ENSUREPIP="1")

    assert result.returncode == 0, result.stderr
    assert f"set-up: {prefix}apt-get install python3.11-venv\n" in result.stdout
    assert calls(tmp_path)[:2] == [
        "apt-get update -qq",
        "apt-get install -qq -y --no-install-recommends python3.11-venv",
    ]


def test_a_failing_package_installation_stops_the_set_up(tmp_path: Path) -> None:
    failing = PYTHON.replace('*) echo "python', '*pip\\ install*) exit 1 ;;\n  *) echo "python')

    assert install(tmp_path, {"python3.11": failing}).returncode != 0


@pytest.mark.parametrize(
    ("programs", "settings", "message"),
    [
        ({}, {}, "python3 python3-venv missing and no apt-get here"),
        ({"apt-get": NOTED, "id": "#!/bin/bash\necho 7\n"}, {}, "run 'apt-get install python3 python3-venv' as root"),
        ({"python3": PYTHON}, {"VERSION": "3.9", "PYTHON": "python3"}, "PYTHON=python3 is not a Python >= 3.10"),
    ],
)
def test_what_the_set_up_cannot_do_is_said_in_one_line(
    tmp_path: Path, programs: dict[str, str], settings: dict[str, str], message: str
) -> None:
    result = install(tmp_path, programs, **settings)

    assert result.returncode == 1
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(("programs", "expected"), [({"g++": NOTED}, None), ({}, ["apt-get update -qq"])])
def test_a_compiler_is_installed_when_there_is_none(tmp_path: Path, programs: dict, expected: list[str] | None) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("bash", "basename", "env"):
        (tmp_path / "bin" / name).symlink_to(f"/usr/bin/{name}")
    for name, text in (programs | {"apt-get": NOTED, "id": "#!/bin/bash\necho 0\n"}).items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    script = str(INSTALL.parent / "compiler.sh")
    subprocess.run(["/usr/bin/bash", script, "g++"], cwd=tmp_path, env={"PATH": f"{tmp_path}/bin"}, check=True)
    if expected is None:
        assert not (tmp_path / "calls").exists()
    else:
        assert calls(tmp_path) == [*expected, "apt-get install -qq -y --no-install-recommends g++"]
