"""Builds the quantised engine and its ops if their sources are younger."""

import fcntl
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def make(*targets):
    """Runs make, one process at a time: tests run in several."""
    with open(ROOT / "Makefile", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(["make", "--silent", *targets], cwd=ROOT, check=True)


def built_ops():
    """`gnmt_tf.ops`."""
    make("ops")
    from gnmt_tf import ops

    return ops


def built_library():
    """The engine's library, loaded."""
    make("engine")
    from gnmt_tf.serving.engine.library import load_library

    return load_library()
