"""A store that tells what was done with it, and fails where the test wants it to."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from indextables.store import Store

# Told an operation and a path, may raise; told after the operation too, with its answer.
Before = Callable[[str, str], None]
After = Callable[[str, str, object], object]


@dataclass
class Watch:
    """What all handles of one watched store share."""

    seen: list[tuple[str, str]] = field(default_factory=list)
    before: Before = lambda _operation, _path: None
    after: After = lambda _operation, _path, answer: answer

    def of(self, *operations: str) -> list[str]:
        """The paths of some operations, in order."""
        return [path for operation, path in self.seen if operation in operations]

    def forget(self) -> None:
        self.seen.clear()


class WatchedStore:
    """Everything that a store does, watched."""

    def __init__(self, store: Store, watch: Watch | None = None) -> None:
        self._store = store
        self.watch = watch or Watch()
        self.url = store.url
        self.cache_scope = store.cache_scope
        self.lists_in_pages = store.lists_in_pages
        self.is_local = store.is_local

    def at(self, prefix: str) -> "WatchedStore":
        return WatchedStore(self._store.at(prefix), self.watch)

    def get(self, path: str) -> object:
        return self._do("get", path, lambda: self._store.get(path))

    def get_range(self, path: str, start: int, end: int) -> object:
        return self._do("get", path, lambda: self._store.get_range(path, start, end))

    def get_ranges(self, path: str, ranges: Any) -> object:
        return self._do("get", path, lambda: self._store.get_ranges(path, ranges))

    def head(self, path: str) -> object:
        return self._do("head", path, lambda: self._store.head(path))

    def exists(self, path: str) -> object:
        return self._do("head", path, lambda: self._store.exists(path))

    def list(self, prefix: str = "", *, after: str | None = None) -> object:
        return self._do("list", prefix, lambda: list(self._store.list(prefix, after=after)))

    def put(self, path: str, data: bytes) -> object:
        return self._do("put", path, lambda: self._store.put(path, data))

    def create(self, path: str, data: bytes) -> object:
        return self._do("create", path, lambda: self._store.create(path, data))

    def delete(self, paths: Iterable[str]) -> int:
        return sum(self._do("delete", path, lambda path=path: self._store.delete([path])) for path in paths)

    def check_create_if_absent(self) -> None:
        self._store.check_create_if_absent()

    def _do(self, operation: str, path: str, action: Callable[[], object]) -> object:
        self.watch.seen.append((operation, path))
        self.watch.before(operation, path)
        return self.watch.after(operation, path, action())
