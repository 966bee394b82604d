"""A split is a Parquet file that anyone reads, with an index that finds its rows."""

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tantivy
from datafusion import SessionContext
from pyspark.sql import SparkSession

from indextables.errors import SchemaError, SplitError
from indextables.options import Options
from indextables.schema.values import Statistics
from indextables.split.footer import read_footer
from indextables.split.index.tokenizers import analyzer_of
from indextables.split.mapping import PARTIAL_FIELD, Kind, mapping_for
from indextables.split.writer import SplitWriter
from indextables.store import Store, open_store
from tests import ROOT
from tests.split.every_type import every_type, logs
from tests.split.split_files import between, hits, opened, rows_of, table_of, term, write_split

INTEGER, FLOAT = tantivy.FieldType.Integer, tantivy.FieldType.Float
PLAIN = [
    name
    for name in every_type().column_names
    if name not in ("calendar", "empty", "empties", "void", "voids")
]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path)


def test_every_type_comes_back_as_it_was(store: Store) -> None:
    table = every_type()
    write_split(store, "a.split", table, batch_rows=3)
    found = table_of(store, "a.split")
    assert found.schema == table.schema
    for name in table.column_names:
        expected = [repr(value) for value in table[name].to_pylist()] if name in ("float", "double") else None
        if expected is not None:
            assert [repr(value) for value in found[name].to_pylist()] == expected
        else:
            assert found[name].combine_chunks().equals(table[name].combine_chunks()), name


def test_pyarrow_duckdb_and_datafusion_read_it_as_parquet(store: Store, tmp_path: Path) -> None:
    table = every_type()
    write_split(store, "a.parquet", table)
    path = str(tmp_path / "a.parquet")
    plain = pq.read_table(path)
    assert plain.column_names == [*table.column_names, "_row"]
    for name in PLAIN:
        if name not in ("float", "double"):
            assert plain[name].combine_chunks().equals(table[name].combine_chunks()), name
    shown = ["byte", "long", "decimal38", "string", "date", "struct", "array", "map"]
    duck = duckdb.sql(f"select count(*), sum(int), max(_row), max(len(string)) from read_parquet('{path}')")
    assert duck.fetchall() == [(8, 9, 7, 1_000_000)]
    context = SessionContext()
    context.register_parquet("t", path)
    listed = ", ".join(f'"{name}"' for name in shown)
    found = context.sql(f"select {listed} from t order by _row").to_arrow_table()
    for name in shown:
        assert (
            found[name]
            .cast(table.schema.field(name).type)
            .combine_chunks()
            .equals(table[name].combine_chunks())
        ), name
    needle = context.sql("select _row from t where _row in (2, 5)").to_arrow_table()
    assert sorted(needle["_row"].to_pylist()) == [2, 5]


@pytest.mark.spark
def test_spark_reads_it_as_parquet(store: Store, tmp_path: Path, spark: SparkSession) -> None:
    write_split(store, "t/a.parquet", every_type().select(PLAIN).drop_columns(["time"]))
    write_split(store, "l/a.parquet", logs(5000), {"indexing.typemap.message": "text"})
    found = spark.read.parquet(str(tmp_path / "t")).selectExpr(
        "count(*)", "sum(int)", "max(_row)", "max(length(string))", "max(decimal38)"
    )
    row = found.collect()[0]
    assert (row[0], row[1], row[2], row[3]) == (8, 9, 7, 1_000_000)
    rows = spark.read.parquet(str(tmp_path / "l")).orderBy("_row")
    back = rows.select("level", "trace_id", "status").toArrow()
    assert back.to_pylist() == logs(5000).select(["level", "trace_id", "status"]).to_pylist()


def test_the_footer_says_all_that_an_add_needs(store: Store) -> None:
    table = logs(3000).append_column("day", pa.array(["mon"] * 3000))
    built = write_split(store, "a.split", table, {"indexing.typemap.message": "text"}, {"day": "mon"})
    footer = read_footer(store, "a.split")
    assert footer == read_footer(store, "a.split", built.size, built.footer_start) or footer.path == "a.split"
    expected = Statistics(table.schema, Options(), ("day",))
    for batch in table.to_batches():
        expected.accumulate(batch)
    assert (footer.min_values, footer.max_values, footer.stats) == tuple(expected.texts())
    assert (built.min_values, built.max_values, built.stats) == tuple(expected.texts())
    assert (footer.num_records, footer.size, footer.footer_start) == (3000, built.size, built.footer_start)
    assert footer.size == built.footer_end == store.head("a.split").size
    assert footer.partition_values == {"day": "mon"}
    assert footer.mapping == built.mapping
    assert footer.schema == table.schema
    assert footer.mapping.fields_of("day") == ()
    assert built.split_tags == ("parquet",)


