"""Random histories of Delta and Iceberg tables: whenever it is synced, an index answers as its source.

What a Delta table has is read by the library; the rows of an Iceberg table are kept in memory as well.
"""

import random
import shutil
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.types import LongType, StringType

import indextables
from indextables.errors import SourceError

WORDS = ["disk", "full", "slow", "login", "failed", "cache", "miss"]
STEPS = 14
LATEST = {"companion.freshness": "latest"}


class Source:
    """A Delta table that random operations change."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path = path
        self.random = random.Random(seed)
        self.next = 0
        self.columns = ["level"]
        deltalake.write_deltalake(path, self.rows(), partition_by=["day"] if seed % 2 else None)

    def rows(self) -> pa.Table:
        count = self.random.randint(1, 12)
        numbers = range(self.next, self.next + count)
        self.next += count
        words = [" ".join(self.random.choices(WORDS, k=self.random.randint(0, 4))) for _ in numbers]
        columns = {
            "id": pa.array(numbers, pa.int64()),
            "day": [f"d{number % 2}" for number in numbers],
            "message": pa.array(
                [None if self.random.random() < 0.1 else text for text in words], pa.string()
            ),
        }
        for name in self.columns:
            columns[name] = pa.array(
                [self.random.choice([None, "low", "high"]) for _ in numbers], pa.string()
            )
        return pa.table(columns)

    def change(self) -> str:
        table = deltalake.DeltaTable(self.path)
        some = f"id % 5 = {self.random.randrange(5)}"
        operation = self.random.choice(
            ["append", "append", "append", "delete", "update", "optimize", "column", "overwrite", "vacuum"]
        )
        match operation:
            case "append":
                deltalake.write_deltalake(self.path, self.rows(), mode="append")
            case "delete":
                table.delete(some)
            case "update":
                table.update({"message": f"'{self.random.choice(WORDS)} again'"}, predicate=some)
            case "optimize":
                table.optimize.compact()
            case "column":
                self.columns.append(f"extra{len(self.columns)}")
                deltalake.write_deltalake(self.path, self.rows(), mode="append", schema_mode="merge")
            case "overwrite":
                deltalake.write_deltalake(self.path, self.rows(), mode="overwrite")
            case _:
                table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
        return operation

    def read(self, version: int | None = None) -> pa.Table:
        return pa.table(deltalake.DeltaTable(self.path, version=version).to_pyarrow_table())


def texts(table: pa.Table, columns: list[str]) -> list[str]:
    return sorted(str(row) for row in table.select(columns).to_pylist())


def check(index: indextables.Table, rows: pa.Table, label: str) -> None:
    """An index has the rows, and answers searches, filters, counts and groups as these rows do."""
    columns = sorted(index.schema.names)
    assert set(columns) <= set(rows.column_names), label
    assert texts(index.scan(), columns) == texts(rows, columns), label
    for word in ("disk", "again"):
        where = f"message INDEXQUERY '{word}'"
        expected = rows.filter(pc.match_substring_regex(rows["message"], rf"\b{word}\b"))
        assert texts(index.scan(where=where), columns) == texts(expected, columns), (label, where)
        assert index.count(where) == expected.num_rows, (label, where)
    for where, mask in (
        ("level = 'low'", pc.equal(rows["level"], "low")),
        ("level IS NULL", rows["level"].is_null()),
        ("id >= 7 AND day = 'd1'", pc.and_(pc.greater_equal(rows["id"], 7), pc.equal(rows["day"], "d1"))),
    ):
        expected = rows.filter(mask)
        assert texts(index.scan(where=where), columns) == texts(expected, columns), (label, where)
        assert index.count(where) == expected.num_rows, (label, where)
    groups = index.aggregate({"n": "count(*)", "last": "max(id)"}, group_by=["day"]).to_pylist()
    counted = rows.group_by("day").aggregate([([], "count_all"), ("id", "max")]).to_pylist()
    assert sorted((g["day"], g["n"], g["last"]) for g in groups) == sorted(
        (g["day"], g["count_all"], g["id_max"]) for g in counted
    ), label


@pytest.mark.parametrize("seed", [1, 2])
def test_random_histories(seed: int, tmp_path: Path) -> None:
    source, at = Source(tmp_path / "source", seed), tmp_path / "index"
    size = source.random.choice([1, 4_000, 1 << 20])
    indextables.companion(source.path, at=at, modes={"message": "text"}, target_size=size)
    history = []
    for step in range(STEPS):
        history.append(source.change())
        label = f"seed {seed}, step {step}: {', '.join(history)}"
        check(indextables.open(at, options=LATEST), source.read(), label)
        if source.random.random() < 0.5:
            result = indextables.companion(source.path, at=at, target_size=size)
            assert result.source_version == deltalake.DeltaTable(source.path).version(), label
            check(indextables.open(at), source.read(), f"{label}, synced")
            if source.random.random() < 0.4:
                indextables.open(at).merge()
                check(indextables.open(at), source.read(), f"{label}, synced, merged")


class IcebergSource:
    """An Iceberg table that random operations change, and its rows.

    With `hadoop` its metadata files have the names that a Hadoop catalog gives them, so that its folder is
    the source; else the current metadata file is, as for a table of any other catalog.
    """

    def __init__(self, folder: Path, seed: int, *, hadoop: bool) -> None:
        self.random = random.Random(seed)
        self.hadoop = hadoop
        self.rows: list[dict[str, Any]] = []
        self.columns: dict[str, pa.DataType] = {"level": pa.string(), "size": pa.int32()}
        self.commits = self.next = 0
        catalog = SqlCatalog("c", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}/w")
        catalog.create_namespace("db")
        version = self.random.choice(["1", "2"])
        self.table = catalog.create_table("db.t", self.schema(), properties={"format-version": version})
        if seed % 2:
            with self.table.update_spec() as spec:
                spec.add_identity("day")
        self.append()
        self.publish()

    def schema(self) -> pa.Schema:
        fixed = {"id": pa.int64(), "day": pa.string(), "message": pa.string()}
        return pa.schema({**fixed, **self.columns})

    def new_rows(self) -> list[dict[str, Any]]:
        rows = []
        for _ in range(self.random.randint(1, 12)):
            text = " ".join(self.random.choices(WORDS, k=self.random.randint(0, 4)))
            row: dict[str, Any] = {
                "id": self.next,
                "day": f"d{self.next % 2}",
                "message": None if self.random.random() < 0.1 else text,
            }
            for name, kind in self.columns.items():
                values = ["low", "high"] if pa.types.is_string(kind) else [1, 2, 3]
                row[name] = self.random.choice([None, *values])
            self.next += 1
            rows.append(row)
        return rows

    def append(self) -> None:
        rows = self.new_rows()
        self.table.append(pa.Table.from_pylist(rows, self.schema()))
        self.rows += rows

    def change(self) -> str:
        draw = self.random
        operation = draw.choice(
            ["append", "append", "append", "delete", "update", "overwrite", "add", "rename", "drop", "widen"]
        )
        chosen = {row["id"] for row in self.rows if row["id"] % 5 == draw.randrange(5)}
        extra = [name for name in self.columns if name != "level"]
        match operation:
            case "append":
                self.append()
            case "delete" if chosen:
                self.table.delete(_ids(chosen))
                self.rows = [row for row in self.rows if row["id"] not in chosen]
            case "update" if chosen:
                changed = [{**row, "message": "disk again"} for row in self.rows if row["id"] in chosen]
                self.rows = [row for row in self.rows if row["id"] not in chosen] + changed
                self.table.overwrite(pa.Table.from_pylist(changed, self.schema()), _ids(chosen))
            case "overwrite":
                self.rows = self.new_rows()
                self.table.overwrite(pa.Table.from_pylist(self.rows, self.schema()))
            case "add":
                name = f"extra{self.commits}"
                kind = draw.choice([pa.string(), pa.int64()])
                with self.table.update_schema() as schema:
                    schema.add_column(name, StringType() if pa.types.is_string(kind) else LongType())
                self.columns[name] = kind
                self.rows = [{**row, name: None} for row in self.rows]
            case "rename" if extra:
                old, new = draw.choice(extra), f"renamed{self.commits}"
                with self.table.update_schema() as schema:
                    schema.rename_column(old, new)
                self.columns = {new if name == old else name: kind for name, kind in self.columns.items()}
                self.rows = [
                    {new if name == old else name: v for name, v in row.items()} for row in self.rows
                ]
            case "drop" if extra:
                name = draw.choice(extra)
                with self.table.update_schema() as schema:
                    schema.delete_column(name)
                del self.columns[name]
                for row in self.rows:
                    del row[name]
            case "widen" if pa.int32() in self.columns.values():
                name = next(each for each, kind in self.columns.items() if kind == pa.int32())
                with self.table.update_schema() as schema:
                    schema.update_column(name, LongType())
                self.columns[name] = pa.int64()
            case _:
                self.append()
        self.publish()
        return operation

    def publish(self) -> None:
        """Give the current metadata file the name that a Hadoop catalog would give it."""
        self.commits += 1
        if self.hadoop:
            current = Path(self.table.metadata_location.removeprefix("file://"))
            shutil.copyfile(current, current.with_name(f"v{self.commits}.metadata.json"))
            current.with_name("version-hint.text").write_text(str(self.commits))

    @property
    def path(self) -> str:
        location = self.table.location() if self.hadoop else self.table.metadata_location
        return str(location.removeprefix("file://"))

    def read(self) -> pa.Table:
        return pa.Table.from_pylist(self.rows, self.schema())


def _ids(numbers: set[int]) -> str:
    return f"id IN ({', '.join(map(str, sorted(numbers)))})"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_histories_of_iceberg_tables(seed: int, tmp_path: Path) -> None:
    source, at = IcebergSource(tmp_path, seed, hadoop=seed != 3), tmp_path / "index"
    size = source.random.choice([1, 4_000, 1 << 20])
    indextables.companion(source.path, at=at, modes={"message": "text"}, target_size=size)
    history = []
    for step in range(STEPS):
        history.append(source.change())
        label = f"seed {seed}, step {step}: {', '.join(history)}"
        check_latest(source, at, label)
        if source.random.random() < 0.5:
            result = indextables.companion(source.path, at=at, target_size=size)
            assert str(result.source_version) == str(source.table.current_snapshot().snapshot_id), label
            check(indextables.open(at), source.read(), f"{label}, synced")
            if source.random.random() < 0.4:
                indextables.open(at).merge()
                check(indextables.open(at), source.read(), f"{label}, synced, merged")


def check_latest(source: IcebergSource, at: Path, label: str) -> None:
    """The newest version of the source is answered, or refused with a reason."""
    columns, now = indextables.open(at).schema, source.schema()
    changed = [each.name for each in columns if each.name not in now.names or now.field(each.name) != each]
    reason = "was replaced since the companion index" if changed else None
    if reason is None and source.hadoop:
        check(indextables.open(at, options=LATEST), source.read(), label)
        return
    with pytest.raises(SourceError) as caught:
        indextables.open(at, options=LATEST)
    assert (reason if source.hadoop else "only the table's catalog has the path") in str(caught.value), label
