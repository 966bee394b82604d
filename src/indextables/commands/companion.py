"""Commands of companion indexes: BUILD COMPANION, and the table roots of their sources."""

import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict

import pyarrow as pa

from indextables.commands.declarations import Arguments
from indextables.commands.execute import CommandContext, Implementation, table_of
from indextables.commands.grammar import condition
from indextables.data_files import open_log
from indextables.errors import CommandError
from indextables.log.format.actions import Add
from indextables.log.transaction_log import TransactionLog
from indextables.maintain.jobs import TaskSet
from indextables.options import Options
from indextables.source.companion import set_root, set_roots, table_roots, unset_root
from indextables.store import open_store
from indextables.sync import build_options, catalog_of, source_version
from indextables.sync.build import BuildContext, BuildTask, discard, run_build_task
from indextables.sync.plan import SyncRequest
from indextables.sync.run import RunningSync, SyncResult, begin, finish, follow
from indextables.version import ENGINE

_BUILD = pa.schema(
    {
        "table_path": pa.string(),
        "source_path": pa.string(),
        "status": pa.string(),
        "source_version": pa.int64(),
        "splits_created": pa.int32(),
        "splits_invalidated": pa.int32(),
        "parquet_files_indexed": pa.int32(),
        "parquet_bytes_downloaded": pa.int64(),
        "split_bytes_uploaded": pa.int64(),
        "duration_ms": pa.int64(),
        "message": pa.string(),
    }
)
_STATUS = pa.schema({"status": pa.string()})
_ROOTS = pa.schema({"root_name": pa.string(), "root_path": pa.string(), "set_timestamp": pa.string()})
# Clauses that are limited to some formats of sources.
_FORMATS = {
    "schema_file": ("SCHEMA SOURCE", ("parquet",)),
    "merge_schema": ("MERGE SCHEMA", ("parquet",)),
    "partition_types": ("PARTITION TYPES", ("parquet",)),
    "version": ("FROM VERSION", ("delta", "iceberg")),
    "snapshot": ("FROM SNAPSHOT", ("iceberg",)),
    "catalog": ("CATALOG", ("iceberg",)),
    "catalog_type": ("TYPE", ("iceberg",)),
    "warehouse": ("WAREHOUSE", ("iceberg",)),
}


def _build(context: CommandContext, arguments: Arguments) -> pa.Table | TaskSet:
    request, options = _request(context, arguments)
    log = _log(context, arguments, options)
    if "every" in arguments:
        return _follow(context, arguments, log, request, options)
    return _tasks(log, arguments, request, options, begin(log, request, options))


def _finish_build(
    context: CommandContext, arguments: Arguments, state: RunningSync, results: Iterable[Add]
) -> pa.Table | TaskSet:
    request, options = _request(context, arguments)
    log = _log(context, arguments, options)
    built: list[Add] = []
    try:
        # Without Spark, a split is built when the iterator is advanced.
        built.extend(results)
    except BaseException:
        discard(log.store, [*state.reused.values(), *built])
        raise
    return _tasks(log, arguments, request, options, finish(log, request, options, state, built))


def _tasks(
    log: TransactionLog,
    arguments: Arguments,
    request: SyncRequest,
    options: Options,
    running: RunningSync | SyncResult,
) -> pa.Table | TaskSet:
    """The tasks of a sync, or its result."""
    while isinstance(running, RunningSync) and not running.pending:
        running = finish(log, request, options, running, ())
    if isinstance(running, SyncResult):
        return _result(log, arguments, running)
    build, index = BuildContext.of(running.plan), log.store.with_credentials()
    return TaskSet(
        run_build_task, [BuildTask(split, build, index) for split in running.pending], state=running
    )


def _result(log: TransactionLog, arguments: Arguments, result: SyncResult) -> pa.Table:
    if result.status != "dry_run":
        set_roots(log, arguments.get("roots") or {})
    values = asdict(result)
    version = result.source_version
    message = result.message
    if isinstance(version, str):
        message = "; ".join(part for part in (message, f"version {version} of the source") if part)
    return table_of(
        _BUILD,
        {
            **{name: values[name] for name in _BUILD.names if name in values},
            "source_version": version if isinstance(version, int) else None,
            "parquet_files_indexed": result.files_indexed,
            "parquet_bytes_downloaded": result.source_bytes,
            "split_bytes_uploaded": result.split_bytes,
            "message": message,
        },
    )


