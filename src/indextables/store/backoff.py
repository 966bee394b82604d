"""How long to wait before trying again."""

import random
import time

_FIRST_SECONDS = 0.05
_LONGEST_SECONDS = 5.0


def pause(attempt: int) -> None:
    """Wait after a failed attempt (0, 1, ...): longer each time, and by chance, so that writers spread."""
    time.sleep(random.uniform(0, min(_LONGEST_SECONDS, _FIRST_SECONDS * 2**attempt)))  # noqa: S311 - not a secret
