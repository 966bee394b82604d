"""The end of a split of an object store: its footer, page index and term filters, read with one request.

What lies before the footer is kept for a while, so that readers of these parts make no requests of their own.
"""

from collections.abc import Sequence

from indextables.cache import Cache
from indextables.store import CacheScope, Store

# So much is read before the footer: term filters take up to 2% of a split, and page indexes less than 1%.
_SHARE = 0.03
_LEAST_BYTES = 16 << 10
_MAX_BYTES = 768 << 10
# The bytes of all tails that are kept.
_MAX_KEPT_BYTES = 32 << 20

_Tail = tuple[int, bytes]
_tails: Cache[tuple[CacheScope, str, int], _Tail] = Cache(weigh=lambda tail: len(tail[1]))


def read_tail(store: Store, path: str, begin: int, size: int) -> bytes:
    """The bytes of a split from `begin` to its end; of a remote split, what is before them is kept."""
    if store.is_local:
        return store.get_range(path, begin, size)
    start = max(0, begin - min(max(int(size * _SHARE), _LEAST_BYTES), _MAX_BYTES))
    tail = store.get_range(path, start, size)
    if len(tail) == size - start:
        _tails.put((store.cache_scope, path, size), (start, tail), max_weight=_MAX_KEPT_BYTES)
    return tail[begin - start :]


def is_kept(store: Store, path: str, size: int, start: int) -> bool:
    """Whether the bytes from `start` on are there without a request."""
    tail = _tails.get((store.cache_scope, path, size))
    return tail is not None and tail[0] <= start


def read_ranges(
    store: Store, path: str, size: int, ranges: Sequence[tuple[int, int]]
) -> list[bytes | memoryview]:
    """Ranges of a split, from its tail where that is kept."""
    tail = None if store.is_local else _tails.get((store.cache_scope, path, size))
    if tail is None:
        return list(store.get_ranges(path, ranges))
    start, kept = tail
    missing = [(begin, end) for begin, end in ranges if begin < start or end > size]
    read = iter(store.get_ranges(path, missing) if missing else ())
    return [
        next(read) if begin < start or end > size else kept[begin - start : end - start]
        for begin, end in ranges
    ]


def forget_tails() -> None:
    """Release all tails."""
    _tails.clear()
