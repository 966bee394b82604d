"""Parses and formats sizes in bytes."""

import re

_SIZE = re.compile(r"(\d+)\s*([bkmgt]?)b?", re.IGNORECASE)
_FACTORS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_UNITS = ("B", "KB", "MB", "GB", "TB")


def parse_size(text: str) -> int:
    """Return the number of bytes that a text such as `500M`, `2 GB` or `1048576` means.

    Raises:
        ValueError: the text is not a size.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError
    return int(match[1]) * _FACTORS[match[2].lower()]


def format_size(size: float) -> str:
    """Return a rounded size with a unit.

    >>> format_size(999), format_size(1536), format_size(20 << 20), format_size(5 << 40)
    ('999 B', '1.5 KB', '20 MB', '5.0 TB')
    """
    unit = 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size /= 1024
        unit += 1
    return f"{size:.0f} {_UNITS[unit]}" if size >= 10 or unit == 0 else f"{size:.1f} {_UNITS[unit]}"


def size_literal(size: int) -> str:
    """Return an exact size in the form of options and commands.

    >>> size_literal(64 << 20), size_literal(40 << 10), size_literal(1000)
    ('64M', '40K', '1000')
    """
    for letter in "tgmk":
        if size and size % _FACTORS[letter] == 0:
            return f"{size // _FACTORS[letter]}{letter.upper()}"
    return str(size)
