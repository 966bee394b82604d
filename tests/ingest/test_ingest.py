"""Rows in, one version out: modes, partitions, schemas, and what a failure leaves behind."""

import datetime as dt
import pickle
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import indextables as it
from indextables.errors import (
    CommitConflictError,
    CommitUnknownError,
    OptionError,
    OutcomeUnknownError,
    SchemaError,
    StoreError,
    TableExistsError,
)
from indextables.store import Store
from tests.split.every_type import sized_rows

ROWS = [{"id": 1, "message": "connection refused"}, {"id": 2, "message": None}]


def rows_of(table: it.Table) -> list[dict[str, object]]:
    """All rows as Parquet says, without the engine."""
    folder = Path(table.url.removeprefix("file://"))
    found: list[dict[str, object]] = []
    for path in table.files()["path"].to_pylist():
        stored = pq.ParquetFile(folder / path).read()
        found += stored.drop_columns(["_row"]).to_pylist()
    return sorted(found, key=str)


def splits_below(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.split"))


def test_a_first_write_makes_a_table(tmp_path: Path) -> None:
    table = it.write(tmp_path / "t", ROWS)
    assert table.version == 1
    assert table.schema.names == ["id", "message"]
    assert rows_of(table) == ROWS
    assert [e["operation"] for e in table.history().to_pylist()] == ["WRITE", "CREATE TABLE"]


def test_append_adds_and_overwrite_replaces(tmp_path: Path) -> None:
    it.write(tmp_path, ROWS)
    assert it.write(tmp_path, [{"id": 3, "message": "x"}]).files()["numRecords"].to_pylist() == [2, 1]
    table = it.write(tmp_path, [{"id": 4, "message": "y"}], mode="overwrite")
    assert rows_of(table) == [{"id": 4, "message": "y"}]
    assert rows_of(it.open(tmp_path, version=1)) == ROWS


def test_mode_error_refuses_and_ignore_leaves_alone(tmp_path: Path) -> None:
    it.write(tmp_path, ROWS, mode="error")
    with pytest.raises(TableExistsError, match=r"append to it, overwrite it"):
        it.write(tmp_path, ROWS, mode="errorifexists")
    assert it.write(tmp_path, [{"other": 1}], mode="ignore").version == 1
    with pytest.raises(OptionError, match="append, overwrite, error or ignore"):
        it.write(tmp_path, ROWS, mode="upsert")


@pytest.mark.parametrize(
    "data",
    [
        pa.table({"id": [1, 2], "message": ["connection refused", None]}),
        pa.table({"id": [1, 2], "message": ["connection refused", None]}).to_reader(),
        pa.record_batch({"id": [1, 2], "message": ["connection refused", None]}),
        pa.table({"id": [1, 2], "message": ["connection refused", None]}).to_batches(),
        pd.DataFrame({"id": [1, 2], "message": ["connection refused", None]}, index=[7, 9]),
        pl.DataFrame({"id": [1, 2], "message": ["connection refused", None]}),
        {"id": [1, 2], "message": ["connection refused", None]},
        ROWS,
        (row for row in ROWS),
    ],
    ids=["table", "reader", "batch", "batches", "pandas", "polars", "dict", "dicts", "generator"],
)
def test_whatever_has_rows_is_accepted(tmp_path: Path, data: object) -> None:
    assert rows_of(it.write(tmp_path, data)) == ROWS


def test_a_key_that_only_later_rows_have_is_a_column(tmp_path: Path) -> None:
    table = it.write(tmp_path, [{"a": 1}, {"a": 2, "b": "late"}])
    assert rows_of(table) == [{"a": 1, "b": None}, {"a": 2, "b": "late"}]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (7, "rows of type int"),
        ("text", "rows of type str"),
        ([], "a list without dicts"),
        ([{"a": 1}, 5], "holds a int"),
        ([{"a": 1}, {"a": "x"}], "column a have no common type"),
        ({"a": [1], "A": [2]}, "differ at most in case"),
        ({"_score": [1]}, "_score is reserved"),
        ({"a": [1, 2], "b": [1]}, "do not form a table"),
    ],
)
def test_what_has_no_rows_is_refused_by_name(tmp_path: Path, data: object, says: str) -> None:
    with pytest.raises(SchemaError, match=says):
        it.write(tmp_path / "t", data)
    assert not (tmp_path / "t" / "_transaction_log").exists()


