"""Commands that change what a table holds, or write its log anew: DROP PARTITIONS, RESTORE, REPAIR."""

import pyarrow as pa

from indextables.commands.clauses import condition, text, where
from indextables.commands.command import Arguments, Clause, Command, Place, Wanted, rows
from indextables.commands.cursor import CommandCursor
from indextables.maintain.drop_partitions import drop_partitions
from indextables.maintain.repair import repair
from indextables.maintain.restore import restore
from indextables.predicate.times import micros_of
from indextables.version import ENGINE

_DROP = pa.schema(
    {
        "table_path": pa.string(),
        "status": pa.string(),
        "partitions_dropped": pa.int64(),
        "splits_removed": pa.int64(),
        "total_size_bytes": pa.int64(),
        "message": pa.string(),
    }
)
_RESTORE = pa.schema(
    {
        "table_path": pa.string(),
        "status": pa.string(),
        "restored_version": pa.int64(),
        "version": pa.int64(),
        "splits_restored": pa.int64(),
        "splits_removed": pa.int64(),
        "restored_size_bytes": pa.int64(),
        "removed_size_bytes": pa.int64(),
        "message": pa.string(),
    }
)
_REPAIR = pa.schema(
    {
        "source_path": pa.string(),
        "target_path": pa.string(),
        "source_version": pa.int64(),
        "total_splits": pa.int32(),
        "valid_splits": pa.int32(),
        "missing_splits": pa.int32(),
        "status": pa.string(),
    }
)


def _drop(place: Place, arguments: Arguments) -> pa.Table:
    with condition(arguments) as said:
        assert said is not None, "WHERE is required"
        done = drop_partitions(place.log, said)
    message = (
        "no partition matches"
        if done.version is None
        else f"version {done.version}; a purge deletes the files once their retention is over"
    )
    row = {
        "table_path": place.store.url,
        "status": "no_action" if done.version is None else "success",
        "partitions_dropped": done.partitions,
        "splits_removed": done.splits,
        "total_size_bytes": done.bytes,
        "message": message,
    }
    return rows(_DROP, row)


def _restore(place: Place, arguments: Arguments) -> pa.Table:
    kind, value = arguments["to"]
    done = restore(place.log, **{kind: value})
    message = (
        "the table is what it was already"
        if done.version is None
        else f"version {done.version} holds what version {done.restored_version} held"
    )
    row = {
        "table_path": place.store.url,
        "status": "no_action" if done.version is None else "success",
        "restored_version": done.restored_version,
        "version": done.version,
        "splits_restored": done.splits_restored,
        "splits_removed": done.splits_removed,
        "restored_size_bytes": done.bytes_restored,
        "removed_size_bytes": done.bytes_removed,
        "message": message,
    }
    return rows(_RESTORE, row)


def _version(cursor: CommandCursor) -> tuple[str, int]:
    cursor.accept_words("AS OF")
    return "version", cursor.expect_number("the version")


def _timestamp(cursor: CommandCursor) -> tuple[str, int]:
    cursor.accept_words("AS OF")
    start = cursor.token.start
    said = cursor.expect_text("the time")
    micros = micros_of(said, "UTC")
    if micros is None:
        raise cursor.wrong(f"{said!r} is no date and time such as '2024-05-01 12:00:00'", start)
    return "timestamp", micros // 1000


def _repair(place: Place, arguments: Arguments) -> pa.Table:
    done = repair(arguments["path"], arguments.get("location"), place.options, engine=ENGINE)
    row = {
        "source_path": done.source,
        "target_path": done.target,
        "source_version": done.source_version,
        "total_splits": done.total_splits,
        "valid_splits": done.valid_splits,
        "missing_splits": done.missing_splits,
        "status": "SUCCESS",
    }
    return rows(_REPAIR, row)


COMMANDS = (
    Command(
        openings=("DROP INDEXTABLES PARTITIONS FROM",),
        in_shell="drop",
        in_python="Table.drop_partitions",
        result=_DROP,
        plan=_drop,
        clauses=(where(required=True),),
        help="Take whole partitions out of the table, by a condition on partition columns.",
    ),
    Command(
        openings=("RESTORE INDEXTABLES",),
        in_shell="restore",
        in_python="Table.restore",
        result=_RESTORE,
        plan=_restore,
        clauses=(
            Clause("TO VERSION", "to", _version, "[AS OF] n"),
            Clause("TO TIMESTAMP", "to", _timestamp, "[AS OF] 'time'"),
        ),
        required_argument="to",
        help="Make an earlier version the newest one, without losing history. A time without a zone is UTC.",
    ),
    Command(
        openings=("REPAIR INDEXFILES TRANSACTION LOG",),
        in_shell="repair",
        in_python="repair",
        result=_REPAIR,
        plan=_repair,
        target=Wanted.PATH,
        clauses=(text("AT LOCATION", "location", shown="'path'"),),
        help="Write a log anew: AT LOCATION from one that can be read, else from the splits of a lost one.",
    ),
)
