"""Imports point one way, whichever function they hide in: the architecture's arrows, read from the syntax trees."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
ORDER = [
    "tensorflow_start",
    "config",
    "text",
    "data",
    "layers",
    "model",
    "quantization",
    "search",
    "evaluation",
    "training",
    "refinement",
    "ops",
    "export",
    "commands",
]
OUTSIDE = ("serving", "tpu")
"""Folders installed as gnmt_tf.serving and gnmt_tf.tpu; they import gnmt_tf and are not imported by it."""
OPEN_TO_OUTSIDE = "gnmt_tf.commands.config_flags"
"""The one command module that commands of the outside folders share."""
FORBIDDEN_NAMES = {"utils", "util", "common", "helpers", "types"}


class Import(NamedTuple):
    """One imported dotted name and the line it stands on."""

    name: str
    line: int


def imports_of(path: Path, module: str, is_package: bool) -> Iterator[Import]:
    """Every dotted name that a file imports, `importlib.import_module("...")` included."""
    package = module if is_package else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join(parents + [base] * bool(base))
            yield from (Import(f"{base}.{alias.name}", node.lineno) for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__") and isinstance(node.args[0].value, str):
                yield Import(node.args[0].value, node.lineno)


def wrong_arrow(module: str, imported: str) -> str | None:
    """Why `module` may not import `imported`, or None when it may."""
    first, *rest = imported.split(".")
    if first in OUTSIDE:
        return f"write gnmt_tf.{first}: the folder is installed under that name"
    if first != "gnmt_tf" or not rest or rest[0].startswith("__"):
        return None
    importer, target = (module.split(".") + [""])[1], rest[0]
    if importer == target:
        return None
    if target == "cli":
        return "nothing imports the command line"
    if importer in OUTSIDE:
        allowed = target in ORDER[:-1] or imported.startswith(OPEN_TO_OUTSIDE)
        return None if allowed else f"{importer} may import gnmt_tf up to export, and {OPEN_TO_OUTSIDE}"
    if target in OUTSIDE:
        return "gnmt_tf imports neither serving nor tpu; pass the object in"
    if importer == "cli":
        return None if target == "config" else "cli imports config only; commands are entry points"
    if importer not in ORDER or target not in ORDER:
        return f"{importer or 'gnmt_tf/__init__.py'} or {target} has no place in the order: {' < '.join(ORDER)}"
    return None if ORDER.index(target) < ORDER.index(importer) else f"{target} stands to the right of {importer}"


def complaints(root: Path) -> list[str]:
    """What is wrong in the tree under `root`, one `file:line` message each."""
    found = []
    for folder in ("gnmt_tf", *OUTSIDE):
        for path in sorted((root / folder).rglob("*.py")):
            relative = path.relative_to(root)
            is_package = path.name == "__init__.py"
            parts = list(relative.with_suffix("").parts)[: -1 if is_package else None]
            if FORBIDDEN_NAMES & set(parts):
                found.append(f"{relative}:1: a name that says nothing; a thing lives with what produces it")
            module = ".".join(parts if folder == "gnmt_tf" else ["gnmt_tf", *parts])
            for imported in imports_of(path, module, is_package):
                reason = wrong_arrow(module, imported.name)
                if reason:
                    found.append(f"{relative}:{imported.line}: imports {imported.name}: {reason}")
    return found


def write_tree(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_every_arrow_of_the_project_points_to_the_left() -> None:
    assert complaints(ROOT) == []


def test_the_checker_sees_the_packages_of_the_project() -> None:
    arrows = [
        imported.name
        for path in (ROOT / "gnmt_tf").rglob("*.py")
        for imported in imports_of(path, "gnmt_tf.any", is_package=False)
    ]

    assert "gnmt_tf.config.load_config" in arrows


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("gnmt_tf/text/a.py", "from gnmt_tf.data.pairs import read"),
        ("gnmt_tf/text/a.py", "from gnmt_tf import data"),
        ("gnmt_tf/text/a.py", "import gnmt_tf.data as d"),
        ("gnmt_tf/text/a.py", "from ..data import pairs"),
        ("gnmt_tf/text/__init__.py", "from ..data import pairs"),
        ("gnmt_tf/text/inner/a.py", "from ... import data"),
        ("gnmt_tf/text/a.py", "def f():\n  if True:\n    import gnmt_tf.data.pairs"),
        ("gnmt_tf/text/a.py", "import importlib\nimportlib.import_module('gnmt_tf.data')"),
        ("gnmt_tf/text/a.py", "__import__('gnmt_tf.data')"),
        ("gnmt_tf/config.py", "import gnmt_tf.text"),
        ("gnmt_tf/__init__.py", "from gnmt_tf.config import Config"),
        ("gnmt_tf/cli.py", "from gnmt_tf.commands import train"),
        ("gnmt_tf/cli.py", "import gnmt_tf.text"),
        ("gnmt_tf/commands/train.py", "from gnmt_tf.cli import main"),
        ("gnmt_tf/commands/serve.py", "import gnmt_tf.serving.server"),
        ("gnmt_tf/export/a.py", "from gnmt_tf.tpu import strategy"),
        ("gnmt_tf/export/a.py", "from gnmt_tf.commands.config_flags import define_config_flags"),
        ("gnmt_tf/export/a.py", "import serving.server"),
        ("gnmt_tf/newcomer/a.py", "import gnmt_tf.config"),
        ("gnmt_tf/model/a.py", "import gnmt_tf.newcomer"),
        ("serving/server/a.py", "from gnmt_tf.commands import train"),
        ("serving/server/a.py", "from gnmt_tf.commands.train import run"),
        ("serving/server/a.py", "from serving import client"),
        ("serving/server/a.py", "import gnmt_tf.tpu"),
        ("tpu/a.py", "import gnmt_tf.serving.client"),
        ("tpu/a.py", "from ..cli import main"),
    ],
)
def test_an_arrow_to_the_right_is_found(tmp_path: Path, file: str, text: str) -> None:
    write_tree(tmp_path, {file: text})

    (complaint,) = complaints(tmp_path)

    assert complaint.startswith(f"{file}:{len(text.splitlines())}: imports ")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("gnmt_tf/data/a.py", "from gnmt_tf.text.wordpiece import segment"),
        ("gnmt_tf/data/a.py", "from gnmt_tf.data.pairs import read\nfrom . import pairs\nfrom .pairs import read"),
        ("gnmt_tf/data/a.py", "import numpy\nfrom types import ModuleType\nimport importlib"),
        ("gnmt_tf/cli.py", "from gnmt_tf.config import UserError"),
        ("gnmt_tf/commands/train.py", "from gnmt_tf import __version__, training"),
        ("gnmt_tf/commands/train.py", "from gnmt_tf.commands.config_flags import define_config_flags"),
        ("serving/server/a.py", "from gnmt_tf.export import writer\nfrom gnmt_tf.serving.client import ask"),
        ("serving/server/a.py", "from gnmt_tf.commands.config_flags import define_config_flags"),
        ("serving/server/a.py", "from ..client import ask\nfrom gnmt_tf.commands import config_flags"),
        ("tpu/a.py", "from gnmt_tf.training import trainer"),
    ],
)
def test_an_arrow_to_the_left_or_within_a_package_is_accepted(tmp_path: Path, file: str, text: str) -> None:
    write_tree(tmp_path, {file: text})

    assert complaints(tmp_path) == []


@pytest.mark.parametrize(
    "file", ["gnmt_tf/text/utils.py", "gnmt_tf/common/a.py", "gnmt_tf/helpers.py", "serving/types.py", "tpu/utils/a.py"]
)
def test_a_module_or_package_whose_name_says_nothing_is_found(tmp_path: Path, file: str) -> None:
    write_tree(tmp_path, {file: ""})

    (complaint,) = complaints(tmp_path)

    assert complaint.startswith(f"{file}:1: ")


def test_help_of_the_program_and_of_every_command_loads_nothing_heavy() -> None:
    program = (
        "import sys, importlib.metadata\n"
        "import gnmt_tf\n"
        "from gnmt_tf import cli\n"
        "assert cli.run(['--help']) == 0\n"
        "for point in importlib.metadata.entry_points(group=cli.ENTRY_POINT_GROUP):\n"
        "  assert cli.run([point.name, '--help']) == 0\n"
        "heavy = {'tensorflow', 'tf_keras', 'numpy', 'pydantic', 'yaml', 'grpc'} & set(sys.modules)\n"
        "sys.exit(f'loaded: {sorted(heavy)}' if heavy else 0)\n"
    )

    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stderr
