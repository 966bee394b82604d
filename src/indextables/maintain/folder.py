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
    """Walks a table's folder, but not into other tables inside it (PROTOCOL.md, "Tables inside tables").

    Any folder that holds a log is another table, whatever its name: `tenant=acme` may be a partition or a
    table. A listing is sorted, so the log of a folder is seen before most of its other files; only for
    names that sort before it, storage is asked. Only the folders above the current file are remembered.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        # The folders above the current file, outermost first: whether each holds a log; None: not known yet.
        self._above: list[tuple[str, bool | None]] = []

    def files(self) -> Iterator[ObjectInfo]:
        """Every split and checksum of a split that is this table's, sorted by path, one after the other."""
        for info in self._store.list():
            if info.path.startswith(f"{LOG_FOLDER}/"):
                continue
            self._descend(info.path)
            if split_of(info.path) is None or self._in_another_table(info.path):
                continue
            # What a symbolic link of the local disk leads to belongs to somebody else.
            if self._store.is_link(info.path):
                continue
            yield info

    def _descend(self, path: str) -> None:
        """Learn from the next path of the listing which folders it lies in."""
        while self._above and not path.startswith(self._above[-1][0] + "/"):
            self._above.pop()
        start = len(self._above[-1][0]) + 1 if self._above else 0
        while (end := path.find("/", start)) >= 0:
            if path[start:end] == LOG_FOLDER:
                if self._above:
                    self._above[-1] = (self._above[-1][0], True)
                return
            self._above.append((path[:end], None))
            start = end + 1

    def _in_another_table(self, path: str) -> bool:
        for number, (folder, held) in enumerate(self._above):
            known = held
            if known is None:
                # Behind the place where its log would be listed, there is none; before it, storage is asked.
                behind = path[len(folder) + 1 :] > f"{LOG_FOLDER}/"
                known = not behind and self._is_table(folder)
                self._above[number] = (folder, known)
            if known:
                return True
        return False

    def _is_table(self, folder: str) -> bool:
        return next(self._store.list(f"{folder}/{LOG_FOLDER}"), None) is not None
