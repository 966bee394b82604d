"""Rows of every type, and a plain reading of conditions over them, one row and one value at a time."""

import dataclasses
import math
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from indextables.predicate import (
    Always,
    And,
    Column,
    Compare,
    In,
    IsNull,
    Like,
    Not,
    Op,
    Or,
    Search,
    TextMatch,
    TextMatchKind,
)

ZONED = pa.timestamp("us", tz="UTC")
LOCAL = pa.timestamp("us")
DAY = 86_400_000_000

TYPES = {
    "tiny": pa.int8(),
    "whole": pa.int32(),
    "big": pa.int64(),
    "single": pa.float32(),
    "real": pa.float64(),
    "price": pa.decimal128(10, 2),
    "huge": pa.decimal128(38, 10),
    "word": pa.string(),
    "bytes": pa.binary(),
    "flag": pa.bool_(),
    "day": pa.date32(),
    "moment": ZONED,
    "wall": LOCAL,
}
SCHEMA = pa.schema(
    [
        *TYPES.items(),
        ("nested", pa.struct([("whole", pa.int32()), ("inner", pa.struct([("word", pa.string())]))])),
    ]
)
PATHS = {(name,): type_ for name, type_ in TYPES.items()} | {
    ("nested", "whole"): pa.int32(),
    ("nested", "inner", "word"): pa.string(),
}