def test_values_are_found_by_their_fields(store: Store) -> None:
    table = every_type()
    write_split(
        store, "a.split", table, {"indexing.typemap.string": "string,text", "indexing.nonfastfields": "short"}
    )
    with opened(store, "a.split") as (footer, index):

        def find(query: Any) -> Any:
            return hits(footer, index, query)

        assert find(between(index, "n:long", INTEGER, 2**53 + 1, 2**53 + 1)) == [4]
        assert find(between(index, "n:timestamp", INTEGER, -(2**63), -1)) == [0, 1, 2]
        assert find(between(index, "n:date", INTEGER, 2**31 - 1, 2**31 - 1)) == [1]
        assert find(between(index, "n:decimal18", INTEGER, -(10**18) + 1, 0)) == [0]
        assert find(term(index, "n:short", -(2**15))) == [0]
        assert find(between(index, "f:double", FLOAT, float("inf"), float("inf"))) == [1]
        assert find(between(index, "f:double", FLOAT, 0.0, 0.0)) == [3]
        assert find(between(index, "f:double", FLOAT, 0.1, 0.1)) == [4]
        assert find(between(index, "f:double", FLOAT, 5e-324, 5e-324)) == [5]
        assert find(tantivy.Query.exists_query("f:double")) == [0, 1, 2, 3, 4, 5, 6]
        assert find(between(index, "f:float", FLOAT, float("inf"), None)) == [0, 1]
        assert find(tantivy.Query.exists_query("b:boolean")) == list(range(7))
        assert find(term(index, "s:string", "")) == [0]
        assert find(term(index, "s:string", "\x00\x01")) == [2]
        assert find(term(index, "s:string", "Zoë 東京 🙂 e\u0301")) == [4]
        assert find(term(index, "t:string", "zoë")) == [4]
        assert find(term(index, "j:struct.a", 1)) == [0]
        assert find(term(index, "j:struct.b.c", "x")) == [0]
        assert find(term(index, "j:array.array", 2)) == [3]
        assert find(term(index, "j:map.m", 2)) == [3, 4, 5, 6]


def test_a_value_too_long_for_the_index_is_listed(store: Store) -> None:
    table = pa.table(
        {"s": ["x" * 65_530, "y" * 65_531, "z", None], "t": ["w" * 256, "a " * 5000, "b" * 255, None]}
    )
    write_split(store, "a.split", table, {"indexing.typemap.s": "string", "indexing.typemap.t": "text"})
    with opened(store, "a.split") as (footer, index):
        assert hits(footer, index, term(index, PARTIAL_FIELD, "s:s")) == [1]
        assert hits(footer, index, term(index, PARTIAL_FIELD, "t:t")) == [0]
        assert hits(footer, index, term(index, "s:s", "x" * 65_530)) == [0]
        assert hits(footer, index, term(index, "t:t", "b" * 255)) == [2]
    assert table_of(store, "a.split").equals(table)


def test_json_that_the_index_refuses_is_listed(store: Store) -> None:
    deep = "[" * 200 + "]" * 200
    table = pa.table({"n": [1, 2, 3, 4], "j": ['{"a":1}', deep, '{"a":1e999}', "{bad"]})
    write_split(store, "a.split", table, {"indexing.typemap.j": "json"})
    with opened(store, "a.split") as (footer, index):
        assert hits(footer, index, term(index, PARTIAL_FIELD, "j:j")) == [1, 2, 3]
        assert hits(footer, index, term(index, "j:j.a", 1)) == [0]
        assert hits(footer, index, between(index, "n:n", INTEGER, 2, 4)) == [1, 2, 3]


def test_json_that_the_index_refuses_is_listed_beside_numbers_that_json_cannot_carry(store: Store) -> None:
    large = '{"a":123456789012345678901234567890}'
    table = pa.table({"x": [math.nan, math.nan, 1.0], "j": ['{"a":1}', large, large]})
    write_split(store, "a.split", table, {"indexing.typemap.j": "json"})
    with opened(store, "a.split") as (footer, index):
        assert hits(footer, index, term(index, "j:j.a", 1)) == [0]
        assert hits(footer, index, term(index, PARTIAL_FIELD, "j:j"))[0] == 1
        assert len(hits(footer, index, tantivy.Query.all_query())) == 3
    assert table_of(store, "a.split")["j"].equals(table["j"])


def test_keys_are_hashed_and_names_are_not(store: Store) -> None:
    table = logs(2000).append_column("user", pa.array([f"user {i}" for i in range(2000)]))
    built = write_split(store, "a.split", table, {"indexing.typemap.message": "text"})
    kinds = {field.column: field.kind for field in built.mapping.fields}
    assert (kinds["trace_id"], kinds["level"], kinds["user"]) == (Kind.HASH, Kind.STRING, Kind.STRING)
    named = write_split(store, "b.split", table, {"indexing.typemap.trace_id": "string"})
    assert named.mapping.fields_of("trace_id")[0].kind is Kind.STRING
    small = write_split(store, "c.split", table.slice(0, 500))
    assert small.mapping.fields_of("trace_id")[0].kind is Kind.STRING


