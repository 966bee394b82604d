"""Splits of every format that was ever written are read, searched and merged as they were."""

from pathlib import Path
from typing import IO, cast

import numpy as np
import pyarrow as pa
import pytest
import tantivy

from indextables.options import Options
from indextables.split.checksum import CHECKSUM_FORMAT
from indextables.split.footer import FORMAT_VERSION, Footer, read_footer
from indextables.split.index.term_filter import BundleDirectory, TermFilter, probes, split_keys
from indextables.split.mapping import mapping_for
from indextables.split.merge import MergeSource, merge_splits
from indextables.split.parquet.reader import RowReader
from indextables.split.query.searcher import close_indexes, open_index
from indextables.store import open_store
from tests.golden.write_split import BUNDLE, HERE, OPTIONS, PARTS, SCHEMA, entries, golden_rows

WITH_PARTS = [f"format-{FORMAT_VERSION}-{part}.split" for part in PARTS]
NAMES = [*(f"format-{number}.split" for number in range(1, FORMAT_VERSION + 1)), *WITH_PARTS]


@pytest.fixture(params=NAMES)
def footer(request: pytest.FixtureRequest) -> Footer:
    return read_footer(open_store(HERE), request.param)


def test_there_is_a_golden_split_of_every_format() -> None:
    assert sorted(path.name for path in HERE.glob("*.split")) == sorted(NAMES)


def test_the_rows_of_a_golden_split_are_those_that_were_written(footer: Footer) -> None:
    rows, expected = RowReader(open_store(HERE), footer), golden_rows()
    assert pa.Table.from_batches(rows.scan(), SCHEMA).equals(expected)
    numbers = np.array([0, 7, 150, 399])
    assert rows.fetch(numbers).equals(expected.take(numbers))
    assert (footer.checksums is None) == (footer.path < f"format-{CHECKSUM_FORMAT}")


def test_the_index_of_a_golden_split_finds_its_rows(footer: Footer, tmp_path: Path) -> None:
    options = Options.parse({"cache.disk.path": str(tmp_path)})
    index = open_index(open_store(HERE), footer, options)
    index.load({"t:message"})
    query = tantivy.Query.term_query(index.view.schema, "t:message", "timeout")
    expected = [row["id"] for row in golden_rows().to_pylist() if "timeout" in (row["message"] or "").split()]
    assert index.rows(query).tolist() == expected
    close_indexes()


def test_the_newest_split_has_postings_in_several_pieces(footer: Footer) -> None:
    postings = next(file for file in footer.index_files if file.name.endswith(".idx"))
    pieces = [piece for piece in postings.pieces if piece.field == "t:message"]
    assert (len(pieces) > 1) == (footer.path == WITH_PARTS[-1])


def test_the_terms_of_a_golden_split_pass_its_filters(footer: Footer) -> None:
    assert bool(footer.term_filters) == (footer.path in WITH_PARTS)
    store = open_store(HERE)
    for place in footer.term_filters:
        kind, _, column = place.field.partition(":")
        values = [value for value in golden_rows()[column].to_pylist() if value is not None]
        words = {word.lower() for value in values for word in value.split()}
        test = TermFilter(place).may_contain_any
        for term in words if kind == "t" else set(values):
            assert test(probes([term]), lambda ranges: store.get_ranges(footer.path, ranges)), term


def test_the_terms_of_a_golden_split_pass_the_golden_bundle() -> None:
    data = (HERE / BUNDLE).read_bytes()
    directory = BundleDirectory.decode(data[data.index(b'{"splits"') :], len(data))
    assert (directory.keys == split_keys(entries(HERE))).all()
    assert {group.field for group in directory.groups} == {"t:message", "s:level"}
    for group in directory.groups:
        assert group.members.tolist() == [0]
        kind, _, column = group.field.partition(":")
        values = [value for value in golden_rows()[column].to_pylist() if value is not None]
        words = {word.lower() for value in values for word in value.split()}
        for probe in probes(sorted(words if kind == "t" else set(values))):
            number = group.page_of(probe)
            page = group.decode_page(number, data[slice(*group.page_range(number))])
            assert group.test(probe, page).tolist() == [True]


def test_golden_splits_of_all_formats_are_merged_into_one(tmp_path: Path) -> None:
    store, target, options = open_store(HERE), open_store(tmp_path), Options.parse(OPTIONS)
    sources = [MergeSource.of(store, read_footer(store, name), SCHEMA) for name in NAMES]
    sink = target.open_upload("merged.split")
    merge_splits(sources, cast("IO[bytes]", sink), SCHEMA, mapping_for(SCHEMA, options), options)
    sink.close()
    footer = read_footer(target, "merged.split")
    assert footer.checksums is not None
    found = pa.Table.from_batches(RowReader(target, footer).scan(), SCHEMA)
    assert found.equals(pa.concat_tables([golden_rows()] * len(NAMES)))
