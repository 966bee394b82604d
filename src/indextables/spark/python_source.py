"""The data source in plain Python, for sessions that cannot have the bridge.

Spark finds it by the name of its package. It reads and writes; it has no search operators and no commands,
and only the save modes append and overwrite, because Spark's interface for Python sources has no more.
Options must be given with each read and write: session confs are not available here. Maintenance after a
write runs before the write returns, because no process remains to run it later or to count writes.
"""

import dataclasses
import json
import pickle
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, YearMonthIntervalType

from indextables.data_files import delete_uncommitted, open_log
from indextables.errors import CommitConflictError, OptionError, SchemaError
from indextables.ingest import (
    Mode,
    SplitUploads,
    WritePlan,
    finish_write,
    has_batch,
    micro_batch_options,
    plan_write,
)
from indextables.log.format.actions import Add
from indextables.log.retention import stream_retention
from indextables.log.transaction_log import TransactionLog
from indextables.maintain import on_write
from indextables.options import Options, Where, check_scope, reading, writing
from indextables.options import maintenance as opt
from indextables.options.declare import plain_key
from indextables.read import ScanSpec, execute
from indextables.read.stream import Offset, TableStream
from indextables.read.table_context import SplitRef, plan_splits
from indextables.schema.spark import to_arrow
from indextables.spark.planner.read_context import start_of
from indextables.spark.planner.scan_plan import assign_splits
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

# A property that every table of a catalog has (Spark's TableCatalog.PROP_PROVIDER).
_CATALOG = "provider"


class IndexTablesSource(DataSource):
    """`format("indextables")` where there is no bridge."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """`options` are those of the call."""
        super().__init__(options)
        self._parameters = dict(options)

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "indextables"

    def schema(self) -> StructType:
        """The table's columns."""
        table = _table(self._parameters)
        _, metadata = table.metadata()
        return StructType.fromJson(json.loads(metadata.schema_string))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the table."""
        return Reader(_table(self._parameters, Where.READ), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """A stream of the rows of the table."""
        parameters = _without_stream_options(self._parameters)
        _table(parameters, Where.STREAM)
        return StreamReader(parameters, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: ANN401, FBT001, N802 - Spark's
        """A writer of micro-batches to the table."""
        parameters = _without_stream_options(self._parameters)
        if StreamWriter is None:
            raise OptionError(
                "Spark 4.0 has no stream writers for Arrow; set the session up by indextables.configure, or "
                "write with foreachBatch and the options txn.appId and txn.version"
            )
        mode = Mode.OVERWRITE if overwrite else Mode.APPEND
        return StreamWriter(_table(parameters, Where.WRITE), schema, mode)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: FBT001 - Spark's
        """A writer of rows to the table."""
        return Writer(
            _table(self._parameters, Where.WRITE), schema, Mode.OVERWRITE if overwrite else Mode.APPEND
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
        plan = plan_splits(self._snapshot, None, self._options)
        table, splits = plan.table, plan.splits
        spec = ScanSpec(table, tuple(self._columns))
        return [SplitPartition(spec, each.splits) for each in assign_splits(splits, 4, (), self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition; none of the partition that Spark adds where there are no others."""
        if not isinstance(partition, SplitPartition):
            return iter(())
        spec, splits = pickle.loads(partition.pickled)  # noqa: S301 - written by `partitions`
        return execute(spec, splits, self._table_store.open())


