"""Manifests: the entries of a state, as Avro containers (PROTOCOL.md, "Entries").

Written from Arrow, read into Arrow: small ones record by record, large ones by DataFusion, which is imported
only then (docs/decisions/008-start-up.md). DataFusion reads a truncated container as an empty one and
ignores sync markers, so every container is checked block by block before it is decoded, and its rows are
counted after.
"""

import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import CorruptLogError, LogError, ObjectMissingError, StoreError, is_panic
from indextables.limits import cpu_count, records_limit, unpacked_limit
from indextables.log.format import avro
from indextables.log.format.avro import AvroError, check_schema
from indextables.log.format.avro_records import decode_data, encode_records, record_layout
from indextables.log.format.files import FILE_ENTRY, FILES, conform, partition_texts
from indextables.log.format.state_manifest import (
    BLOCKS_KEY,
    BlockInfo,
    Bounds,
    block_bounds,
    encode_index,
    read_index,
)
from indextables.records import dataclass
from indextables.schema.conversion import list_parts, map_of, map_parts, null_mask, select_offsets
from indextables.schema.type_info import TypeKind, kind_of
from indextables.schema.values import NULL_PARTITION, parse_values
from indextables.store import Store

# A block is the smallest unit that a reader of one partition fetches and decompresses.
BLOCK_ENTRIES = 2048
_BLOCK_BYTES = 4 * 1024 * 1024

# How many entries are encoded at a time; fewer if they are large.
_BATCH_ENTRIES = 4 * BLOCK_ENTRIES
_BATCH_BYTES = 64 * 1024 * 1024

# Up to this many entries are decoded record by record. Even for the maximum number of manifests of a state
# (20), that takes less time than importing DataFusion.
_SMALL_ENTRIES = 250

# This many bytes of a manifest are fetched first, to see which of its blocks are needed.
_HEAD_BYTES = 32 * 1024
# The record of a block takes about as much memory, and the bounds of each of its columns, too.
_BLOCK_INFO_BYTES = 300

KeepBlock = Callable[[Mapping[str, Bounds]], bool]


# --- writing ---------------------------------------------------------------------------------------


def encode_manifest(files: pa.Table, *, partition_columns: Sequence[str], codec: str, level: int) -> bytes:
    """The file of a manifest.

    Args:
        files: the entries (`log.format.files.FILES`), in the order in which they are to be written.
        partition_columns: the columns for which the blocks get bounds.
        codec: Avro's name of the codec: `zstandard`, `snappy` or `null`.
        level: the compression level of zstd, 1 to 22.

    Raises:
        LogError: an entry has no path, or the columns are not those of entries.
    """
    # With names, so that the values are checked even if the columns are those of `FILES`.
    files = conform(files, FILES.names)
    sync = avro.new_sync()
    blocks: list[bytes] = []
    counts: list[int] = []
    for batch in files.to_batches(max_chunksize=_batch_entries(files)):
        starts, records = record_layout(encode_records(FILE_ENTRY, _writable(batch)))
        for first, last in _cut(starts):
            data = records[starts[first] : starts[last]]
            blocks.append(avro.block_bytes(last - first, data, codec, level, sync))
            counts.append(last - first)
    cuts = [0, *np.cumsum(counts, dtype=np.int64).tolist()]
    bounds = block_bounds(files.column("partitionValues"), partition_columns, cuts)
    index = encode_index(map(BlockInfo.of, counts, blocks, bounds))
    header = avro.header_bytes(avro.schema_json(FILE_ENTRY), codec, {BLOCKS_KEY: index}, sync)
    return b"".join((header, *blocks))


