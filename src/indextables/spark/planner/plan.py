"""The operation `plan`: who reads what; small answers are in the plan itself."""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType

from indextables.errors import PredicateError
from indextables.log.pruning.order import First
from indextables.predicate import Always, Predicate
from indextables.read.finish import finished
from indextables.read.from_log import from_log
from indextables.read.from_splits import empty_partial
from indextables.read.scan import enough, parallelism
from indextables.read.statistics import term_statistics
from indextables.read.tasks import prepare
from indextables.spark.pickled import dumps
from indextables.spark.planner.aggregation import requested
from indextables.spark.planner.asked import Asked, asked
from indextables.spark.planner.inline import inline_rows, whole_groups
from indextables.spark.planner.placing import Placed, placed
from indextables.spark.planner.runtime import runtime_condition
from indextables.spark.planner.selection import Selection, select
from indextables.spark.read_task import METRICS, Figures, ReadFunction
from indextables.spark.virtual import ALL_FIELDS
from indextables.spark.wanted import Groups, Rows, SortKey
from indextables.spark.wire import wire_schema, wired

Request = Mapping[str, Any]
Reply = tuple[Mapping[str, Any], Sequence[bytes]]


def plan(request: Request, blobs: Sequence[bytes]) -> Reply:
    """The partitions of a scan: answers, as Arrow streams, and tasks, as pickles for the pickled function."""
    del blobs
    started = time.perf_counter()
    question = asked(request)
    if question is None:
        return _Plan(request, {}).reply(started)
    where = runtime_condition(question, request)
    selection = select(question.snapshot, where)
    if request.get("aggregate"):
        made = _planned_groups(request, question, where, selection)
    else:
        made = _planned_rows(request, question, where, selection)
    return made.reply(started)


class _Plan:
    """A plan in the making."""

    def __init__(self, request: Request, figures: Mapping[str, int]) -> None:
        self.request = request
        self.figures = dict(figures)
        self.function = b""
        self.kinds: list[dict[str, Any]] = []
        self.blobs: list[bytes] = []

    def answer(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> None:
        sink = pa.BufferOutputStream()
        wire = wire_schema(schema)
        with pa.ipc.new_stream(sink, wire) as stream:
            for batch in batches:
                stream.write_batch(wired(batch, wire))
        self.kinds.append({"kind": "answer"})
        self.blobs.append(sink.getvalue().to_pybytes())

    def tasks(self, wanted: Rows | Groups, found: Sequence[Placed], question: Asked) -> None:
        if not found:
            return
        schema = StructType.fromJson(json.loads(self.request["schema"]))
        result = StructType([*schema.fields, StructField(METRICS, StringType())])
        function = ReadFunction(question.table.store.passport(), wanted)
        self.function = dumps((function, result))
        for each in found:
            self.kinds.append({"kind": "task", "executor": each.executor})
            self.blobs.append(dumps(each.splits))

    def reply(self, started: float) -> Reply:
        self.figures["planningTime"] = round((time.perf_counter() - started) * 1000)
        return {"partitions": self.kinds, "metrics": self.figures}, [self.function, *self.blobs]


def _planned_rows(request: Request, question: Asked, where: Predicate | None, selection: Selection) -> _Plan:
    limit = request.get("limit")
    order = _order(request.get("order") or ())
    if order and limit is not None:
        key = order[0]
        first = First(key.column, limit, key.ascending, key.nulls_first)
        selection = selection.holding_first(question.snapshot, where, first)
    table, splits = prepare(question.snapshot, where, question.options, selection.files)
    wanted = Rows(table, tuple(request["columns"]), where, question.virtual, limit, order)
    _check(wanted)
    made = _Plan(request, selection.figures())
    if isinstance(where, Always) and where.value is not True:
        splits = []
    if not wanted.order:
        splits = enough(splits, where, limit)
    figures = Figures(len(splits))
    store = question.table.store
    if wanted.needs_score:
        at_once = parallelism(question.options)
        statistics = term_statistics(store, splits, table, wanted.scored, at_once)
        wanted = replace(wanted, statistics=statistics)
    batches = inline_rows(wanted, splits, store)
    if batches is not None:
        for batch in batches:
            figures.add(batch)
        made.figures.update(figures.values())
        if any(batch.num_rows for batch in batches):
            made.answer(batches, wanted.schema)
        return made
    made.tasks(wanted, _placed(request, question, splits), question)
    return made


def _planned_groups(
    request: Request, question: Asked, where: Predicate | None, selection: Selection
) -> _Plan:
    found = requested(request["aggregate"], question, where, selection.files)
    if found is None:
        raise PredicateError(
            "the table changed while the query was planned, and its aggregate cannot be pushed any more; "
            "run the query again"
        )
    made = _Plan(request, selection.figures())
    snapshot, store = question.snapshot, question.table.store
    if request["aggregate"].get("complete"):
        figures = Figures(selection.files.num_rows)
        answer = whole_groups(snapshot, selection.files, where, question.facts, found, store)
        for batch in answer.to_batches():
            figures.add(batch)
        made.figures.update(figures.values())
        made.answer(answer.to_batches(), found.results)
        return made
    table, splits = prepare(snapshot, where, question.options, selection.files)
    logged, known = from_log(selection.files, where, table, found)
    left = [ref for ref, done in zip(splits, known.tolist(), strict=True) if not done]
    # Without groups there is one row even over no splits.
    if logged is not None or (not left and not found.groups):
        parts = [empty_partial(table.schema, found), *([logged] if logged is not None else [])]
        made.answer(finished(parts, found).to_batches(), found.results)
    made.tasks(Groups(table, found), _placed(request, question, left, aggregate=True), question)
    return made


def _placed(
    request: Request, question: Asked, splits: Sequence[Any], *, aggregate: bool = False
) -> list[Placed]:
    executors = request.get("executors") or ()
    return placed(splits, request.get("parallelism", 2), executors, question.options, aggregate=aggregate)


def _order(given: Sequence[Request]) -> tuple[SortKey, ...]:
    return tuple(SortKey(each["column"], each["ascending"], each["nulls_first"]) for each in given)


def _check(wanted: Rows) -> None:
    if any(name == ALL_FIELDS and name not in wanted.table.schema.names for name in wanted.columns):
        raise PredicateError(
            f"{ALL_FIELDS} has no value of its own; it can only be searched: {ALL_FIELDS} INDEXQUERY 'words'"
        )
    if not wanted.scored and (
        wanted.highlights or any(map(wanted.is_score, wanted.columns)) or wanted.needs_score
    ):
        raise PredicateError(
            "a score or a highlighted text needs a search in the same query; add one to its condition, "
            "as WHERE message INDEXQUERY 'words'"
        )
