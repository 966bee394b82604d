"""The rows of splits as a scan of Spark wants them: with virtual columns, scores, the first in an order."""

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from indextables.predicate import And, Predicate, Search
from indextables.read.from_splits import group_values
from indextables.read.ranked import Ranked, best_rows
from indextables.read.split_reader import SplitReader
from indextables.read.tasks import SplitRef
from indextables.spark.ordering import first, not_behind
from indextables.spark.virtual import SCORE, Buckets, Highlight
from indextables.spark.wanted import Rows, SortKey
from indextables.split.query.query_compiler import compile_query
from indextables.split.query.row_sets import union
from indextables.store import Store

Numbers: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

_FRAGMENT_LENGTH = 150


def rows_of(wanted: Rows, splits: Sequence[SplitRef], store: Store) -> Iterator[pa.RecordBatch]:
    """The rows that a scan wants of some splits."""
    left = wanted.limit if not wanted.order else None
    for ref in splits:
        if left is not None and left <= 0:
            return
        reader = SplitReader(store, ref, wanted.table)
        for batch in split_rows(wanted, reader, left):
            yield batch
            left = None if left is None else left - batch.num_rows


def split_rows(wanted: Rows, reader: SplitReader, limit: int | None) -> Iterator[pa.RecordBatch]:
    """The rows that a scan wants of one split; any `limit` of them, unless it has an order."""
    if wanted.plain:
        yield from reader.batches(wanted.columns, wanted.where, limit)
        return
    if wanted.order:
        numbers = _first_rows(wanted, reader)
        yield from _by_number(wanted, reader, numbers)
        return
    columns = _Columns(wanted, reader)
    left = limit
    for numbers, batch in reader.numbered(columns.read, wanted.where):
        made = columns.of(numbers, batch)
        yield made if left is None else made.slice(0, left)
        if left is not None:
            left -= made.num_rows
            if left <= 0:
                return


class _Columns:
    """Makes the columns that are returned from those that are read."""

    def __init__(self, wanted: Rows, reader: SplitReader) -> None:
        self.wanted = wanted
        self.reader = reader
        self.read = _read(wanted)
        self._matches: dict[Search, Numbers] = {}
        self._scores: np.ndarray | None = None

    def of(self, numbers: Numbers, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns of some rows, whose numbers are ascending."""
        arrays = [self._column(name, numbers, batch) for name in self.wanted.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self.wanted.schema)

    def _column(self, name: str, numbers: Numbers, batch: pa.RecordBatch) -> pa.Array:
        if (virtual := self.wanted.virtual.get(name)) is None:
            if self.wanted.is_score(name):
                return pa.array(self.scores(numbers))
            return batch.column(self.wanted.table.column(name).name)
        match virtual:
            case Search():
                return pa.array(self._found(virtual, numbers))
            case Highlight(column):
                return self._fragments(column, batch)
            case _:
                return group_values(virtual, batch.column(virtual.column))

    def _found(self, search: Search, numbers: Numbers) -> np.ndarray:
        if search not in self._matches:
            self._matches[search] = self.reader.numbers(search)
        return np.isin(numbers, self._matches[search], assume_unique=True)

    def scores(self, numbers: Numbers) -> np.ndarray:
        """The relevance of rows: the sum over the searches that they match."""
        if self._scores is None:
            total = np.zeros(self.reader.source.num_records, np.float32)
            for search in self.wanted.scored:
                found = self.reader.scored(search, self.wanted.statistics)
                top = self.reader.index.top(found.rows, self.reader.source.num_records)
                total[top.rows] += top.scores
            self._scores = total
        return self._scores[numbers]

    def _fragments(self, column: str, batch: pa.RecordBatch) -> pa.Array:
        queries = [
            compile_query(self.reader.understand(s), self.reader.view).true.rows for s in self.wanted.scored
        ]
        texts = batch.column(column).to_pylist()
        found = self.reader.index.highlight(union(queries), column, texts, _FRAGMENT_LENGTH)
        return pa.array(found, pa.string())


def _read(wanted: Rows) -> list[str]:
    """The columns of the table that are needed."""
    needed: list[str] = []
    for name in wanted.columns:
        virtual = wanted.virtual.get(name)
        if virtual is None:
            needed += [] if wanted.is_score(name) else [wanted.table.column(name).name]
        elif isinstance(virtual, Highlight | Buckets):
            needed.append(virtual.column)
    return list(dict.fromkeys(needed))


# --- order ------------------------------------------------------------------------------------------


def _by_number(wanted: Rows, reader: SplitReader, numbers: Numbers) -> Iterator[pa.RecordBatch]:
    columns = _Columns(wanted, reader)
    table = reader.rows(numbers, columns.read) if columns.read else None
    if table is None:
        yield columns.of(numbers, pa.RecordBatch.from_arrays([], names=[]))
        return
    start = 0
    for batch in table.to_batches():
        yield columns.of(numbers[start : start + batch.num_rows], batch)
        start += batch.num_rows


def _first_rows(wanted: Rows, reader: SplitReader) -> Numbers:
    """The numbers of the first rows in the order, ascending."""
    assert wanted.limit is not None
    if (found := ranked(wanted)) is not None:
        top = best_rows(reader, found, wanted.statistics)
        return np.sort(top.rows[np.lexsort((top.rows, -top.scores))[: wanted.limit]])
    names = [key.column for key in wanted.order]
    own = [name for name in dict.fromkeys(names) if not wanted.is_score(name)]
    scores = _Columns(wanted, reader)
    kept: dict[str, pa.Array] = {}
    best: Numbers = np.zeros(0, np.int64)
    for every, batch in reader.numbered(own, wanted.where):
        numbers = every
        columns = {name: batch.column(i) for i, name in enumerate(own)}
        if len(own) < len(set(names)):
            columns[SCORE] = pa.array(scores.scores(numbers))
        if len(best) == wanted.limit:
            # Sorting is dear, and few rows come before the last of those that were found.
            key = wanted.order[0]
            near = not_behind(columns[key.column], kept[key.column][-1], key)
            columns = {name: column.filter(near) for name, column in columns.items()}
            numbers = numbers[near.to_numpy(zero_copy_only=False)]
            if not len(numbers):
                continue
        both = {name: pa.concat_arrays([kept[name], c]) if kept else c for name, c in columns.items()}
        everyone = np.concatenate([best, numbers])
        places = first(both, wanted.order, wanted.limit)
        best = everyone[places]
        kept = {name: column.take(pa.array(places)) for name, column in both.items()}
    return np.sort(best)


def ranked(wanted: Rows) -> Ranked | None:
    """The search and the rest of the condition, if the best rows of one search are all that is wanted."""
    match wanted.order:
        case (SortKey(column=column, ascending=False),) if wanted.is_score(column):
            pass
        case _:
            return None
    if len(wanted.scored) != 1:
        return None
    search = wanted.scored[0]
    match wanted.where:
        case Search():
            return Ranked(search, None, wanted.limit)
        case And(parts) if search in parts:
            rest: list[Predicate] = [part for part in parts if part != search]
            return Ranked(search, And(tuple(rest)) if len(rest) != 1 else rest[0], wanted.limit)
        case _:
            return None
