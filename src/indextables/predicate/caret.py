"""Where in a text something is wrong, shown with a line and a caret under it."""

_SHOWN = 100


def lone_surrogate(text: str) -> int | None:
    """Where half a character stands, which no encoding can write; None in any proper text."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return error.start
    return None


def point_at(text: str, position: int, problem: str) -> str:
    """The problem, its position (counted from 1), and the text around it with a caret under the place.

    At most 100 characters of the text are shown, so that a condition of a megabyte stays readable.
    """
    position = max(0, min(position, len(text)))
    start = max(0, min(position - _SHOWN // 2, len(text) - _SHOWN))
    end = min(len(text), start + _SHOWN)
    before, after = ("..." if start else ""), ("..." if end < len(text) else "")
    shown = "".join(char if char.isprintable() else " " for char in text[start:end])
    caret = " " * (len(before) + position - start) + "^"
    return f"{problem} (at character {position + 1})\n  {before}{shown}{after}\n  {caret}"
