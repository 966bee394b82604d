"""SQL's LIKE: parses, simplifies and evaluates patterns."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import PredicateError
from indextables.predicate.query_tree import Wild
from indextables.predicate.tree import (
    Compare,
    Like,
    Op,
    Predicate,
    TextMatch,
    TextMatchKind,
    constant_unless_null,
)

_WILDS = {"%": Wild.MANY, "_": Wild.ONE}


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
    try:
        return pc.match_substring_regex(texts, pattern=_regex(parts))
    except pa.ArrowInvalid:  # a pattern that is too long for the regular expression engine
        return pa.array(
            [None if text is None else _matches(text, parts) for text in texts.to_pylist()], pa.bool_()
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


def _matches(text: str, parts: tuple[str | Wild, ...]) -> bool:
    """Whether one text matches, with backtracking to the last `%` only."""
    tokens: list[str] = []
    wild: list[bool] = []
    for part in parts:
        tokens.extend([part.value] if isinstance(part, Wild) else part)
        wild.extend([True] if isinstance(part, Wild) else [False] * len(part))
    at = token = 0
    many, many_at = -1, 0
    while at < len(text):
        if token < len(tokens) and wild[token] and tokens[token] == Wild.MANY.value:
            many, many_at = token, at
            token += 1
        elif token < len(tokens) and (wild[token] or tokens[token] == text[at]):
            token += 1
            at += 1
        elif many >= 0:
            many_at += 1
            token, at = many + 1, many_at
        else:
            return False
    return all(wild[rest] and tokens[rest] == Wild.MANY.value for rest in range(token, len(tokens)))


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
