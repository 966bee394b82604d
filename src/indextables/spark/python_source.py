"""The data source in plain Python, for sessions that cannot have the bridge.

Spark finds it by the name of its package. It reads and writes; there are no search operators, no commands,
and of the save modes only append and overwrite, because Spark offers no more to sources in Python. Options
must be given with each read and write: session confs do not reach it. What a write starts by itself is done
before it returns: no process is there to do it later, or to count writes.
"""

import json
import pickle
from collections.abc import Iterator, Mapping, MutableMapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, YearMonthIntervalType

from indextables.errors import OptionError, SchemaError
from indextables.ingest import Mode, SplitUploads, WritePlan, finish_write, plan_write
from indextables.log.format.actions import Add
from indextables.log.transaction_log import TransactionLog
from indextables.maintain import on_write
from indextables.options import Options, Where, check_scope
from indextables.options import maintenance as opt
from indextables.options.declare import plain_key
from indextables.read import ScanSpec, execute
from indextables.read.table_context import SplitRef, plan_splits
from indextables.schema.spark import to_arrow
from indextables.spark.planner.split_assignment import assign_splits
from indextables.spark.planner.tables import (
    LOCATION_OPTIONS,
    READ_SCOPES,
    TableLocation,
    check_columns,
    locate_table,
)
from indextables.spark.tasks import dumps, valid_texts
from indextables.store import StoreWithCredentials
from indextables.version import ENGINE


class IndexTablesSource(DataSource):
    """`format("indextables")` where there is no bridge."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """`options` are those of the call."""
        super().__init__(options)
        self._options_given = dict(options)

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "indextables"

    def schema(self) -> StructType:
        """The table's columns."""
        table = _table(self._options_given)
        _, metadata = table.metadata()
        return StructType.fromJson(json.loads(metadata.schema_string))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the table."""
        return Reader(_table(self._options_given, Where.READ), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: FBT001 - Spark's
        """A writer of rows to the table."""
        return Writer(
            _table(self._options_given, Where.WRITE), schema, Mode.OVERWRITE if overwrite else Mode.APPEND
        )


class SplitPartition(InputPartition):
    """The splits of one partition."""

    def __init__(self, spec: ScanSpec, splits: Sequence[SplitRef]) -> None:
        super().__init__(None)
        self.pickled = dumps((spec, tuple(splits)))


class Reader(DataSourceReader):
    """Reads all rows of a table.

    It takes no filters: Spark 4.3 gives the filters of one query to later readers of the same DataFrame.
    """

    def __init__(self, table: TableLocation, schema: StructType) -> None:
        self._table_store = table.store.with_credentials()
        self._options = table.options
        self._columns = schema.fieldNames()
        table.check_batch()
        self._snapshot = table.snapshot()
        check_columns(table, self._snapshot, schema.json())

    def partitions(self) -> Sequence[InputPartition]:
        """The partitions, each with some splits."""
        table, splits = plan_splits(self._snapshot, None, self._options)
        spec = ScanSpec(table, tuple(self._columns))
        return [SplitPartition(spec, each.splits) for each in assign_splits(splits, 4, (), self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition; none of the partition that Spark adds where there are no others."""
        if not isinstance(partition, SplitPartition):
            return iter(())
        spec, splits = pickle.loads(partition.pickled)  # noqa: S301 - written by `partitions`
        return execute(spec, splits, self._table_store.open())


class SplitsWritten(WriterCommitMessage):
    """The commit message of a task: the splits that it wrote."""

    def __init__(self, adds: Sequence[Add]) -> None:
        self.adds = list(adds)


class Writer(DataSourceArrowWriter):
    """Writes rows, and commits them as one version."""

    def __init__(self, table: TableLocation, schema: StructType, mode: Mode) -> None:
        self._table_store: StoreWithCredentials = table.store.with_credentials()
        self._options: Options = _without_background(table.options)
        _reject_months(schema, ())
        on_write.check(self._options)
        self._planned: WritePlan | None
        self._planned, _ = plan_write(
            table.log, to_arrow(schema.json()), mode=mode, partition_by=(), options=table.options
        )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SplitsWritten:
        """Write the rows of a task."""
        if self._planned is None:
            return SplitsWritten(())
        uploads = SplitUploads(self._table_store.open(), self._planned.target, self._options)
        try:
            return SplitsWritten(uploads.write(self._planned.stored(valid_texts(iterator))))
        except BaseException:
            uploads.delete_uncommitted()
            raise

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit the splits of all tasks as one version."""
        if self._planned is None:
            return
        log = TransactionLog(self._table_store.open(), self._options, engine=ENGINE)
        _, committed = finish_write(log, self._planned, _adds(messages), self._options)
        if committed:
            on_write.after_write(log, self._options)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Leave the splits of tasks to a purge.

        Spark calls this after a commit whose outcome is unknown too, in a process that cannot tell, and
        then the splits may be in the table.
        """


def _adds(messages: Sequence[WriterCommitMessage | None]) -> list[Add]:
    return [add for message in messages if isinstance(message, SplitsWritten) for add in message.adds]


def _without_background(options: Options) -> Options:
    """The options of a write in a process that may end at any time."""
    if options.get(opt.PURGE_AFTER_WRITES):
        raise OptionError(
            f"option '{opt.PURGE_AFTER_WRITES.key}' needs the bridge: without it writes are not counted; "
            "set the session up by indextables.configure, or leave the option out"
        )
    return Options.parse({opt.MERGE_IN_BACKGROUND.key: False}).over(options)


def _reject_months(kind: DataType, path: tuple[str, ...]) -> None:
    """Reject intervals of months, which Spark does not pass to Python writers."""
    match kind:
        case YearMonthIntervalType():
            raise SchemaError(
                f"column {'.'.join(path)} is an interval of months, which Spark cannot pass to Python; "
                "set the session up by indextables.configure, or cast the column to int"
            )
        case StructType(fields=fields):
            for field in fields:
                _reject_months(field.dataType, (*path, field.name))
        case ArrayType(elementType=element):
            _reject_months(element, (*path, "element"))
        case MapType(keyType=key, valueType=value):
            _reject_months(key, (*path, "key"))
            _reject_months(value, (*path, "value"))
        case _:
            pass


def _table(raw: Mapping[str, str], scope: Where | None = None) -> TableLocation:
    options = {plain_key(key): value for key, value in raw.items()}
    if scope is not None:
        check_scope(options.keys() - LOCATION_OPTIONS, READ_SCOPES.get(scope, {scope}))
    return locate_table({"options": options})
