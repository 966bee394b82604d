"""Standing queries on splits: which of many saved queries each row matches.

Every query is one search on the index of a split; no row is compared with a query.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indextables.errors import IndexTablesError, OptionError, PredicateError, SchemaError
from indextables.log.snapshot import Snapshot
from indextables.log.transaction_log import TransactionLog
from indextables.options import Options
from indextables.predicate import Column, Search, SearchKind
from indextables.predicate.query_language import split_path
from indextables.read.follow import inserted_splits, new_versions
from indextables.read.split_reader import SplitReader, split_errors
from indextables.read.table_context import TableContext, plan_splits
from indextables.records import dataclass

MATCHING_QUERIES = "_matching_queries"
MATCHING_TYPE = pa.list_(pa.string())
# In the metadata of rows: the version after which to start to get them again.
SINCE = b"indextables.since"

# The maximum number of matches of a piece.
_MAX_MATCHES = 1 << 20


@dataclass(frozen=True, slots=True)
class StandingQuery:
    """A saved query: its id, its text, and the default field of its unqualified terms."""

    id: str
    query: str
    field: str | None = None


def standing_queries(definitions: Mapping[str, object]) -> tuple[StandingQuery, ...]:
    """Saved queries by their ids; a value is a query, or a mapping with `query` and optionally `field`.

    Raises:
        OptionError: there is none, a value is something else, or ids are equal as texts.
    """
    if not isinstance(definitions, Mapping):
        raise OptionError(f"standing queries are a mapping from ids to queries, not {definitions!r}")
    queries: dict[str, StandingQuery] = {}
    for key, value in definitions.items():
        members = {"query": value} if isinstance(value, str) else value
        if not isinstance(members, Mapping) or not _is_query(members):
            raise OptionError(
                f"the standing query '{key}' is {value!r}, but a query, or a mapping with 'query' and "
                "optionally 'field', is expected"
            )
        if str(key) in queries:
            raise OptionError(f"there is more than one standing query with the id '{key}': ids are texts")
        queries[str(key)] = StandingQuery(str(key), members["query"], members.get("field"))
    if not queries:
        raise OptionError("there are no standing queries; give at least one, by its id")
    return tuple(queries.values())


def _is_query(members: Mapping[str, object]) -> bool:
    texts = all(isinstance(value, str) for value in members.values())
    return texts and "query" in members and set(members) <= {"query", "field"}


def check_new_column(names: Iterable[str]) -> None:
    """Refuse rows that have a column of the name that matching queries get.

    Raises:
        SchemaError: there is one.
    """
    if MATCHING_QUERIES in {name.lower() for name in names}:
        raise SchemaError(
            f"there is a column {MATCHING_QUERIES} already, which is the name of the column of matching "
            "queries; rename it before rows are compared with standing queries"
        )


def check_queries(
    queries: Sequence[StandingQuery], table: TableContext, columns: Sequence[str] | None = None
) -> list[Search]:
    """The searches of queries for a table, which must have the columns.

    Raises:
        PredicateError: a query is malformed or names an unknown field; the message names the query.
        SchemaError: the table has no such column, or one of the name of the column of matching queries.
    """
    check_new_column(table.schema.names)
    table.select_fields(columns)
    names = {name.lower() for name in table.schema.names}
    searches = []
    for each in queries:
        field = each.field
        column = None if field is None else Column((field,) if field.lower() in names else split_path(field))
        search = Search(SearchKind.INDEXQUERY, column, each.query)
        try:
            table.bound_query(search)
        except IndexTablesError as error:
            raise PredicateError(f"the standing query '{each.id}' cannot be evaluated: {error}") from error
        searches.append(search)
    return searches


def matching_queries(
    reader: SplitReader, queries: Sequence[StandingQuery], searches: Sequence[Search]
) -> Iterator[pa.ListArray]:
    """For each row of a split the ids of the queries that it matches, in the order of the queries.

    The rows come in pieces with a bounded number of matches. Apart from a piece, a match takes four bytes.
    """
    counts = np.zeros(reader.source.num_records, np.int64)
    hits = []
    with split_errors(reader.table, reader.ref):
        for search in searches:
            rows = np.sort(reader.numbers(search)).astype(np.uint32)
            counts[rows] += 1
            hits.append(rows)
    ids = pa.array([each.id for each in queries], pa.string())
    for start, end in _pieces(counts):
        parts = [each[slice(*np.searchsorted(each, (start, end)))] for each in hits]
        numbers = np.repeat(np.arange(len(parts)), [len(each) for each in parts])
        # Stable: equal rows keep the order of the queries.
        order = np.argsort(np.concatenate([np.zeros(0, np.uint32), *parts]), kind="stable")
        offsets = np.concatenate([[0], np.cumsum(counts[start:end])]).astype(np.int32)
        yield pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), ids.take(pa.array(numbers[order])))


def _pieces(counts: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Ranges of rows with no more matches than fit into a piece, but one row at least."""
    totals = np.cumsum(counts)
    start = before = 0
    while start < len(counts):
        end = max(start + 1, int(np.searchsorted(totals, before + _MAX_MATCHES, side="right")))
        yield start, end
        start, before = end, int(totals[end - 1])


def watch(
    log: TransactionLog,
    snapshot: Snapshot,
    options: Options,
    queries: Sequence[StandingQuery],
    *,
    columns: Sequence[str] | None,
    since: int,
    interval: float,
    timeout: float | None,
) -> Iterator[pa.Table]:
    """The rows that new versions insert and that match a query, with the ids of the queries.

    The existing index of each new split is used. The metadata of each table has the version after which to
    start again to get its rows.
    """
    for first, end in new_versions(log, snapshot, since, interval=interval, timeout=timeout):
        snapshot = inserted_splits(log, first, end)
        plan = plan_splits(snapshot, None, options)
        table, splits = plan.table, plan.splits
        names = table.select_fields(end.schema.names if columns is None else columns).names
        searches = check_queries(queries, table)
        for ref in splits:
            reader = SplitReader(log.store, ref, table)
            before = 0
            for matches in matching_queries(reader, queries, searches):
                matched = np.flatnonzero(np.diff(matches.offsets.to_numpy()))
                if len(matched):
                    rows = reader.rows(before + matched, names)
                    rows = rows.append_column(MATCHING_QUERIES, matches.take(pa.array(matched)))
                    yield rows.replace_schema_metadata(
                        {**(rows.schema.metadata or {}), SINCE: str(first - 1)}
                    )
                before += len(matches)
