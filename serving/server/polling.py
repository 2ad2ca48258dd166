"""Repeats the core's look for another version, beside the threads that answer requests."""

import logging
import threading

from gnmt_tf.serving.server.model_server import ModelServer

_LOG = logging.getLogger(__name__)


class VersionPoller:
    """A thread that refreshes a model every so often.

    Args:
      model_server: what to refresh.
      poll_seconds: time between two looks; 0 never looks.
    """

    def __init__(self, model_server: ModelServer, poll_seconds: float):
        self._model_server, self._poll_seconds = model_server, poll_seconds
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="version-poller", daemon=True)

    def start(self) -> None:
        """Begins to poll."""
        if self._poll_seconds > 0:
            self._thread.start()

    def stop(self, timeout_seconds: float) -> bool:
        """Ends polling; False when a version is still being loaded after `timeout_seconds`."""
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopped.wait(self._poll_seconds):
            try:
                if self._model_server.refresh():
                    _LOG.info("Serving %s version %d", self._model_server.model_name, self._model_server.live_version)
            except Exception:
                # A look that fails (a network file system that is away) must not be the last one.
                _LOG.exception("cannot look for versions in %s", self._model_server.base_path)