def test_partitions_are_folders_with_any_value(tmp_path: Path) -> None:
    days = [dt.date(2024, 5, 1), None, dt.date(2024, 5, 1), dt.date(2024, 5, 2)]
    cities = ["Aix/Arc", "", None, "50% = half"]
    table = it.write(tmp_path, {"n": [1, 2, 3, 4], "day": days, "city": cities}, partition_by=["day", "city"])
    values = sorted(map(str, table.files()["partitionValues"].to_pylist()))
    assert values == sorted(
        [
            "[('day', '2024-05-01'), ('city', 'Aix/Arc')]",
            "[('day', None), ('city', '')]",
            "[('day', '2024-05-01'), ('city', None)]",
            "[('day', '2024-05-02'), ('city', '50% = half')]",
        ]
    )
    assert {r["n"]: (r["day"], r["city"]) for r in rows_of(table)} == dict(
        zip([1, 2, 3, 4], zip(days, cities, strict=True), strict=True)
    )


def test_more_partitions_than_open_files(tmp_path: Path) -> None:
    table = it.write(tmp_path, {"n": list(range(600)), "p": [i % 200 for i in range(600)]}, partition_by="p")
    assert table.files().num_rows == 200
    assert len(rows_of(table)) == 600


@pytest.mark.parametrize(
    ("partition_by", "says"),
    [
        (["day"], "no column day to partition by"),
        (["a", "A"], "twice"),
        (["a", "b"], "every column"),
    ],
)
def test_partition_columns_that_make_no_sense_are_refused(
    tmp_path: Path, partition_by: list[str], says: str
) -> None:
    with pytest.raises(SchemaError, match=says):
        it.write(tmp_path, {"a": [1], "b": [2]}, partition_by=partition_by)


def test_the_text_that_stands_for_null_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="means null"):
        it.write(tmp_path, {"a": [1], "p": ["__HIVE_DEFAULT_PARTITION__"]}, partition_by="p")


def test_other_partition_columns_on_append_are_refused(tmp_path: Path) -> None:
    it.write(tmp_path, {"a": [1], "p": ["x"]}, partition_by="p")
    with pytest.raises(SchemaError, match=r"is partitioned by \(p\), not by \(a\)"):
        it.write(tmp_path, {"a": [1], "p": ["x"]}, partition_by="a")
    assert it.write(tmp_path, {"P": ["y"], "A": [2]}).files().num_rows == 2


def test_an_append_may_reorder_and_leave_out_but_not_change_columns(tmp_path: Path) -> None:
    it.write(tmp_path, {"id": [1], "message": ["a"], "size": [1.5]})
    table = it.write(tmp_path, {"message": ["b"], "ID": pa.array([2], pa.int32())})
    assert rows_of(table)[1] == {"id": 2, "message": "b", "size": None}
    with pytest.raises(SchemaError, match="message is string"):
        it.write(tmp_path, {"message": [1]})
    with pytest.raises(SchemaError, match="mergeSchema"):
        it.write(tmp_path, {"id": [1], "new": [1]})
    grown = it.write(tmp_path, {"id": [3], "new": ["n"]}, options={"mergeSchema": True})
    assert grown.schema.names == ["id", "message", "size", "new"]
    assert it.write(tmp_path, {"id": [4]}).version == 4


def test_overwrite_keeps_the_schema_unless_told(tmp_path: Path) -> None:
    it.write(tmp_path, {"id": [1], "p": ["x"]}, partition_by="p")
    with pytest.raises(SchemaError):
        it.write(tmp_path, {"other": [1]}, mode="overwrite")
    table = it.write(
        tmp_path,
        {"other": [1], "q": [2]},
        mode="overwrite",
        partition_by="q",
        options={"overwriteSchema": True},
    )
    assert (table.schema.names, table.partition_columns) == (["other", "q"], ("q",))
    assert rows_of(table) == [{"other": 1, "q": 2}]


