"""A query tree written back as text; parsing the text gives the tree again."""

from indextables.predicate.query_tree import (
    AllDocs,
    AllOf,
    AnyOf,
    Boost,
    Exists,
    FieldPath,
    Fuzzy,
    InSet,
    Negation,
    Phrase,
    Prefix,
    QueryLeaf,
    QueryNode,
    Range,
    Regex,
    Term,
    Wild,
    Wildcard,
)
from indextables.predicate.query_words import ENDING, LEADING, MARKS, RESERVED


def to_text(query: QueryNode) -> str:
    r"""The query as text, every operator spelled out.

    >>> to_text(AllOf((Term("a b"), Negation(Prefix("time", field=("log", "line"))))))
    'a\\ b AND NOT log.line:time*'
    """
    match query:
        case AnyOf(parts):
            return " OR ".join(_within(part, AnyOf) for part in parts)
        case AllOf(parts):
            return " AND ".join(_within(part, AnyOf, AllOf) for part in parts)
        case Negation(part):
            return f"NOT {_within(part, AnyOf, AllOf)}"
        case Boost(part, factor):
            return f"{_within(part, AnyOf, AllOf, Negation, Boost)}^{factor!r}"
        case _:
            return _leaf(query)


def _within(part: QueryNode, *looser: type[QueryNode]) -> str:
    """The part, in parentheses if it binds no tighter than what it stands in."""
    text = to_text(part)
    return f"({text})" if isinstance(part, looser) else text


def _leaf(leaf: QueryLeaf) -> str:
    match leaf:
        case AllDocs():
            return "*"
        case Exists(field):
            return f"{_field(field)}*"
        case Term(text, field):
            return _field(field) + _word(text)
        case Prefix(text, field):
            return f"{_field(field)}{_word(text)}*"
        case Fuzzy(text, distance, field):
            return f"{_field(field)}{_word(text)}~{distance}"
        case Wildcard(parts, field):
            return _field(field) + "".join(
                part.value if isinstance(part, Wild) else _escaped(part, first=index == 0)
                for index, part in enumerate(parts)
            )
        case Phrase(text, slop, prefix, field):
            return _field(field) + _quoted(text) + (f"~{slop}" if slop else "") + ("*" if prefix else "")
        case Regex(pattern, field):
            return f"{_field(field)}/{_slashed(pattern)}/"
        case Range():
            return _field(leaf.field) + _range(leaf)
        case InSet(values, field):
            return f"{_field(field)}IN [{' '.join(map(_quoted, values))}]"


def _range(leaf: Range) -> str:
    lower = "*" if leaf.lower is None else _quoted(leaf.lower)
    upper = "*" if leaf.upper is None else _quoted(leaf.upper)
    return f"{'[' if leaf.lower_inclusive else '{'}{lower} TO {upper}{']' if leaf.upper_inclusive else '}'}"


def _field(path: FieldPath | None) -> str:
    if path is None:
        return ""
    return ".".join(_escaped(name, first=True).replace(".", "\\.") for name in path) + ":"


def _word(text: str) -> str:
    """A word that reads back as itself, though it may look like an operator."""
    if text in RESERVED or text == "IN":
        return "\\" + text
    return _escaped(text, first=True)


def _escaped(text: str, *, first: bool) -> str:
    return "".join(
        "\\" + char
        if char in MARKS or char in ENDING or char.isspace() or (first and index == 0 and char in LEADING)
        else char
        for index, char in enumerate(text)
    )


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _slashed(pattern: str) -> str:
    """The pattern with its bare slashes escaped; escaped pairs stay as they are."""
    out: list[str] = []
    escaped = False
    for char in pattern:
        if char == "/" and not escaped:
            out.append("\\")
        out.append(char)
        escaped = char == "\\" and not escaped
    return "".join(out)
