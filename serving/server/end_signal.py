"""SIGTERM and SIGINT as an event that the main thread waits for."""

import os
import signal


class EndSignal:
    """Takes over both signals. Until `arm` is called a signal ends the program at once, with status 0.

    A second signal has the system's effect, for whoever does not want to wait for the grace period.
    """

    def __init__(self) -> None:
        self.received = False
        self._armed = False
        # A pipe and not threading.Event: a handler that runs while its own thread is inside Event.wait can deadlock.
        self._read_end, self._write_end = os.pipe()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)

    def arm(self) -> None:
        """From now on a signal is remembered, for `wait`."""
        self._armed = True

    def wait(self) -> None:
        """Returns once a signal has come."""
        os.read(self._read_end, 1)

    def _handle(self, number: int, frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        self.received = True
        os.write(self._write_end, b"x")
        if not self._armed:
            raise SystemExit(0)