def test_the_table_remembers_how_its_columns_are_indexed(tmp_path: Path) -> None:
    options = {"indexing.typemap.message": "text"}
    it.write(tmp_path, ROWS, options=options)
    table = it.write(tmp_path, ROWS)
    assert len(set(table.files()["docMappingRef"].to_pylist())) == 1
    it.write(tmp_path, ROWS, options=options)
    with pytest.raises(SchemaError, match=r"message .* is indexed as text, not string; leave the option out"):
        it.write(tmp_path, ROWS, options={"indexing.typemap.message": "string"})
    with pytest.raises(SchemaError, match="text with tokenizer default, not text with tokenizer whitespace"):
        it.write(tmp_path, ROWS, options={"indexing.tokenizer.message": "whitespace"})
    it.write(tmp_path, ROWS, mode="overwrite", options={"indexing.typemap.message": "string"})


@pytest.mark.parametrize(("target", "rows"), [("2M", 20_000), ("8M", 50_000), ("16M", 90_000)])
@pytest.mark.parametrize("batch_rows", [3000, 100_000])
def test_all_splits_but_the_last_have_the_target_size(
    tmp_path: Path, target: str, rows: int, batch_rows: int
) -> None:
    source = pa.Table.from_batches(sized_rows(rows).to_batches(max_chunksize=batch_rows))
    options = {"write.optimizeWrite.targetSplitSize": target, "indexing.typemap.message": "text"}
    table = it.write(tmp_path, source, options=options)
    sizes = [size / 2**20 for size in table.files()["size"].to_pylist()]
    assert len(sizes) > 1
    *full, _ = [size / float(target[:-1]) for size in sizes]
    assert all(0.8 < share < 1.2 for share in full), sizes
    assert table.scan(columns=["trace_id"]).num_rows == rows


def test_splits_have_the_target_size_after_rows_that_take_another_share(tmp_path: Path) -> None:
    # The first rows, which are measured, take a tenth of the space of the others.
    rows = sized_rows(40_000)
    first = rows.slice(0, 3000)
    constant = pa.array([bytes(320)] * first.num_rows)
    first = first.set_column(first.schema.get_field_index("payload"), "payload", constant)
    options = {"write.optimizeWrite.targetSplitSize": "2M", "indexing.typemap.message": "text"}
    table = it.write(tmp_path, pa.concat_tables([first, rows.slice(3000)]), options=options)
    _, _, *full, _ = [size / (2 << 20) for size in table.files()["size"].to_pylist()]
    assert all(0.8 < share < 1.2 for share in full), full


def test_a_partition_has_splits_of_the_target_size(tmp_path: Path) -> None:
    rows = sized_rows(30_000)
    part = pa.array(["a" if n % 3 else "b" for n in range(rows.num_rows)])
    options = {"write.optimizeWrite.targetSplitSize": "2M", "indexing.typemap.message": "text"}
    files = it.write(tmp_path, rows.append_column("part", part), partition_by="part", options=options).files()
    for value in ("a", "b"):
        own = files.filter(pa.array(f"part={value}/" in path for path in files["path"].to_pylist()))
        *full, _ = [size / (2 << 20) for size in own["size"].to_pylist()]
        assert full
        assert all(0.8 < share < 1.2 for share in full), full


def test_a_split_has_the_target_size_though_later_rows_compress_less(tmp_path: Path) -> None:
    generator = np.random.default_rng(5)
    texts = [generator.bytes(100).hex() for _ in range(40_000)]
    batches = [
        pa.record_batch({"id": range(100_000), "text": ["x"] * 100_000}),
        # The change is within a batch, too.
        pa.record_batch({"id": range(50_000), "text": ["x"] * 20_000 + texts[:30_000]}),
        pa.record_batch({"id": range(10_000), "text": texts[30_000:]}),
    ]
    options = {"write.optimizeWrite.targetSplitSize": "2M"}
    sizes = it.write(tmp_path, pa.Table.from_batches(batches), options=options).files()["size"].to_pylist()
    first, *full, _ = [size / (2 << 20) for size in sizes]
    assert first < 2
    assert all(0.8 < share < 1.2 for share in full), full


