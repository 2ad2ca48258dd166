"""Lines to batches, without letting a line wait for others that may never come.

Reads an iterator of lines, which may block (a terminal, a pipe); gives batches: full ones while lines abound, and
what there is once nothing has come for a moment.
"""

import queue
import threading
from collections.abc import Iterable, Iterator
from typing import NamedTuple

IDLE_SECONDS = 0.05


class _End(NamedTuple):
    error: BaseException | None


def batches_when_idle(lines: Iterable[str], batch_size: int, idle_seconds: float = IDLE_SECONDS) -> Iterator[list[str]]:
    """Groups lines in order.

    A batch ends when it is full, when the lines end, or when the next line has not come within `idle_seconds`. A thread
    of its own reads the lines, at most two batches ahead of the consumer.

    Raises:
      Whatever reading the lines raises, after the batches of the lines before it.
    """
    ready: queue.Queue[str | _End] = queue.Queue(maxsize=2 * batch_size)
    stopped = threading.Event()
    threading.Thread(target=_read, args=(lines, ready, stopped), name="line-reader", daemon=True).start()
    batch: list[str] = []
    try:
        while True:
            try:
                item = ready.get(timeout=idle_seconds if batch else None)
            except queue.Empty:
                yield batch
                batch = []
                continue
            if isinstance(item, _End):
                break
            batch.append(item)
            if len(batch) == batch_size:
                yield batch
                batch = []
        if batch:
            yield batch
        if item.error is not None:
            raise item.error
    finally:
        stopped.set()


def _read(lines: Iterable[str], ready: "queue.Queue[str | _End]", stopped: threading.Event) -> None:
    try:
        for line in lines:
            _put(ready, line, stopped)
            if stopped.is_set():
                return
    except BaseException as error:
        _put(ready, _End(error), stopped)
    else:
        _put(ready, _End(None), stopped)


def _put(ready: "queue.Queue[str | _End]", item: "str | _End", stopped: threading.Event) -> None:
    # A consumer that has gone away leaves the queue full for ever, so waiting for room is done in turns.
    while not stopped.is_set():
        try:
            ready.put(item, timeout=0.2)
            return
        except queue.Full:
            continue
