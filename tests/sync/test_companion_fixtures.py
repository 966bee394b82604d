"""A companion index of each fixture table, synced from version to version, answers as Spark reads the source."""

from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indextables
from indextables import read
from indextables.errors import UnsupportedSourceError
from indextables.log.transaction_log import TransactionLog
from indextables.options import Options
from indextables.predicate import Column, Compare, IsNull, Not, Op, Predicate, evaluate
from indextables.read.spec import parse_aggregate
from indextables.schema.type_info import info_of
from indextables.source import SourceReader, SourceSnapshot, open_source
from indextables.store import open_store
from tests.source.lake import LAKE, encode, expected, sort_key, tables

REFUSED = {"orc_files": "a data file in ORC", "avro_files": "a data file in AVRO"}
# What all indexes are read with: small batches, so that rows of several batches meet.
OPTIONS = Options.parse({"read.batchSize": 7})


def rows_of(table: pa.Table) -> list[Any]:
    """Rows in the encoding of the answers, sorted as they are."""
    rows: list[Any] = []
    for batch in table.to_batches():
        rows += map(list, zip(*(encode(column) for column in batch.columns), strict=True))
    return sorted(rows, key=sort_key)


def source_rows(snapshot: SourceSnapshot) -> pa.Table:
    reader = SourceReader(snapshot)
    batches = [batch for file in snapshot.files for batch in reader.read(file)]
    return pa.Table.from_batches(batches, snapshot.schema)


def filters(rows: pa.Table) -> list[Predicate]:
    """Conditions on each column that can be compared: of null, equality, and a range."""
    found: list[Predicate] = []
    for field in rows.schema:
        column = Column((field.name,))
        found += [IsNull(column), Not(IsNull(column))]
        if not info_of(field.type).comparable:
            continue
        values = rows[field.name].drop_null()
        for place in sorted({0, len(values) // 2} if len(values) else ()):
            found += [Compare(Op.EQ, column, values[place]), Compare(Op.GE, column, values[place])]
    return found


def check(at: str, source: SourceSnapshot, answer: dict[str, Any], label: str, *, with_filters: bool) -> None:
    """An index has the columns, rows and count that Spark answered, and filters answer as on those rows."""
    log = TransactionLog(open_store(at), OPTIONS, engine="test")
    snapshot = log.snapshot()
    found = read.scan(snapshot, log.store, OPTIONS).read_all()
    found.validate(full=True)
    names = [field["name"] for field in answer["schema"]["fields"]]
    assert found.schema.names == names, label
    assert rows_of(found) == answer["rows"], label
    assert read.count(snapshot, log.store, OPTIONS) == answer["row_count"], label
    if not with_filters:
        return
    rows = source_rows(source)
    batch = rows.combine_chunks().to_batches()[0] if rows.num_rows else None
    for where in filters(rows):
        kept = rows if batch is None else rows.filter(evaluate(where, batch))
        matching = read.scan(snapshot, log.store, OPTIONS, where=where).read_all()
        assert rows_of(matching) == rows_of(kept), (label, where)
        assert read.count(snapshot, log.store, OPTIONS, where=where) == kept.num_rows, (label, where)
    for field in rows.schema:
        if info_of(field.type).comparable and "`" not in field.name:
            texts = {"n": f"count(`{field.name}`)", "low": f"min(`{field.name}`)"}
            specs = [parse_aggregate(text, name) for name, text in texts.items()]
            summary = read.aggregate(snapshot, log.store, OPTIONS, aggregates=specs)
            assert summary["n"][0].as_py() == len(rows) - rows[field.name].null_count, (label, field.name)


@pytest.mark.parametrize("table", tables("delta"))
def test_delta(table: Any, tmp_path: Path) -> None:
    folder = str(LAKE / "delta" / table["path"])
    relocate = {"file:/tmp/delta-fixtures": str(LAKE / "delta")}
    readable = [version for version in table["versions"] if version["readable"]]
    for version in readable:
        number = version["version"]
        result = indextables.companion(folder, at=tmp_path / "index", version=number, relocate=relocate)
        assert (result.source_version, result.status) == (number, "success")
        source = open_source("delta", folder, version=number, relocate=relocate)
        last = version is readable[-1]
        check(str(tmp_path / "index"), source, version, f"version {number}", with_filters=last)
    assert indextables.companion(folder, at=tmp_path / "index").status == "no_action"


@pytest.mark.parametrize("table", tables("iceberg"))
def test_iceberg(table: Any, tmp_path: Path) -> None:
    root = LAKE / "iceberg" / table.get("folder", "warehouse")
    prefix = table.get("location_prefix") or expected("iceberg")["location_prefix"]
    folder, relocate = str(root / table["path"]), {prefix: str(root)}
    sync = partial(indextables.companion, folder, at=tmp_path / "index", relocate=relocate)
    answers = [(snapshot["snapshot_id"], snapshot) for snapshot in table["snapshots"]]
    answers += [(reference["ref"], reference) for reference in table["refs"]]
    answers.append((None, table["current"]))
    for version, answer in answers:
        if table["name"] in REFUSED or not answer["readable"]:
            problem = REFUSED.get(table["name"], "an equality delete on a column that was dropped")
            with pytest.raises(UnsupportedSourceError, match=problem):
                sync(version=version)
            continue
        sync(version=version)
        source = open_source("iceberg", folder, version=version, relocate=relocate)
        last = version is None
        check(str(tmp_path / "index"), source, answer, f"version {version}", with_filters=last)


@pytest.mark.parametrize("table", tables("parquet"))
def test_parquet(table: Any, tmp_path: Path) -> None:
    merge = table["read_options"].get("mergeSchema") == "true"
    folder = str(LAKE / "parquet" / table["path"])
    indextables.companion(folder, at=tmp_path / "index", format="parquet", merge_schema=merge)
    source = open_source("parquet", folder, merge_schema=merge)
    check(str(tmp_path / "index"), source, table["current"], "current", with_filters=True)
    assert indextables.companion(folder, at=tmp_path / "index").status == "no_action"
