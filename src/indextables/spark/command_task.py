"""The function that a task of a command runs on an executor."""

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from indextables.errors import IndexTablesError
from indextables.store import Passport

RESULT = "result"
ERROR = "error"

_SCHEMA = pa.schema([(RESULT, pa.binary()), (ERROR, pa.string())])


class CommandFunction:
    """Runs the tasks of a command; Spark pickles it by reference to this module."""

    def __init__(self, passport: Passport | None, run: Callable[[Any, Any], Any]) -> None:
        self._passport = passport
        self._run = run

    @property
    def __name__(self) -> str:
        """The name that Spark requires of functions."""
        return "indextables_command"

    def __call__(self, given: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The results of the tasks, whose pickles are the input; of a task that fails, its error message."""
        store = None if self._passport is None else self._passport.open()
        for batch in given:
            for blob in batch.column(0):
                try:
                    result = self._run(pickle.loads(blob.as_py()), store)  # noqa: S301 - our planner wrote it
                except IndexTablesError as error:
                    yield pa.RecordBatch.from_pylist([{ERROR: str(error)}], _SCHEMA)
                else:
                    yield pa.RecordBatch.from_pylist([{RESULT: pickle.dumps(result)}], _SCHEMA)
