"""Bugs that the log once had, put back one at a time to see that the simulator finds them."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Bug:
    """A bug, how it is put back, and by which seed it was found when that was last measured."""

    description: str
    put_back: Callable[[pytest.MonkeyPatch], None]
    found_at: int


BUGS: dict[str, Bug] = {}
