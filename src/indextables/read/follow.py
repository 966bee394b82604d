"""Follow a table: the rows that new versions insert, version by version."""

import math
import time
from collections.abc import Iterator, Sequence
from datetime import datetime

import pyarrow as pa

from indextables.errors import OptionError, TableReplacedError
from indextables.log.changes import are_versions_of, changed_splits, check_columns, snapshot_of_splits
from indextables.log.snapshot import Snapshot
from indextables.log.transaction_log import TransactionLog
from indextables.options import Options
from indextables.predicate import Predicate, Search, SearchKind, conjunction
from indextables.predicate.query_language import split_path
from indextables.predicate.traversal import searches_of
from indextables.predicate.tree import Column
from indextables.read.execute import stream
from indextables.read.search import HIGHLIGHT
from indextables.read.spec import Highlight, ScanSpec, VirtualColumn
from indextables.read.table_context import plan_splits, table_context
from indextables.records import dataclass
from indextables.schema.calendar import epoch_milliseconds
from indextables.table_properties import table_condition

# The maximum number of versions whose splits are listed at once.
_WINDOW = 100


@dataclass(frozen=True, slots=True)
class FollowSpec:
    """Which of the inserted rows are returned, and how.

    Attributes:
        query: a query in the query language; None for all rows.
        field: the default field of its unqualified terms; None for all text-like columns.
        where: a SQL condition that rows must meet as well.
        columns: the columns to return; None for all of the table.
        highlight: text columns of which `_highlight_<column>` is added.
    """

    query: str | None = None
    field: str | None = None
    where: str | None = None
    columns: Sequence[str] | None = None
    highlight: Sequence[str] = ()


def inserted_splits(log: TransactionLog, first: int, end: Snapshot) -> Snapshot:
    """The splits that the versions from `first` up to a snapshot inserted, as a snapshot with change columns.

    Raises:
        TableReplacedError: the versions are those of another table that replaced this one.
        HistoryExpiredError: the files of a version were deleted.
        SchemaError: a column had another type in between.
    """
    changes = log.version_changes(first, end.version)
    if not are_versions_of(changes.versions, end):
        raise _replacement_error(end)
    check_columns(changes, end)
    return snapshot_of_splits(
        end,
        changed_splits(changes.versions, deletes=False),
        changes.registry,
        identity=f"inserts from {first}",
        change_columns=True,
    )


def new_versions(
    log: TransactionLog, snapshot: Snapshot, since: int, *, interval: float, timeout: float | None
) -> Iterator[tuple[int, Snapshot]]:
    """The first and the last of the versions after `since`, a few at a time, as they are committed.

    Args:
        log: the table.
        snapshot: a version of the table that is followed.
        since: the version after which to start.
        interval: the polling interval in seconds.
        timeout: stop if there is no new version for this many seconds; None: never stop.

    Raises:
        TableReplacedError: another table is at the path now, or an older state of this one.
        OptionError: `since` is no version of the table, or the interval or the timeout is no time to wait.
    """
    if not 0 < interval < math.inf:
        raise OptionError(f"the polling interval is {interval} seconds, but a number above 0 is expected")
    if timeout is not None and math.isnan(timeout):
        raise OptionError("the timeout is not a number; give the seconds to wait for a new version")
    checked = False
    waiting = time.monotonic()
    while True:
        newest = log.snapshot()
        if not newest.is_later_than(snapshot):
            raise _replacement_error(snapshot)
        snapshot = newest
        if not checked and not -1 <= since <= newest.version:
            raise OptionError(
                f"the table at {newest.url} cannot be followed after version {since}: the start is a version "
                f"from -1 to the last one, {newest.version}"
            )
        checked = True
        while since < newest.version:
            last = min(since + _WINDOW, newest.version)
            end = newest if last == newest.version else log.snapshot(version=last)
            if not newest.is_later_than(end):
                raise _replacement_error(newest)
            yield since + 1, end
            since = last
            waiting = time.monotonic()
        rest = None if timeout is None else waiting + timeout - time.monotonic()
        if rest is not None and rest <= 0:
            return
        time.sleep(interval if rest is None else min(interval, rest))


