"""Figures of a table from its log and the footers of its splits: DESCRIBE, components and partitions."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import SplitError
from indextables.log.checkpoint import needs_compaction
from indextables.log.format.actions import Protocol
from indextables.log.format.checkpoint_files import read_pointer
from indextables.log.snapshot import Snapshot
from indextables.maintain.listing import in_partitions
from indextables.options import Options
from indextables.predicate import Predicate
from indextables.records import dataclass
from indextables.schema.statistics import null_counts
from indextables.schema.type_info import NESTED, kind_of
from indextables.schema.values import parse_values
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
from indextables.store import Store

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