def test_a_partition_has_the_target_size_after_one_whose_rows_compress_more(tmp_path: Path) -> None:
    generator = np.random.default_rng(6)
    texts = ["alive"] * 100_000 + [generator.bytes(100).hex() for _ in range(30_000)]
    kinds = ["heartbeat"] * 100_000 + ["message"] * 30_000
    options = {"write.optimizeWrite.targetSplitSize": "2M"}
    table = it.write(tmp_path, {"kind": kinds, "text": texts}, partition_by=["kind"], options=options)
    files = table.files()
    own = files.filter(pa.array("kind=message/" in path for path in files["path"].to_pylist()))
    *full, _ = [size / (2 << 20) for size in own["size"].to_pylist()]
    assert full
    assert all(0.8 < share < 1.2 for share in full), full


@pytest.mark.parametrize("target", ["1", "100", "16K"])
def test_a_target_below_the_size_of_any_split_makes_few_splits(tmp_path: Path, target: str) -> None:
    rows = {f"c{n}": [f"word{n} {row}" for row in range(60)] for n in range(30)}
    table = it.write(tmp_path, rows, options={"write.optimizeWrite.targetSplitSize": target})
    assert table.files().num_rows <= 3
    assert table.scan(columns=["c0"])["c0"].to_pylist() == rows["c0"]


@pytest.mark.parametrize("longest", [1, 5000])
def test_rows_larger_than_a_split_are_written_one_by_one(tmp_path: Path, longest: int) -> None:
    texts = ["a" * longest * 1000, None, "b", "c" * longest * 1000]
    table = it.write(tmp_path, {"text": texts}, options={"write.optimizeWrite.targetSplitSize": "1K"})
    assert [row["text"] for row in table.scan().to_pylist()] == texts


def test_no_rows_make_an_empty_table_and_no_version(tmp_path: Path) -> None:
    empty = pa.schema([("a", pa.int64())]).empty_table()
    table = it.write(tmp_path, empty)
    assert (table.version, table.files().num_rows) == (0, 0)
    assert it.write(tmp_path, empty).version == 0


def test_a_batch_of_an_application_is_written_once(tmp_path: Path) -> None:
    options = {"txn.appId": "clicks", "txn.version": 7}
    assert it.write(tmp_path, ROWS, options=options).version == 1
    assert it.write(tmp_path, ROWS, options=options).version == 1
    assert it.write(tmp_path, ROWS, options={**options, "txn.version": 8}).version == 2


def test_history_keeps_what_the_user_says(tmp_path: Path) -> None:
    table = it.write(tmp_path, ROWS, options={"commit.userMetadata": "nightly load"})
    assert table.history(1).to_pylist()[0]["user_metadata"] == "nightly load"


def test_a_misspelt_option_is_refused_before_anything_happens(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"did you mean 'mergeSchema'"):
        it.write(tmp_path / "t", ROWS, options={"mergeShema": True})
    with pytest.raises(OptionError, match="massage"):
        it.write(tmp_path / "t", ROWS, options={"indexing.typemap.massage": "text"})
    assert not (tmp_path / "t").exists() or not splits_below(tmp_path / "t")


def test_a_failing_source_leaves_nothing(tmp_path: Path) -> None:
    def source() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"a": list(range(1000))})
        raise RuntimeError("the source broke")

    schema = pa.schema([("a", pa.int64())])
    with pytest.raises(RuntimeError, match="the source broke"):
        it.write(tmp_path, pa.RecordBatchReader.from_batches(schema, source()))
    assert splits_below(tmp_path) == []
    assert not (tmp_path / "_transaction_log").exists() or not list(
        (tmp_path / "_transaction_log").glob("*.json")
    )


