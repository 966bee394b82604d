"""Column names that are refused, and what an append may change."""

from typing import Any

import pyarrow as pa
import pytest

from indextables.errors import SchemaError
from indextables.schema.conversion import check_append, check_names, check_partition_columns

TABLE = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("name", pa.string()),
        ("at", pa.struct([("x", pa.int32())])),
    ]
)


def schema(**columns: Any) -> pa.Schema:
    return pa.schema(list(columns.items()))


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ([("a", pa.int8()), ("A", pa.int8())], "a and A"),
        ([("a", pa.int8()), ("a", pa.int8())], "a and a"),
        ([("", pa.int8())], "empty name"),
        ([("_Row", pa.int8())], "reserved"),
        ([("_score", pa.int8())], "reserved"),
        ([("_indexall", pa.int8())], "reserved"),
        (
            [("s", pa.list_(pa.struct([("x", pa.int8()), ("X", pa.int8())])))],
            r"s\.element\.x and s\.element\.X",
        ),
        ([("s", pa.map_(pa.string(), pa.struct([("", pa.int8())])))], "empty name"),
    ],
)
def test_names_that_cannot_be_used_are_refused(columns: list[Any], said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        check_names(pa.schema(columns))


def test_odd_names_are_fine() -> None:
    check_names(schema(**{"a.b": pa.int8(), " ": pa.int8(), "é": pa.int8(), "_rows": pa.int8()}))


def test_columns_may_come_in_any_order_and_case_and_nullable_ones_may_be_absent() -> None:
    assert check_append(TABLE, schema(NAME=pa.large_string(), ID=pa.int32()), merge=False) == TABLE


def test_a_column_that_must_not_be_null_may_not_be_absent() -> None:
    with pytest.raises(SchemaError, match="column id must not be null"):
        check_append(TABLE, schema(name=pa.string()), merge=True)


@pytest.mark.parametrize("merge", [False, True])
@pytest.mark.parametrize(
    ("name", "arrow"), [("id", pa.string()), ("name", pa.binary()), ("id", pa.float64()), ("at", pa.string())]
)
def test_a_change_of_type_is_refused_by_name(name: str, arrow: Any, merge: bool) -> None:
    with pytest.raises(SchemaError, match=f"column {name} is"):
        check_append(
            TABLE,
            pa.schema([("id", pa.int64())] if name != "id" else []).append(pa.field(name, arrow)),
            merge=merge,
        )


def test_new_columns_need_the_option_and_become_nullable() -> None:
    incoming = schema(id=pa.int64()).append(pa.field("new", pa.uint8(), nullable=False))
    with pytest.raises(SchemaError, match=r"no column new.*mergeSchema"):
        check_append(TABLE, incoming, merge=False)
    assert check_append(TABLE, incoming, merge=True) == TABLE.append(pa.field("new", pa.int16()))


def test_new_fields_within_a_struct_need_the_option_too() -> None:
    incoming = schema(id=pa.int64(), at=pa.struct([("y", pa.int8()), ("x", pa.int16())]))
    with pytest.raises(SchemaError, match=r"no column at\.y"):
        check_append(TABLE, incoming, merge=False)
    merged = check_append(TABLE, incoming, merge=True)
    assert merged.field("at").type == pa.struct([("x", pa.int32()), ("y", pa.int8())])


def test_a_column_without_a_type_takes_one_only_when_merging() -> None:
    table = schema(a=pa.null())
    with pytest.raises(SchemaError, match="column a is null"):
        check_append(table, schema(a=pa.int8()), merge=False)
    assert check_append(table, schema(a=pa.int8()), merge=True) == schema(a=pa.int8())
    assert check_append(schema(a=pa.int8()), table, merge=False) == schema(a=pa.int8())


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["nope"], "no column nope"),
        (["id", "ID"], "twice"),
        (["at"], "column at"),
        (["id", "name", "at"], "column at|every column"),
        (["blob"], "column blob"),
    ],
)
def test_partition_columns_that_cannot_be_are_refused(names: list[str], said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        check_partition_columns(TABLE.append(pa.field("blob", pa.binary())), names)


def test_not_every_column_may_be_a_partition_column() -> None:
    with pytest.raises(SchemaError, match="every column"):
        check_partition_columns(schema(a=pa.int8(), b=pa.string()), ["a", "b"])


def test_partition_columns_get_the_spelling_of_the_schema() -> None:
    assert check_partition_columns(TABLE, ["NAME"]) == ("name",)
