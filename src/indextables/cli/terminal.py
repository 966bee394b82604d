"""What the terminal is: its width, whether it shows colours, and a bar for long work."""

import os
import shutil
import sys
import time
from typing import Self, TextIO

BOLD, DIM, MARK, END = "\x1b[1m", "\x1b[2m", "\x1b[1;31m", "\x1b[0m"
_BAR = 30
_EVERY_S = 0.1


def is_terminal(stream: TextIO) -> bool:
    """Whether somebody looks at it."""
    return stream.isatty()


def in_colour(stream: TextIO) -> bool:
    """Whether colours may be used: on a terminal, unless NO_COLOR is set."""
    return is_terminal(stream) and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def width() -> int:
    """How many characters fit into a line."""
    return shutil.get_terminal_size((100, 24)).columns


class ProgressBar:
    """A bar on standard error for as long as the work takes; nothing where nobody looks at it."""

    def __init__(self, what: str, *, quiet: bool = False) -> None:
        self._what = what
        self._shown = not quiet and is_terminal(sys.stderr)
        self._last = 0.0
        self._drawn = False

    def __call__(self, done: int, total: int) -> None:
        """Say how far the work is; a total of 0 is one that is not known."""
        now = time.monotonic()
        if not self._shown or (now - self._last < _EVERY_S and done != total):
            return
        self._last, self._drawn = now, True
        sys.stderr.write(f"\r\x1b[K{bar(self._what, done, total)}")
        sys.stderr.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def bar(what: str, done: int, total: int) -> str:
    """One line of progress.

    >>> bar("merging", 1, 4)
    'merging [#######.......................] 1/4'
    >>> bar("looking", 1200, 0)
    'looking 1200'
    """
    if not total:
        return f"{what} {done}"
    full = _BAR * min(done, total) // total
    return f"{what} [{'#' * full}{'.' * (_BAR - full)}] {done}/{total}"
