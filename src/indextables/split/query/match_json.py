"""Values within nested columns and JSON texts, looked at in the rows themselves."""

import datetime as dt
import decimal
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from indextables.predicate.query_tree import Exists, InSet, Phrase, QueryLeaf, Range, Term
from indextables.split.mapping import Field
from indextables.split.query.json_leaf import is_moment, json_number
from indextables.split.query.match_text import Mask, Texts, text_matches


def json_matches(leaf: QueryLeaf, values: pa.Array, field: Field, paths: list[tuple[str, ...]]) -> Mask:
    """Which rows have a value that the leaf matches at one of the paths."""
    owners: list[int] = []
    found: list[Any] = []
    for row, document in enumerate(_documents(values, field)):
        for path in paths:
            for value in _at(document, path, deep=isinstance(leaf, Exists)):
                owners.append(row)
                found.append(value)
    hits = _matches(leaf, found, field)
    rows: Mask = np.bincount(np.array(owners, np.int64)[hits], minlength=len(values)) > 0
    return rows


def _documents(values: pa.Array, field: Field) -> Iterator[Any]:
    text = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
    for value in values.to_pylist(maps_as_pydicts="lossy"):
        document = _parsed(value) if text else value
        if document is None:
            yield {}
        elif field.root and not isinstance(document, dict):
            yield {field.root: document}
        else:
            yield document


def _parsed(text: str | None) -> Any:  # noqa: ANN401 - JSON
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        return None


def _at(value: Any, path: tuple[str, ...], *, deep: bool) -> Iterator[Any]:  # noqa: ANN401 - JSON
    """The plain values at a path; lists are passed through; `deep` takes all that is below, too."""
    if isinstance(value, list):
        for item in value:
            yield from _at(item, path, deep=deep)
    elif isinstance(value, dict):
        for key, item in value.items():
            if path and _key(key) == path[0]:
                yield from _at(item, path[1:], deep=deep)
            elif not path and deep:
                yield from _at(item, path, deep=deep)
    elif value is not None and not path:
        yield value


def _key(key: Any) -> str:  # noqa: ANN401 - keys of maps have any type
    if isinstance(key, bool):
        return "true" if key else "false"
    return key.isoformat() if isinstance(key, dt.date) else str(key)


def _matches(leaf: QueryLeaf, values: list[Any], field: Field) -> Mask:
    if isinstance(leaf, Exists):
        return np.ones(len(values), np.bool_)
    texts = [_text(value) for value in values]
    tokens = (
        Texts.whole(pa.array(texts, pa.string())) if field.tokenizer == "raw" else Texts.cut(texts, field)
    )
    match leaf:
        case Term(text=text) | Phrase(text=text, slop=0, prefix=False):
            return text_matches(leaf, tokens, field) | _same(values, text)
        case InSet(values=wanted):
            same: Mask = np.logical_or.reduce([_same(values, text) for text in wanted])
            return text_matches(leaf, tokens, field) | same
        case Range():
            return text_matches(leaf, tokens, field) | np.array([_inside(v, leaf) for v in values], np.bool_)
        case _:
            return text_matches(leaf, tokens, field)


def _text(value: Any) -> str | None:  # noqa: ANN401 - JSON
    """What stands as text; moments in time do not, nor do numbers."""
    if isinstance(value, str):
        return None if is_moment(value) else value
    if isinstance(value, (dt.date, dt.time)) and not isinstance(value, dt.datetime):
        return value.isoformat()
    return None


def _same(values: list[Any], text: str) -> Mask:
    number, moment = json_number(text), _moment(text)
    truth = {"true": True, "false": False}.get(text.lower())

    def same(value: Any) -> bool:  # noqa: ANN401 - JSON
        if isinstance(value, bool):
            return value is truth
        if isinstance(value, (int, float, decimal.Decimal)):
            return number is not None and _number(value) == number
        return moment is not None and _moment(value) == moment

    return np.array([same(value) for value in values], np.bool_)


def _inside(value: Any, leaf: Range) -> bool:  # noqa: ANN401 - JSON
    """Whether a number or a moment is between bounds of its kind."""
    if isinstance(value, bool):
        return False
    read = json_number if isinstance(value, (int, float, decimal.Decimal)) else _moment
    own = _number(value) if read is json_number else _moment(value)
    if own is None:
        return False
    for bound, inclusive, sign in (
        (leaf.lower, leaf.lower_inclusive, 1),
        (leaf.upper, leaf.upper_inclusive, -1),
    ):
        if bound is None:
            continue
        limit: Any = read(bound)
        if limit is None:
            return False
        order = (own > limit) - (own < limit)
        if order * sign < 0 or (order == 0 and not inclusive) or own != own:  # noqa: PLR0124 - NaN
            return False
    return True


def _number(value: Any) -> Any:  # noqa: ANN401 - a number of any kind
    if not isinstance(value, decimal.Decimal):
        return value
    return int(value) if value == value.to_integral_value() else float(value)


def _moment(value: Any) -> dt.datetime | None:  # noqa: ANN401 - JSON
    if isinstance(value, str):
        if not is_moment(value):
            return None
        try:
            value = dt.datetime.fromisoformat(value.upper().replace(" ", "T"))
        except ValueError:
            return None
    if not isinstance(value, dt.datetime):
        return None
    return value if value.tzinfo else value.replace(tzinfo=dt.UTC)
