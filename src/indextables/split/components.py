"""The components of a split by kind and column, with their sizes."""

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from indextables.errors import SplitError
from indextables.split.checksum import crc32
from indextables.split.footer import BLOCK_BYTES, META, Footer, IndexFile
from indextables.split.tantivy_layout import (
    FILES_BY_FIELD,
    INDEX_COMPONENTS,
    MAX_DIRECTORY_BYTES,
    column_of,
    field_names,
    field_ranges,
)
from indextables.store import Store

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
# Of larger pieces only the end is read. Its checksum cannot be compared then, as it covers the whole piece.
_WHOLE_BYTES = 8 << 20


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
        found = (
            field_ranges(suffix, _read_tail(store, footer, file), file.size, fields)
            if suffix in FILES_BY_FIELD
            else []
        )
        for stretch in found:
            key = (kind, column_of(stretch.field))
            sizes[key] = sizes.get(key, 0) + stretch.end - stretch.start
        if not found:
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
