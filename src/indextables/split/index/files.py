"""The files of a Tantivy index: packed into a split by field, unpacked on demand, and merged by segment."""

import json
import mmap
import shutil
import tempfile
import zlib
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import tantivy

from indextables.errors import SplitError
from indextables.limits import ByteLimit, cpu_count
from indextables.options import Options
from indextables.options.writing import TEMP_DIRECTORY
from indextables.records import dataclass
from indextables.split.footer import BLOCK_BYTES, META, Footer, IndexFile, Piece, read_ranges
from indextables.split.index.cache_entry import CachedPiece
from indextables.split.tantivy_layout import (
    DICTIONARY_SUFFIX,
    FILES_BY_FIELD,
    POSITIONS_SUFFIX,
    POSTINGS_SUFFIX,
    STORE_SUFFIX,
    TOKENS_BYTES,
    field_names,
    field_ranges,
)
from indextables.store import Store

# Soon after an index was opened, a thread of Tantivy's reader creates a lock file in its folder, which may
# happen while the folder is being removed.
_ATTEMPTS = 3
# From this size on, the bytes of a field in a file are a piece; smaller ones belong to the shared piece.
PIECE_BYTES = 64 << 10
# The postings and positions of a field are cut into pieces of this size, and into at most this many.
TERM_PIECE_BYTES = 64 << 10
_MAX_TERM_PIECES = 256
# Term dictionaries of up to this many bytes come last in the split, so that they are read with its footer.
_MAX_LAST_DICTIONARIES = 128 << 10
# A piece is compressed if that saves at least 2%.
_MAX_PACKED_RATIO = 0.98
# The stored bytes of one read: adjacent pieces, or blocks of a large piece.
_READ_BYTES = 8 << 20
_AT_ONCE = min(cpu_count(), 4)
# Requests to an object store mostly wait, so more of them than processors run in parallel.
_REQUESTS_AT_ONCE = 8
# The stored bytes of indexes that all threads together have in memory while they fetch them.
_fetching = ByteLimit(128 << 20)
# Below this many bytes, threads cost more than they save.
_MIN_BYTES_FOR_THREADS = 1 << 20
_MANAGED = ".managed.json"
# Tantivy's merge policy merges segments of similar size once there are this many.
_MERGE_FACTOR = 8
# A merge uses one thread and writes one segment; two merges at once are a compromise.
_MERGES_AT_ONCE = 2


def temporary_folder(options: Options) -> Path:
    """Create a temporary folder for an index."""
    root = options.get(TEMP_DIRECTORY)
    try:
        return Path(tempfile.mkdtemp(prefix="indextables-", dir=root))
    except OSError as error:
        raise SplitError(
            f"no temporary folder can be made in {root or tempfile.gettempdir()} ({error.strerror}); "
            f"set spark.indextables.{TEMP_DIRECTORY.key} to a folder with room"
        ) from error


def remove_folder(folder: Path) -> None:
    """Remove a folder and its content; errors are ignored."""
    for _ in range(_ATTEMPTS):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return


def committed_files(folder: Path) -> list[Path]:
    """The files that belong to the index's last commit, its `meta.json` first."""
    meta = json.loads((folder / META).read_text("utf-8"))
    segments = {segment["segment_id"].replace("-", "") for segment in meta["segments"]}
    files = sorted(path for path in folder.iterdir() if path.name.partition(".")[0] in segments)
    return [folder / META, *files]


def pack(folder: Path, sink: Any, level: int) -> list[IndexFile]:  # noqa: ANN401 - untyped library
    """Append the index in a folder to an Arrow sink, in bounded memory; returns the pieces of each file."""
    codec = pa.Codec("zstd", compression_level=level)
    _compact_meta(folder)
    fields = field_names((folder / META).read_bytes())
    places: dict[str | None, int] = {None: -1, **{name: number for number, name in enumerate(fields)}}
    paths = committed_files(folder)
    cuts = [cut for path in paths for cut in _file_ranges(path, fields)]
    dictionaries = [cut for cut in cuts if cut.is_of_dictionary]
    are_small = sum(cut.stop - cut.start for cut in dictionaries) <= _MAX_LAST_DICTIONARIES

    # Pieces that are read together are adjacent: those of every search, then field by field, positions last.
    # Small dictionaries lie behind them, next to the term filters.
    def order(cut: _FileRange) -> tuple[bool, bool, int]:
        return are_small and cut.is_of_dictionary, cut.is_positions, places.get(cut.field, len(fields))

    cuts.sort(key=order)
    packed: dict[str, list[Piece]] = {}
    for cut in cuts:
        packed.setdefault(cut.path.name, []).append(_pack_piece(cut, sink, codec))
    return [
        IndexFile(path.name, tuple(sorted(packed[path.name], key=lambda piece: piece.start)))
        for path in paths
    ]


