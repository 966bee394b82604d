"""The splits that a merge takes in: ours with their index, the original's as rows."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from indextables.errors import ObjectMissingError, SplitError, StoreError
from indextables.log.format.actions import Add
from indextables.log.snapshot import Snapshot
from indextables.options import Options
from indextables.schema.values import parse_values
from indextables.split.footer import PARQUET_TAG, read_footer
from indextables.split.mapping import Mapping, mapping_for
from indextables.split.merge import MergeSource, source_error
from indextables.split.quickwit import bundle_rows
from indextables.store import Store
from indextables.table_properties import indexing_options


@dataclass(frozen=True, slots=True)
class MergeFacts:
    """What every task must know of the table; without secrets."""

    schema: pa.Schema
    partition_columns: tuple[str, ...]
    mapping: Mapping

    @classmethod
    def of(cls, snapshot: Snapshot, options: Options) -> "MergeFacts":
        """The facts of a snapshot."""
        effective = options.over(indexing_options(snapshot))
        mapping = mapping_for(snapshot.schema, effective, snapshot.partition_columns)
        return cls(snapshot.schema, snapshot.partition_columns, mapping)


@dataclass(frozen=True, slots=True)
class SourceRef:
    """A split as the log names it."""

    path: str
    size: int
    ours: bool

    @classmethod
    def of(cls, add: Add) -> "SourceRef":
        """From the action that added it."""
        return cls(add.path, add.size, PARQUET_TAG in (add.split_tags or ()))


def open_source(
    store: Store, ref: SourceRef, facts: MergeFacts, values: dict[str, str | None], options: Options
) -> MergeSource:
    """The split, ready to be merged; UnreadableSplitError or UnavailableSplitError if it cannot be."""
    if not ref.ours:
        return MergeSource(ref.path, lambda: _original(store, ref, facts, values, options))
    try:
        return MergeSource.of(store, read_footer(store, ref.path, ref.size), facts.schema)
    except (SplitError, StoreError, OSError) as error:
        raise source_error(ref.path, error) from error


def damage(store: Store, ref: SourceRef) -> str | None:
    """Why a split that could not be fetched never can be; nothing if storage may deliver it another time."""
    try:
        size = store.head(ref.path).size
    except ObjectMissingError:
        return "the file is missing"
    except StoreError:
        return None
    return None if size == ref.size else f"the file has {size} bytes, and the log says {ref.size}"


def _original(
    store: Store, ref: SourceRef, facts: MergeFacts, values: dict[str, str | None], options: Options
) -> Iterator[pa.RecordBatch]:
    """Rows of the original's split, with the partition values that only the log has."""
    try:
        for batch in bundle_rows(store, ref.path, facts.schema, options, ref.size):
            yield _with_partition(batch, facts, values)
    except (SplitError, StoreError, OSError) as error:
        raise source_error(ref.path, error) from error


def _with_partition(
    batch: pa.RecordBatch, facts: MergeFacts, values: dict[str, str | None]
) -> pa.RecordBatch:
    for name in facts.partition_columns:
        field = facts.schema.field(name)
        parsed = parse_values(pa.array([values.get(name)], pa.string()), field.type, partition=True)
        column = pa.repeat(parsed.values[0], batch.num_rows)
        batch = batch.set_column(facts.schema.get_field_index(name), field, column)
    return batch
