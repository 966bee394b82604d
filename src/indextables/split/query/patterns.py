"""Regular expressions over the terms of an index, for prefixes, wildcards, LIKE and ranges of text.

They have Rust's syntax and match a whole term. Characters other than ASCII letters and digits are escaped by
their code point, so that no text is parsed as an operator.
"""

import re
from collections.abc import Iterable, Sequence

from indextables.predicate.query_tree import Wild

ANY = "(?s:.)*"
ONE = "(?s:.)"
# Longer bounds make an automaton that costs more than it saves.
MAX_BOUND = 48
_LAST = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)


def literal(text: str) -> str:
    r"""An expression for exactly this text.

    >>> literal("a.b")
    'a\\x{2e}b'
    """
    return "".join(c if c.isascii() and c.isalnum() else f"\\x{{{ord(c):x}}}" for c in text)


def wildcard(parts: Iterable[str | Wild]) -> str:
    """An expression for literal texts with placeholders between them."""
    return "".join(ANY if part is Wild.MANY else ONE if part is Wild.ONE else literal(part) for part in parts)


def least_letters(parts: Iterable[str | Wild]) -> int:
    """How many characters a text has at least that matches a pattern."""
    return sum((part is Wild.ONE) if isinstance(part, Wild) else len(part) for part in parts)


def has_inner_text(parts: Sequence[str | Wild], letters: int) -> bool:
    """Whether more than so many characters follow a placeholder for any text: a costly automaton."""
    first = next((i for i, part in enumerate(parts) if part is Wild.MANY), len(parts))
    return least_letters(parts[first:]) > letters


def matches(text: str, parts: Sequence[str | Wild]) -> bool:
    """Whether a text matches a pattern; for patterns that are too long for an expression.

    >>> matches("a.bcdb", ["a", Wild.ONE, "b", Wild.MANY, "b"]), matches("ab", ["b"])
    (True, False)
    """
    pieces = [""]
    for part in parts:
        if part is Wild.MANY:
            pieces.append("")
        else:
            pieces[-1] += "." if isinstance(part, Wild) else re.escape(part)
    first, *rest = (re.compile(piece, re.DOTALL) for piece in pieces)
    if not rest:
        return first.fullmatch(text) is not None
    piece = first.match(text)
    for middle in rest[:-1]:
        piece = None if piece is None else middle.search(text, piece.end())
    start = len(text) - least_letters(_after_last(parts))
    return piece is not None and start >= piece.end() and rest[-1].fullmatch(text, start) is not None


def _after_last(parts: Sequence[str | Wild]) -> Sequence[str | Wild]:
    """The parts after the last placeholder for any text."""
    return parts[max(i for i, part in enumerate(parts) if part is Wild.MANY) + 1 :]


def like_parts(pattern: str, escape: str) -> tuple[str | Wild, ...] | None:
    """SQL's LIKE pattern as literals and placeholders; None if it ends in its escape character."""
    parts: list[str | Wild] = []
    characters = iter(pattern)
    for c in characters:
        if c == escape:
            following = next(characters, None)
            if following is None or following not in (escape, "%", "_"):
                return None
            parts.append(following)
        else:
            parts.append(Wild.MANY if c == "%" else Wild.ONE if c == "_" else c)
    return tuple(parts)


def between(
    lower: str | None, upper: str | None, *, lower_inclusive: bool = True, upper_inclusive: bool = True
) -> str | None:
    """An expression for all texts between two bounds, in the order of their code points.

    None if there are no such texts; open ends are None.
    """
    if upper is None:
        return _from(lower or "", inclusive=lower_inclusive or lower is None)
    if lower is None:
        return _up_to(upper, inclusive=upper_inclusive)
    if lower > upper or (lower == upper and not (lower_inclusive and upper_inclusive)):
        return None
    if lower == upper:
        return literal(lower)
    shared = 0
    while shared < len(lower) and lower[shared] == upper[shared]:
        shared += 1
    start, low, high = literal(lower[:shared]), lower[shared:], upper[shared:]
    if not low:
        tail = _up_to(high, inclusive=upper_inclusive, empty=lower_inclusive)
        return None if tail is None else start + tail
    ways = [literal(low[0]) + _from(low[1:], inclusive=lower_inclusive)]
    if (middle := _class(_after(low[0]), _before(high[0]))) is not None:
        ways.append(middle + ANY)
    if (tail := _up_to(high[1:], inclusive=upper_inclusive)) is not None:
        ways.append(literal(high[0]) + tail)
    return f"{start}(?:{'|'.join(ways)})"


def up_to_beginning(upper: str) -> str:
    """An expression for all texts up to this one, and those that begin with it."""
    return f"(?:{_up_to(upper, inclusive=True)}|{literal(upper)}{ANY})"


def too_long(*bounds: str | None) -> bool:
    """Whether a bound is too long to become an expression."""
    return any(bound is not None and len(bound) > MAX_BOUND for bound in bounds)


def _from(bound: str, *, inclusive: bool) -> str:
    if not bound:
        return ANY if inclusive else ONE + ANY
    ways = [literal(bound[0]) + _from(bound[1:], inclusive=inclusive)]
    if (greater := _class(_after(bound[0]), _LAST)) is not None:
        ways.append(greater + ANY)
    return f"(?:{'|'.join(ways)})"


def _up_to(bound: str, *, inclusive: bool, empty: bool = True) -> str | None:
    """All texts up to a bound; with the empty text if `empty`. None if there are none."""
    if not bound:
        return "" if inclusive and empty else None
    ways = []
    if (tail := _up_to(bound[1:], inclusive=inclusive)) is not None:
        ways.append(literal(bound[0]) + tail)
    if (smaller := _class(0, _before(bound[0]))) is not None:
        ways.append(smaller + ANY)
    if not ways:
        return "" if empty else None
    return f"(?:{'|'.join(ways)}){'?' if empty else ''}"


def _after(character: str) -> int:
    code = ord(character) + 1
    return _SURROGATES.stop if code in _SURROGATES else code


def _before(character: str) -> int:
    code = ord(character) - 1
    return _SURROGATES.start - 1 if code in _SURROGATES else code


def _class(first: int, last: int) -> str | None:
    return None if first > last else f"[\\x{{{first:x}}}-\\x{{{last:x}}}]"
