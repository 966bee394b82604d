"""The rows that a scan returns of splits, with virtual columns and scores, or the first rows of an order."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.options import reading
from indextables.predicate import And, Search, conjunction
from indextables.predicate.evaluate import float_order
from indextables.read.aggregation import group_values
from indextables.read.parallel import open_readers
from indextables.read.search import RankedSearch, best_rows
from indextables.read.spec import FILE_METADATA_TYPE, FRAGMENT_LENGTH, SCORE, Highlight, ScanSpec, SortKey
from indextables.read.split_reader import FEW_ROWS, SplitReader
from indextables.read.table_context import SplitRef
from indextables.schema.type_info import TypeKind, info_of, kind_of
from indextables.split.parquet.reader import fetch_together, slice_batch
from indextables.split.query.query_compiler import compile_query
from indextables.split.query.row_sets import union
from indextables.store import Store

Numbers: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]


def scan_splits(
    spec: ScanSpec, splits: Sequence[SplitRef], store: Store, *, scans: int = 1
) -> Iterator[pa.RecordBatch]:
    """The rows of splits, read one after the other; `scans` is the number of parallel parts of the scan."""
    limited = spec.limit is not None and not spec.order
    readers = open_readers(store, splits, spec.table, spec.where, limited=limited, scans=scans)
    return scan_readers(spec, readers, len(splits))


def scan_readers(spec: ScanSpec, readers: Iterable[SplitReader], count: int) -> Iterator[pa.RecordBatch]:
    """The rows of `count` splits, which are opened one after the other."""
    rest = spec.limit if not spec.order else None
    few = _FewRows(spec)
    for reader in readers:
        if rest is not None and rest <= 0:
            break
        numbers = reader.find_few(spec.where, rest, FEW_ROWS) if few.is_used(count) else None
        if numbers is None:
            yield from few.fetch()
            for batch in split_rows(spec, reader, rest):
                yield batch
                rest = None if rest is None else rest - batch.num_rows
            continue
        rest = None if rest is None else rest - len(numbers)
        yield from few.add(reader, numbers)
    yield from few.fetch()


class _FewRows:
    """A few rows in each of several splits, which are fetched and decoded together."""

    def __init__(self, spec: ScanSpec) -> None:
        self._spec = spec
        self._hits: list[tuple[SplitReader, Numbers]] = []
        self._rows = 0

    def is_used(self, splits: int) -> bool:
        """Whether a scan of this many splits looks for few rows first."""
        return splits > 1 and self._spec.is_plain and self._spec.where is not None

    def add(self, reader: SplitReader, numbers: Numbers) -> Iterator[pa.RecordBatch]:
        """Add rows of the next split; returns the rows before them if there are enough."""
        if len(numbers):
            if self._rows + len(numbers) > FEW_ROWS:
                yield from self.fetch()
            self._hits.append((reader, numbers))
            self._rows += len(numbers)

    def fetch(self) -> Iterator[pa.RecordBatch]:
        """The rows that were added, in order."""
        hits, self._hits, self._rows = self._hits, [], 0
        start = 0
        while start < len(hits):
            end = start + 1
            while end < len(hits) and self._can_fetch_with(hits[start][0], hits[end][0]):
                end += 1
            yield from self._fetch(hits[start:end])
            start = end

    def _can_fetch_with(self, one: SplitReader, other: SplitReader) -> bool:
        return one.source.schema is other.source.schema and None not in (one.row_reader, other.row_reader)

    def _fetch(self, hits: Sequence[tuple[SplitReader, Numbers]]) -> Iterator[pa.RecordBatch]:
        first, columns = hits[0][0], self._spec.columns
        own = first.own_columns(columns)
        requests = [(reader.row_reader, numbers) for reader, numbers in hits if reader.row_reader is not None]
        table = fetch_together(requests, own) if own and len(requests) > 1 else None
        if table is None:
            for reader, numbers in hits:
                yield from reader.fetch(columns, numbers)
            return
        batch = table.combine_chunks().to_batches()[0]
        if not any(reader.constants for reader, _ in hits):
            yield from slice_batch(first.whole(batch, columns), self._batch_bytes)
            return
        start = 0
        for reader, numbers in hits:
            part = batch.slice(start, len(numbers))
            yield from slice_batch(reader.whole(part, columns), self._batch_bytes)
            start += len(numbers)

    @property
    def _batch_bytes(self) -> int:
        return self._spec.table.options.get(reading.BATCH_BYTES)


def split_rows(spec: ScanSpec, reader: SplitReader, limit: int | None) -> Iterator[pa.RecordBatch]:
    """The rows of one split; any `limit` of them, or with an order the first `spec.limit`."""
    if spec.is_plain:
        yield from reader.batches(spec.columns, spec.where, limit)
        return
    if spec.order:
        numbers = _first_rows(spec, reader)
        yield from _by_number(spec, reader, numbers)
        return
    columns = _Projection(spec, reader)
    rest = limit
    for numbers, batch in reader.numbered_batches(spec.read_columns, spec.where):
        rows = columns.of(numbers, batch)
        yield rows if rest is None else rows.slice(0, rest)
        if rest is not None:
            rest -= rows.num_rows
            if rest <= 0:
                return


class _Projection:
    """Computes the returned columns from the columns that are read."""

    def __init__(self, spec: ScanSpec, reader: SplitReader) -> None:
        self.spec = spec
        self.reader = reader
        self._matches: dict[Search, Numbers] = {}
        self._scores: np.ndarray | None = None

    def of(self, numbers: Numbers, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns of some rows, whose numbers are ascending."""
        arrays = [self._column(name, numbers, batch) for name in self.spec.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self.spec.schema)

    def _column(self, name: str, numbers: Numbers, batch: pa.RecordBatch) -> pa.Array:
        if (virtual := self.spec.virtual.get(name)) is None:
            if self.spec.is_score(name):
                return pa.array(self.scores(numbers))
            if self.spec.is_file_metadata(name):
                return pa.repeat(self._file_metadata(), len(numbers))
            return batch.column(self.spec.table.column(name).name)
        match virtual:
            case Search():
                return pa.array(self._is_match(virtual, numbers))
            case Highlight(column):
                return self._fragments(column, batch)
            case _:
                return group_values(virtual, batch.column(virtual.column))

    def _file_metadata(self) -> pa.Scalar:
        ref, path = self.reader.ref, self.reader.ref.path
        url = path if "://" in path else f"{self.spec.table.url.rstrip('/')}/{path}"
        values = {"file_path": url, "file_name": path.rpartition("/")[2], "file_size": ref.size}
        return pa.scalar(values, FILE_METADATA_TYPE)

    def _is_match(self, search: Search, numbers: Numbers) -> np.ndarray:
        if search not in self._matches:
            self._matches[search] = self.reader.numbers(search)
        return np.isin(numbers, self._matches[search], assume_unique=True)

    def scores(self, numbers: Numbers) -> np.ndarray:
        """The relevance of rows: the sum over the searches that they match."""
        if self._scores is None:
            total = np.zeros(self.reader.source.num_records, np.float32)
            for search in self.spec.scored_searches:
                scored = self.reader.score_search(search, self.spec.statistics)
                top = self.reader.index.top(scored.rows, self.reader.source.num_records)
                total[top.rows] += top.scores
            self._scores = total
        return self._scores[numbers]

    def _fragments(self, column: str, batch: pa.RecordBatch) -> pa.Array:
        reader = self.reader
        queries = [
            compile_query(reader.bound_query(search), reader.view).true.rows
            for search in self.spec.scored_searches
        ]
        texts = batch.column(column).to_pylist()
        fragments = self.reader.index.highlight(union(queries), column, texts, FRAGMENT_LENGTH)
        return pa.array(fragments, pa.string())


