"""What a task of a command runs on an executor."""

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from indextables.errors import IndexTablesError
from indextables.store import Passport

RESULT = "result"
ERROR = "error"

_SAID = pa.schema([(RESULT, pa.binary()), (ERROR, pa.string())])


class CommandFunction:
    """Does the work that it is given; Spark pickles it by reference to this module."""

    def __init__(self, passport: Passport | None, run: Callable[[Any, Any], Any]) -> None:
        self._passport = passport
        self._run = run

    @property
    def __name__(self) -> str:
        """Spark wants its functions to have a name."""
        return "indextables_command"

    def __call__(self, given: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The results of the tasks whose pickles are given; of one that fails, the sentence of our error."""
        store = None if self._passport is None else self._passport.open()
        for batch in given:
            for blob in batch.column(0):
                try:
                    result = self._run(pickle.loads(blob.as_py()), store)  # noqa: S301 - our planner wrote it
                except IndexTablesError as error:
                    yield pa.RecordBatch.from_pylist([{ERROR: str(error)}], _SAID)
                else:
                    yield pa.RecordBatch.from_pylist([{RESULT: pickle.dumps(result)}], _SAID)
