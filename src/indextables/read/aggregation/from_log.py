"""Aggregates from the statistics of the log, for files all of whose rows match the condition."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.log.pruning.metrics_evaluator import evaluate_metrics
from indextables.read.aggregation.partials import Partial, bound_name, comparable, from_parts
from indextables.read.spec import Aggregate, AggregateSpec, Function
from indextables.read.table_context import TableContext, are_parquet, partition_values
from indextables.schema.statistics import null_counts
from indextables.schema.type_info import TypeKind, info_of, kind_of
from indextables.schema.values import parse_values

Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]

# Decimals of more digits may be truncated in the log.
_MAX_DIGITS = 28


def from_log(files: pa.Table, spec: AggregateSpec) -> tuple[Partial | None, Mask]:
    """The partial aggregate of all files whose statistics suffice, and a mask of these files."""
    table = spec.table
    none = np.zeros(files.num_rows, np.bool_)
    partitions = {name.lower() for name in table.partition_columns}
    if any(not isinstance(g, str) or g.lower() not in partitions for g in spec.groups):
        return None, none
    if any(a.function not in _FROM_STATISTICS for a in spec.aggregates) or not files.num_rows:
        return None, none
    evaluation = evaluate_metrics(files, spec.where, table.schema, table.partition_columns)
    sure = _mask(evaluation.strict) & _mask(files["numRecords"].is_valid().combine_chunks())
    if not sure.any():
        return None, none
    entries = _FileStatistics(files, table, partitions)
    columns: dict[str, pa.Array] = {
        f"g{i}": entries.partition(str(group)) for i, group in enumerate(spec.groups)
    }
    for i, (aggregate, arrow) in enumerate(zip(spec.aggregates, spec.types, strict=True)):
        answer, certain = entries.answer(aggregate, arrow)
        sure &= certain
        columns.update({f"{name}{i}": values for name, values in answer.items()})
    if not sure.any():
        return None, none
    whole = pa.table(columns).filter(pa.array(sure))
    return from_parts(whole, len(spec.groups)), sure


_FROM_STATISTICS = (Function.COUNT, Function.MIN, Function.MAX)


class _FileStatistics:
    """The statistics in the entries of files."""

    def __init__(self, files: pa.Table, table: TableContext, partitions: set[str]) -> None:
        self.files = files
        self.table = table
        self.partitions = partitions
        self.records = files["numRecords"].combine_chunks().fill_null(0)
        self.values = partition_values(files, table.schema, table.partition_columns)
        self._stats: list[Mapping[str, int]] | None = None

    def partition(self, column: str) -> pa.Array:
        """A partition column's value in each file."""
        return next(values for name, values in self.values.items() if name.lower() == column.lower())

    def answer(self, aggregate: Aggregate, arrow: pa.DataType | None) -> tuple[dict[str, pa.Array], Mask]:
        """The partial results of an aggregate for each file, and a mask of the files where they are exact."""
        if aggregate.column is None or arrow is None:
            return {"n": self.records}, np.ones(len(self.records), np.bool_)
        if aggregate.column.lower() in self.partitions:
            values = self.partition(aggregate.column)
            counts = pc.if_else(values.is_valid(), self.records, pa.scalar(0, pa.int64()))
            # The partition values of a file without rows do not count.
            values = pc.if_else(pc.greater(self.records, 0), values, pa.scalar(None, values.type))
            return self._with_bound(aggregate, counts, values), np.ones(len(counts), np.bool_)
        nulls = pa.array([stats.get(aggregate.column) for stats in self._null_counts()], pa.int64())
        counts = pc.subtract(self.records, nulls)
        certain = _mask(nulls.is_valid()) & _mask(are_parquet(self.files))
        counts = counts.fill_null(0)
        if aggregate.function is Function.COUNT:
            return {"n": counts}, certain
        values, readable = self._bound(aggregate, arrow)
        all_null = _mask(pc.equal(counts, 0))
        return self._with_bound(aggregate, counts, values), certain & (readable | all_null)

    def _with_bound(self, aggregate: Aggregate, counts: pa.Array, values: pa.Array) -> dict[str, pa.Array]:
        if aggregate.function is Function.COUNT:
            return {"n": counts}
        return {"n": counts, bound_name(aggregate): comparable(values)}

    def _bound(self, aggregate: Aggregate, arrow: pa.DataType) -> tuple[pa.Array, Mask]:
        """The least or greatest value of each file, where the log has it untruncated."""
        if not _whole_in_log(arrow):
            return pa.nulls(len(self.records), arrow), np.zeros(len(self.records), np.bool_)
        side = "minValues" if aggregate.function is Function.MIN else "maxValues"
        entries = [dict(entry or ()) for entry in self.files[side].to_pylist()]
        texts = pa.array([entry.get(aggregate.column) for entry in entries], pa.string())
        parsed = parse_values(texts, arrow)
        return parsed.values, _mask(texts.is_valid()) & ~parsed.unreadable

    def _null_counts(self) -> list[Mapping[str, int]]:
        if self._stats is None:
            self._stats = [null_counts(text) for text in self.files["stats"].to_pylist()]
        return self._stats


def _whole_in_log(arrow: pa.DataType) -> bool:
    """Whether the bounds in the log are exact for a type."""
    if kind_of(arrow) is TypeKind.DECIMAL:
        return bool(arrow.precision <= _MAX_DIGITS)
    return info_of(arrow).bounds and kind_of(arrow) is not TypeKind.STRING


def _mask(array: pa.Array) -> Mask:
    mask: Mask = np.array(array.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)
    return mask
