"""Which splits that the log names are really there."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from indextables.maintain.folder import OwnFolder
from indextables.store import Store

# Up to so many, each is asked for; beyond, one listing is cheaper.
_FEW = 500
_AT_ONCE = 16


def missing(store: Store, paths: Sequence[str]) -> list[str]:
    """The paths at which there is no file, in their order."""
    if len(paths) <= _FEW:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            there = list(pool.map(store.exists, paths))
        return [path for path, found in zip(paths, there, strict=True) if not found]
    wanted = set(paths)
    for info in OwnFolder(store).files():
        wanted.discard(info.path)
    # Names that are no splits, and splits below another table, are not in that listing.
    return [path for path in paths if path in wanted and not store.exists(path)]
