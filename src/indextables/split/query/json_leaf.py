"""Values within nested columns and JSON texts, addressed by their path."""

import re

import tantivy
from tantivy import Query

from indextables.predicate.query_tree import Exists, InSet, Phrase, QueryLeaf, Term
from indextables.split.index.tokens import cut
from indextables.split.mapping import Field
from indextables.split.query.verdict import ALL, Verdict, any_of, either, every, plain
from indextables.split.query.view import IndexView

# The index keeps texts of this form as moments in time, under any spelling of the same moment.
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")
_WHOLE = re.compile(r"[+-]?\d{1,18}")


def json_leaf(leaf: QueryLeaf, field: Field, paths: list[tuple[str, ...]], view: IndexView) -> Verdict:
    """What the index says about one leaf on the values at any of the paths."""
    return any_of(_at(leaf, field, path, view) for path in paths)


def json_number(text: str) -> int | float | None:
    """The number that a text of a query stands for in JSON; None if it is none."""
    if _WHOLE.fullmatch(text):
        return int(text)
    try:
        number = float(text)
    except ValueError:
        return None
    return number if "_" not in text and abs(number) < float("inf") else None


def is_moment(text: str) -> bool:
    """Whether JSON text of this form is indexed as a moment in time."""
    return _MOMENT.fullmatch(text) is not None


def _at(leaf: QueryLeaf, field: Field, path: tuple[str, ...], view: IndexView) -> Verdict:
    partial = view.partial(field)
    name = _name(field, path, view)
    if name is None:
        return plain(ALL, ALL)
    present = Query.exists_query(name, json_subpaths=True) if field.fast else ALL
    lookup = either((present, partial))
    match leaf:
        case Exists():
            return plain(lookup, partial if field.fast else ALL)
        case Term(text=text) | Phrase(text=text, slop=0, prefix=False):
            values: tuple[str, ...] = (text,)
        case InSet(values=values):
            pass
        case _:
            return plain(lookup, lookup)
    if any(is_moment(text) for text in values):
        return plain(lookup, lookup)
    found = [_value(text, field, name, view) for text in values]
    rows = either((*(query for query, _ in found), partial))
    return plain(rows, partial if all(sure for _, sure in found) else rows)


def _name(field: Field, path: tuple[str, ...], view: IndexView) -> str | None:
    """The path as Tantivy writes it; None if it cannot write it, and rows have to be looked at.

    It has no empty keys, ends paths by the character 0 and their keys by the character 1, and takes the
    longest name of a field that a path begins with. Rows with these characters in keys are in `_partial`.
    """
    if not all(path) or any("\0" in key or "\1" in key for key in path) or "\\" in field.name:
        return None
    if any(other.name.startswith(f"{field.name}.") for other in view.mapping.fields):
        return None
    return ".".join([field.name, *(key.replace("\\", r"\\").replace(".", r"\.") for key in path)])


def _value(text: str, field: Field, name: str, view: IndexView) -> tuple[tantivy.Query, bool]:
    """Rows with the text, or the number or truth value it stands for; and whether that is certain."""
    tokens = cut(field, text)
    sure = len(tokens) < 2 or field.record == "position"
    if len(tokens) > 1 and field.record == "position":
        words: list[str | tuple[int, str]] = [(t.position - tokens[0].position, t.text) for t in tokens]
        view.load_positions(field)
        phrase = Query.phrase_query(view.schema, name, words)
        ways = [view.scored(phrase, name, [token.text for token in tokens])]
    else:
        terms = ((t.text, Query.term_query(view.schema, name, t.text, field.term_record)) for t in tokens)
        ways = [every(view.scored(query, name, [word]) for word, query in terms)] if tokens else []
    number = json_number(text)
    if number is not None:
        ways.append(_value_query(view, field, name, number))
    if text.lower() in ("true", "false"):
        ways.append(_value_query(view, field, name, text.lower() == "true"))
    return either(ways), sure


def _value_query(view: IndexView, field: Field, name: str, value: float | bool) -> tantivy.Query:  # noqa: FBT001 - the value itself
    """Rows with a number or a truth value, which counts 1."""
    return Query.const_score_query(Query.term_query(view.schema, name, value, field.term_record), 1.0)