# --- order ------------------------------------------------------------------------------------------


def _by_number(spec: ScanSpec, reader: SplitReader, numbers: Numbers) -> Iterator[pa.RecordBatch]:
    columns = _Projection(spec, reader)
    table = reader.rows(numbers, spec.read_columns) if spec.read_columns else None
    if table is None:
        yield columns.of(numbers, pa.RecordBatch.from_arrays([], names=[]))
        return
    start = 0
    for batch in table.to_batches():
        yield columns.of(numbers[start : start + batch.num_rows], batch)
        start += batch.num_rows


def _first_rows(spec: ScanSpec, reader: SplitReader) -> Numbers:
    """The numbers of the first rows in the order, ascending."""
    assert spec.limit is not None
    if (ranked := ranked_search(spec)) is not None:
        top = best_rows(reader, ranked, spec.statistics)
        return np.sort(top.rows[np.lexsort((top.rows, -top.scores))[: spec.limit]])
    names = [key.column for key in spec.order]
    own = [name for name in dict.fromkeys(names) if not spec.is_score(name)]
    scores = _Projection(spec, reader)
    sort_values: dict[str, pa.Array] = {}
    best: Numbers = np.zeros(0, np.int64)
    for every, batch in reader.numbered_batches(own, spec.where):
        numbers = every
        columns = {name: batch.column(i) for i, name in enumerate(own)}
        if len(own) < len(set(names)):
            columns[SCORE] = pa.array(scores.scores(numbers))
        if len(best) == spec.limit:
            # Only rows that sort before the current last row are sorted; these are few.
            key = spec.order[0]
            near = _not_after(columns[key.column], sort_values[key.column][-1], key)
            columns = {name: column.filter(near) for name, column in columns.items()}
            numbers = numbers[near.to_numpy(zero_copy_only=False)]
            if not len(numbers):
                continue
        both = {
            name: pa.concat_arrays([sort_values[name], c]) if sort_values else c
            for name, c in columns.items()
        }
        everyone = np.concatenate([best, numbers])
        places = first_rows(both, spec.order, spec.limit)
        best = everyone[places]
        sort_values = {name: column.take(pa.array(places)) for name, column in both.items()}
    return np.sort(best)


