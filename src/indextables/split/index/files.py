"""The files of a Tantivy index: out of a folder into a split, and back."""

import json
import os
import zlib
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa

from indextables.errors import SplitError
from indextables.split.footer import BLOCK_BYTES, Footer, IndexFile
from indextables.store import Store

META = "meta.json"
# Packing is worth it if it saves at least a twentieth.
_WORTH = 0.95
# Each of the files that are unpacked at once holds so many bytes as they are stored.
_READ_BYTES = 8 << 20
_AT_ONCE = min(os.cpu_count() or 2, 4)
# Below this many bytes, threads cost more than they save.
_THREADS_WORTH = 1 << 20


def live_files(folder: Path) -> list[Path]:
    """The files that belong to the index's last commit, its `meta.json` first."""
    meta = json.loads((folder / META).read_text("utf-8"))
    segments = {segment["segment_id"].replace("-", "") for segment in meta["segments"]}
    files = sorted(path for path in folder.iterdir() if path.name.partition(".")[0] in segments)
    return [folder / META, *files]


def pack(folder: Path, sink: Any, level: int) -> list[IndexFile]:  # noqa: ANN401 - untyped library
    """Append the index in a folder to an Arrow sink, in bounded memory; tells where each file went."""
    codec = pa.Codec("zstd", compression_level=level)
    return [_pack_file(path, sink, codec) for path in live_files(folder)]


def _pack_file(path: Path, sink: Any, codec: Any) -> IndexFile:  # noqa: ANN401
    offset, length, size, crc, blocks = sink.tell(), 0, 0, 0, []
    packed: bool | None = None
    with path.open("rb") as source:
        while block := source.read(BLOCK_BYTES):
            size += len(block)
            small = codec.compress(block, asbytes=True) if packed in (None, True) else b""
            if packed is None:
                packed = len(small) < _WORTH * len(block)
            stored = small if packed else block
            if packed:
                blocks.append(len(stored))
            sink.write(stored)
            length += len(stored)
            crc = zlib.crc32(stored, crc)
    return IndexFile(path.name, offset, length, size, crc, tuple(blocks))


def unpack(
    store: Store, footer: Footer, folder: Path, names: Collection[str] | None = None
) -> dict[str, int]:
    """Copy the index of a split (or some of its files) into an empty folder; the checksums of the copies.

    Raises SplitError, naming the split and the file, if the bytes are not those that were written.
    """
    files = [file for file in footer.index_files if names is None or file.name in names]
    # The largest first, so that no thread is left alone with it at the end.
    files.sort(key=lambda file: file.size, reverse=True)

    def work(file: IndexFile) -> int:
        return _unpack_file(store, footer.path, file, folder / file.name)

    told = [file.name for file in files]
    if sum(file.size for file in files) < _THREADS_WORTH:
        return dict(zip(told, map(work, files), strict=True))
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="indextables-unpack") as threads:
        return dict(zip(told, threads.map(work, files), strict=True))


def _unpack_file(store: Store, path: str, file: IndexFile, target: Path) -> int:
    """Copy one file; the checksum of the copy."""
    codec = pa.Codec("zstd")
    stored = copied = 0
    left = file.size
    with target.open("wb") as sink:
        for start, lengths in _reads(file):
            data = memoryview(store.get_range(path, start, start + sum(lengths)))
            stored = zlib.crc32(data, stored)
            for length in lengths:
                block, data = data[:length], data[length:]
                if file.blocks:
                    size = min(BLOCK_BYTES, left)
                    block = _decompressed(codec, block, size, f"{store.url}/{path}: {file.name}")
                    copied = zlib.crc32(block, copied)
                sink.write(block)
                left -= len(block)
    if stored != file.crc32 or left:
        raise SplitError(f"{store.url}/{path}: the index file {file.name} is damaged (its checksum differs)")
    return copied if file.blocks else stored


def _decompressed(codec: Any, block: memoryview, size: int, what: str) -> memoryview:  # noqa: ANN401
    try:
        return memoryview(codec.decompress(block, decompressed_size=size))
    except (pa.ArrowException, OSError) as error:
        raise SplitError(f"{what} is damaged (it cannot be unpacked)") from error


def _reads(file: IndexFile) -> list[tuple[int, list[int]]]:
    """Ranged reads of some tens of megabytes, each of whole blocks."""
    steps = file.blocks or tuple(
        min(BLOCK_BYTES, file.length - start) for start in range(0, file.length, BLOCK_BYTES)
    )
    reads: list[tuple[int, list[int]]] = []
    start, pending = file.offset, 0
    for length in steps:
        if not reads or pending + length > _READ_BYTES:
            reads.append((start, []))
            pending = 0
        reads[-1][1].append(length)
        start += length
        pending += length
    return reads
