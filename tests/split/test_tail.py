"""The end of a remote split: one request reads it, and only what it covers is served from it."""

from pathlib import Path
from typing import Any

import pytest

from indextables.errors import StoreError
from indextables.split import footer as tail
from indextables.split.footer import (
    drop_cached_tails,
    is_tail_cached,
    read_filter_tail,
    read_ranges,
    read_tail,
    tail_bytes,
)
from indextables.store import Store, open_store

SIZE = 100_000
DATA = bytes(n % 251 for n in range(SIZE))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    drop_cached_tails()
    opened = open_store(f"memory://tail-{tmp_path.name}/t")
    opened.put("s", DATA)
    return opened


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[list[tuple[int, int]]]:
    counted: list[list[tuple[int, int]]] = []
    get_ranges = Store.get_ranges

    def get(self: Any, path: Any, ranges: Any) -> list[bytes]:
        counted.append(list(ranges))
        return get_ranges(self, path, ranges)

    monkeypatch.setattr(Store, "get_ranges", get)
    return counted


def test_what_lies_before_the_footer_needs_no_request(
    store: Store, reads: list[list[tuple[int, int]]]
) -> None:
    assert read_tail(store, "s", SIZE - 500, SIZE) == DATA[-500:]
    start = SIZE - 500 - tail_bytes(SIZE)
    assert reads == [[(start, SIZE)]]
    assert is_tail_cached(store, "s", SIZE, start)
    assert not is_tail_cached(store, "s", SIZE, start - 1)
    wanted = [(start, start + 10), (SIZE - 7, SIZE), (SIZE - 3, SIZE - 3)]
    assert read_ranges(store, "s", SIZE, wanted) == [DATA[begin:end] for begin, end in wanted]
    assert len(reads) == 1
    wanted = [(5, 9), (start, start + 10), (start - 1, start + 1)]
    assert read_ranges(store, "s", SIZE, wanted) == [DATA[begin:end] for begin, end in wanted]
    assert reads[1:] == [[(5, 9), (start - 1, start + 1)]]


def test_a_range_beyond_the_end_is_refused(store: Store) -> None:
    read_tail(store, "s", SIZE - 500, SIZE)
    with pytest.raises(StoreError, match="it ends before that"):
        read_ranges(store, "s", SIZE, [(SIZE - 5, SIZE + 5)])


def test_a_split_of_another_size_is_another_one(store: Store, reads: list[list[tuple[int, int]]]) -> None:
    read_tail(store, "s", SIZE - 500, SIZE)
    store.put("s", b"x" * (SIZE + 1))
    assert read_ranges(store, "s", SIZE + 1, [(SIZE - 5, SIZE)]) == [b"x" * 5]


def test_another_reader_makes_its_own_request(store: Store, reads: list[list[tuple[int, int]]]) -> None:
    read_tail(store, "s", SIZE - 500, SIZE)
    other = Store(store._location, store._identity, reader="another")
    assert other.cache_scope != store.cache_scope
    assert not is_tail_cached(other, "s", SIZE, SIZE - 100)


def test_the_bytes_that_are_kept_are_bounded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "_MAX_CACHE_BYTES", 45_000)
    for number in range(5):
        store.put(f"s{number}", DATA)
        read_tail(store, f"s{number}", SIZE - 500, SIZE)
    kept = [number for number in range(5) if is_tail_cached(store, f"s{number}", SIZE, SIZE - 500)]
    assert kept == [3, 4]


def test_local_splits_are_read_as_they_are(tmp_path: Path, reads: list[list[tuple[int, int]]]) -> None:
    store = open_store(tmp_path)
    store.put("s", DATA)
    assert read_tail(store, "s", SIZE - 500, SIZE) == DATA[-500:]
    assert reads == [[(SIZE - 500, SIZE)]]
    assert not is_tail_cached(store, "s", SIZE, SIZE - 500)


def test_the_filters_alone_take_fewer_bytes(store: Store, reads: list[list[tuple[int, int]]]) -> None:
    assert read_filter_tail(store, "s", SIZE - 500, SIZE) == DATA[-500:]
    assert read_tail(store, "s", SIZE - 500, SIZE) == DATA[-500:]
    assert reads == [
        [(SIZE - 500 - tail._LEAST_TAIL_BYTES, SIZE)],
        [(SIZE - 500 - int(SIZE * tail._DICTIONARY_TAIL_SHARE), SIZE)],
    ]
