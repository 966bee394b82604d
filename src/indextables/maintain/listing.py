"""Lists the split files in a table's folder, selects splits by partition, and checks that files exist."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import PredicateError, SchemaError
from indextables.log.format.names import LOG_FOLDER
from indextables.log.snapshot import Snapshot
from indextables.predicate import Predicate, columns_of, evaluate, has_search, parse_condition
from indextables.schema.values import parse_values
from indextables.store import ObjectInfo, Store

SPLIT = ".split"
_CHECKSUM = ".crc"


def split_of(path: str) -> str | None:
    """The path of the split for a split file or its Hadoop checksum file; None for other files.

    >>> split_of("day=1/.a.split.crc"), split_of("day=1/a.split"), split_of("day=1/a.txt")
    ('day=1/a.split', 'day=1/a.split', None)
    """
    if path.endswith(SPLIT):
        return path
    if not path.endswith(SPLIT + _CHECKSUM):
        return None
    folder, slash, name = path.removesuffix(_CHECKSUM).rpartition("/")
    return f"{folder}{slash}{name.removeprefix('.')}"


class TableListing:
    """Walks a table's folder, but not into other tables inside it (PROTOCOL.md, "Tables inside tables").

    Any folder that holds a log is another table, whatever its name: `tenant=acme` may be a partition or a
    table. A listing is sorted, so the log of a folder is seen before most of its other files; only for
    names that sort before it, a request is sent. Only the folders above the current file are in memory.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        # The folders above the current file, outermost first: whether each holds a log; None: not known yet.
        self._above: list[tuple[str, bool | None]] = []

    def files(self) -> Iterator[ObjectInfo]:
        """Every split file of this table, and Hadoop's checksum files of splits, sorted by path."""
        for info in self._store.list():
            if info.path.startswith(f"{LOG_FOLDER}/"):
                continue
            self._descend(info.path)
            if split_of(info.path) is None or self._in_another_table(info.path):
                continue
            # The target of a symbolic link on the local disk does not belong to the table.
            if self._store.is_link(info.path):
                continue
            yield info

    def _descend(self, path: str) -> None:
        """Set the current folders for the next path of the listing."""
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
        for number, (folder, has_log) in enumerate(self._above):
            is_table = has_log
            if is_table is None:
                # A path that sorts after the folder's log shows that there is none; before it, a request is
                # sent.
                behind = path[len(folder) + 1 :] > f"{LOG_FOLDER}/"
                is_table = not behind and self._is_table(folder)
                self._above[number] = (folder, is_table)
            if is_table:
                return True
        return False

    def _is_table(self, folder: str) -> bool:
        return next(self._store.list(f"{folder}/{LOG_FOLDER}"), None) is not None


# Up to so many paths are checked one by one; for more, one listing is cheaper.
_FEW = 500
_AT_ONCE = 16


def missing_paths(store: Store, paths: Sequence[str]) -> list[str]:
    """The paths without a file, in their order."""
    if len(paths) <= _FEW:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            there = list(pool.map(store.exists, paths))
        return [path for path, exists in zip(paths, there, strict=True) if not exists]
    unlisted = set(paths)
    for info in TableListing(store).files():
        unlisted.discard(info.path)
    # That listing omits names that are not splits, and splits inside other tables.
    return [path for path in paths if path in unlisted and not store.exists(path)]


def partition_condition(snapshot: Snapshot, where: str) -> Predicate:
    """Parse a condition, and refuse it unless it uses partition columns only."""
    return check_partition_condition(snapshot, parse_condition(where, snapshot.schema))


def check_partition_condition(snapshot: Snapshot, predicate: Predicate) -> Predicate:
    """Refuse a condition that does not depend on partition columns alone."""
    own = snapshot.partition_columns
    if not own:
        raise PredicateError(
            f"the table at {snapshot.url} is not partitioned, so WHERE cannot select partitions; omit it"
        )
    names = [column.name for column in columns_of(predicate)]
    other = [name for name in names if name.lower() not in {column.lower() for column in own}]
    if other or has_search(predicate):
        raise PredicateError(
            f"{other[0] if other else 'a search'} is not decided by a partition; WHERE takes conditions on "
            f"the partition columns only: {', '.join(own)}"
        )
    if not names:
        raise PredicateError(f"the condition names no partition column; they are: {', '.join(own)}")
    return predicate


def in_partitions(snapshot: Snapshot, where: Predicate | None) -> pa.Table:
    """The live splits of the partitions for which the condition is true."""
    files = snapshot.files(where)
    if where is None or not files.num_rows:
        return files
    return files.filter(evaluate(where, typed_values(files, snapshot.schema, snapshot.partition_columns)))


def typed_values(files: pa.Table, schema: pa.Schema, columns: Sequence[str]) -> pa.Table:
    """The partition values of each split, typed."""
    arrays = []
    for name in columns:
        texts = pc.map_lookup(files["partitionValues"], pa.scalar(name), "first")
        texts = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
        parsed = parse_values(texts, schema.field(name).type, partition=True)
        if parsed.unreadable.any():
            row = int(parsed.unreadable.argmax())
            raise SchemaError(
                f"the partition value '{texts[row]}' of {name} in {files['path'][row]} is not a "
                f"{schema.field(name).type}, so the condition cannot be evaluated; rewrite that partition"
            )
        arrays.append(parsed.values)
    return pa.table(arrays, schema=pa.schema([schema.field(name) for name in columns]))


def distinct_partitions(files: pa.Table) -> int:
    """How many partitions the splits are in."""
    return len({tuple(entry or ()) for entry in files["partitionValues"].to_pylist()})
