"""Rows of the original's bundles, as it wrote them."""

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import IO, Any, cast

import pyarrow as pa
import pytest

from indextables.errors import SplitError
from indextables.options import Options
from indextables.split.mapping import mapping_for
from indextables.split.merge import MergeSource, merge_splits
from indextables.split.quickwit import _value, bundle_rows, read_bundle
from indextables.store import open_store
from tests.split.split_files import table_of

FIXTURES = Path(__file__).parents[2] / "../shared/fixtures/original-0.5.4"
TYPES = {"integer": pa.int32(), "string": pa.string(), "double": pa.float64(), "long": pa.int64()}

pytestmark = pytest.mark.skipif(not FIXTURES.exists(), reason="the tables of the original are not here")


def expected() -> Any | dict[Any, Any]:
    return json.loads((FIXTURES / "expected.json").read_text()) if FIXTURES.exists() else {}


def schema_of(said: Any) -> pa.Schema:
    pairs = (column.split(":") for column in said["schema"])
    return pa.schema([(name, TYPES[kind]) for name, kind in pairs if name not in said["partition_columns"]])


@pytest.mark.parametrize("name", [name for name in expected() if (FIXTURES / name).exists()])
def test_every_row_of_every_live_split_is_read(name: Any) -> None:
    said = expected()[name]
    store, schema = open_store(FIXTURES / name), schema_of(said)
    found = [
        row
        for path in said["live_files"]
        for batch in bundle_rows(store, path, schema)
        for row in batch.to_pylist()
    ]
    wanted = [
        {key: value for key, value in row.items() if key not in said["partition_columns"]}
        for row in said["rows"]
    ]
    assert sorted(map(str, (sorted(r.items()) for r in found))) == sorted(
        map(str, (sorted(r.items()) for r in wanted))
    )


def test_a_column_that_is_not_there_is_null() -> None:
    store = open_store(FIXTURES / "01_single_write")
    path = expected()["01_single_write"]["live_files"][0]
    (batch,) = bundle_rows(store, path, pa.schema([("ID", pa.int32()), ("day", pa.string())]))
    assert batch.column("day").null_count == batch.num_rows > batch.column("ID").null_count == 0


def test_bundles_are_merged_into_a_split_of_ours(tmp_path: Path) -> None:
    said = expected()["02_five_appends"]
    source, store, schema = open_store(FIXTURES / "02_five_appends"), open_store(tmp_path), schema_of(said)
    sources = [
        MergeSource(path, lambda path=path: bundle_rows(source, path, schema)) for path in said["live_files"]
    ]
    sink = store.open_upload("m.split")
    built = merge_splits(sources, cast("IO[bytes]", sink), schema, mapping_for(schema, Options()), Options())
    sink.close()
    assert built.num_records == said["num_records"]
    found = table_of(store, "m.split").to_pylist()
    assert sorted(row["id"] for row in found) == sorted(row["id"] for row in said["rows"])


def test_what_is_not_a_bundle_is_refused_by_name(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    said = expected()["01_single_write"]
    data = (FIXTURES / "01_single_write" / said["live_files"][0]).read_bytes()
    for i, bad in enumerate([b"", b"abc", b"x" * 100, data[:-1], data[100:], data[:-3000], b"\xff" * 5000]):
        (tmp_path / f"{i}.split").write_bytes(bad)
        with pytest.raises(SplitError, match=rf"{i}\.split"):
            read_bundle(store, f"{i}.split")


@pytest.mark.parametrize(
    ("stored", "kind", "value"),
    [
        ("7", pa.int8(), 7),
        ("1.5", pa.decimal128(5, 2), Decimal("1.50")),
        ("9" * 38, pa.decimal128(38, 0), Decimal("9" * 38)),
        ("12345678901234567890.5", pa.decimal128(38, 18), Decimal("12345678901234567890.5")),
        (dt.datetime(2024, 1, 2, tzinfo=dt.UTC), pa.date32(), dt.date(2024, 1, 2)),
        (dt.datetime(1970, 1, 1, 0, 0, 1, 2, tzinfo=dt.UTC), pa.timestamp("us", "UTC"), 1_000_002),
        ({"tags": ["a", "b"]}, pa.list_(pa.string()), ["a", "b"]),
        ({"a": 1, "b": {"c": None}}, pa.struct([("a", pa.int32()), ("b", pa.struct([("c", pa.string())]))]), {"a": 1, "b": {"c": None}}),
        ({"1": 2}, pa.map_(pa.int32(), pa.int64()), [(1, 2)]),
        ({"a": 1}, pa.string(), '{"a":1}'),
        ({"_values": ["a", None]}, pa.list_(pa.string()), ["a", None]),
        ({"_values": []}, pa.list_(pa.int32()), []),
        ({"_values": [[1], []]}, pa.list_(pa.list_(pa.int32())), [[1], []]),
        (None, pa.int8(), None),
    ],
)  # fmt: skip
def test_stored_values_become_values_of_the_column(stored: Any, kind: Any, value: Any) -> None:
    assert _value(stored, kind, "tags") == value
    pa.array([_value(stored, kind, "tags")], kind)