class _TableStreamReader(DataSourceStreamReader):
    """Streams the rows of a table, with the options of the call."""

    def __init__(self, parameters: Mapping[str, str], schema: StructType) -> None:
        self._parameters = dict(parameters)
        self._schema = schema
        # The last version that is read, if the stream ends; and the newest offset that was seen.
        self._until: int | None = None
        self._newest: Offset | None = None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """End the stream with the newest version."""
        table = _table(self._parameters)
        self._until = table.log.snapshot().version

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a new stream starts."""
        return _members(start_of(_table(self._parameters)))

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: Mapping[str, Any] | None = None, limit: object = None
    ) -> dict[str, Any]:
        """Where the next micro-batch ends."""
        if start is None:
            raise OptionError(
                "a stream from a table needs the bridge, or Spark 4.2: older versions do not pass sources in "
                "Python the start of a micro-batch; set the session up by indextables.configure"
            )
        table = _table(self._parameters)
        stream = TableStream(table.log, table.options, self._schema.json())
        unlimited = type(limit).__name__ == "ReadAllAvailable"
        newest = table.log.snapshot()
        self._newest = stream.end(newest)
        return _members(stream.latest(_offset(start), unlimited=unlimited, until=self._until, newest=newest))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """The offset after the newest version, for Spark's progress."""
        return None if self._newest is None else _members(self._newest)

    def getDefaultReadLimit(self) -> Any:  # noqa: ANN401, N802 - Spark's name; the class is of Spark 4.2
        """Any limit other than "all": the limits are in the options."""
        from pyspark.sql.streaming.datasource import ReadMaxFiles  # noqa: PLC0415 - not in Spark 4.0

        return ReadMaxFiles(_table(self._parameters).options.get(reading.MAX_FILES))

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        """The partitions of a micro-batch, each with some splits."""
        table = _table(self._parameters)
        stream = TableStream(table.log, table.options, self._schema.json())
        snapshot = stream.snapshot(_offset(start), _offset(end))
        check_columns(table, snapshot, self._schema.json())
        plan = plan_splits(snapshot, None, table.options)
        context, splits = plan.table, plan.splits
        spec = ScanSpec(context, tuple(self._schema.fieldNames()))
        store = table.store.with_credentials()
        return [
            StreamPartition(spec, each.splits, store) for each in assign_splits(splits, 4, (), table.options)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition."""
        if not isinstance(partition, StreamPartition):
            return iter(())
        spec, splits, store = pickle.loads(partition.pickled)  # noqa: S301 - written by `partitions`
        return execute(spec, splits, store.open())

    def commit(self, end: Mapping[str, Any]) -> None:
        """Do nothing: there is no state for offsets that were read."""


try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:  # Spark 4.0 and 4.1 have none
    StreamReader: type[_TableStreamReader] = _TableStreamReader
else:
    StreamReader = type(
        "StreamReader", (_TableStreamReader, SupportsTriggerAvailableNow), {"__module__": __name__}
    )


class StreamPartition(InputPartition):
    """The splits of one partition of a micro-batch."""

    def __init__(self, spec: ScanSpec, splits: Sequence[SplitRef], store: StoreWithCredentials) -> None:
        super().__init__(None)
        self.pickled = dumps((spec, tuple(splits), store))


def _members(offset: Offset) -> dict[str, Any]:
    members: dict[str, Any] = json.loads(offset.to_json())
    return members


def _offset(members: Mapping[str, Any]) -> Offset:
    return Offset.from_json(json.dumps(dict(members)))


class WriteMessage(WriterCommitMessage):
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
        self._write_plan: WritePlan | None
        self._write_plan, _ = plan_write(
            table.log, to_arrow(schema.json()), mode=mode, partition_by=(), options=table.options
        )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriteMessage:
        """Write the rows of a task."""
        if self._write_plan is None:
            return WriteMessage(())
        uploads = SplitUploads(self._table_store.open(), self._write_plan.target, self._options)
        try:
            return WriteMessage(uploads.write(self._write_plan.convert(valid_texts(iterator))))
        except BaseException:
            uploads.delete_uncommitted()
            raise

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit the splits of all tasks as one version."""
        if self._write_plan is not None:
            log = open_log(self._table_store.open(), self._options, engine=ENGINE)
            self._commit(log, _adds(messages), self._options)

    def commit_batch(self, messages: Sequence[WriterCommitMessage | None], batch: Options) -> None:
        """Commit a micro-batch as one version, unless the table has it already."""
        options = stream_retention(batch.over(self._options))
        log = open_log(self._table_store.open(), options, engine=ENGINE)
        adds = _adds(messages)
        try:
            if log.exists() and has_batch(log.snapshot(), options):
                delete_uncommitted(log.store, [add.path for add in adds])
                return
            self._commit(log, adds, options)
        except CommitConflictError:
            if not has_batch(log.snapshot(), options):
                raise  # the batch was not committed by another driver of the same query

    def _commit(self, log: TransactionLog, adds: Sequence[Add], options: Options) -> None:
        assert self._write_plan is not None
        _, committed = finish_write(log, self._write_plan, adds, options)
        if committed:
            on_write.after_write(log, options)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Leave the splits of tasks to a purge.

        Spark also calls this after a commit with an unknown outcome; then the splits may be in the table.
        """


class _BatchWriter:
    """Writes micro-batches, each as one version, exactly once."""

    def __init__(self, table: TableLocation, schema: StructType, mode: Mode) -> None:
        if not table.options.is_set(writing.TXN_APP_ID) or table.options.is_set(writing.TXN_VERSION):
            raise OptionError(
                "a stream into a table without the bridge needs the option txn.appId, a name of the query "
                "that stays the same when it starts again, and numbers its batches itself: leave "
                "txn.version out"
            )
        # Whether a batch is in the table can be checked only with its number.
        keys = {writing.TXN_APP_ID.key.lower()}
        plain = Options({key: value for key, value in table.options.values.items() if key not in keys})
        self._app = table.options.get(writing.TXN_APP_ID)
        self._writer = Writer(dataclasses.replace(table, options=micro_batch_options(plain)), schema, mode)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriteMessage:
        """Write the rows of a task."""
        return self._writer.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Commit the splits of all tasks as one version, unless the table has the batch."""
        batch = {writing.TXN_APP_ID.key: self._app, writing.TXN_VERSION.key: batchId}
        self._writer.commit_batch(messages, Options.parse(batch))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Leave the splits of tasks to a purge, as `Writer.abort` does."""


try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:  # Spark 4.0 has none
    StreamWriter: Any = None
else:
    StreamWriter = type("StreamWriter", (_BatchWriter, DataSourceStreamArrowWriter), {"__module__": __name__})


def _without_stream_options(parameters: Mapping[str, str]) -> dict[str, str]:
    """The options without Spark's own options of a stream."""
    return {
        key: value
        for key, value in parameters.items()
        if key.lower() not in ("checkpointlocation", "queryname")
    }


def _adds(messages: Sequence[WriterCommitMessage | None]) -> list[Add]:
    return [add for message in messages if isinstance(message, WriteMessage) for add in message.adds]


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
    # Spark passes the properties of a table of a catalog as options, and a catalog is trusted only in part.
    if _CATALOG in options:
        raise OptionError(
            "a table of a catalog needs the bridge: set the session up by indextables.configure, or read the "
            "table by its path"
        )
    if scope is not None:
        check_scope(options.keys() - LOCATION_OPTIONS, READ_SCOPES.get(scope, {scope}))
    return locate_table({"options": options})
