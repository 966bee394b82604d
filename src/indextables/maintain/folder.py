"""The files of a table's folder that are splits, as a listing shows them."""

from collections.abc import Iterator

from indextables.log.format.names import LOG_FOLDER
from indextables.store import ObjectInfo, Store

SPLIT = ".split"
_CHECKSUM = ".crc"


def split_of(path: str) -> str | None:
    """The split that a file is, or is the checksum of (Hadoop's, beside it); None for other files.

    >>> split_of("day=1/.a.split.crc"), split_of("day=1/a.split"), split_of("day=1/a.txt")
    ('day=1/a.split', 'day=1/a.split', None)
    """
    if path.endswith(SPLIT):
        return path
    if not path.endswith(SPLIT + _CHECKSUM):
        return None
    folder, slash, name = path.removesuffix(_CHECKSUM).rpartition("/")
    return f"{folder}{slash}{name.removeprefix('.')}"


class OwnFolder:
    """Walks a table's folder, but not into other tables that lie inside it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._tables: dict[str, bool] = {}

    def files(self) -> Iterator[ObjectInfo]:
        """Every split and checksum of a split that is this table's, sorted by path, one after the other."""
        for info in self._store.list():
            if info.path.startswith(f"{LOG_FOLDER}/") or split_of(info.path) is None:
                continue
            if not self._in_another_table(info.path.rpartition("/")[0]):
                yield info

    def _in_another_table(self, folder: str) -> bool:
        if not folder:
            return False
        if folder not in self._tables:
            parent, _, name = folder.rpartition("/")
            # The folder of a partition is no table, and there may be a hundred thousand of them.
            own = "=" not in name and self._is_table(folder)
            self._tables[folder] = own or self._in_another_table(parent)
        return self._tables[folder]

    def _is_table(self, folder: str) -> bool:
        return next(self._store.list(f"{folder}/{LOG_FOLDER}"), None) is not None
