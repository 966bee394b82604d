"""Waiting times between attempts."""

import random
import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waiting times between attempts: twice as long each time, up to a maximum, with jitter."""

    base_ms: int
    max_ms: int

    def seconds(self, attempt: int, jitter: float) -> float:
        """The wait after a failed attempt (the first is 1); jitter is between 0 and 1.

        >>> [Backoff(100, 5000).seconds(n, 1.0) for n in (1, 2, 3, 10)]
        [0.1, 0.2, 0.4, 5.0]
        """
        whole_ms = min(float(self.base_ms) * 2.0 ** (attempt - 1), float(self.max_ms))
        return whole_ms / 1000 * (0.5 + jitter / 2)

    def sleep(self, attempt: int) -> None:
        """Wait after a failed attempt (the first is 1)."""
        time.sleep(self.seconds(attempt, random.random()))  # noqa: S311 - not a secret