def _compact_meta(folder: Path) -> None:
    """Write `meta.json` on one line.

    While an index is open, a thread of Tantivy compares it twice a second, line by line: of an index with 59
    fields that takes 200 microseconds of CPU time a second, on one line 56.
    """
    meta = json.loads((folder / META).read_text("utf-8"))
    (folder / META).write_text(json.dumps(meta, ensure_ascii=False, separators=(",", ":")), "utf-8")


def dictionary_bytes(files: Sequence[IndexFile], field: str) -> int:
    """The size of a field's term dictionary; 0 if it is too small to be a piece of its own."""
    dictionaries = (file for file in files if file.name.endswith(DICTIONARY_SUFFIX))
    return sum(piece.size for file in dictionaries for piece in file.pieces if piece.field == field)


@dataclass(frozen=True, slots=True)
class _FileRange:
    """A part of a file that becomes a piece, and the only field that needs it."""

    path: Path
    field: str | None
    start: int
    stop: int

    @property
    def is_positions(self) -> bool:
        return self.field is not None and self.path.suffix == POSITIONS_SUFFIX

    @property
    def is_of_dictionary(self) -> bool:
        """Whether it is needed to find terms in a dictionary, as are the names of fields in `meta.json`."""
        return self.path.suffix == DICTIONARY_SUFFIX or self.path.name == META