def test_a_failing_commit_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    it.write(tmp_path, ROWS)
    before = splits_below(tmp_path)

    def broken(_self: Store, path: str, _data: bytes) -> bool:
        raise StoreError(f"no space for {path}")

    monkeypatch.setattr(Store, "create", broken)
    with pytest.raises(StoreError, match="no space"):
        it.write(tmp_path, ROWS)
    monkeypatch.undo()
    assert splits_below(tmp_path) == before
    assert it.open(tmp_path).version == 1


def test_when_the_outcome_is_unknown_nothing_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    it.write(tmp_path, ROWS)

    def lost(_self: Store, path: str, _data: bytes) -> bool:
        raise OutcomeUnknownError(path, "no answer")

    monkeypatch.setattr(Store, "create", lost)
    with pytest.raises(CommitUnknownError, match="its files remain"):
        it.write(tmp_path, ROWS)
    assert len(splits_below(tmp_path)) == 2


def test_errors_travel_between_processes() -> None:
    error = CommitConflictError("WRITE", "it changed the schema", version=4, other="WRITE at noon")
    arrived = pickle.loads(pickle.dumps(error))
    assert (type(arrived), str(arrived), arrived.version) == (CommitConflictError, str(error), 4)


def test_a_dynamic_overwrite_of_zero_replaces_minus_zero_too(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2, 3, 4], "k": [0.0, -0.0, float("nan"), 1.0]})
    it.write(tmp_path, rows, partition_by=["k"])
    new = pa.table({"id": [5, 6], "k": [0.0, float("nan")]})
    it.write(tmp_path, new, mode="overwrite", options={"partitionOverwriteMode": "dynamic"})
    assert sorted(it.open(tmp_path).scan(["id"])["id"].to_pylist()) == [4, 5, 6]
    it.write(
        tmp_path,
        pa.table({"id": [7], "k": [-0.0]}),
        mode="overwrite",
        options={"partitionOverwriteMode": "dynamic"},
    )
    assert sorted(it.open(tmp_path).scan(["id"])["id"].to_pylist()) == [4, 6, 7]


def test_an_overwrite_with_other_columns_names_the_option_that_replaces_them(tmp_path: Path) -> None:
    it.write(tmp_path / "t", [{"a": 1}])
    with pytest.raises(SchemaError, match="no column b; set overwriteSchema to replace the columns"):
        it.write(tmp_path / "t", [{"b": 1}], mode="overwrite")
    with pytest.raises(SchemaError, match="no column b; set mergeSchema to add it"):
        it.write(tmp_path / "t", [{"b": 1}])


def test_an_overwrite_with_other_types_or_partitions_names_the_option_that_replaces_them(
    tmp_path: Path,
) -> None:
    it.write(tmp_path / "t", [{"a": 1, "p": "x"}], partition_by="p")
    replaced = (
        "column a is int64 in the table, but string in the rows; set overwriteSchema to replace the columns"
    )
    with pytest.raises(SchemaError, match=replaced):
        it.write(tmp_path / "t", [{"a": "1", "p": "x"}], mode="overwrite")
    with pytest.raises(SchemaError, match="string in the rows to append; cast it to the table's type"):
        it.write(tmp_path / "t", [{"a": "1", "p": "x"}])
    other = [{"a": 1, "p": "x"}]
    with pytest.raises(SchemaError, match=r"not by \(a\); leave .*, or set overwriteSchema to partition"):
        it.write(tmp_path / "t", other, mode="overwrite", partition_by="a")
    with pytest.raises(SchemaError, match=r"not by \(a\); leave the partition columns out or give the same$"):
        it.write(tmp_path / "t", other, partition_by="a")


def test_all_columns_that_no_option_may_name_are_in_one_message(tmp_path: Path) -> None:
    options = {"indexing.typemap.b": "text", "indexing.fastfields": "c", "dataSkippingStatsColumns": "a,d"}
    with pytest.raises(
        OptionError, match="names the columns 'b', 'c', 'd', but the columns are: a"
    ) as caught:
        it.write(tmp_path / "t", [{"a": "1"}], options=options)
    assert "'dataSkippingStatsColumns'" in str(caught.value)