def _batch_entries(files: pa.Table) -> int:
    entry_bytes: int = files.nbytes // max(files.num_rows, 1) + 1
    return min(max(_BATCH_BYTES // entry_bytes, 1), _BATCH_ENTRIES)


def _cut(starts: np.ndarray[tuple[int], np.dtype[np.int32]]) -> list[tuple[int, int]]:
    """The range of rows of each block: limited in entries and bytes, but at least one entry."""
    cuts: list[tuple[int, int]] = []
    first, rows = 0, len(starts) - 1
    while first < rows:
        reached = int(np.searchsorted(starts, int(starts[first]) + _BLOCK_BYTES, "right")) - 1
        last = min(max(reached, first + 1), first + BLOCK_ENTRIES, rows)
        cuts.append((first, last))
        first = last
    return cuts


def _writable(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The entries without nulls in maps and lists, which the Avro schema does not allow there."""
    columns = [_without_nulls(field, batch.column(field.name)) for field in FILES]
    return pa.RecordBatch.from_arrays(columns, schema=FILES)


def _without_nulls(field: pa.Field, array: pa.Array) -> pa.Array:
    if kind_of(field.type) is TypeKind.MAP:
        offsets, keys, items = map_parts(array)
        if not items.null_count:
            return array
        if field.name == "partitionValues":
            return map_of(offsets, keys, pc.fill_null(items, NULL_PARTITION), null_mask(array))
        valid = items.is_valid()
        offsets = select_offsets(offsets, valid.to_numpy(zero_copy_only=False))
        return map_of(offsets, keys.filter(valid), items.filter(valid), null_mask(array))
    if kind_of(field.type) is TypeKind.LIST:
        offsets, values = list_parts(array)
        if not values.null_count:
            return array
        valid = values.is_valid()
        offsets = select_offsets(offsets, valid.to_numpy(zero_copy_only=False))
        return pa.ListArray.from_arrays(pa.array(offsets), values.filter(valid), mask=null_mask(array))
    return array


# --- reading ---------------------------------------------------------------------------------------


def read_manifest(
    store: Store,
    path: str,
    *,
    entries: int | None,
    columns: Sequence[str] | None = None,
    keep_block: KeepBlock | None = None,
) -> pa.Table:
    """The entries of a manifest.

    Args:
        store: the store of the manifest.
        path: its path there.
        entries: how many entries it must have, if that is known.
        columns: only these columns of `log.format.files.FILES`; all of them if None.
        keep_block: given the bounds of a block, returns whether its entries are read; blocks without
            bounds are always read.

    Returns:
        The entries in their order, with the columns of `log.format.files.FILES` or those of the projection.

    Raises:
        CorruptLogError: the manifest is missing or damaged, or has another number of entries.
    """
    with _manifest_errors(store, path):
        start = None if keep_block is None else _read_start(store, path, entries)
        selection = None if start is None or keep_block is None else start.select(keep_block)
        return _read(store, path, entries, columns, start, selection)


# The numbers of the blocks that are read, in their order; None for all of them.
BlockSelection: TypeAlias = tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class ManifestStart:
    """The first bytes of a manifest, with at least its header, and the blocks that the header lists."""

    data: bytes
    header_size: int
    blocks: tuple[BlockInfo, ...]

    @property
    def nbytes(self) -> int:
        """The size in memory, by an estimate."""
        return len(self.data) + sum(_BLOCK_INFO_BYTES * (1 + len(block.bounds)) for block in self.blocks)

    def select(self, keep_block: KeepBlock) -> BlockSelection:
        """The numbers of the selected blocks; None if all are selected."""
        selection = tuple(number for number, block in enumerate(self.blocks) if keep_block(block.bounds))
        return None if len(selection) == len(self.blocks) else selection


def read_start(store: Store, path: str, *, entries: int) -> ManifestStart | None:
    """The start of a manifest; None if another engine wrote it, which lists no blocks.

    Raises:
        CorruptLogError: the manifest is missing or damaged, or has another number of entries.
    """
    with _manifest_errors(store, path):
        return _read_start(store, path, entries)


def read_blocks(
    store: Store, path: str, *, entries: int, start: ManifestStart | None, selection: BlockSelection
) -> pa.Table:
    """The entries of some blocks of a manifest.

    Raises:
        CorruptLogError: the manifest is missing or damaged, or has another number of entries.
    """
    with _manifest_errors(store, path):
        return _read(store, path, entries, None, start, selection)


@contextmanager
def _manifest_errors(store: Store, path: str) -> Iterator[None]:
    url = f"{store.url}/{path}"
    try:
        yield
    except ObjectMissingError:
        raise CorruptLogError(url, "the manifest is missing, though the state refers to it") from None
    except (AvroError, LogError) as error:
        raise CorruptLogError(url, f"the manifest cannot be read: {error}") from error


def _read(
    store: Store,
    path: str,
    entries: int | None,
    columns: Sequence[str] | None,
    start: ManifestStart | None,
    selection: BlockSelection,
) -> pa.Table:
    if start is not None and selection is not None:
        return _entries(*_splice(store, path, start, selection), columns)
    data = store.get(path)
    return _entries(data, _check(data, entries), columns)


def _read_start(store: Store, path: str, entries: int | None) -> ManifestStart | None:
    size = store.head(path).size
    data = store.get_range(path, 0, min(size, _HEAD_BYTES))
    data, header = _header(store, path, data, size)
    index = read_index(header)
    if index is None:
        return None
    if header.size + sum(block.size for block in index) != size:
        raise AvroError("it is shorter or longer than its list of blocks says")
    _check_count(sum(block.count for block in index), entries)
    return ManifestStart(data, header.size, tuple(index))


def _check(data: bytes, entries: int | None) -> int:
    """Check a whole container; returns the number of its records."""
    header = avro.read_header(data)
    blocks = avro.read_blocks(data, header)
    index = read_index(header)
    if index is not None:
        if [block.count for block in blocks] != [block.count for block in index]:
            raise AvroError("the header's list of blocks does not match the blocks")
        view = memoryview(data)
        for block, expected in zip(blocks, index, strict=True):
            expected.check(view[block.start : block.end])
    rows = sum(block.count for block in blocks)
    _check_count(rows, entries)
    return rows


def _check_count(rows: int, entries: int | None) -> None:
    if entries is not None and rows != entries:
        raise AvroError(f"it has {rows} entries, and the state counts {entries}")


def _header(store: Store, path: str, start: bytes, size: int) -> tuple[bytes, avro.Header]:
    """The start of the container, as much as the header needs, and the header."""
    while True:
        try:
            return start, avro.read_header(start)
        except avro.HeaderCutError:
            if len(start) == size:
                raise
        start += store.get_range(path, len(start), min(size, 4 * len(start)))


def _splice(store: Store, path: str, start: ManifestStart, selection: Sequence[int]) -> tuple[bytes, int]:
    """A container of some of the blocks, and its number of records.

    Blocks that were fetched with the start are not fetched again.
    """
    index = start.blocks
    offsets = [start.header_size]
    for block in index:
        offsets.append(offsets[-1] + block.size)
    here = [number for number in selection if offsets[number + 1] <= len(start.data)]
    there = selection[len(here) :]
    blocks = [start.data[offsets[number] : offsets[number + 1]] for number in here]
    if there:
        blocks += store.get_ranges(path, [(offsets[number], offsets[number + 1]) for number in there])
    for number, data in zip(selection, blocks, strict=True):
        index[number].check(data)
    header = start.data[: start.header_size]
    return b"".join((header, *blocks)), sum(index[number].count for number in selection)


def _entries(data: bytes, rows: int, columns: Sequence[str] | None) -> pa.Table:
    """Decode the records of a container, which the caller has checked."""
    if rows == 0:
        return conform(FILES.empty_table(), columns)
    header = avro.read_header(data)
    if rows <= _SMALL_ENTRIES:
        table = _decode_records(header.schema, _unpacked_blocks(data, header), columns)
    else:
        _PROCESS.check()
        # Decoding takes several times the memory of the entries.
        with _PROCESS.decoding:
            table = _read_avro(_join_blocks(header, _unpacked_blocks(data, header)), rows, columns)
    if table.num_rows != rows:
        raise AvroError(f"{table.num_rows} of its {rows} entries could be read")
    return conform(table, columns)


def _unpacked_blocks(data: bytes, header: avro.Header) -> list[tuple[int, bytes]]:
    """Decompress all blocks within limits; returns the number of records and the bytes of each."""
    check_schema(header.schema)
    view = memoryview(data)
    blocks = avro.read_blocks(data, header)
    if sum(block.count for block in blocks) > records_limit(len(data)):
        raise AvroError(f"it announces more than {records_limit(len(data))} entries, the limit for its size")
    room = unpacked_limit(len(data))
    unpacked: list[tuple[int, bytes]] = []
    for block in blocks:
        records = avro.unpack(view[block.data_start : block.data_end], header.codec, room)
        unpacked.append((block.count, records))
        room -= len(records)
        if room < 0:
            raise AvroError(f"its blocks hold more than {unpacked_limit(len(data))} bytes")
    return unpacked


def _decode_records(
    schema: avro.Schema, blocks: Sequence[tuple[int, bytes]], columns: Sequence[str] | None
) -> pa.Table:
    """Decode records one by one."""
    records = list(chain.from_iterable(decode_data(schema, data, count) for count, data in blocks))
    present = {field["name"] for field in schema["fields"]}
    names = [name for name in (FILES.names if columns is None else columns) if name in present]
    # One column at least, so that rows are counted.
    names = names or [schema["fields"][0]["name"]]
    try:
        return pa.table({name: _column([record[name] for record in records]) for name in names})
    except pa.ArrowException as error:
        raise AvroError(f"its records do not fit into columns ({error})") from error


def _column(values: list[Any]) -> pa.Array:
    maps = [value for value in values if isinstance(value, dict)]
    if not maps:
        return pa.array(values)
    items = pa.array(list(chain.from_iterable(value.values() for value in maps)))
    kind = pa.map_(pa.string(), items.type if len(items) else pa.string())
    return pa.array([None if value is None else list(value.items()) for value in values], kind)


def _join_blocks(header: avro.Header, blocks: Sequence[tuple[int, bytes]]) -> bytes:
    """Return a container with the records of all blocks in one uncompressed block.

    DataFusion hangs on a block that has bytes left after the announced number of records. So the block
    announces more records than its bytes can hold, and the caller reads the expected number.
    """
    records = [data for _, data in blocks]
    count, size = sum(count for count, _ in blocks), sum(map(len, records))
    start = (avro.plain_header(header), avro.long_bytes(count + size + 1), avro.long_bytes(size))
    return b"".join((*start, *records, header.sync))


def _read_avro(data: bytes, rows: int, columns: Sequence[str] | None) -> pa.Table:
    """The first `rows` records of a container, in one batch."""
    from datafusion import SessionConfig, SessionContext  # noqa: PLC0415 - it takes half a second to import

    # DataFusion reads files only, and only with this suffix.
    with _spool(data) as path:
        config = SessionConfig().with_target_partitions(1).with_batch_size(rows)
        try:
            frame = SessionContext(config).read_avro(path)
            if columns is not None:
                present = set(frame.schema().names)
                # One column at least, so that rows are counted.
                selection = [name for name in columns if name in present] or frame.schema().names[:1]
                frame = frame.select(*(f'"{name}"' for name in selection))
            first = [batch.to_pyarrow() for batch in islice(frame.execute_stream(), 1)]
            return pa.Table.from_batches(first, None if first else frame.schema())
        # A panic of the Rust library is not an Exception.
        except BaseException as error:
            if isinstance(error, Exception) or is_panic(error):
                raise AvroError(f"its blocks cannot be decoded ({error})") from error
            raise


@contextmanager
def _spool(data: bytes) -> Iterator[str]:
    """A temporary file with the data; deleted at the end of the `with` block."""
    try:
        file = tempfile.NamedTemporaryFile(prefix="indextables-", suffix=".avro")  # noqa: SIM115 - closed below
    except OSError as error:
        raise _no_room(error) from error
    with file:
        try:
            file.write(data)
            file.flush()
        except OSError as error:
            raise _no_room(error) from error
        yield file.name


def _no_room(error: OSError) -> StoreError:
    return StoreError(
        f"a manifest cannot be unpacked in the temporary folder ({error}); make room there, or set TMPDIR to "
        "a folder that can be written"
    )


class _Process:
    """The process that runs DataFusion's threads. A forked child has none, and a read in it would hang."""

    def __init__(self) -> None:
        self.pid: int | None = None
        self.reset()

    def reset(self) -> None:
        """Reset in a forked child: a thread of the parent may be decoding."""
        self.decoding = threading.BoundedSemaphore(cpu_count())

    def check(self) -> None:
        """Refuse to read in a forked child of a process that has read a manifest."""
        if self.pid is None:
            self.pid = os.getpid()
        elif self.pid != os.getpid():
            raise LogError(
                "this process was forked from one that has read a manifest, and cannot read any itself; "
                "start it with the spawn or forkserver method, or fork before the first read"
            )


_PROCESS = _Process()
os.register_at_fork(after_in_child=_PROCESS.reset)


# Texts that other engines compare as numbers.
_NUMBER_LIKE = r"^[+-]?(\d+\.?\d*([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?|(?i:inf|infinity|nan))$"


def sorted_by_partition(entries: pa.Table, schema: pa.Schema, columns: Sequence[str]) -> pa.Table:
    """Entries sorted by their partition values, compared as the columns' types; nulls last."""
    if not columns or entries.num_rows < 2:
        return entries
    keys = pa.table({f"k{i}": _partition_column(entries, schema, name) for i, name in enumerate(columns)})
    order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names])
    return entries.take(order)


def bounds_of(entries: pa.Table, schema: pa.Schema, columns: Sequence[str]) -> dict[str, Bounds]:
    """The smallest and largest value of each partition column, unless other engines could misread them.

    Other engines compare bounds as numbers when both look like numbers, whatever the column's type. For
    strings of which only some look like numbers, no bounds are right for them and for us, so there are none.
    """
    bounds: dict[str, Bounds] = {}
    for name in columns:
        texts = partition_texts(entries, name).unique()
        values, unreadable = parse_values(texts, schema.field(name).type, partition=True)
        if unreadable.any():
            continue  # a value that is not of the column's type has no place in the order
        if values.null_count == len(values):
            bounds[name] = Bounds(None, None)
            continue
        order = pc.sort_indices(values)  # nulls last
        low = texts[order[0].as_py()].as_py()
        high = texts[order[len(values) - values.null_count - 1].as_py()].as_py()
        if low == high or not _mistakable(texts, schema.field(name).type):
            bounds[name] = Bounds(low, high)
    return bounds


def _mistakable(texts: pa.Array, kind: pa.DataType) -> bool:
    if kind_of(kind) is not TypeKind.STRING:
        return False
    return bool(pc.any(pc.match_substring_regex(texts, _NUMBER_LIKE)).as_py())


def _partition_column(entries: pa.Table, schema: pa.Schema, name: str) -> pa.Array:
    """The partition values of one column, each distinct text parsed once; null if it is not of the type."""
    encoded = partition_texts(entries, name).dictionary_encode()
    distinct = parse_values(encoded.dictionary, schema.field(name).type, partition=True)
    return distinct.values.take(encoded.indices)
