"""Time and randomness as the log uses them, and the clock of the store (PROTOCOL.md, "Clocks").

Deletions depend only on the clock that stamps the store's files.
"""

import random
import secrets
import time
from collections.abc import Callable
from contextlib import suppress

from indextables.errors import StoreError
from indextables.records import dataclass
from indextables.store import Store

HOUR_MS = 3_600_000
# By how much the clocks of writers, purgers and stores may differ.
CLOCK_SKEW_MS = HOUR_MS


def local_time_ms() -> int:
    """The time by the clock of this machine, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def store_time_ms(log: Store) -> int:
    """The time by the clock that stamps the store's files, read from a temporary object.

    Args:
        log: the log folder of a table.

    Raises:
        StoreError: this machine's clock differs by more than is tolerated, so one of them is wrong.
    """
    path = f".clock-{secrets.token_hex(16)}"
    try:
        log.put(path, b"clock")
        now = log.head(path).modified_ms
    finally:
        with suppress(StoreError):
            log.delete([path])
    apart = abs(now - local_time_ms())
    if apart > CLOCK_SKEW_MS:
        raise StoreError(
            f"the clock of {log.url} and that of this machine are {apart // 1000} seconds apart, and "
            f"{CLOCK_SKEW_MS // 1000} are tolerated: the age of files is uncertain; nothing was deleted; "
            "set the clock that is wrong, and repeat"
        )
    return now


@dataclass(frozen=True, slots=True)
class Environment:
    """Clocks, tokens and waiting; tests replace them to reproduce races."""

    now_ms: Callable[[], int] = local_time_ms
    # The clock that stamps the files of a log folder.
    store_time_ms: Callable[[Store], int] = store_time_ms
    token: Callable[[], str] = lambda: random.SystemRandom().randbytes(16).hex()
    sleep: Callable[[float], None] = time.sleep
    jitter: Callable[[], float] = random.random
