"""What is installed is what the folders hold, and every command that `pyproject.toml` declares can be loaded."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_every_python_folder_is_in_the_list_of_packages_and_no_other() -> None:
    program = (
        "import setuptools, runpy\n"
        "setuptools.setup = lambda packages, **rest: print(*packages, sep='\\n')\n"
        "runpy.run_path('setup.py')\n"
    )
    listed = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)

    folders = [file.parent.relative_to(ROOT) for tree in ("gnmt_tf", "serving", "tpu") for file in packages_in(tree)]
    expected = [
        ".".join(folder.parts if folder.parts[0] == "gnmt_tf" else ("gnmt_tf", *folder.parts)) for folder in folders
    ]
    assert sorted(listed.stdout.split()) == sorted(expected)


def packages_in(tree: str) -> list[Path]:
    return list((ROOT / tree).rglob("__init__.py"))


def test_every_folder_with_python_files_is_a_package() -> None:
    folders = {file.parent for tree in ("gnmt_tf", "serving", "tpu") for file in (ROOT / tree).rglob("*.py")}

    assert [folder for folder in folders if not (folder / "__init__.py").is_file()] == []


def test_the_typing_marker_is_there() -> None:
    assert (ROOT / "gnmt_tf" / "py.typed").is_file()


def test_every_declared_command_has_flags_and_a_run_function() -> None:
    for point in importlib.metadata.entry_points(group="gnmt.commands"):
        module = point.load()
        assert callable(module.define_flags)
        assert callable(module.run)
