"""Random histories of Delta and Iceberg tables, read by us and by their libraries' correct calls."""

import random
from decimal import Decimal
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.types import DoubleType, LongType, StringType

from indextables.source import SourceReader, open_source
from indextables.source.snapshot import SourceSnapshot

# Types of columns that are drawn, with a function that draws a value.
TYPES = {
    "long": (pa.int64(), lambda draw: draw.randrange(-50, 50)),
    "int": (pa.int32(), lambda draw: draw.randrange(9)),
    "double": (pa.float64(), lambda draw: draw.choice([0.5, -1.25, 1e300])),
    "text": (pa.string(), lambda draw: draw.choice(["", "a b", "né", "%2F", "x" * 40])),
    "flag": (pa.bool_(), lambda draw: draw.random() < 0.5),
    "amount": (pa.decimal128(9, 2), lambda draw: Decimal(draw.randrange(-999, 999)) / 100),
    "at": (pa.timestamp("us", "UTC"), lambda draw: draw.randrange(10**15)),
    "list": (pa.list_(pa.string()), lambda draw: [draw.choice(["t", None])] * draw.randrange(3)),
    "client": (
        pa.struct([("ip", pa.string()), ("port", pa.int32())]),
        lambda draw: {"ip": draw.choice(["10.0.0.1", None]), "port": draw.randrange(5)},
    ),
}


def rows(draw: random.Random, columns: dict[str, str], count: int) -> pa.Table:
    data = {}
    for name, kind in columns.items():
        arrow, make = TYPES[kind]
        data[name] = pa.array([None if draw.random() < 0.15 else make(draw) for _ in range(count)], arrow)
    data["id"] = pa.array([draw.randrange(40) for _ in range(count)], pa.int64())
    return pa.table(data)


def canonical(table: pa.Table) -> list[str]:
    names = sorted(table.column_names)
    return sorted(repr([row[name] for name in names]) for row in table.select(names).to_pylist())


def read(snapshot: SourceSnapshot) -> pa.Table:
    reader = SourceReader(snapshot)
    batches = [batch for file in snapshot.files for batch in reader.read(file)]
    assert sum(reader.count(file) for file in snapshot.files) == sum(batch.num_rows for batch in batches)
    return pa.Table.from_batches(batches, snapshot.schema)


def delta_history(folder: Path, seed: int) -> None:
    draw = random.Random(seed)
    columns = dict.fromkeys(draw.sample(list(TYPES), 4), "")
    columns = {f"c{i}": kind for i, kind in enumerate(columns)} | {
        "part": draw.choice(["text", "int", "long"])
    }
    partition = ["part"] if draw.random() < 0.5 else None
    path = str(folder)
    deltalake.write_deltalake(path, rows(draw, columns, 30), partition_by=partition)
    for step in range(draw.randrange(3, 8)):
        table = deltalake.DeltaTable(path)
        action = draw.choice(
            ["append", "append", "delete", "update", "optimize", "column", "checkpoint", "overwrite"]
        )
        if action == "append":
            table_rows = rows(draw, columns, draw.randrange(1, 25))
            deltalake.write_deltalake(path, table_rows, mode="append", schema_mode="merge")
        elif action == "delete":
            table.delete(f"id % {draw.randrange(2, 6)} = 1")
        elif action == "update":
            table.update(updates={"id": "id + 100"}, predicate=f"id < {draw.randrange(10)}")
        elif action == "optimize":
            table.optimize.compact()
        elif action == "column":
            columns[f"n{step}"] = draw.choice(list(TYPES))
            deltalake.write_deltalake(path, rows(draw, columns, 5), mode="append", schema_mode="merge")
        elif action == "checkpoint":
            table.create_checkpoint()
        else:
            deltalake.write_deltalake(path, rows(draw, columns, 12), mode="overwrite", schema_mode="merge")


