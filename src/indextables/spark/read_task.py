"""What a task of a scan runs on an executor."""

import pickle
from collections.abc import Iterator

import pyarrow as pa

from indextables.read import ReadTask, run
from indextables.store import Passport


class ReadFunction:
    """Reads the task that it is given; Spark pickles it by reference to this module."""

    def __init__(self, passport: Passport) -> None:
        self._passport = passport

    @property
    def __name__(self) -> str:
        """Spark wants its functions to have a name."""
        return "indextables_read"

    def __call__(self, given: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of the task whose pickle is the only value given."""
        store = self._passport.open()
        for batch in given:
            for blob in batch.column(0):
                task: ReadTask = pickle.loads(blob.as_py())  # noqa: S301 - our own planner wrote it
                yield from run(task, store)