@pytest.mark.parametrize(
    ("tokenizer", "text", "found"),
    [
        ("default", "The QUICK-brown fox", ["the", "quick", "brown", "fox"]),
        ("raw", "The QUICK-brown fox", ["The QUICK-brown fox"]),
        ("whitespace", "The QUICK-brown fox", ["the", "quick-brown", "fox"]),
        ("en_stem", "running horses", ["run", "hors"]),
        ("de_stem", "laufende Pferde", ["laufend", "pferd"]),
        ("ngram", "abc", ["ab", "abc", "bc"]),
        ("ngram_3_3", "abcd", ["abc", "bcd"]),
    ],
)
def test_a_tokenizer_cuts_as_it_says(store: Store, tokenizer: str, text: str, found: list[str]) -> None:
    write_split(
        store,
        "a.split",
        pa.table({"t": [text, "zzz"]}),
        {"indexing.typemap.t": "text", "indexing.tokenizer.t": tokenizer},
    )
    with opened(store, "a.split") as (footer, index):
        assert all(hits(footer, index, term(index, "t:t", token)) == [0] for token in found)


@pytest.mark.parametrize("part", ["東京都", "京都に", "사랑", "カレー", "Tokyo東京"])
def test_a_part_of_chinese_japanese_or_korean_text_is_found(store: Store, part: str) -> None:
    table = pa.table(
        {"t": ["私は東京都に住む Tokyo東京", "京都 東", "나는 사랑해요", "カレーライス", "都に京", "랑사"]}
    )
    write_split(store, "a.split", table, {"indexing.typemap.t": "text", "indexing.tokenizer.t": "cjk"})
    with opened(store, "a.split") as (footer, index):
        words: list[Any] = analyzer_of(footer.mapping.fields_of("t")[0]).analyze(part)
        query = tantivy.Query.phrase_query(index.schema, "t:t", words)
        expected = [i for i, text in enumerate(table["t"].to_pylist()) if part in text]
        assert hits(footer, index, query) == expected != []


def test_without_positions_there_are_no_phrases(store: Store) -> None:
    for record, phrases in (("position", True), ("freq", False), ("basic", False)):
        write_split(
            store,
            "a.split",
            pa.table({"t": ["a b"]}),
            {"indexing.typemap.t": "text", "indexing.indexrecordoption.t": record},
        )
        with opened(store, "a.split") as (footer, index):
            query = tantivy.Query.phrase_query(index.schema, "t:t", ["a", "b"])
            if phrases:
                assert hits(footer, index, query) == [0]
            else:
                with pytest.raises(ValueError, match="position"):
                    hits(footer, index, query)


def test_several_threads_and_small_batches_give_the_same_rows(store: Store) -> None:
    table = logs(5000)
    options = {"indexWriter.threads": 2, "indexWriter.batchSize": 77, "indexWriter.maxBatchBufferSize": "10k", "write.rowGroupSize": "64k", "write.pageSize": "1k", "write.compressionLevel": 1}  # fmt: skip
    write_split(store, "a.split", table, {**options, "indexing.typemap.message": "text"})
    assert table_of(store, "a.split").equals(table)
    footer = read_footer(store, "a.split")
    assert footer.parquet.num_row_groups >= 5
    with opened(store, "a.split") as (footer, index):
        assert hits(footer, index, tantivy.Query.all_query()) == list(range(5000))


def test_an_empty_split_is_a_split(store: Store) -> None:
    table = every_type().slice(0, 0)
    write_split(store, "a.split", table)
    assert table_of(store, "a.split").schema == table.schema
    assert rows_of(store, "a.split").fetch(np.array([], np.int64)).num_rows == 0
    with opened(store, "a.split") as (footer, index):
        assert hits(footer, index, tantivy.Query.all_query()) == []


def test_a_batch_of_another_schema_is_refused(tmp_path: Path) -> None:
    schema = pa.schema([("a", pa.int64())])
    with (
        (tmp_path / "x").open("wb") as sink,
        SplitWriter(sink, schema, mapping_for(schema, Options()), Options()) as writer,
    ):
        with pytest.raises(SchemaError, match="other columns"):
            writer.write(pa.record_batch({"a": pa.array([1], pa.int32())}))
        writer.abort()


def test_a_temporary_folder_that_is_not_there_is_an_error(store: Store, tmp_path: Path) -> None:
    with pytest.raises(SplitError, match="tempDirectoryPath"):
        write_split(
            store, "a.split", logs(10), {"indexWriter.tempDirectoryPath": str(tmp_path / "no" / "such")}
        )


def test_nothing_temporary_is_left(store: Store, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    write_split(store, "a.split", logs(100), {"indexWriter.tempDirectoryPath": str(work)})
    assert list(work.iterdir()) == []


MEASURE = """
import resource
from tests.split.every_type import logs
from indextables.options import Options
from indextables.split.writer import SplitWriter
from indextables.split.mapping import mapping_for
options = Options.parse({{"indexing.typemap.message": "text", "indexWriter.heapSize": "32m", "write.rowGroupSize": "8m"}})
table = logs(20_000)
def run(times):
    with open({target!r}, "wb") as sink, SplitWriter(sink, table.schema, mapping_for(table.schema, options), options) as writer:
        for _ in range(times):
            for batch in table.to_batches(max_chunksize=4000):
                writer.write(batch)
        writer.finish()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
first = run(4)
print(run(16) - first)
"""


def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    program = MEASURE.format(target=str(tmp_path / "a"))
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert float(done.stdout) < 60, "megabytes more for four times the rows"
