"""The operations `command_schema`, `command_plan` and `command_finish`."""

import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.types import BinaryType, StructType

from indextables.commands import Place, Statement, Work, understand
from indextables.errors import CommandError
from indextables.options import Options
from indextables.schema.spark import from_arrow
from indextables.spark.command_task import RESULT, CommandFunction
from indextables.spark.planner.tables import addressed

Answer = tuple[Mapping[str, Any], Sequence[bytes]]

_RESULT = StructType().add(RESULT, BinaryType())


def command_schema(request: Mapping[str, Any], blobs: Sequence[bytes]) -> Answer:
    """The columns of a command's result, and the name of its table if it is a name; nothing if not ours."""
    del blobs
    statement = understand(request["statement"])
    if statement is None:
        return {}, ()
    name = {"name": statement.target.name} if statement.target.name else {}
    return {"schema": from_arrow(statement.command.result), **name}, ()


def command_plan(request: Mapping[str, Any], blobs: Sequence[bytes]) -> Answer:
    """Do a command, or say what work there is."""
    del blobs
    statement, place = _read(request)
    planned = statement.command.plan(place, statement.arguments)
    if isinstance(planned, pa.Table):
        return {"done": True}, [_stream(planned)]
    assert isinstance(planned, Work)
    function = CommandFunction(place.store.passport() if place.table else None, planned.run)
    tasks = [pickle.dumps(task) for task in planned.tasks]
    return {"done": False}, [pickle.dumps((function, _RESULT)), pickle.dumps(planned.state), *tasks]


def command_finish(request: Mapping[str, Any], blobs: Sequence[bytes]) -> Answer:
    """Finish a command with what its work gave."""
    statement, place = _read(request)
    state, *results = (pickle.loads(blob) for blob in blobs)  # noqa: S301 - our planner and tasks wrote them
    return {}, [_stream(statement.command.finish(place, statement.arguments, state, results))]


def _read(request: Mapping[str, Any]) -> tuple[Statement, Place]:
    statement = understand(request["statement"])
    if statement is None:
        raise CommandError(f"this is not a command: {request['statement']}")
    options = dict(request["options"])
    if statement.target.path is None and not statement.target.name:
        options.pop("path", None)
        return statement, Place(Options.parse(options))
    if statement.target.path is not None:
        options["path"] = statement.target.path
    table = addressed({"options": options})
    return statement, Place(table.options, table.log)


def _stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
