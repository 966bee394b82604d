"""Term filters: a term of a field always passes, damage is found, and they stay small."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indextables.errors import SplitError
from indextables.options import Options
from indextables.split.footer import FilterPlace, filter_bytes, read_footer
from indextables.split.index.term_filter import (
    TermFilter,
    _sizes,
    blocks_for,
    encode_filter,
    encode_pages,
    integer_keys,
    integer_probes,
    probes,
    term_keys,
)
from indextables.split.mapping import mapping_for
from indextables.split.merge import MergeSource, merge_splits
from indextables.store import Store, open_store
from tests.split.split_files import opened, write_split

TEXT = {"indexing.typemap.t": "text"}
SCHEMA = pa.schema([("t", pa.string()), ("s", pa.string()), ("u", pa.string()), ("p", pa.binary())])


def stored_filter(terms: Any, blocks: int, field: str = "t:a") -> Any:
    """The filter of some terms, and the bytes in which it is stored behind some others."""
    data = b"other bytes" + encode_pages(field, encode_filter(np.unique(term_keys(terms)), blocks))
    return TermFilter(FilterPlace(field, 11, blocks)), data


def reader(data: bytes) -> Callable[..., list[bytes]]:
    return lambda ranges: [data[start:end] for start, end in ranges]


def passes(filter_: Any, term: str, data: bytes) -> Any:
    return filter_.may_contain_any(probes([term]), reader(data))


@given(st.lists(st.text(), min_size=1), st.integers(1, 300))
def test_every_term_of_a_filter_passes(terms: Any, blocks: Any) -> None:
    filter_, data = stored_filter(terms, blocks)
    assert len(data) == 11 + filter_bytes(blocks)
    assert all(passes(filter_, term, data) for term in terms)


@pytest.mark.parametrize("count", [500, 40_000])
def test_few_other_terms_pass(count: int) -> None:
    terms = [f"user{n}" for n in range(count)]
    filter_, data = stored_filter(terms, blocks_for(count))
    others = sum(passes(filter_, f"other{n}", data) for n in range(5000))
    assert others / 5000 < 0.05


def test_of_a_large_filter_only_the_pages_of_a_term_are_read() -> None:
    filter_, data = stored_filter(["a", "b"], 1 << 14)
    ranges = []

    def read(wanted: Any) -> list[bytes]:
        ranges.extend(wanted)
        return reader(data)(wanted)

    assert filter_.may_contain_any(probes(["a"]), read)
    assert [end - start for start, end in ranges] == [64 * 32 + 4]
    assert filter_.may_contain_any(probes(["a"]), read)
    assert filter_.has_pages(probes(["a"]))
    assert len(ranges) == 1, "a page is read once"


def test_a_damaged_page_is_an_error_that_names_the_field() -> None:
    for damaged in (11, 500, 11 + 64 * 32, 11 + 64 * 32 + 3):
        filter_, data = stored_filter(["a"], 128)
        spoilt = bytearray(data)
        spoilt[damaged] ^= 1
        with pytest.raises(SplitError, match="the term filter of 't:a' is damaged"):
            passes(filter_, "a", bytes(spoilt))


def test_a_page_at_the_place_of_another_is_an_error() -> None:
    filter_, data = stored_filter(["a"], 128)
    swapped = data[:11] + data[11 + 2052 :] + data[11 : 11 + 2052]
    with pytest.raises(SplitError, match="damaged"):
        passes(filter_, "a", swapped)


def rows(start: int, count: int) -> pa.Table:
    """A text, a string that repeats, a near-unique string, and bytes that make the split larger."""
    numbers = range(start, start + count)
    columns = [[f"word{n % 50} tail" for n in numbers], [f"value {n % 9}" for n in numbers]]
    keys = [f"{random.Random(n).getrandbits(128):032x}" for n in numbers]
    return pa.table([*columns, keys, [random.Random(n).randbytes(100) for n in numbers]], schema=SCHEMA)


def filters_of(store: Store, path: str) -> Any:
    footer = read_footer(store, path)
    found = {}
    for place in footer.term_filters:
        filter_ = TermFilter(place)
        found[place.field] = lambda term, filter_=filter_: filter_.may_contain_any(
            probes([term]), lambda ranges: store.get_ranges(path, ranges)
        )
    return found


def test_a_split_has_a_filter_for_words_strings_and_hashes(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    write_split(store, "a.split", rows(0, 3000), TEXT)
    filters = filters_of(store, "a.split")
    assert set(filters) == {"t:t", "s:s", "h:u"}
    assert all(filters["t:t"](f"word{n}") for n in range(50))
    assert filters["t:t"]("tail")
    assert all(filters["s:s"](f"value {n}") for n in range(9))
    assert all(filters["h:u"](text) for text in rows(0, 3000)["u"].to_pylist())
    assert sum(filters["h:u"](f"absent {n}") for n in range(1000)) < 100
    assert not any(filters["t:t"](f"absent{n}") for n in range(20))


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({"indexing.noTermFilterFields": "t,u"}, {"s:s"}),
        ({"indexing.termFilters": "false"}, set()),
        ({}, {"t:t", "s:s", "h:u"}),
    ],
)
def test_filters_are_turned_off_by_column_or_all_together(tmp_path: Path, options: Any, fields: Any) -> None:
    store = open_store(tmp_path)
    write_split(store, "a.split", rows(0, 3000), TEXT | options)
    footer = read_footer(store, "a.split")
    assert {place.field for place in footer.term_filters} == fields
    again = {field.name for field in footer.mapping.fields if field.term_filter}
    assert again >= fields


def test_a_field_that_lacks_a_term_of_a_row_has_no_filter(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    long = pa.table([["short", "x" * 300], ["a", "y" * 70_000], ["k1", "k2"], [b"", b""]], schema=SCHEMA)
    write_split(store, "a.split", long, TEXT)
    assert not {place.field for place in read_footer(store, "a.split").term_filters} & {"t:t", "s:s"}


def test_filters_take_a_small_part_of_a_split(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    write_split(store, "a.split", rows(0, 20_000), TEXT)
    footer = read_footer(store, "a.split")
    total = sum(place.length for place in footer.term_filters)
    assert 0 < total <= 0.02 * footer.size


def test_the_filters_of_a_merged_split_have_the_terms_of_all_its_rows(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    # The second is indexed again: it has other fields. The third has no filters.
    write_split(store, "0.split", rows(0, 1500), TEXT)
    write_split(store, "1.split", rows(1500, 1500), {"indexing.typemap.t": "string"})
    write_split(store, "2.split", rows(3000, 1500), TEXT | {"indexing.termFilters": "false"})
    sources = [MergeSource.of(store, read_footer(store, f"{n}.split"), SCHEMA) for n in range(3)]
    options = Options.parse(TEXT)
    sink = store.open_upload("merged.split")
    merge_splits(sources, cast("IO[bytes]", sink), SCHEMA, mapping_for(SCHEMA, options), options)
    sink.close()
    filters = filters_of(store, "merged.split")
    assert all(filters["h:u"](text) for text in rows(0, 4500)["u"].to_pylist())
    assert all(filters["t:t"](f"word{n}") for n in range(50))
    assert all(filters["s:s"](f"value {n}") for n in range(9))
    with opened(store, "merged.split") as (_, index):
        terms = [term for term, _ in index.searcher().terms_with_prefix("t:t", "")]
    assert all(map(filters["t:t"], terms))


def test_an_empty_filter_passes_nothing() -> None:
    filter_, data = stored_filter([], 1)
    assert not passes(filter_, "a", data)


def test_many_fields_are_sized_quickly_and_stay_small() -> None:
    terms = {f"s:c{n}": n + 1 for n in range(2000)}
    sizes = _sizes(terms, 100_000)
    assert sum(map(filter_bytes, sizes.values())) <= 2000
    assert set(sizes) == {f"s:c{n}" for n in range(len(sizes))}, "those with fewest terms"
    assert sizes
    assert _sizes({"t:a": 10_000_000}, 1000) == {}
    assert _sizes({}, 1000) == {}
    assert _sizes({"t:a": 1000}, 10_000_000) == {"t:a": blocks_for(1000)}


def test_the_keys_of_integers_are_those_of_the_protocol() -> None:
    keys = integer_keys(np.array([0, 1, -1, 2**63 - 1, -(2**63)]))
    assert [f"{int(key):x}" for key in keys[:2]] == ["0", "e220a8397b1dcdaf"]
    mask = (1 << 64) - 1
    for value, key in zip((-1, 2**63 - 1, -(2**63)), keys[2:].tolist(), strict=True):
        s = value * 0x9E3779B97F4A7C15 & mask
        s = (s ^ s >> 30) * 0xBF58476D1CE4E5B9 & mask
        s = (s ^ s >> 27) * 0x94D049BB133111EB & mask
        assert key == s ^ s >> 31


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1), st.integers(1, 300))
def test_every_integer_of_a_filter_passes(values: Any, blocks: Any) -> None:
    keys = integer_keys(np.array(values, np.int64))
    data = encode_pages("n:a", encode_filter(np.unique(keys), blocks))
    filter_ = TermFilter(FilterPlace("n:a", 0, blocks))
    assert all(filter_.may_contain_any(integer_probes([value]), reader(data)) for value in values)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (lambda n: random.Random(n).getrandbits(40), True),
        (lambda n: -(n * 7919 % 6007), True),
        (lambda n: n, False),
        (lambda n: 9000 - n, False),
        (lambda n: random.Random(n).randrange(500), False),
    ],
)
def test_integers_have_a_filter_if_nearly_all_differ_and_have_no_order(
    tmp_path: Path, values: Any, expected: bool
) -> None:
    table = pa.table(
        {
            "n": pa.array([values(n) for n in range(3000)], pa.int64()),
            "day": pa.array([random.Random(n).randrange(10**6) for n in range(3000)])
            .cast(pa.int32())
            .cast(pa.date32()),
            "pad": [random.Random(n).randbytes(150) for n in range(3000)],
        }
    )
    store = open_store(tmp_path)
    write_split(store, "a.split", table)
    assert {place.field for place in read_footer(store, "a.split").term_filters} == (
        {"n:n"} if expected else set()
    )
    write_split(store, "b.split", table, {"indexing.noTermFilterFields": "n"})
    assert not read_footer(store, "b.split").term_filters
