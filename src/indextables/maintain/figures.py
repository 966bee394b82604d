"""The files of a table: a listing of its folder, the splits of partitions, and figures of splits and log."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import PredicateError, SplitError
from indextables.log.checkpoint import needs_compaction
from indextables.log.format.actions import Protocol
from indextables.log.format.checkpoint_files import read_pointer
from indextables.log.format.files import partition_values
from indextables.log.format.names import LOG_FOLDER
from indextables.log.snapshot import Snapshot
from indextables.options import Options
from indextables.predicate import Predicate, columns_of, evaluate, has_search, parse_condition
from indextables.records import dataclass
from indextables.schema.type_info import NESTED, kind_of
from indextables.schema.values import null_counts, parse_values
from indextables.split.checksum import crc32
from indextables.split.footer import BLOCK_BYTES, META, PARQUET_TAG, Footer, IndexFile, read_footer
from indextables.split.mapping import SYSTEM_FIELDS
from indextables.split.quickwit import read_bundle
from indextables.split.tantivy_layout import (
    FILES_BY_FIELD,
    INDEX_COMPONENTS,
    MAX_DIRECTORY_BYTES,
    column_of,
    field_names,
    field_ranges,
)
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


# Up to this many paths are checked one by one; for more, one listing is cheaper.
_FEW = 500
_CHECKS_AT_ONCE = 16


def missing_paths(store: Store, paths: Sequence[str]) -> list[str]:
    """The paths without a file, in their order."""
    if len(paths) <= _FEW:
        with ThreadPoolExecutor(_CHECKS_AT_ONCE) as pool:
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
    remedy = "the condition cannot be evaluated: rewrite that partition"
    values = partition_values(files, schema, columns, remedy=remedy)
    return pa.table(list(values.values()), schema=pa.schema([schema.field(name) for name in columns]))


def distinct_partitions(files: pa.Table) -> int:
    """How many partitions the splits are in."""
    return len({tuple(entry or ()) for entry in files["partitionValues"].to_pylist()})


_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Component:
    """A component of a split: its kind, its column (None: all columns), and its uncompressed size."""

    kind: str
    column: str | None
    size: int


def components(store: Store, footer: Footer) -> list[Component]:
    """The components of a split: those of the index, by column where the files allow that, then the rows.

    Raises SplitError, naming the split, if its index is damaged.
    """
    try:
        return _components(store, footer)
    except SplitError as error:
        raise SplitError(f"{store.url}/{footer.path}: {error}") from error


def _components(store: Store, footer: Footer) -> list[Component]:
    sizes: dict[tuple[str, str | None], int] = {}
    fields = _fields(store, footer)
    for file in footer.index_files:
        suffix = Path(file.name).suffix
        kind = next((KINDS[part] for part, suffixes in INDEX_COMPONENTS.items() if suffix in suffixes), None)
        if kind is None:
            continue
        locations = (
            field_ranges(suffix, _read_tail(store, footer, file), file.size, fields)
            if suffix in FILES_BY_FIELD
            else []
        )
        for location in locations:
            key = (kind, column_of(location.field))
            sizes[key] = sizes.get(key, 0) + location.end - location.start
        if not locations:
            sizes[kind, None] = sizes.get((kind, None), 0) + file.size
    parts = [Component(kind, column, size) for (kind, column), size in sorted(sizes.items(), key=str)]
    groups = (footer.parquet.row_group(n) for n in range(footer.parquet.num_row_groups))
    rows = sum(g.column(c).total_compressed_size for g in groups for c in range(g.num_columns))
    return [*parts, Component(ROWS, None, rows)]


def _fields(store: Store, footer: Footer) -> list[str]:
    meta = next((f for f in footer.index_files if f.name == META), None)
    if meta is None:
        raise SplitError(f"its index has no {META}; the split is damaged")
    return field_names(_read_tail(store, footer, meta))


def _read_tail(store: Store, footer: Footer, file: IndexFile) -> bytes:
    """The last bytes of an index file, decompressed; they hold the directory of its fields."""
    piece = file.pieces[-1]
    stop = piece.offset + piece.length
    size = piece.size - BLOCK_BYTES * max(0, len(piece.blocks) - 1)
    # The last block alone may be too short for the directory.
    last = piece.blocks[-2 if size < MAX_DIRECTORY_BYTES else -1 :]
    length = sum(last) if last else min(piece.length, BLOCK_BYTES)
    if piece.length <= _WHOLE_BYTES:
        whole = store.get_range(footer.path, piece.offset, stop)
        if crc32(whole) != piece.crc32:
            raise SplitError(f"the index file {file.name} is damaged (its checksum differs)")
        data = whole[piece.length - length :]
    else:
        data = store.get_range(footer.path, stop - length, stop)
    if not last:
        return data
    *before, _ = last
    start = sum(before)
    return b"".join(
        [*(_decompress(data[:start], BLOCK_BYTES) for _ in before), _decompress(data[start:], size)]
    )


def _decompress(data: bytes, size: int) -> bytes:
    try:
        unpacked: bytes = pa.Codec("zstd").decompress(data, decompressed_size=size, asbytes=True)
    except (pa.ArrowException, OSError) as error:
        raise SplitError(f"an index file cannot be unpacked ({error}); the split is damaged") from error
    return unpacked


@dataclass(frozen=True, slots=True)
class StateFigures:
    """The figures of the state that a version starts from; `format` is "none" without a state."""

    format: str
    version: int | None
    num_files: int
    num_manifests: int
    num_tombstones: int
    tombstone_ratio: float
    total_bytes: int
    needs_compaction: bool
    created_ms: int | None
    protocol: Protocol
    skipped_splits: int


def state_figures(snapshot: Snapshot, options: Options) -> StateFigures:
    """The figures of the newest state; without a state, those of the table."""
    base, state = snapshot.base, snapshot.base.state
    kind, files, total, created = "none", snapshot.num_files, snapshot.total_bytes, None
    manifests = tombstones = 0
    if state is not None:
        kind, files, total, created = "avro-state", state.num_files, state.total_bytes, state.created_at
        manifests, tombstones = len(state.manifests), len(state.tombstones)
    elif base.version >= 0:
        kind = "json-multipart" if _has_parts(snapshot, base.version) else "json"
        pointer = read_pointer(snapshot.log)
        if pointer is not None and pointer.version == base.version and not pointer.is_state:
            created = pointer.created_time or None
    return StateFigures(
        format=kind,
        version=None if kind == "none" else base.version,
        num_files=files,
        num_manifests=manifests,
        num_tombstones=tombstones,
        tombstone_ratio=tombstones / max(files, 1),
        total_bytes=total,
        needs_compaction=needs_compaction(snapshot, options) if state is not None else kind != "none",
        created_ms=created,
        protocol=snapshot.protocol,
        skipped_splits=len(snapshot.skips),
    )


def _has_parts(snapshot: Snapshot, version: int) -> bool:
    start = f"{version:020d}.checkpoint."
    after = (info.path for info in snapshot.log.list(after=start))
    return next((path.count(".") > 2 for path in after if path.startswith(start)), False)


@dataclass(frozen=True, slots=True)
class ColumnSkipping:
    """The statistics of a column in the log, by which splits can be skipped."""

    column: str
    data_type: str
    splits: int
    with_bounds: int
    least: str | None
    greatest: str | None
    nulls: int | None


def column_skipping(snapshot: Snapshot) -> list[ColumnSkipping]:
    """For each column: the number of splits with bounds, the bounds of all splits, and the nulls if known."""
    files = snapshot.files()
    partitions = {name.lower() for name in snapshot.partition_columns}
    stats = [null_counts(text) for text in files["stats"].to_pylist()]
    return [
        _column(files, field, stats, partition=field.name.lower() in partitions) for field in snapshot.schema
    ]


def _column(
    files: pa.Table, field: pa.Field, stats: Sequence[Mapping[str, int]], *, partition: bool
) -> ColumnSkipping:
    sides = ("partitionValues", "partitionValues") if partition else ("minValues", "maxValues")
    bounds = [_bound(files, side, field, partition=partition) for side in sides]
    nulls: int | None = None
    if not partition:
        counts = [entry.get(field.name) for entry in stats]
        nulls = sum(n for n in counts if n is not None) if counts and None not in counts else None
    return ColumnSkipping(
        field.name, str(field.type), files.num_rows, bounds[0][2], bounds[0][0], bounds[1][1], nulls
    )


def _bound(
    files: pa.Table, side: str, field: pa.Field, *, partition: bool
) -> tuple[str | None, str | None, int]:
    """The least and the greatest of the lower or upper bounds, as texts of the log, and their number."""
    texts = pc.map_lookup(files[side], pa.scalar(field.name), "first")
    texts = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    present = len(texts) - texts.null_count
    values = parse_values(texts, field.type, partition=partition).values if present else texts
    if values.null_count == len(values) or kind_of(values.type) in NESTED:
        return None, None, present
    order = pc.array_sort_indices(values, null_placement="at_end")
    last = order[len(values) - values.null_count - 1]
    return texts[order[0].as_py()].as_py(), texts[last.as_py()].as_py(), present


@dataclass(frozen=True, slots=True)
class SplitComponents:
    """A split and its parts."""

    path: str
    partition_values: Mapping[str, str | None]
    parts: tuple[Component, ...]


def split_components(
    snapshot: Snapshot, store: Store, where: Predicate | None = None
) -> Iterator[SplitComponents]:
    """The parts of the live splits, without internal fields; each split costs some small reads."""
    files = in_partitions(snapshot, where)
    columns = (files[name].to_pylist() for name in ("path", "size", "partitionValues", "splitTags"))
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield from pool.map(lambda row: _parts(store, *row), zip(*columns, strict=True))


def _parts(
    store: Store, path: str, size: int, values: list[tuple[str, str | None]], tags: list[str] | None
) -> SplitComponents:
    if PARQUET_TAG in (tags or ()):
        all_parts = components(store, read_footer(store, path, size))
        parts = [part for part in all_parts if part.column not in SYSTEM_FIELDS]
    else:
        files = read_bundle(store, path, size).files.items()
        suffixes = {suffix: KINDS[part] for part, all_ in INDEX_COMPONENTS.items() for suffix in all_}
        parts = [
            Component("store" if suffixes[suffix] == "docstore" else suffixes[suffix], None, end - start)
            for name, (start, end) in sorted(files)
            if (suffix := Path(name).suffix) in suffixes
        ]
    return SplitComponents(path, dict(values or ()), tuple(parts))


# The names of components in reports.
KINDS = {
    "TERM": "term",
    "FASTFIELD": "fastfield",
    "POSTINGS": "postings",
    "POSITIONS": "positions",
    "FIELDNORM": "fieldnorm",
    "STORE": "docstore",
}
ROWS = "store"
# Of larger pieces only the end is read; then the checksum, which covers the whole piece, is not compared.
_WHOLE_BYTES = 8 << 20