def _file_ranges(path: Path, fields: Sequence[str]) -> list[_FileRange]:
    """The parts of a file: those of large enough fields, and the parts between them.

    Postings and positions are cut further, since a search needs those of a few terms. Every search needs the
    number of tokens before the postings, so that belongs to the part before.
    """
    size = path.stat().st_size
    cuts: list[_FileRange] = []
    reached = 0
    for field, start, stop in _ranges_by_field(path, size, fields):
        if stop - start < PIECE_BYTES:
            continue
        first = start + TOKENS_BYTES if path.suffix == POSTINGS_SUFFIX else start
        if first > reached:
            cuts.append(_FileRange(path, None, reached, first))
        step = stop - first
        if path.suffix in (POSTINGS_SUFFIX, POSITIONS_SUFFIX):
            step = max(TERM_PIECE_BYTES, -(-step // _MAX_TERM_PIECES))
        cuts += (_FileRange(path, field, at, min(at + step, stop)) for at in range(first, stop, step))
        reached = stop
    return [*cuts, _FileRange(path, None, reached, size)] if size > reached or not cuts else cuts


def _ranges_by_field(path: Path, size: int, fields: Sequence[str]) -> list[tuple[str, int, int]]:
    if path.suffix not in (*FILES_BY_FIELD, STORE_SUFFIX) or size < PIECE_BYTES:
        return []
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            ranges = field_ranges(path.suffix, data, size, fields)
    except SplitError:
        return []  # a file as one piece is correct, only larger to read
    joined: list[tuple[str, int, int]] = []
    for part in ranges:
        if joined and joined[-1][0] == part.field and joined[-1][2] == part.start:
            joined[-1] = (part.field, joined[-1][1], part.end)
        else:
            joined.append((part.field, part.start, part.end))
    return joined


def _pack_piece(cut: _FileRange, sink: Any, codec: Any) -> Piece:  # noqa: ANN401
    offset, length, crc, blocks = sink.tell(), 0, 0, []
    packed: bool | None = None
    remainder = cut.stop - cut.start
    with cut.path.open("rb") as source:
        source.seek(cut.start)
        while remainder:
            block = source.read(min(BLOCK_BYTES, remainder))
            if not block:
                raise SplitError(
                    f"{cut.path} became shorter while it was written to a split; nothing was written"
                )
            remainder -= len(block)
            small = codec.compress(block, asbytes=True) if packed in (None, True) else b""
            if packed is None:
                packed = len(small) < _MAX_PACKED_RATIO * len(block)
            data = small if packed else block
            if packed:
                blocks.append(len(data))
            sink.write(data)
            length += len(data)
            crc = zlib.crc32(data, crc)
    size = cut.stop - cut.start
    return Piece(cut.path.name, cut.start, cut.field, size, offset, length, crc, tuple(blocks))


def unpack(store: Store, footer: Footer, folder: Path) -> list[CachedPiece]:
    """Copy the whole index of a split into an empty folder; returns its pieces.

    Raises:
        SplitError: The bytes differ from their checksums; the message names the split and the file.
    """
    create_files(footer, folder)
    return copy_pieces(store, footer, folder, [piece for file in footer.index_files for piece in file.pieces])


def create_files(footer: Footer, folder: Path) -> None:
    """Create the files of a split's index in an empty folder, with their length but without bytes."""
    for file in footer.index_files:
        # Names were validated when the footer was read; an existing file is never replaced.
        with (folder / file.name).open("xb") as sink:
            sink.truncate(file.size)


def copy_pieces(store: Store, footer: Footer, folder: Path, pieces: Collection[Piece]) -> list[CachedPiece]:
    """Copy pieces of a split's index into the files of a folder; returns them with their checksums.

    Fetches from an object store wait until there is memory for them.
    """
    if store.is_local:
        return _copy_runs(store, footer, folder, pieces, _AT_ONCE)
    in_memory = min(sum(piece.length for piece in pieces), _REQUESTS_AT_ONCE * _READ_BYTES)
    with _fetching.reserve(in_memory):
        return _copy_runs(store, footer, folder, pieces, _REQUESTS_AT_ONCE)


def _copy_runs(
    store: Store, footer: Footer, folder: Path, pieces: Collection[Piece], at_once: int
) -> list[CachedPiece]:
    runs = list(_adjacent_pieces(pieces))
    # The largest first, so that the threads finish at about the same time.
    runs.sort(key=lambda run: sum(piece.size for piece in run), reverse=True)

    def work(run: list[Piece]) -> list[CachedPiece]:
        return _copy_run(store, footer.path, run, folder)

    if sum(piece.length for piece in pieces) <= _READ_BYTES:
        # One call, in which a store reads several ranges at once.
        ranges = [(run[0].offset, run[-1].offset + run[-1].length) for run in runs]
        read = read_ranges(store, footer.path, footer.size, ranges)
        return [
            copied
            for run, data in zip(runs, read, strict=True)
            for copied in _copy_from(store, footer.path, run, memoryview(data), folder)
        ]
    if len(runs) == 1:
        return work(runs[0])
    with ThreadPoolExecutor(at_once, thread_name_prefix="indextables-unpack") as threads:
        return [copied for done in threads.map(work, runs) for copied in done]


def _adjacent_pieces(pieces: Collection[Piece]) -> Iterator[list[Piece]]:
    """Groups of adjacent pieces of the split, each up to the size of one read."""
    run: list[Piece] = []
    for piece in sorted(pieces, key=lambda piece: piece.offset):
        stop = run[-1].offset + run[-1].length if run else 0
        if run and (piece.offset != stop or piece.offset + piece.length - run[0].offset > _READ_BYTES):
            yield run
            run = []
        run.append(piece)
    if run:
        yield run


def _copy_run(store: Store, path: str, run: list[Piece], folder: Path) -> list[CachedPiece]:
    if len(run) == 1:
        only = run[0]
        reads = ((store.get_range(path, start, stop), lengths) for start, stop, lengths in _reads(only))
        return [_copy_piece(store, path, only, reads, folder)]
    start, stop = run[0].offset, run[-1].offset + run[-1].length
    return _copy_from(store, path, run, memoryview(store.get_range(path, start, stop)), folder)


def _copy_from(
    store: Store, path: str, run: list[Piece], data: memoryview, folder: Path
) -> list[CachedPiece]:
    """Copy adjacent pieces, whose bytes were read."""
    start = run[0].offset
    copied = []
    for piece in run:
        own = data[piece.offset - start : piece.offset - start + piece.length]
        copied.append(_copy_piece(store, path, piece, iter([(own, _block_lengths(piece))]), folder))
    return copied


def _copy_piece(
    store: Store,
    path: str,
    piece: Piece,
    reads: Iterator[tuple[bytes | memoryview, Sequence[int]]],
    folder: Path,
) -> CachedPiece:
    codec = pa.Codec("zstd")
    data_crc = crc = 0
    remainder = piece.size
    with (folder / piece.file).open("r+b") as sink:
        sink.seek(piece.start)
        for read, lengths in reads:
            data = memoryview(read)
            data_crc = zlib.crc32(data, data_crc)
            for length in lengths:
                block, data = data[:length], data[length:]
                if piece.blocks:
                    what = f"{store.url}/{path}: {piece.file}"
                    block = _decompress(codec, block, min(BLOCK_BYTES, remainder), what)
                    crc = zlib.crc32(block, crc)
                sink.write(block)
                remainder -= len(block)
    if data_crc != piece.crc32 or remainder:
        raise SplitError(f"{store.url}/{path}: the index file {piece.file} is damaged (its checksum differs)")
    return CachedPiece(piece.file, piece.start, piece.size, crc if piece.blocks else data_crc)


def decode_piece(where: str, piece: Piece, data: bytes | memoryview) -> bytes:
    """The bytes of a small piece as they are in its file.

    Args:
        where: The split, for errors.
        piece: The piece.
        data: Its bytes as they are stored.

    Raises:
        SplitError: They are damaged.
    """
    what = f"{where}: {piece.file}"
    if zlib.crc32(data) != piece.crc32:
        raise SplitError(f"{what} is damaged (its checksum differs)")
    codec = pa.Codec("zstd")
    remainder, rest, parts = piece.size, memoryview(data), list[memoryview]()
    for length in piece.blocks:
        parts.append(_decompress(codec, rest[:length], min(BLOCK_BYTES, remainder), what))
        rest, remainder = rest[length:], remainder - len(parts[-1])
    return b"".join(parts) if piece.blocks else bytes(data)


def _decompress(codec: Any, block: memoryview, size: int, what: str) -> memoryview:  # noqa: ANN401
    try:
        return memoryview(codec.decompress(block, decompressed_size=size))
    except (pa.ArrowException, OSError) as error:
        raise SplitError(f"{what} is damaged (it cannot be unpacked)") from error


def _block_lengths(piece: Piece) -> Sequence[int]:
    """The stored lengths of a piece's blocks."""
    return piece.blocks or [
        min(BLOCK_BYTES, piece.length - start) for start in range(0, piece.length, BLOCK_BYTES)
    ]


def _reads(piece: Piece) -> Iterator[tuple[int, int, list[int]]]:
    """Ranged reads of a large piece: where each starts and ends, and the lengths of the blocks in it."""
    start, lengths = piece.offset, list[int]()
    for length in _block_lengths(piece):
        if lengths and sum(lengths) + length > _READ_BYTES:
            yield start, start + sum(lengths), lengths
            start, lengths = start + sum(lengths), []
        lengths.append(length)
    if lengths:
        yield start, start + sum(lengths), lengths


def merge_segments(metas: Sequence[dict[str, Any]], folder: Path, heap: int) -> None:
    """Make one index of the segments of several `meta.json`, and merge segments of similar size.

    The files of all segments are in the folder, and so is the resulting index.
    """
    segments = [segment for meta in metas for segment in meta["segments"]]
    count = max(1, min(_MERGES_AT_ONCE, cpu_count(), len(segments) // _MERGE_FACTOR))
    if count == 1:
        _merge(metas[0], segments, folder, heap)
        return
    shares = _balance(segments, count)
    rooms = [folder / f"merging-{number}" for number in range(count)]
    for room, share in zip(rooms, shares, strict=True):
        room.mkdir()
        segment_names = {_name(segment) for segment in share}
        _move([path for path in folder.iterdir() if path.name.partition(".")[0] in segment_names], room)
    with ThreadPoolExecutor(count, thread_name_prefix="indextables-segments") as threads:
        list(threads.map(lambda share, room: _merge(metas[0], share, room, heap), shares, rooms))
    merged = [json.loads((room / META).read_text("utf-8")) for room in rooms]
    for room in rooms:
        _move(committed_files(room)[1:], folder)
    _write_meta(metas[0], [segment for meta in merged for segment in meta["segments"]], folder)


def _merge(meta: dict[str, Any], segments: list[dict[str, Any]], folder: Path, heap: int) -> None:
    """Make an index of segments whose files are in the folder; Tantivy merges them at the commit."""
    _write_meta(meta, segments, folder)
    writer = tantivy.Index.open(str(folder)).writer(heap, 1)
    writer.commit()
    writer.wait_merging_threads()


def _write_meta(meta: dict[str, Any], segments: list[dict[str, Any]], folder: Path) -> None:
    (folder / META).write_text(json.dumps({**meta, "segments": segments}), "utf-8")
    names = [path.name for path in committed_files(folder)]
    (folder / _MANAGED).write_text(json.dumps(names), "utf-8")


def _balance(segments: list[dict[str, Any]], count: int) -> list[list[dict[str, Any]]]:
    """Groups of segments with about equal numbers of segments and documents."""
    ordered = sorted(segments, key=lambda segment: (segment["max_doc"], _name(segment)))
    rounds = [ordered[i : i + count] for i in range(0, len(ordered), count)]
    alternating = [each if number % 2 else each[::-1] for number, each in enumerate(rounds)]
    return [[each[i] for each in alternating if i < len(each)] for i in range(count)]


def _name(segment: dict[str, Any]) -> str:
    return str(segment["segment_id"]).replace("-", "")


def _move(paths: Sequence[Path], folder: Path) -> None:
    for path in paths:
        path.replace(folder / path.name)
