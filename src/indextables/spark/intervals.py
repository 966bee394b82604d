"""Lengths of time as bucket functions take them: `15m`, `1h`, `7d`."""

import re

from indextables.errors import PredicateError

_UNITS = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
_SHAPE = re.compile(r"\s*(-?)\s*([0-9]{1,18})\s*(us|ms|s|m|h|d)\s*")
_LONGEST = 1 << 62


def microseconds(text: str, *, offset: bool = False) -> int:
    """The length in microseconds; an offset may be zero or negative.

    >>> microseconds("15m")
    900000000
    """
    found = _SHAPE.fullmatch(text)
    if found is None or (found[1] and not offset):
        raise PredicateError(
            f"'{text}' is no length of time; give a whole number and a unit (us, ms, s, m, h or d), as 15m"
        )
    length = int(found[2]) * _UNITS[found[3]]
    if length > _LONGEST or (length == 0 and not offset):
        raise PredicateError(f"'{text}' is no length of time that buckets can have")
    return -length if found[1] else length