def _replacement_error(before: Snapshot) -> TableReplacedError:
    return TableReplacedError(
        f"the table at {before.url} is not the one that was followed up to version {before.version}, or an "
        "older state of it: it was deleted and created again, or restored from a copy; open it again, and "
        "follow it from version -1 on (since) to read all of its rows"
    )


def check_follow(spec: FollowSpec, snapshot: Snapshot, options: Options) -> None:
    """Refuse invalid queries, conditions and columns before the first row is read.

    Raises:
        QuerySyntaxError: a query is malformed.
        PredicateError: a query names an unknown field, or a condition is malformed.
        SchemaError: the table has no such column.
    """
    snapshot = snapshot_of_splits(snapshot, (), {}, identity="no inserts", change_columns=True)
    table = table_context(snapshot, options)
    for search in searches_of(_condition(spec, snapshot)):
        table.bound_query(search)
    table.select_fields(spec.columns)
    for name in spec.highlight:
        table.check_text(name)


def inserted_rows(
    log: TransactionLog, first: int, end: Snapshot, spec: FollowSpec, options: Options
) -> pa.Table:
    """The rows that the versions from `first` up to a snapshot inserted, in the order of the versions."""
    snapshot = inserted_splits(log, first, end)
    where = _condition(spec, snapshot)
    plan = plan_splits(snapshot, where, options)
    table, splits = plan.table, plan.splits
    columns = table.select_fields(end.schema.names if spec.columns is None else spec.columns).names
    marked = [table.column(name).name for name in spec.highlight]
    context = table_context(snapshot, options) if marked else table
    for name in marked:
        context.check_text(name)
    virtual: dict[str, VirtualColumn] = {HIGHLIGHT + name: Highlight(name) for name in marked}
    scan = ScanSpec(table, (*columns, *virtual), where, virtual)
    return pa.Table.from_batches(stream(scan, splits, log.store), scan.schema)


def follow(
    log: TransactionLog,
    snapshot: Snapshot,
    options: Options,
    spec: FollowSpec,
    since: int,
    *,
    interval: float,
    timeout: float | None,
) -> Iterator[pa.Table]:
    """The rows that the versions after `since` insert, as they are committed (see `new_versions`).

    Raises:
        QuerySyntaxError, PredicateError, SchemaError: as `check_follow` does, before it waits for rows.
    """
    check_follow(spec, snapshot, options)
    versions = new_versions(log, snapshot, since, interval=interval, timeout=timeout)
    tables = (inserted_rows(log, first, end, spec, options) for first, end in versions)
    return (rows for rows in tables if rows.num_rows)


def _condition(spec: FollowSpec, snapshot: Snapshot) -> Predicate | None:
    parts: list[Predicate] = []
    if spec.query is not None:
        field = spec.field
        is_column = field is not None and field.lower() in {name.lower() for name in snapshot.schema.names}
        column = None if field is None else Column((field,) if is_column else split_path(field))
        parts.append(Search(SearchKind.INDEXQUERY, column, spec.query))
    if spec.where is not None:
        parts.append(table_condition(spec.where, snapshot))
    return conjunction(parts)


def changes_between(
    log: TransactionLog, end: Snapshot, since: int | datetime | str, until: int | datetime | str | None
) -> Snapshot:
    """The changes after a version or time, up to another one or to the snapshot `end`, as a snapshot.

    Raises:
        VersionNotFoundError: there is no such last version.
        OptionError: there is no such start, or `until` is a version after `end`.
        TableReplacedError: another table is at the path now.
    """
    if isinstance(until, int) and until > end.version:
        log.snapshot(version=until)
        raise OptionError(
            f"changes cannot end at version {until}: the table at {end.url} was opened at version "
            f"{end.version}; open its newest version to read them"
        )
    if isinstance(until, int):
        end = end if until == end.version else log.snapshot(version=until)
    elif until is not None:
        last = log.snapshot(timestamp=epoch_milliseconds(until))
        end = end if last.version >= end.version else last
    first = since + 1 if isinstance(since, int) else log.version_after(epoch_milliseconds(since))
    if first < 0 or (isinstance(since, int) and since > end.version):
        raise OptionError(
            f"changes cannot start after version {since}: the start is a version from -1 to the last "
            f"one, {end.version}"
        )
    return log.changes_snapshot(first, end)
