"""The versions below a model base directory: BASE/<version>/saved_model.pb, the layout of TF Serving.

Reads directory listings only, so that a wrong path is answered before TensorFlow is loaded.
"""

import os

from gnmt_tf.config import UserError

SAVED_MODEL_FILE = "saved_model.pb"
MAX_VERSION = 2**63 - 1
"""The API sends a version as int64."""

DirectoryState = tuple[tuple[str, int, int], ...]


def find_versions(base_path: str) -> dict[int, str]:
    """The versions that hold a SavedModel, lowest first, with their directories; none when nothing can be read."""
    numbered = sorted(_numbered_directories(base_path))
    return {number: path for number, path in numbered if os.path.isfile(os.path.join(path, SAVED_MODEL_FILE))}


def directory_state(path: str) -> DirectoryState:
    """Name, size in bytes and modification time in ns of every file below `path`: equal as long as nothing changed."""
    files = [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]
    return tuple((file, status.st_size, status.st_mtime_ns) for file in sorted(files) if (status := _status(file)))


def check_layout(base_path: str) -> None:
    """Raises UserError when there is nothing to serve below `base_path`, saying what is expected and how to get it."""
    if find_versions(base_path):
        return
    remedy = "Run `gnmt export` to write one."
    if not os.path.isdir(base_path):
        actual = "a file" if os.path.exists(base_path) else "no such directory"
    elif os.path.isfile(os.path.join(base_path, SAVED_MODEL_FILE)):
        actual, remedy = "a single version", "Give the directory above it."
    elif numbered := [os.path.basename(path) for _, path in _numbered_directories(base_path)]:
        actual = f"a directory whose versions ({', '.join(numbered)}) have no {SAVED_MODEL_FILE}"
    else:
        actual = "a directory without a version"
    raise UserError(
        f"--model_base_path {base_path}",
        f"a directory of numbered versions, each with a SavedModel ({os.path.join(base_path, '1', SAVED_MODEL_FILE)})",
        actual,
        remedy,
    )


def _numbered_directories(base_path: str) -> list[tuple[int, str]]:
    try:
        names = os.listdir(base_path)
    except OSError:
        return []
    numbered = [name for name in names if name.isascii() and name.isdecimal() and int(name) <= MAX_VERSION]
    paths = [(int(name), os.path.join(base_path, name)) for name in sorted(numbered)]
    return [(number, path) for number, path in paths if os.path.isdir(path)]


def _status(file: str) -> os.stat_result | None:
    try:
        return os.stat(file)
    except OSError:
        return None
