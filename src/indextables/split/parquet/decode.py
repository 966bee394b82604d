"""Small Parquet files of pages decoded, and batches cut to size."""

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache

import pyarrow as pa
import pyarrow.parquet as pq

from indextables.split.parquet.page_index import Ints

# Below this many bytes of pages, threads cost more than they save.
THREADS_WORTH = 256 << 10


@lru_cache(maxsize=1)
def _threads(process: int) -> ThreadPoolExecutor:  # noqa: ARG001 - threads do not survive a fork
    return ThreadPoolExecutor(cores(), thread_name_prefix="indextables-pages")


def cores() -> int:
    """How many processors there are."""
    return os.cpu_count() or 2


def decode(data: bytes, positions: Ints, *, on_a_thread: bool) -> "Future[pa.Array]":
    """The values at some places of a Parquet file of one column."""
    if on_a_thread:
        return _threads(os.getpid()).submit(_read_small, data, positions)
    done: Future[pa.Array] = Future()
    done.set_result(_read_small(data, positions))
    return done


def _read_small(data: bytes, positions: Ints) -> pa.Array:
    opened = pq.ParquetFile(pa.BufferReader(data))
    chunks = [opened.metadata.row_group(g).column(0) for g in range(opened.num_row_groups)]
    if all(c.has_dictionary_page and c.physical_type == "BYTE_ARRAY" for c in chunks):
        # Codes are taken before they become strings.
        names, known = opened.schema_arrow.names, opened.metadata
        opened = pq.ParquetFile(pa.BufferReader(data), metadata=known, read_dictionary=names)
    taken = opened.read(use_threads=False).column(0).take(pa.array(positions))
    return taken.cast(taken.type.value_type) if pa.types.is_dictionary(taken.type) else taken


def bounded(batch: pa.RecordBatch, most: int) -> Iterator[pa.RecordBatch]:
    """A batch in slices of no more than `most` bytes each, or of one row."""
    if batch.num_rows <= 1 or batch.nbytes <= most:
        yield batch
        return
    half = batch.num_rows // 2
    yield from bounded(batch.slice(0, half), most)
    yield from bounded(batch.slice(half), most)
