"""Random histories of Delta tables: whenever it is synced, an index answers as the library reads the source."""

import random
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import indextables

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
def test_random_histories(seed, tmp_path):
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
