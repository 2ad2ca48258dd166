"""Starts TensorFlow without its start-up chatter, which is no part of a command's output.

Called by commands just before they import whatever needs TensorFlow; nothing else in the library calls it.
"""

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
