"""The function that a task of a write runs on an executor: it writes splits and returns a commit message."""

from collections.abc import Iterator, Sequence

import msgspec
import pyarrow as pa

from indextables.errors import IndexTablesError, SchemaError
from indextables.ingest import Planned, SplitUploads
from indextables.log.format.actions import Add
from indextables.options import Options
from indextables.store import Passport

MESSAGE = "message"
ERROR = "error"

_SCHEMA = pa.schema([(MESSAGE, pa.binary()), (ERROR, pa.string())])

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Add])


class WriteFunction:
    """Writes the rows of one task; Spark pickles it by reference to this module.

    Without a plan there is nothing to write, and the rows are left alone.
    """

    def __init__(self, passport: Passport, planned: Planned | None, options: Options) -> None:
        self._passport = passport
        self._planned = planned
        self._options = options

    @property
    def __name__(self) -> str:
        """The name that Spark requires of functions."""
        return "indextables_write"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write all rows; returns the commit message, or an error message."""
        try:
            adds = [] if self._planned is None else self._written(self._planned, batches)
        except IndexTablesError as error:
            yield _message_batch(None, str(error))
        else:
            yield _message_batch(_encoder.encode(adds), None)

    def _written(self, planned: Planned, batches: Iterator[pa.RecordBatch]) -> list[Add]:
        uploads = SplitUploads(self._passport.open(), planned.target, self._options)
        try:
            return uploads.write(planned.stored(valid_texts(batches)))
        except BaseException:
            uploads.delete_uncommitted()
            raise


def valid_texts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows; raises SchemaError if a text is not valid UTF-8, which Spark allows."""
    for batch in batches:
        for field, column in zip(batch.schema, batch.columns, strict=True):
            if not _holds_text(field.type):
                continue
            try:
                column.validate(full=True)
            except pa.ArrowInvalid as error:
                raise SchemaError(
                    f"column {field.name} holds a text that is not valid UTF-8 ({error}); write it as "
                    f"make_valid_utf8({field.name}), or as CAST({field.name} AS BINARY)"
                ) from None
        yield batch


def _holds_text(arrow: pa.DataType) -> bool:
    if pa.types.is_nested(arrow):
        return any(_holds_text(arrow.field(i).type) for i in range(arrow.num_fields))
    return bool(pa.types.is_string(arrow) or pa.types.is_large_string(arrow))


def _message_batch(message: bytes | None, error: str | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{MESSAGE: message, ERROR: error}], _SCHEMA)


def adds_of(messages: Sequence[bytes]) -> list[Add]:
    """The splits in the commit messages of tasks."""
    return [add for message in messages for add in _decoder.decode(message)]
