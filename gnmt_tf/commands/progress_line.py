"""One changing line on stderr for whoever watches at a terminal; nothing elsewhere."""

import contextlib
import sys
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def progress_line(total: int | None, watched: bool | None = None) -> Iterator[Callable[[int], None] | None]:
    """Gives a function that takes the number of sentences done, or None when nobody watches; ends the line after it.

    Args:
      total: sentences in all, or None when that is not known.
      watched: whether somebody does; by default when stderr is a terminal.
    """
    from gnmt_tf.search.translator import Rate

    if not (sys.stderr.isatty() if watched is None else watched):
        yield None
        return
    rate = Rate(total)

    def show(done: int) -> None:
        print(f"\r{rate.describe(done)}\033[K", end="", file=sys.stderr, flush=True)

    yield show
    print(file=sys.stderr)
