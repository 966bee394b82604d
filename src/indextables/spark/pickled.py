"""Pickles of what tasks are given: exact for every value."""

import io
import pickle
from typing import Any

import pyarrow as pa


def dumps(given: object) -> bytes:
    """A pickle in which Arrow scalars are Arrow values.

    Arrow itself pickles a scalar as an object of Python, and Python has none for a year beyond 9999.
    """
    sink = io.BytesIO()
    _Pickler(sink, protocol=5).dump(given)
    return sink.getvalue()


class _Pickler(pickle.Pickler):
    def reducer_override(self, given: object) -> Any:  # noqa: ANN401 - as pickle declares it
        if isinstance(given, pa.Scalar):
            return _scalar, (pa.repeat(given, 1),)
        return NotImplemented


def _scalar(array: pa.Array) -> pa.Scalar:
    return array[0]
