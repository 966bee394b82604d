"""Builds companion splits: source files are read, their rows indexed, and their positions stored."""

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, cast

import msgspec
import pyarrow as pa

from indextables.data_files import add_action, delete_uncommitted, split_path
from indextables.errors import IndexTablesError, SourceError
from indextables.log.environment import local_time_ms
from indextables.log.format.actions import Add
from indextables.options import Options
from indextables.records import dataclass
from indextables.schema.conversion import cast_batch
from indextables.source import SourceFile, SourceReader
from indextables.source.description import SourceDescription, indexed_file
from indextables.split.footer import POSITION_COLUMN
from indextables.split.mapping import Mapping
from indextables.split.writer import CompanionSplitWriter
from indextables.store import Store, StoreWithCredentials
from indextables.sync.plan import SourceGroup, SyncPlan

_SHOWN_FILES = 3


@dataclass(frozen=True, slots=True)
class BuildContext:
    """The context of all splits of a sync; picklable, without secrets."""

    source: SourceDescription
    version: int | str | None
    schema: pa.Schema
    mapping: Mapping
    options: Options

    @classmethod
    def of(cls, plan: SyncPlan) -> "BuildContext":
        """The context of a plan."""
        return cls(
            plan.properties.description(Options()),
            plan.source_version,
            plan.schema,
            plan.mapping,
            plan.options,
        )


@dataclass(frozen=True, slots=True)
class BuildTask:
    """One split to build on an executor; its pickle includes the credentials of the index and its source."""

    split: SourceGroup
    context: BuildContext
    index: StoreWithCredentials


def run_build_task(task: BuildTask, store: Store | None) -> Add:
    """Build one split; the function that tasks of Spark run."""
    del store
    return build_split(task.split, task.context, task.index.open())


def build_split(
    plan: SourceGroup, context: BuildContext, store: Store, progress: Callable[[int], None] | None = None
) -> Add:
    """Index the rows of some source files as one split.

    Args:
        plan: The files.
        context: The context of the sync.
        store: The store of the index.
        progress: Called with the size of each finished source file.

    Raises:
        SourceChangedError: A file vanished or was replaced.
        SourceError: A file cannot be read as Spark reads it.
    """
    reader = SourceReader(context.source.open(store.source_store))
    path = split_path(plan.partition_values, f"companion-{uuid.uuid4()}.split")
    started_ms = local_time_ms()
    with (
        store.open_upload(path) as sink,
        CompanionSplitWriter(
            cast("IO[bytes]", sink), context.schema, context.mapping, context.options, plan.partition_values
        ) as writer,
    ):
        for file in plan.files:
            with _errors_of((file,)):
                _index_file(file, reader, writer, context)
            if progress is not None:
                progress(file.size)
        # Rows are indexed in batches; this indexes the last of them.
        with _errors_of(plan.files):
            built = writer.finish()
    add = add_action(path, built, data_change=True, started_ms=started_ms)
    version = context.version if isinstance(context.version, int) else None
    return msgspec.structs.replace(
        add, companion_source_files=list(plan.contents), companion_delta_version=version
    )


def _index_file(
    file: SourceFile, reader: SourceReader, writer: CompanionSplitWriter, context: BuildContext
) -> None:
    """Add the rows of a source file to a split."""
    before = writer.num_records
    for batch in reader.read(file, position_column=POSITION_COLUMN):
        *columns, positions = batch.columns
        names = batch.schema.names[:-1]
        rows = cast_batch(pa.RecordBatch.from_arrays(columns, names=names), context.schema)
        writer.write_rows(rows, positions.to_numpy())
    writer.end_file(
        indexed_file(
            file,
            context.source.url,
            records=reader.open(file).num_rows,
            rows=writer.num_records - before,
        )
    )


@contextmanager
def _errors_of(files: Sequence[SourceFile]) -> Iterator[None]:
    """Raise errors of libraries about the values of files as an error that names the files."""
    try:
        yield
    except (IndexTablesError, OSError, MemoryError):
        raise
    except Exception as error:
        names = ", ".join(file.url for file in files[:_SHOWN_FILES])
        more = f" and {len(files) - _SHOWN_FILES} more" if len(files) > _SHOWN_FILES else ""
        raise SourceError(
            f"{names}{more} cannot be indexed ({type(error).__name__}: {error}); rewrite the rows in the "
            "source, or exclude the column that it is about"
        ) from error


def discard(store: Store, adds: list[Add]) -> None:
    """Delete splits that no version refers to."""
    delete_uncommitted(store, [add.path for add in adds])
