"""Batches into splits on the store, one set of partition values each, cut at the target size."""

import uuid
from collections.abc import Iterator
from typing import IO, cast

import pyarrow as pa

from indextables.data_files import add_action, delete_uncommitted, split_path
from indextables.ingest.partitions import Spool, Values
from indextables.ingest.target import Target
from indextables.log.clock import local_time_ms
from indextables.log.format.actions import Add
from indextables.options import Options
from indextables.options import writing as opt
from indextables.options.indexing import TEMP_DIRECTORY
from indextables.split.writer import SplitWriter
from indextables.store import Store


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

    def delete_uncommitted(self) -> None:
        """Delete what was uploaded; what cannot be deleted stays invisible, and a purge finds it."""
        delete_uncommitted(self._store, self._uploaded)

    def _splits(self, values: Values, batches: Iterator[pa.RecordBatch]) -> Iterator[Add]:
        target_size = self._options.get(opt.TARGET_SPLIT_SIZE)
        for first in batches:
            path = split_path(self._named(values), f"part-{uuid.uuid4()}.split")
            started_ms = local_time_ms()
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
            yield add_action(path, built, data_change=True, started_ms=started_ms)

    def _named(self, values: Values) -> dict[str, str | None]:
        return dict(zip(self._target.partition_columns, values, strict=True))