def _follow(
    context: CommandContext,
    arguments: Arguments,
    log: TransactionLog,
    request: SyncRequest,
    options: Options,
) -> pa.Table:
    """Sync until this process is interrupted or ended by a signal."""
    if context.owner is not None:
        raise CommandError(
            "WITH STREAMING never ends, and a statement of Spark would block its planner; use the program "
            "(indextables companion --every), indextables.companion(every=...), or repeat the statement"
        )
    with _stop_on_signals() as stop:
        last = follow(
            log,
            request,
            options,
            seconds=arguments["every"],
            stop=stop,
            roots=arguments.get("roots") or {},
            progress=context.progress,
            report=lambda result: context.report(_sentence(result)),
        )
    if last is None:
        raise CommandError("the command was interrupted before its first sync")
    return _result(log, arguments, last)


def _sentence(result: SyncResult) -> str:
    """The result of a sync as a line of text."""
    return (
        f"version {result.version}: {result.files_indexed} files indexed, {result.splits_created} splits "
        f"created, {result.splits_invalidated} splits left the index; version {result.source_version} of the "
        f"source; {result.duration_ms / 1000:.1f} s"
    )


@contextmanager
def _stop_on_signals() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set, if this is the main thread."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {each: signal.signal(each, lambda *_: stop.set()) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _request(context: CommandContext, arguments: Arguments) -> tuple[SyncRequest, Options]:
    """The request of a statement, and the options of the build."""
    kind = arguments.get("format")
    for name, (keywords, formats) in _FORMATS.items():
        if name in arguments and kind is not None and kind not in formats:
            raise CommandError(f"{keywords} is for sources of the format {' or '.join(formats)} only")
    if "every" in arguments and "dry_run" in arguments:
        raise CommandError("DRY RUN and WITH STREAMING exclude each other; leave one of them out")
    with condition(arguments) as where:
        request = SyncRequest(
            source=arguments["path"],
            format=kind,
            version=source_version(kind, arguments.get("version"), arguments.get("snapshot")),
            where=where,
            include=arguments.get("include"),
            exclude=arguments.get("exclude"),
            rebuild=arguments.get("rebuild", False),
            dry_run=arguments.get("dry_run", False),
            relocate=arguments.get("relocate"),
            allowed_locations=arguments.get("allowed_locations"),
            time_zone=arguments.get("time_zone"),
            merge_schema=arguments.get("merge_schema"),
            schema_file=arguments.get("schema_file"),
            partition_types=arguments.get("partition_types"),
            catalog=catalog_of(
                arguments.get("catalog"), arguments.get("catalog_type"), arguments.get("warehouse")
            ),
            default_time_zone=context.zone or "UTC",
            default_partition_types={} if context.infer_partitions else {"*": "string"},
        )
    options = build_options(
        context.options,
        modes=arguments.get("modes"),
        target_size=arguments.get("target_size"),
        heap_size=arguments.get("heap_size"),
    )
    return request, options


def _log(context: CommandContext, arguments: Arguments, options: Options) -> TransactionLog:
    store = open_store(arguments["at"], options, credentials=context.credentials)
    return open_log(store, options, engine=ENGINE)


# --- table roots -----------------------------------------------------------------------------------


def _set_root(context: CommandContext, arguments: Arguments) -> pa.Table:
    name, path = arguments["root"]
    return table_of(_STATUS, {"status": set_root(context.log, name, path)})


def _unset_root(context: CommandContext, arguments: Arguments) -> pa.Table:
    return table_of(_STATUS, {"status": unset_root(context.log, arguments["name"])})


def _list_roots(context: CommandContext, arguments: Arguments) -> pa.Table:
    del arguments
    return table_of(
        _ROOTS,
        *(
            {"root_name": name, "root_path": root.path, "set_timestamp": str(root.set_ms)}
            for name, root in table_roots(context.log).items()
        ),
    )


BUILD = Implementation(_BUILD, _build, _finish_build)
SET_ROOT = Implementation(_STATUS, _set_root)
UNSET_ROOT = Implementation(_STATUS, _unset_root)
ROOTS = Implementation(_ROOTS, _list_roots)