_F32 = [
    0.0,
    -0.0,
    1.0,
    -1.5,
    0.5,
    math.inf,
    -math.inf,
    math.nan,
    16777216.0,
    1.100000023841858,
    3.4028234663852886e38,
]
POOLS: dict[pa.DataType, list[Any]] = {
    pa.int8(): [-128, -1, 0, 1, 2, 5, 127],
    pa.int32(): [-(2**31), -1, 0, 1, 2, 5, 300, 16777217, 2**31 - 1],
    pa.int64(): [-(2**63), -1, 0, 1, 2, 5, 2**53, 2**53 + 1, 2**53 + 2, 2**63 - 513, 2**63 - 1],
    pa.float32(): _F32,
    pa.float64(): [*_F32, 0.1, 1.1, 5.5, 2.0**53, 2.0**63, 1e300, 5e-324, 1e-50],
    pa.decimal128(10, 2): [
        Decimal(x) for x in ("-99999999.99", "-1.50", "0.00", "0.10", "1.00", "1.10", "99999999.99")
    ],
    pa.decimal128(38, 10): [
        Decimal(x)
        for x in ("-1.5", "0", "0.1", "1.1", "9007199254740993", "9007199254740993.0000000001", "9" * 28)
    ],
    pa.string(): [
        "",
        "a",
        "A",
        "ab",
        "abc",
        "a%b",
        "a_b",
        "a\\b",
        "é",
        "İx",
        "ß",
        "ΑΣ",
        "a\nb",
        "😀",
        "\0",
        "\uffff",
        "ab ",
    ],
    pa.binary(): [b"", b"a", b"\x00", b"\xff", b"ab"],
    pa.bool_(): [True, False],
    pa.date32(): [-719162, -1, 0, 1, 19723, 2932896, 5000000],
    ZONED: [-1, 0, 1, DAY, DAY - 1, 19723 * DAY, 19723 * DAY + 1, 9 * 10**18, -(10**18)],
    LOCAL: [-1, 0, 1, DAY, DAY - 1, 19723 * DAY, 19723 * DAY + 1, 9 * 10**18, -(10**18)],
}
NUMBERS = (
    pa.int8(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.decimal128(10, 2),
    pa.decimal128(38, 10),
)
TIMES = (pa.date32(), ZONED, LOCAL)


def comparable(type_: Any) -> tuple[Any, Any, Any, Any, Any, Any, Any] | tuple[Any, Any, Any] | tuple[Any]:
    """The literal types that may stand beside a column of the type."""
    return next((group for group in (NUMBERS, TIMES) if type_ in group), (type_,))


def scalar(value: Any, type_: Any) -> pa.Scalar:
    return pa.scalar(value, type_)


def raw(value: Any) -> Any:
    """A scalar as the value that rows hold: times as ticks."""
    if not value.is_valid:
        return None
    return value.value if pa.types.is_temporal(value.type) else value.as_py()


def values(type_: Any) -> SearchStrategy[Any]:
    pool = st.sampled_from(POOLS[type_])
    if type_ == pa.float64():
        return pool | st.floats()
    if type_ == pa.string():
        return pool | st.text(alphabet="aAb%_\\é\n😀Σİ", max_size=6)
    if type_ == pa.int64():
        return pool | st.integers(-(2**63), 2**63 - 1)
    return pool


def scalars(type_: Any, *, null: bool = True) -> Any:
    found = values(type_).map(lambda value: scalar(value, type_))
    return found | st.just(pa.scalar(None, type_)) if null else found


def columns() -> SearchStrategy[Any]:
    return st.sampled_from(list(PATHS)).map(Column)


_ROW = st.fixed_dictionaries(
    {name: st.none() | values(type_) for name, type_ in TYPES.items()}
    | {
        "nested": st.none()
        | st.fixed_dictionaries(
            {
                "whole": st.none() | values(pa.int32()),
                "inner": st.none() | st.fixed_dictionaries({"word": st.none() | values(pa.string())}),
            }
        )
    }
)
ROWS = st.lists(_ROW, max_size=12)


def table(rows: Any) -> pa.Table:
    arrays = []
    for field in SCHEMA:
        cells = [row[field.name] for row in rows]
        if pa.types.is_timestamp(field.type):
            arrays.append(pa.array(cells, pa.int64()).cast(field.type))
        else:
            arrays.append(pa.array(cells, field.type))
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


@st.composite
def _comparisons(draw: Any) -> Compare:
    column = draw(columns())
    literal = draw(st.sampled_from(comparable(PATHS[column.path])).flatmap(scalars))
    return Compare(draw(st.sampled_from(Op)), column, literal)


@st.composite
def _memberships(draw: Any) -> In:
    column = draw(columns())
    literals = st.sampled_from(comparable(PATHS[column.path])).flatmap(scalars)
    return In(column, tuple(draw(st.lists(literals, min_size=1, max_size=5))))


TEXT_COLUMNS = st.sampled_from([Column(path) for path, type_ in PATHS.items() if type_ == pa.string()])
PATTERNS = st.lists(
    st.sampled_from(
        ["%", "_", "\\%", "\\_", "\\\\", "a", "A", "b", "é", "\n", "😀", ".", "*", "Σ", "ς", "i"]
    ),
    max_size=6,
).map("".join)
LEAVES = st.one_of(
    _comparisons(),
    _comparisons(),
    _memberships(),
    columns().map(IsNull),
    st.builds(TextMatch, st.sampled_from(TextMatchKind), TEXT_COLUMNS, values(pa.string())),
    st.builds(Like, TEXT_COLUMNS, PATTERNS, st.just("\\"), st.booleans()),
    st.sampled_from([Always(True), Always(False), Always(None)]),
)
PREDICATES = st.recursive(
    LEAVES,
    lambda inner: (
        st.builds(Not, inner)
        | st.builds(And, st.lists(inner, max_size=3).map(tuple))
        | st.builds(Or, st.lists(inner, max_size=3).map(tuple))
    ),
    max_leaves=8,
)


def shape(node: Any) -> Any:
    """A condition as plain tuples: scalars of NaN are not equal, and those of far dates have no repr."""
    if isinstance(node, pa.Scalar):
        return str(node.type), repr(raw(node))
    if isinstance(node, tuple):
        return tuple(map(shape, node))
    if dataclasses.is_dataclass(node):
        return type(node).__name__, *(shape(getattr(node, field.name)) for field in dataclasses.fields(node))
    return node


# --- the plain reading ------------------------------------------------------------------------------


def truth(predicate: Any, row: Any) -> Any:
    """True, False or None: SQL's own definition, written out."""
    match predicate:
        case And(parts):
            found = [truth(part, row) for part in parts]
            return False if False in found else None if None in found else True
        case Or(parts):
            found = [truth(part, row) for part in parts]
            return True if True in found else None if None in found else False
        case Not(part):
            found = truth(part, row)
            return None if found is None else not found
        case Always(value):
            return value
        case IsNull(column):
            return cell(row, column) is None
        case Compare(op, column, value):
            return _compared(op, cell(row, column), PATHS[column.path], value)
        case In(column, values_):
            return _among(cell(row, column), PATHS[column.path], values_)
        case TextMatch(kind, column, text):
            found = cell(row, column)
            if found is None:
                return None
            return {
                TextMatchKind.STARTS: found.startswith(text),
                TextMatchKind.ENDS: found.endswith(text),
                TextMatchKind.CONTAINS: text in found,
            }[kind]
        case Like(column, pattern, escape, ignore_case):
            found = cell(row, column)
            return None if found is None else like(found, pattern, escape, ignore_case=ignore_case)
        case Search():
            raise AssertionError("searches have no plain reading")
        case _:
            raise AssertionError(f"no definition of {predicate}")


def cell(row: Any, column: Column) -> Any:
    found = row
    for name in column.path:
        found = None if found is None else found[name]
    return found


def _compared(op: Op, left: Any, left_type: Any, value: Any) -> Any:
    right = raw(value)
    if op not in {Op.EQ, Op.NULL_SAFE} and pa.types.is_integer(left_type) and pa.types.is_decimal(value.type):
        # Spark decides these without looking at the row.
        if right is not None and right > 2**63 - 1:
            return op in {Op.LT, Op.LE}
        if right is not None and right < -(2**63):
            return op in {Op.GT, Op.GE}
    if op is Op.NULL_SAFE and (left is None or right is None):
        return left is None and right is None
    if left is None or right is None:
        return None
    first, second = _widened(left, left_type, right, value.type)
    return {
        Op.EQ: first == second,
        Op.NULL_SAFE: first == second,
        Op.LT: first < second,
        Op.LE: first <= second,
        Op.GT: first > second,
        Op.GE: first >= second,
    }[op]


def _among(left: Any, left_type: Any, values_: Sequence[Any]) -> bool | None:
    if left is None or not values_:
        return None if left is None else False
    if any(pa.types.is_floating(value.type) for value in values_ if value.is_valid):
        values_ = [value if not value.is_valid else pa.scalar(float(value.as_py())) for value in values_]
    found = [_compared(Op.EQ, left, left_type, value) for value in values_]
    return True if True in found else None if None in found else False


def _widened(left: Any, left_type: Any, right: Any, right_type: Any) -> tuple[Any, ...]:
    """Both sides in a form that orders as SQL does."""
    if pa.types.is_floating(left_type) or pa.types.is_floating(right_type):
        return tuple((1, 0.0) if math.isnan(x) else (0, x) for x in (float(left), float(right)))
    if left_type in TIMES:
        return (left * DAY if left_type == pa.date32() else left), (
            right * DAY if right_type == pa.date32() else right
        )
    if left_type == pa.string():
        return left.encode(), right.encode()
    return left, right


def like(text: Any, pattern: str, escape: str = "\\", *, ignore_case: bool = False) -> bool:
    """LIKE by way of Python's regular expressions, one character of the pattern at a time."""
    if ignore_case:
        text, pattern = text.lower(), pattern.lower()
    out, at = [], 0
    while at < len(pattern):
        if pattern[at] == escape:
            at += 1
            out.append(re.escape(pattern[at]))
        else:
            out.append({"%": ".*", "_": "."}.get(pattern[at], re.escape(pattern[at])))
        at += 1
    return re.fullmatch("".join(out), text, re.DOTALL) is not None
