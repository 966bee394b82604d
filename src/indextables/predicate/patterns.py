"""Patterns of texts: SQL's LIKE, and regular expressions over the terms of an index.

Expressions over terms are for prefixes, wildcards, LIKE and ranges of text. They have the syntax of Rust, and
match a whole term. Characters other than ASCII letters and digits are escaped by their code point, so that no
text is parsed as an operator.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import PredicateError, QuerySyntaxError
from indextables.predicate.tree import (
    Compare,
    Like,
    Op,
    Predicate,
    TextMatch,
    TextMatchKind,
    Wild,
    constant_unless_null,
)

_WILDS = {"%": Wild.MANY, "_": Wild.ONE}
# RE2 becomes slow with longer patterns, and refuses much longer ones.
_LONGEST_EXPRESSION = 5_000
ANY = "(?s:.)*"
ONE = "(?s:.)"
# Longer bounds make an automaton that costs more than it saves.
MAX_BOUND = 48
# Classes of characters in the syntax of Rust, where they have all scripts, as the inside of a class of RE2.
_CLASSES = {
    "d": r"\p{Nd}",
    "s": r"\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}",
    "w": r"\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200c}\x{200d}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}"
    r"\x{1f150}-\x{1f169}\x{1f170}-\x{1f189}",
}
# A piece of an expression: an escape, a class of POSIX, an operator of classes, or any other character.
_PIECE = re.compile(
    r"\\(?P<code>[uUx]\{[0-9a-fA-F]+\}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})|\\(?P<class>[dDsSwW])"
    r"|\\[pP]\{[^}]*\}|\\.|\[:\^?[a-z]+:\]|(?P<operator>&&|--|~~)|.",
    re.DOTALL,
)
_LAST = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)


def like_parts(pattern: str, escape: str = "\\") -> tuple[str | Wild, ...]:
    r"""The pattern as literal texts and placeholders; `%` repeated is one.

    Raises:
        PredicateError: The escape character ends the pattern, or is before another character than
            `%`, `_` and itself: Spark refuses both.

    >>> like_parts("100\\%_%")
    ('100%', <Wild.ONE: '?'>, <Wild.MANY: '*'>)
    """
    if len(escape) != 1:
        raise PredicateError(f"the escape of LIKE is one character, not {escape!r}")
    parts: list[str | Wild] = []
    literal: list[str] = []
    chars = iter(pattern)
    for char in chars:
        if char == escape:
            following = next(chars, None)
            if following is None:
                raise PredicateError(
                    f"the LIKE pattern {pattern!r} ends with its escape character {escape!r}"
                )
            if following not in {"%", "_", escape}:
                raise PredicateError(
                    f"in the LIKE pattern {pattern!r} the escape character {escape!r} is before "
                    f"{following!r}; it must be before %, _ or itself"
                )
            literal.append(following)
        elif char in _WILDS:
            if literal:
                parts.append("".join(literal))
                literal.clear()
            if char == "_" or not parts or parts[-1] is not Wild.MANY:
                parts.append(_WILDS[char])
        else:
            literal.append(char)
    if literal:
        parts.append("".join(literal))
    return tuple(parts)


def simplify(like: Like, column_type: pa.DataType) -> Predicate:
    """The condition without LIKE where equality, or a prefix, suffix or substring test is equivalent."""
    if like.ignore_case:
        return like
    match like_parts(like.pattern, like.escape):
        case ():
            return Compare(Op.EQ, like.column, pa.scalar("", column_type))
        case (Wild.MANY,):
            return constant_unless_null(like.column, True)
        case (str(text),):
            return Compare(Op.EQ, like.column, pa.scalar(text, column_type))
        case (str(text), Wild.MANY):
            return TextMatch(TextMatchKind.STARTS, like.column, text)
        case (Wild.MANY, str(text)):
            return TextMatch(TextMatchKind.ENDS, like.column, text)
        case (Wild.MANY, str(text), Wild.MANY):
            return TextMatch(TextMatchKind.CONTAINS, like.column, text)
        case _:
            pass
    return like


def match_like(texts: Any, like: Like) -> Any:  # noqa: ANN401
    """Which texts (an Arrow array, chunked or not) match; null where the text is null."""
    # Spark's ILIKE is LIKE over both sides in lower case, the pattern's escapes included.
    pattern = like.pattern.lower() if like.ignore_case else like.pattern
    parts = like_parts(pattern, like.escape)
    if like.ignore_case:
        texts = _lower(texts)
    if least_letters(parts) <= _LONGEST_EXPRESSION:
        return pc.match_substring_regex(texts, pattern=_regex(parts))
    return pa.array(
        [None if text is None else matches(text, parts) for text in texts.to_pylist()], pa.bool_()
    )


def _regex(parts: tuple[str | Wild, ...]) -> str:
    pieces = {Wild.MANY: ".*", Wild.ONE: "."}
    body = "".join(pieces[part] if isinstance(part, Wild) else _escape_regex(part) for part in parts)
    return rf"(?s)\A{body}\z"


def _escape_regex(text: str) -> str:
    """The text as a literal of RE2, which lets every character but ASCII letters and digits be escaped."""
    return "".join(
        char
        if not char.isascii() or char.isalnum() or char == "_"
        else "\\" + char
        if char != "\0"
        else "\\x00"
        for char in text
    )


def _lower(texts: Any) -> Any:  # noqa: ANN401
    """The texts in lower case. Outside ASCII, case depends on context and may change lengths.

    Arrow maps single characters; Java and Python also handle the final sigma and the dotted I. So texts that
    are not ASCII are mapped by Python, each distinct one once.
    """
    if isinstance(texts, pa.ChunkedArray):
        return pa.chunked_array([_lower(chunk) for chunk in texts.chunks], texts.type)
    plain = pc.fill_null(pc.string_is_ascii(texts), True)
    if pc.all(plain, min_count=0).as_py():
        return pc.ascii_lower(texts)
    distinct = texts.filter(pc.invert(plain)).dictionary_encode()
    words = pa.array([word.lower() for word in distinct.dictionary.to_pylist()], texts.type)
    return pc.replace_with_mask(pc.ascii_lower(texts), pc.invert(plain), words.take(distinct.indices))


# --- expressions over terms -----------------------------------------------------------------------------


def to_re2(expression: str) -> str:
    r"""An expression of a query, which has the syntax of Rust, in that of RE2, for rows.

    Raises:
        QuerySyntaxError: It combines classes, which RE2 cannot.

    >>> to_re2(r"\d+[\d_]\u00e9")
    '[\\p{Nd}]+[\\p{Nd}_]\\x{00e9}'
    """
    out: list[str] = []
    inside = False  # of a class in brackets
    at = first = 0
    while match := _PIECE.match(expression, at):
        piece, start, at = match[0], at, match.end()
        if name := match["class"]:
            characters = _CLASSES[name.lower()]
            if inside and name.isupper():
                raise _combined_classes_error(expression)
            piece = characters if inside else f"[{'^' if name.isupper() else ''}{characters}]"
        elif code := match["code"]:
            piece = f"\\x{{{code[1:].strip('{}')}}}"
        elif inside and (piece == "[" or match["operator"]):
            raise _combined_classes_error(expression)
        elif not inside and piece[0] == "[":
            inside, piece, at = True, "[", start + 1
            first = at + expression.startswith("^", at)
        elif inside and piece == "]" and start > first:
            inside = False
        out.append(piece)
    return "".join(out)


def _combined_classes_error(expression: str) -> QuerySyntaxError:
    return QuerySyntaxError(
        f"the regular expression /{expression}/ combines classes of characters, and there are rows that the "
        "index does not have completely, for which that is not supported; list the characters in one class"
    )


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
    """Whether more than this many characters follow a placeholder for any text: a costly automaton."""
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
