"""Batches into splits on the store, one set of partition values each, cut at the target size."""

import time
import uuid
from collections.abc import Iterator
from typing import IO, cast

import pyarrow as pa

from indextables.errors import StoreError
from indextables.log.actions import NULL_PARTITION, Add
from indextables.options import Options
from indextables.options import writing as opt
from indextables.options.indexing import TEMP_DIRECTORY
from indextables.schema.folders import folder
from indextables.split.build import Built, SplitWriter
from indextables.store import Store
from indextables.write.partitions import Spool, Values
from indextables.write.target import Target


class SplitUploads:
    """The splits of one write. They are invisible until a commit names them."""

    def __init__(self, store: Store, target: Target, options: Options) -> None:
        """`store` is rooted at the table."""
        self._store = store
        self._target = target
        self._options = options
        self._uploaded: list[str] = []

    def write(self, batches: Iterator[pa.RecordBatch]) -> list[Add]:
        """Write all rows; what to commit."""
        columns = self._target.partition_columns
        if not columns:
            return list(self._splits((), batches))
        adds: list[Add] = []
        with Spool(columns, self._options.get(TEMP_DIRECTORY)) as spool:
            for batch in batches:
                spool.put(batch)
            for values, rows in spool.partitions():
                adds += self._splits(values, rows)
        return adds

    def withdraw(self) -> None:
        """Delete what was uploaded; what cannot be deleted stays invisible, and a purge finds it."""
        try:
            self._store.delete(self._uploaded)
        except StoreError:
            return

    def _splits(self, values: Values, batches: Iterator[pa.RecordBatch]) -> Iterator[Add]:
        target_size = self._options.get(opt.TARGET_SPLIT_SIZE)
        for first in batches:
            path = self._path(values)
            with (
                self._store.open_upload(path) as sink,
                SplitWriter(
                    cast("IO[bytes]", sink),
                    self._target.schema,
                    self._target.mapping,
                    self._options,
                    self._named(values),
                ) as writer,
            ):
                writer.write(first)
                while writer.estimated_size < target_size and (batch := next(batches, None)) is not None:
                    writer.write(batch)
                built = writer.finish()
            self._uploaded.append(path)
            yield _add(path, built)

    def _named(self, values: Values) -> dict[str, str | None]:
        return dict(zip(self._target.partition_columns, values, strict=True))

    def _path(self, values: Values) -> str:
        named = [(name, NULL_PARTITION if v is None else v) for name, v in self._named(values).items()]
        name = f"part-{uuid.uuid4()}.split"
        return f"{folder(named)}/{name}" if named else name


def _add(path: str, built: Built) -> Add:
    return Add(
        path=path,
        partition_values=built.partition_values,
        size=built.size,
        modification_time=time.time_ns() // 1_000_000,
        data_change=True,
        stats=built.stats,
        min_values=built.min_values,
        max_values=built.max_values,
        num_records=built.num_records,
        footer_start_offset=built.footer_start,
        footer_end_offset=built.footer_end,
        has_footer_offsets=True,
        split_tags=list(built.split_tags),
        num_merge_ops=built.num_merge_ops,
        doc_mapping_json=built.doc_mapping_json,
        uncompressed_size_bytes=built.uncompressed_bytes,
    )