def check_delta(folder: Path, seed: int) -> None:
    delta_history(folder, seed)
    newest = deltalake.DeltaTable(str(folder)).version()
    previous: dict[str, str] = {}
    for version in range(newest + 1):
        snapshot = open_source("delta", str(folder), version=version)
        reference = pa.table(deltalake.DeltaTable(str(folder), version=version).scan().read_all())
        assert canonical(read(snapshot)) == canonical(reference), f"seed {seed}, version {version}"
        # What changed since the version before leads from its files to this one's.
        changes = snapshot.changes_since(previous)
        after = {key: value for key, value in previous.items() if key not in set(changes.removed)}
        after |= dict(file.content for file in [*changes.added, *changes.redeleted])
        assert after == dict(file.content for file in snapshot.files), f"seed {seed}, version {version}"
        previous = after


def iceberg_history(folder: Path, seed: int) -> Table:
    draw = random.Random(seed)
    kinds = [kind for kind in TYPES if kind != "client"]
    columns = {f"c{i}": kind for i, kind in enumerate(draw.sample(kinds, 4))}
    catalog = SqlCatalog("c", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}/w")
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", rows(draw, columns, 1).schema)
    if draw.random() < 0.5:
        with table.update_spec() as spec:
            spec.add_identity("id")
    table.append(rows(draw, columns, 20))
    for step in range(draw.randrange(3, 8)):
        action = draw.choice(
            ["append", "append", "delete", "add", "rename", "drop", "spec", "overwrite", "widen"]
        )
        if action == "append":
            table.append(rows(draw, columns, draw.randrange(1, 15)))
        elif action == "delete":
            table.delete(f"id < {draw.randrange(10)}")
        elif action == "add":
            kind = draw.choice([("text", StringType()), ("long", LongType()), ("double", DoubleType())])
            with table.update_schema() as schema:
                schema.add_column(f"n{step}", kind[1])
            columns[f"n{step}"] = kind[0]
        elif action == "rename":
            name = draw.choice(list(columns))
            with table.update_schema() as schema:
                schema.rename_column(name, f"r{step}")
            columns = {f"r{step}" if each == name else each: kind for each, kind in columns.items()}
        elif action == "drop" and len(columns) > 2:
            name = draw.choice(list(columns))
            with table.update_schema() as schema:
                schema.delete_column(name)
            del columns[name]
        elif action == "widen" and "int" in columns.values():
            name = next(each for each, kind in columns.items() if kind == "int")
            with table.update_schema() as schema:
                schema.update_column(name, LongType())
            columns[name] = "long"
        elif action == "spec":
            with table.update_spec() as spec:
                if table.spec().fields:
                    spec.remove_field(table.spec().fields[0].name)
                else:
                    spec.add_identity("id")
        elif action == "overwrite":
            table.overwrite(rows(draw, columns, 8))
    return table


def check_iceberg(folder: Path, seed: int) -> None:
    folder.mkdir(exist_ok=True)
    table = iceberg_history(folder, seed)
    location = table.metadata_location
    current = open_source("iceberg", location)
    assert canonical(read(current)) == canonical(table.scan().to_arrow()), f"seed {seed}"
    assert current.version == table.metadata.current_snapshot_id
    for snapshot in table.metadata.snapshots:
        reference = table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
        found = read(open_source("iceberg", location, version=snapshot.snapshot_id))
        assert canonical(found) == canonical(reference), f"seed {seed}, snapshot {snapshot.snapshot_id}"


# 2005 partitions by a string, with empty ones among its values
@pytest.mark.parametrize("seed", [0, 1, 2, 2005])
def test_delta_tables_of_random_histories(tmp_path: Path, seed: int) -> None:
    check_delta(tmp_path / "t", seed)


@pytest.mark.filterwarnings("ignore:Delete operation did not match any records")
@pytest.mark.parametrize("seed", range(3))
def test_iceberg_tables_of_random_histories(tmp_path: Path, seed: int) -> None:
    check_iceberg(tmp_path, seed)


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore:Delete operation did not match any records")
def test_many_random_histories(tmp_path: Path) -> None:
    for seed in range(1000, 1300):
        check_delta(tmp_path / f"d{seed}", seed)
        check_iceberg(tmp_path / f"i{seed}", seed)
