"""Starts TensorFlow without its start-up chatter, which is no part of a command's output, and looks after its memory.

Commands call `start_tensorflow` and `keep_freed_memory`, just before they import whatever needs TensorFlow; nothing
else in the library does.
"""

import ctypes
import logging
import os
import sys
import tempfile


def start_tensorflow() -> None:
    """Imports TensorFlow and finds its devices with what it prints meanwhile held back.

    The chatter (notes on missing GPUs, written by C++ straight to file descriptor 2) is shown only if the start fails.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            import tensorflow as tf

            tf.config.list_physical_devices()
        except BaseException:
            held.seek(0)
            os.write(kept, held.read())
            raise
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
    tf.get_logger().addFilter(_is_meant_for_users)


def _is_meant_for_users(record: logging.LogRecord) -> bool:
    # One trace for each batch shape is how this library works, and Keras times its callbacks, evaluations included.
    message = record.getMessage()
    return "tf.function retracing" not in message and "is slow compared to the batch time" not in message


def keep_freed_memory() -> None:
    """Has glibc keep freed memory for the next allocation; does nothing with another C library.

    A training step frees and takes the same few hundred megabytes again. Left alone, glibc hands them back to the
    kernel in between, and every step pays for tens of thousands of page faults.
    """
    mallopt = getattr(_glibc(), "mallopt", None)
    if mallopt is None:
        return
    trim_threshold, mmap_max, arena_max = -1, -4, -8  # The numbers of <malloc.h>.
    mallopt(trim_threshold, 2**31 - 1)
    mallopt(mmap_max, 0)
    mallopt(arena_max, 1)


def release_freed_memory() -> None:
    """Gives memory that was freed so far back to the kernel, once; does nothing with another C library than glibc."""
    malloc_trim = getattr(_glibc(), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)


def _glibc() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL("libc.so.6")
    except OSError:
        return None
