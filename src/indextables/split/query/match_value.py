"""Numbers, dates, truth values and addresses, looked at in the rows themselves."""

import ipaddress

import numpy as np
import pyarrow as pa

from indextables.predicate import Column, Compare, In, Op
from indextables.predicate.evaluate import evaluate
from indextables.predicate.query_tree import (
    Exists,
    InSet,
    Phrase,
    Prefix,
    QueryLeaf,
    Range,
    Term,
    Wild,
    Wildcard,
)
from indextables.split.mapping import Field, Kind, field_name, value_kind
from indextables.split.query.match_text import Mask, Texts, text_matches
from indextables.split.query.value_leaf import address_block, address_range, read_as, unfit


def value_matches(leaf: QueryLeaf, values: pa.Array, column: str) -> Mask:
    """Which values the leaf matches; null matches nothing."""
    rows = pa.table({"v": values})
    own = Column(("v",))

    def read(text: str) -> pa.Scalar:
        return read_as(text, values.type, column)

    match leaf:
        case Term(text=text) | Phrase(text=text, slop=0, prefix=False):
            parts = [Compare(Op.EQ, own, read(text))]
        case InSet(values=texts):
            return _true(evaluate(In(own, tuple(read(text) for text in texts)), rows))
        case Range(lower=lower, upper=upper):
            parts = []
            if lower is not None:
                parts.append(Compare(Op.GE if leaf.lower_inclusive else Op.GT, own, read(lower)))
            if upper is not None:
                parts.append(Compare(Op.LE if leaf.upper_inclusive else Op.LT, own, read(upper)))
        case _:
            raise unfit(leaf, column, str(values.type))
    found: Mask = np.logical_and.reduce([_true(evaluate(part, rows)) for part in parts])
    return found


def address_matches(leaf: QueryLeaf, values: pa.Array, column: str) -> Mask:
    """Which texts are addresses that the leaf matches."""
    match leaf:
        case Term(text=text) | Phrase(text=text, slop=0, prefix=False):
            blocks = [address_block(text)]
        case InSet(values=texts):
            blocks = [address_block(text) for text in texts]
        case Prefix(text=text):
            blocks = [address_block(text + "*")]
        case Wildcard(parts=parts):
            blocks = [address_block("".join(p.value if isinstance(p, Wild) else p for p in parts))]
        case Range():
            blocks = [address_range(leaf)]
        case _:
            raise unfit(leaf, column, "address")
    numbers = [_address(text) for text in values.to_pylist()]
    return np.array(
        [n is not None and any(low <= n <= high for low, high in blocks) for n in numbers], np.bool_
    )


def constant_matches(leaf: QueryLeaf, column: str, value: pa.Scalar) -> bool:
    """Whether a column that is the same in every row matches."""
    if isinstance(leaf, Exists):
        return bool(value.is_valid)
    values = pa.array([value], value.type)
    if value_kind(value.type) is not None:
        return bool(value_matches(leaf, values, column)[0])
    if not pa.types.is_string(value.type):
        raise unfit(leaf, column, str(value.type))
    plain = Field(column, field_name(Kind.STRING, column), Kind.STRING)
    return bool(text_matches(leaf, Texts.whole(values), plain)[0])


def _address(text: str | None) -> int | None:
    try:
        return None if text is None or "%" in text else address_block(str(ipaddress.ip_address(text)))[0]
    except ValueError:
        return None


def _true(answer: pa.Array) -> Mask:
    found: Mask = answer.fill_null(False).to_numpy(zero_copy_only=False)
    return found
