"""Resolves the recorded paths of a source's files to stores.

A log may be malicious. A relative path must be below the table; an absolute path may be anywhere in the same
bucket, container or disk (shallow clones and Iceberg tables need that), and in other stores only if the
caller allowed them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

from indextables.errors import SourceError
from indextables.store import Store, open_store
from indextables.store.location import check, locate

_DISK = "file://"


class Place(NamedTuple):
    """A file: its store, its path in that store, and its URL."""

    store: Store
    path: str
    url: str


class Locations:
    """The table's folder, and the other locations that its files may have."""

    def __init__(
        self,
        url: str,
        open_base: Callable[[str], Store],
        *,
        relocate: Mapping[str, str] | None = None,
        allowed: Sequence[str] = (),
    ) -> None:
        """Open the place of a table.

        `open_base` opens the store of a bucket, container or disk. `relocate` maps prefixes of recorded
        paths to where those files are now; `allowed` are URLs of other buckets, containers or folders that
        recorded paths may refer to.
        """
        place = locate(url)
        self.relocate = dict(relocate or {})
        self._root = place.root
        self._bases: dict[str, tuple[Store, tuple[str, ...]]] = {}
        for each in [place, *(locate(target) for target in self.relocate.values())]:
            self._add(each.base, "", open_base)
        for text in allowed:
            each = locate(text)
            self._add(each.base, each.root, open_base)
        self._base = place.base
        self.url = place.url

    def _add(self, base: str, root: str, open_base: Callable[[str], Store]) -> None:
        store, roots = self._bases.get(base) or (open_base(f"{base}/"), ())
        self._bases[base] = store, (*roots, root)

    @property
    def store(self) -> Store:
        """The store, rooted at the table's folder."""
        store, _ = self._bases[self._base]
        return store.at(self._root) if self._root else store

    def resolve(self, recorded: str, *, encoded: bool) -> Place:
        """The file at a recorded path.

        `encoded` means that relative paths, and paths of URLs, are percent-encoded.
        """
        for old, new in self.relocate.items():
            if recorded == old or recorded.startswith(old.rstrip("/") + "/"):
                recorded = new.rstrip("/") + recorded[len(old.rstrip("/")) :]
                break
        if ":/" not in recorded.split("?", 1)[0][:64] and not recorded.startswith("/"):
            path = check(unquote(recorded, errors="strict") if encoded else recorded)
            path = f"{self._root}/{path}" if self._root else path
            return Place(self._bases[self._base][0], path, f"{self._base}/{path}")
        text = unquote(recorded, errors="strict") if encoded else recorded
        if ".." in text.split("/"):
            raise SourceError(f"the table at {self.url} refers to {text!r}; a path with '..' is not followed")
        place = locate(text)
        store = self._bases.get(place.base)
        if store is None or not any(
            not root or place.root == root or place.root.startswith(f"{root}/") for root in store[1]
        ):
            raise SourceError(
                f"the table at {self.url} refers to {place.url}, which lies in another store; allow that "
                "location for this source if it is meant to be read"
            )
        return Place(store[0], place.root, place.url)

    def __getstate__(self) -> dict[str, Any]:
        # Handles are pickled without secrets; the local disk needs none, and its root has no URL.
        bases = {
            base: (None if base == _DISK else store, roots) for base, (store, roots) in self._bases.items()
        }
        return {**self.__dict__, "_bases": bases}

    def __setstate__(self, state: dict[str, Any]) -> None:
        bases = {base: (store or open_store("/"), roots) for base, (store, roots) in state["_bases"].items()}
        self.__dict__.update(state, _bases=bases)
