"""Errors of Arrow and Tantivy while a split is read, raised as errors that name the split."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

import pyarrow as pa

from indextables.errors import SplitError
from indextables.read.table_context import SplitRef, TableContext


class _Reader(Protocol):
    table: TableContext
    ref: SplitRef


R = TypeVar("R", bound=_Reader)
P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def split_errors(table: TableContext, ref: SplitRef) -> Iterator[None]:
    """Raise errors of Arrow and Tantivy as SplitError; Tantivy's are ValueErrors."""
    try:
        yield
    except (pa.ArrowException, ValueError) as error:
        raise SplitError(
            f"{table.url}/{ref.path}: the split cannot be read or searched "
            f"({type(error).__name__}: {error}); if the file is intact, this is a defect of indextables"
        ) from error


def naming_split(method: Callable[Concatenate[R, P], T]) -> Callable[Concatenate[R, P], T]:
    """Decorate a method of a reader so that its errors name the split."""

    @wraps(method)
    def guarded(self: R, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with split_errors(self.table, self.ref):
            return method(self, *args, **kwargs)

    return guarded


def naming_split_in_batches(
    method: Callable[Concatenate[R, P], Iterator[T]],
) -> Callable[Concatenate[R, P], Iterator[T]]:
    """Decorate a generator method of a reader so that its errors name the split."""

    @wraps(method)
    def guarded(self: R, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        with split_errors(self.table, self.ref):
            yield from method(self, *args, **kwargs)

    return guarded


def cast_column(array: pa.Array, field: pa.Field, table: TableContext, ref: SplitRef) -> pa.Array:
    """Cast values of a split to the type of the table's column."""
    if array.type == field.type:
        return array
    try:
        return array.cast(field.type)
    except pa.ArrowException as error:
        raise SplitError(
            f"{table.url}/{ref.path}: the column {field.name} holds {array.type} where the table has "
            f"{field.type} ({error}); overwrite the table, or restore a version that fits"
        ) from error
