"""What a task of a write runs on an executor: Arrow batches in, splits on the store, one message out."""

from collections.abc import Iterator, Sequence

import msgspec
import pyarrow as pa

from indextables.errors import IndexTablesError
from indextables.ingest import Planned, SplitUploads
from indextables.log.format.actions import Add
from indextables.options import Options
from indextables.store import Passport

MESSAGE = "message"
ERROR = "error"

_SAID = pa.schema([(MESSAGE, pa.binary()), (ERROR, pa.string())])

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
        """Spark wants its functions to have a name."""
        return "indextables_write"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write all rows; the message for the commit, or the sentence of an error of ours."""
        try:
            adds = [] if self._planned is None else self._written(self._planned, batches)
        except IndexTablesError as error:
            yield _said(None, str(error))
        else:
            yield _said(_encoder.encode(adds), None)

    def _written(self, planned: Planned, batches: Iterator[pa.RecordBatch]) -> list[Add]:
        uploads = SplitUploads(self._passport.open(), planned.target, self._options)
        try:
            return uploads.write(planned.stored(batches))
        except BaseException:
            uploads.withdraw()
            raise


def _said(message: bytes | None, error: str | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{MESSAGE: message, ERROR: error}], _SAID)


def adds_of(messages: Sequence[bytes]) -> list[Add]:
    """What tasks said that they wrote."""
    return [add for message in messages for add in _decoder.decode(message)]
