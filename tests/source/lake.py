"""The tables of real connectors that lie beside the repository, and rows in the encoding of their answers."""

import base64
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from indextables.schema.calendar import format_date, format_timestamp
from indextables.schema.spark import from_arrow
from indextables.source import SourceReader, SourceSnapshot

LAKE = next(
    (
        folder / "shared" / "fixtures" / "lake"
        for folder in Path(__file__).parents
        if (folder / "shared" / "fixtures" / "lake").is_dir()
    ),
    None,
)


def expected(kind: str) -> dict[str, Any]:
    """The answers of Spark for a kind of tables; no tables where the fixtures are absent."""
    return json.loads((LAKE / kind / "expected.json").read_text()) if LAKE else {"tables": []}


def tables(kind: str) -> list[Any]:
    """A test parameter for each fixture table, or one that is skipped."""
    found = [pytest.param(table, id=table["name"]) for table in expected(kind)["tables"]]
    return found or [
        pytest.param(None, marks=pytest.mark.skip(reason="the fixtures of lake tables are absent"))
    ]


def sort_key(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, sort_keys=True)


def encode(array: pa.Array) -> list[Any]:
    """Values as the answers have them."""
    kind = array.type
    if pa.types.is_struct(kind):
        children = [encode(pc.struct_field(array, [i])) for i in range(kind.num_fields)]
        names = [field.name for field in kind]
        return [
            dict(zip(names, values, strict=True)) if valid else None
            for valid, *values in zip(array.is_valid().to_pylist(), *children, strict=True)
        ]
    if pa.types.is_map(kind) or pa.types.is_list(kind):
        return [_encode_list(array, i) if array[i].is_valid else None for i in range(len(array))]
    if pa.types.is_date32(kind):
        return [None if days is None else format_date(days) for days in array.cast(pa.int32()).to_pylist()]
    if pa.types.is_timestamp(kind):
        zone = "" if kind.tz is None else "Z"
        values = array.cast(pa.int64()).to_pylist()
        return [None if micros is None else format_timestamp(micros) + zone for micros in values]
    return [None if value is None else _plain(value, kind) for value in array.to_pylist()]


def _encode_list(array: pa.Array, row: int) -> list[Any]:
    start, end = np.asarray(array.slice(row, 1).offsets)
    if pa.types.is_map(array.type):
        keys = encode(array.keys.slice(start, end - start))
        items = encode(array.items.slice(start, end - start))
        return sorted(([key, item] for key, item in zip(keys, items, strict=True)), key=sort_key)
    return encode(array.values.slice(start, end - start))


def _plain(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_floating(kind):
        if math.isnan(value):
            return "NaN"
        if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
    if pa.types.is_decimal(kind):
        return format(value, "f")
    if pa.types.is_binary(kind):
        return base64.b64encode(value).decode()
    return value


def rows_of(snapshot: SourceSnapshot, *, by_position: bool = False, batch_rows: int = 7) -> list[Any]:
    """All rows of a snapshot in the encoding of the answers, sorted as they are."""
    reader = SourceReader(snapshot)
    rows: list[Any] = []
    for file in snapshot.files:
        positions = np.arange(reader.open(file).num_rows) if by_position else None
        for batch in reader.read(file, positions=positions, batch_rows=batch_rows):
            batch.validate(full=True)
            assert batch.schema == snapshot.schema
            rows += map(list, zip(*(encode(column) for column in batch.columns), strict=True))
    return sorted(rows, key=sort_key)


def spark_schema(snapshot: SourceSnapshot) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(from_arrow(snapshot.schema))
    return result


def without_delta_metadata(schema: Any) -> Any:
    """A schema of Spark without the metadata that Delta keeps for itself, of which Spark shows some."""
    if isinstance(schema, dict):
        return {
            key: without_delta_metadata(value)
            for key, value in schema.items()
            if not str(key).startswith("delta.")
        }
    return [without_delta_metadata(value) for value in schema] if isinstance(schema, list) else schema


def check_answer(snapshot: SourceSnapshot, answer: dict[str, Any], label: str) -> None:
    """A snapshot has the schema, the rows and the count that Spark answered, by scan and by position."""
    assert spark_schema(snapshot) == without_delta_metadata(answer["schema"]), label
    rows = rows_of(snapshot)
    assert rows == answer["rows"], label
    assert rows_of(snapshot, by_position=True) == rows, label
    reader = SourceReader(snapshot)
    assert sum(reader.count(file) for file in snapshot.files) == answer["row_count"], label
    check_statistics(snapshot, reader)


def check_statistics(snapshot: SourceSnapshot, reader: SourceReader) -> None:
    """No value lies outside of the bounds that a snapshot states for its file, and nulls are counted right."""
    for file in snapshot.files:
        batches = list(reader.read(file, deleted_rows=True))
        if not batches:
            continue
        table = pa.Table.from_batches(batches)
        if file.records is not None:
            assert table.num_rows == file.records
        for name, stated in file.statistics.items():
            column = table[name]
            if stated.nulls is not None:
                assert column.null_count == stated.nulls, name
            if stated.minimum is not None and column.null_count < len(column):
                assert pc.all(pc.greater_equal(column, stated.minimum)).as_py(), name
            if stated.maximum is not None and column.null_count < len(column):
                assert pc.all(pc.less_equal(column, stated.maximum)).as_py(), name
        for name, value in file.partition.items():
            assert {scalar.as_py() for scalar in table[name].unique()} <= {value.as_py()}
