"""Figures of the disk cache: what it holds, what was asked of it, and when to count it anew."""

import threading
import time
from dataclasses import dataclass

# Other processes fill the cache too: what it holds is counted anew after so many seconds.
_COUNT_AFTER_S = 10.0


@dataclass(frozen=True, slots=True)
class CacheStats:
    """What a cache holds (all processes), and what this process asked of it."""

    folder: str
    entries: int
    bytes: int
    limit: int
    hits: int
    misses: int
    bytes_fetched: int
    evictions: int
    bytes_evicted: int


@dataclass(frozen=True, slots=True)
class Removed:
    """What a flush or an eviction freed."""

    entries: int
    files: int
    bytes: int


@dataclass(slots=True)
class Counters:
    """What this process asked of a cache."""

    hits: int = 0
    misses: int = 0
    bytes_fetched: int = 0
    evictions: int = 0
    bytes_evicted: int = 0


class Usage:
    """How much room a cache has, as far as this process knows without counting what is there.

    Counting takes time for every entry, so it is done when a part of the room was used up; when there is none
    (all entries are in use), after a number of uses that grows with that of the entries.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._room = 0
        self._grown = 0
        self._uses = 0
        self._entries = 0
        self._time = -_COUNT_AFTER_S
        self._began = 0.0
        self._taken = 0.0

    def grow(self, size: int) -> None:
        """Bytes came into the cache."""
        with self._lock:
            self._grown += size

    def due(self) -> bool:
        """Whether what the cache holds should be counted now."""
        with self._lock:
            now = time.monotonic()
            self._uses += 1
            used_up = 4 * self._grown >= self._room if self._room > 0 else 8 * self._uses >= self._entries
            late = now - self._time > max(_COUNT_AFTER_S, 20 * self._taken)
            if used_up or late:
                self._began = now
            return used_up or late

    def counted(self, room: int, entries: int) -> None:
        """What the cache holds was counted, and evicted from."""
        with self._lock:
            now = time.monotonic()
            self._room, self._grown, self._uses, self._entries = room, 0, 0, entries
            self._taken, self._time = now - self._began, now