def ranked_search(spec: ScanSpec) -> RankedSearch | None:
    """The search and the rest of the condition, if the scan returns the best rows of a single search."""
    match spec.order:
        case (SortKey(column=column, ascending=False),) if spec.is_score(column):
            pass
        case _:
            return None
    if len(spec.scored_searches) != 1:
        return None
    search = spec.scored_searches[0]
    match spec.where:
        case Search():
            return RankedSearch(search, None, spec.limit)
        case And(parts) if search in parts:
            return RankedSearch(search, conjunction(part for part in parts if part != search), spec.limit)
        case _:
            return None


def can_order(arrow: pa.DataType) -> bool:
    """Whether values of a type are ordered here as Spark orders them."""
    return info_of(arrow).comparable and kind_of(arrow) is not TypeKind.NULL


def first_rows(columns: Mapping[str, pa.Array], order: Sequence[SortKey], count: int) -> np.ndarray:
    """The positions of the first `count` rows of an order; the sort is stable."""
    rows = len(next(iter(columns.values())))
    keys: dict[str, pa.Array] = {}
    directions: list[tuple[str, str]] = []
    for number, key in enumerate(order):
        values = columns[key.column]
        # Arrow has one null placement for all keys, so nulls get a separate key.
        missing = values.is_null().cast(pa.int8())
        keys[f"null{number}"] = missing
        directions.append((f"null{number}", "descending" if key.nulls_first else "ascending"))
        keys[f"value{number}"] = float_order(values) if kind_of(values.type) is TypeKind.FLOAT else values
        directions.append((f"value{number}", "ascending" if key.ascending else "descending"))
    keys["place"] = pa.array(np.arange(rows))
    directions.append(("place", "ascending"))
    sorted_ = pc.sort_indices(pa.table(keys), sort_keys=directions)
    positions: np.ndarray = sorted_.to_numpy()[:count]
    return positions


def _not_after(values: pa.Array, worst: pa.Scalar, key: SortKey) -> pa.Array:
    """Which values of a column sort before a value, or equal it."""
    if not worst.is_valid:
        # Every value sorts before nulls that come last; only nulls equal nulls that come first.
        return values.is_null() if key.nulls_first else pa.array(np.ones(len(values), dtype=np.bool_))
    if kind_of(values.type) is TypeKind.FLOAT:
        worst = float_order(pa.array([worst.as_py()], values.type))[0]
        values = float_order(values)
    mask = pc.less_equal(values, worst) if key.ascending else pc.greater_equal(values, worst)
    return mask.fill_null(key.nulls_first)
