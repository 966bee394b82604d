"""Stand-ins for building and merging splits: small JSON objects that name their rows.

Everything around them is real: which splits are written and where, how they are withdrawn, which ones a merge
takes, what becomes of one that cannot be read, and what is committed. Runs with real splits use the writer and
the merge as they are, and only note which rows they hold (`noting_writer`, `noting_merge`).
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, Self

import numpy as np
import pyarrow as pa

from indextables.errors import ObjectMissingError, SplitError, UnreadableSplitError
from indextables.ingest.splits import Values, by_partition
from indextables.options import Options
from indextables.schema.spark import from_arrow
from indextables.split.index.term_filter import encode_filter, term_keys
from indextables.split.mapping import Kind
from indextables.split.mapping import Mapping as FieldMapping
from indextables.split.writer import SplitFile
from indextables.store import Store


@dataclass(frozen=True, slots=True)
class SplitRecord:
    """What a split of the simulator holds: rows by their ids, and how they were written."""

    rows: tuple[int, ...]
    schema: dict[str, str]
    partition_values: dict[str, str | None]
    text_columns: tuple[str, ...]

    def encode(self) -> bytes:
        """As bytes."""
        return json.dumps(
            [self.rows, self.schema, self.partition_values, self.text_columns], separators=(",", ":")
        ).encode()

    @classmethod
    def decode(cls, data: bytes) -> "SplitRecord":
        """From bytes."""
        rows, schema, values, text = json.loads(data)
        return cls(tuple(rows), schema, values, tuple(text))


def types_of(schema_string: str) -> dict[str, str]:
    """Columns and their types, as a table's metadata says."""
    return {field["name"]: field["type"] for field in json.loads(schema_string)["fields"]}


def _text_columns(mapping: FieldMapping) -> tuple[str, ...]:
    return tuple(sorted({field.column for field in mapping.fields if field.kind is Kind.TEXT}))


def _built(record: SplitRecord, sink: IO[bytes], mapping: FieldMapping, merges: int) -> SplitFile:
    data = record.encode()
    sink.write(data)
    return SplitFile(
        size=len(data),
        num_records=len(record.rows),
        footer_start=0,
        footer_end=len(data),
        partition_values=record.partition_values,
        min_values={},
        max_values={},
        stats=None,
        mapping=mapping,
        uncompressed_bytes=len(data),
        num_merge_ops=merges,
    )


def read_filters(
    store: Store, path: str, size: int, footer_start: int | None, most: int
) -> dict[str, np.ndarray]:
    """Stands in for `indextables.data_files.read_filters`: the ids of the rows are the terms."""
    record = SplitRecord.decode(store.get_range(path, 0, size))
    return {"s:id": encode_filter(term_keys([str(row) for row in record.rows]), 1)}


class SplitWriter:
    """Stands in for `indextables.split.writer.SplitWriter`."""

    def __init__(
        self,
        sink: IO[bytes],
        schema: pa.Schema,
        mapping: FieldMapping,
        options: Options,
        partition_values: Mapping[str, str | None] | None = None,
    ) -> None:
        self._sink = sink
        self._schema = schema
        self._mapping = mapping
        self._values = dict(partition_values or {})
        self._rows: list[int] = []
        self.num_records = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Take in rows."""
        self._rows += batch.column("id").to_pylist()
        self.num_records += batch.num_rows

    def finish(self) -> SplitFile:
        """Write the split."""
        types = types_of(from_arrow(self._schema))
        record = SplitRecord(tuple(self._rows), types, self._values, _text_columns(self._mapping))
        return _built(record, self._sink, self._mapping, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        pass


class Spool:
    """Stands in for `indextables.ingest.splits.Spool`: rows by partition, in memory."""

    def __init__(self, columns: Sequence[str], folder: str | None) -> None:
        self._columns = tuple(columns)
        self._batches: dict[Values, list[pa.RecordBatch]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._batches.clear()

    def put(self, batch: pa.RecordBatch) -> None:
        """Sort a batch's rows into their partitions."""
        for values, rows in by_partition(batch, self._columns):
            self._batches.setdefault(values, []).append(rows)

    def partitions(self) -> Iterator[tuple[Values, Iterator[pa.RecordBatch]]]:
        """Each partition with its rows."""
        for values, batches in self._batches.items():
            yield values, iter(batches)


@dataclass(frozen=True, slots=True)
class Footer:
    """Stands in for a split's footer."""

    path: str
    size: int


def read_footer(store: Store, path: str, size: int) -> Footer:
    """Stands in for `indextables.split.footer.read_footer`."""
    data = store.get_range(path, 0, size)
    if not data.startswith(b"[["):
        raise SplitError(f"{path} is no split")
    return Footer(path, size)


@dataclass(frozen=True, slots=True)
class Source:
    """Stands in for `indextables.split.merge.MergeSource`."""

    path: str
    store: Store

    @classmethod
    def of(cls, store: Store, footer: Footer, schema: pa.Schema) -> "Source":
        """A source of a merge."""
        return cls(footer.path, store)

    def record(self) -> SplitRecord:
        """Its rows; read when the merge runs."""
        try:
            return SplitRecord.decode(self.store.get(self.path))
        except ObjectMissingError as error:
            raise UnreadableSplitError(self.path, str(error)) from error


def merge_splits(
    sources: Sequence[Source],
    sink: IO[bytes],
    schema: pa.Schema,
    plan: FieldMapping,
    options: Options,
    partition_values: dict[str, str | None] | None = None,
) -> SplitFile:
    """Stands in for `indextables.split.merge.merge_splits`."""
    rows = [row for source in sources for row in source.record().rows]
    values = dict(partition_values or {})
    record = SplitRecord(tuple(rows), types_of(from_arrow(schema)), values, _text_columns(plan))
    return _built(record, sink, plan, 1)


# Real splits by their key in the store: which rows they hold.
real_splits: dict[str, SplitRecord] = {}


def noting_writer(writer: type[Any]) -> type[Any]:
    """The real writer of splits, which also notes the rows of each."""

    class NotingWriter(writer):
        def __init__(
            self,
            sink: Any,
            schema: pa.Schema,
            mapping: FieldMapping,
            options: Options,
            partition_values: Mapping[str, str | None] | None = None,
        ) -> None:
            super().__init__(sink, schema, mapping, options, partition_values)
            self._noted: list[int] = []
            types = types_of(from_arrow(schema))
            self._note = (sink.key, types, dict(partition_values or {}), _text_columns(mapping))

        def write(self, batch: pa.RecordBatch) -> None:
            super().write(batch)
            self._noted += batch.column("id").to_pylist()

        def finish(self) -> SplitFile:
            key, types, values, text = self._note
            real_splits[key] = SplitRecord(tuple(self._noted), types, values, text)
            built: SplitFile = super().finish()
            return built

    return NotingWriter


def noting_merge(merge: Callable[..., SplitFile], folder: str) -> Callable[..., SplitFile]:
    """The real merge of splits, which also notes the rows of its result."""

    def merged(
        sources: Sequence[Any],
        sink: Any,
        schema: pa.Schema,
        plan: FieldMapping,
        options: Options,
        partition_values: dict[str, str | None] | None = None,
    ) -> SplitFile:
        rows = [row for source in sources for row in real_splits[f"{folder}/{source.path}"].rows]
        values = dict(partition_values or {})
        real_splits[sink.key] = SplitRecord(
            tuple(rows), types_of(from_arrow(schema)), values, _text_columns(plan)
        )
        return merge(sources, sink, schema, plan, options, partition_values)

    return merged
