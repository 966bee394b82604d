"""A merged split holds the rows of its sources and finds them as before."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import tantivy

from indextables.errors import SplitError, UnreadableSplitError
from indextables.options import Options
from indextables.schema.values import Statistics
from indextables.split.footer import read_footer
from indextables.split.mapping import Kind, mapping_for
from indextables.split.merge import LookupSample, MergeSource, merge_splits
from indextables.split.writer import SplitFile
from indextables.store import Store, open_store
from tests.split.every_type import every_type, logs
from tests.split.split_files import between, hits, opened, table_of, term, write_split

TEXT = {"indexing.typemap.message": "text"}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path)


def merged(
    store: Store,
    paths: list[Any],
    target: str,
    schema: Any,
    options: dict[str, str] | None = None,
    extra: Sequence[Any] = (),
) -> SplitFile:
    given = Options.parse(options or {})
    sources = [MergeSource.of(store, read_footer(store, path), schema) for path in paths]
    sink: Any = store.open_upload(target)
    try:
        built = merge_splits([*sources, *extra], sink, schema, mapping_for(schema, given), given)
    except BaseException:
        sink.abort()
        raise
    sink.close()
    return built


def parts(store: Store, table: Any, count: int, options: dict[str, str] | None = None) -> list[str]:
    size = -(-table.num_rows // count)
    paths = [f"{i}.split" for i in range(count)]
    for i, path in enumerate(paths):
        write_split(store, path, table.slice(i * size, size), options)
    return paths


def search_results(store: Store, path: str) -> list[Any]:
    """What a few searches find."""
    with opened(store, path) as (footer, index):
        integer = tantivy.FieldType.Integer
        phrase = tantivy.Query.phrase_query(index.schema, "t:message", ["word1", "word2"])
        queries = [
            term(index, "t:message", "word7"),
            phrase,
            term(index, "s:level", "ERROR"),
            between(index, "n:status", integer, 300, 310),
            tantivy.Query.regex_query(index.schema, "t:message", "word3.*"),
            tantivy.Query.all_query(),
        ]
        return [hits(footer, index, query) for query in queries]


@pytest.mark.parametrize("count", [2, 9, 16])
def test_rows_searches_and_statistics_are_those_of_one_split(store: Store, count: int) -> None:
    table = logs(16_000)
    write_split(store, "whole.split", table, TEXT)
    built = merged(store, parts(store, table, count, TEXT), "m.split", table.schema, TEXT)
    assert table_of(store, "m.split").equals(table)
    assert search_results(store, "m.split") == search_results(store, "whole.split")
    whole, after = read_footer(store, "whole.split"), read_footer(store, "m.split")
    assert (after.min_values, after.max_values) == (whole.min_values, whole.max_values)
    assert json.loads(after.stats) == json.loads(whole.stats)
    assert (built.num_records, built.num_merge_ops, built.size) == (16_000, 1, store.head("m.split").size)
    assert len(after.row_id_ranges) == count


def test_many_segments_become_few(store: Store) -> None:
    table = logs(16_000)
    merged(store, parts(store, table, 16, TEXT), "m.split", table.schema, TEXT)
    with opened(store, "m.split") as (_, index):
        assert index.searcher().num_segments <= 2


def test_merged_splits_are_merged_again(store: Store) -> None:
    table = logs(9000)
    paths = parts(store, table, 6, TEXT)
    merged(store, paths[:2], "a.split", table.schema, TEXT)
    merged(store, paths[2:5], "b.split", table.schema, TEXT)
    built = merged(store, ["a.split", "b.split", paths[5]], "c.split", table.schema, TEXT)
    write_split(store, "whole.split", table, TEXT)
    assert table_of(store, "c.split").equals(table)
    assert search_results(store, "c.split") == search_results(store, "whole.split")
    assert built.num_merge_ops == 2
    assert len(read_footer(store, "c.split").row_id_ranges) == 6


def test_the_same_rows_twice_stay_apart(store: Store) -> None:
    table = logs(1500)
    write_split(store, "a.split", table, TEXT)
    merged(store, ["a.split", "a.split"], "m.split", table.schema, TEXT)
    assert table_of(store, "m.split").equals(pa.concat_tables([table, table]))
    with opened(store, "m.split") as (footer, index):
        assert hits(footer, index, tantivy.Query.all_query()) == list(range(3000))


def test_every_type_is_merged_as_it_was(store: Store) -> None:
    table = every_type()
    paths = parts(store, table, 3)
    merged(store, paths, "m.split", table.schema)
    found = table_of(store, "m.split")
    for name in table.column_names:
        if name in ("float", "double"):
            assert [repr(v) for v in found[name].to_pylist()] == [repr(v) for v in table[name].to_pylist()]
        else:
            assert found[name].combine_chunks().equals(table[name].combine_chunks()), name


def test_a_column_that_came_later_is_null_before(store: Store) -> None:
    old, new = logs(1200), logs(1300, seed=2)
    new = new.append_column("region", pa.array(["eu", "us"] * 650))
    write_split(store, "old.split", old, TEXT)
    write_split(store, "new.split", new, TEXT)
    merged(store, ["old.split", "new.split"], "m.split", new.schema, TEXT)
    expected = pa.concat_tables([old.append_column("region", pa.nulls(1200, pa.string())), new])
    assert table_of(store, "m.split").equals(expected)
    write_split(store, "whole.split", expected, TEXT)
    assert search_results(store, "m.split") == search_results(store, "whole.split")
    with opened(store, "m.split") as (footer, index):
        assert hits(footer, index, term(index, "s:region", "eu")) == list(range(1200, 2500, 2))
    statistics = Statistics(expected.schema, Options())
    statistics.accumulate(expected.combine_chunks().to_batches()[0])
    after = read_footer(store, "m.split")
    assert (after.min_values, after.max_values) == statistics.texts()[:2]


def test_other_options_index_the_rows_anew(store: Store) -> None:
    table = logs(2000)
    paths = parts(store, table, 2)
    built = merged(store, paths, "m.split", table.schema, TEXT)
    assert built.mapping.fields_of("message")[0].kind is Kind.TEXT
    write_split(store, "whole.split", table, TEXT)
    assert search_results(store, "m.split") == search_results(store, "whole.split")


def test_a_small_split_takes_the_fields_of_the_large_one(store: Store) -> None:
    table = logs(3000)
    write_split(store, "large.split", table.slice(0, 2500), TEXT)
    small = write_split(store, "small.split", table.slice(2500), TEXT)
    assert small.mapping.fields_of("trace_id")[0].kind is Kind.STRING
    built = merged(store, ["small.split", "large.split"], "m.split", table.schema, TEXT)
    assert built.mapping.fields_of("trace_id")[0].kind is Kind.HASH
    assert table_of(store, "m.split").equals(pa.concat_tables([table.slice(2500), table.slice(0, 2500)]))


def test_rows_of_elsewhere_can_be_a_source(store: Store) -> None:
    table = logs(1500)
    write_split(store, "a.split", table, TEXT)
    other = logs(700, seed=9)
    foreign = MergeSource("elsewhere", lambda: iter(other.to_batches(max_chunksize=100)))
    merged(store, ["a.split"], "m.split", table.schema, TEXT, extra=[foreign])
    assert table_of(store, "m.split").equals(pa.concat_tables([table, other]))
    merged(store, [], "n.split", table.schema, TEXT, extra=[foreign])
    assert table_of(store, "n.split").equals(other)


@pytest.mark.parametrize("where", ["rows", "index"])
def test_a_source_that_cannot_be_read_is_named(store: Store, tmp_path: Path, where: str) -> None:
    table = logs(2000)
    paths = parts(store, table, 3, TEXT)
    footer = read_footer(store, paths[1])
    data = bytearray((tmp_path / paths[1]).read_bytes())
    largest = max((p for file in footer.index_files for p in file.pieces), key=lambda piece: piece.length)
    at = largest.offset + 10 if where == "index" else 4
    data[at : at + 200] = os.urandom(200)
    (tmp_path / paths[1]).write_bytes(data)
    with pytest.raises(UnreadableSplitError, match=r"1\.split") as caught:
        merged(store, paths, "m.split", table.schema, TEXT)
    assert caught.value.path == "1.split"
    assert not store.exists("m.split")


def test_nothing_temporary_is_left(store: Store, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    options = {**TEXT, "indexWriter.tempDirectoryPath": str(work)}
    table = logs(1000)
    paths = parts(store, table, 2, options)
    merged(store, paths, "m.split", table.schema, options)
    assert list(work.iterdir()) == []


def test_a_row_that_answers_for_another_stops_the_merge(store: Store) -> None:
    table = logs(1000)
    write_split(store, "a.split", table, TEXT)
    with opened(store, "a.split") as (footer, index):
        good, bad = LookupSample(footer.mapping), LookupSample(footer.mapping)
        good.take(table.to_batches()[0], 0, footer.row_id_ranges, 0)
        good.check(index)
        bad.take(logs(1000, seed=4).to_batches()[0], 0, footer.row_id_ranges, 0)
        with pytest.raises(SplitError, match="nothing was merged"):
            bad.check(index)
