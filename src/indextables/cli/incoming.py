"""Rows for `write`: from Parquet, CSV or JSON lines; from files or from standard input, in a stream."""

import io
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pq

from indextables.errors import OptionError, SchemaError

FORMATS = ("parquet", "csv", "json")
_SUFFIXES = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}
STDIN = "-"
_LOOKED_AT = 1 << 20
_LINES = 200
_DATE = re.compile(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])")


def rows_from(files: Sequence[str], form: str | None) -> pa.RecordBatchReader:
    """The rows of all files, one after the other; they must have the columns of the first."""
    readers = _readers(files, form)
    first = next(readers)
    schema = first.schema

    def batches() -> Iterator[pa.RecordBatch]:
        yield from first
        for name, reader in zip(files[1:], readers, strict=True):
            yield from _same(reader, schema, name)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _readers(files: Sequence[str], form: str | None) -> Iterator[pa.RecordBatchReader]:
    for name in files:
        yield _reader(name, form or _guessed(name))


def _same(reader: pa.RecordBatchReader, schema: pa.Schema, name: str) -> Iterator[pa.RecordBatch]:
    if set(reader.schema.names) != set(schema.names):
        raise SchemaError(
            f"{name} has the columns {', '.join(reader.schema.names)}, but the first file has "
            f"{', '.join(schema.names)}; write them one by one"
        )
    for batch in reader:
        table = pa.Table.from_batches([batch]).select(schema.names)
        try:
            yield from table.cast(schema).to_batches()
        except pa.ArrowException as error:
            raise SchemaError(f"{name} has other types than the first file: {error}") from error


def _reader(name: str, form: str) -> pa.RecordBatchReader:
    source: IO[bytes] | str = sys.stdin.buffer if name == STDIN else name
    if name != STDIN and not Path(name).is_file():
        raise OptionError(f"there is no file {name}")
    try:
        if form == "parquet":
            return _parquet(source)
        if form == "csv":
            tabs = name.endswith(".tsv")
            return pa_csv.open_csv(source, parse_options=pa_csv.ParseOptions(delimiter="\t" if tabs else ","))
        return _json(source, name)
    except (pa.ArrowException, OSError) as error:
        raise SchemaError(f"{name} cannot be read as {form}: {error}") from error


def _parquet(source: IO[bytes] | str) -> pa.RecordBatchReader:
    # Parquet is read from its end, so what comes through a pipe is taken as a whole.
    opened: Any = source if isinstance(source, str) else pa.BufferReader(source.read())
    file = pq.ParquetFile(opened)
    return pa.RecordBatchReader.from_batches(file.schema_arrow, file.iter_batches())


class _Replayed(io.RawIOBase):
    """A stream of which the beginning was read already."""

    def __init__(self, start: bytes, rest: IO[bytes]) -> None:
        super().__init__()
        self._start = memoryview(start)
        self._rest = rest

    def readable(self) -> bool:
        """It is there to be read."""
        return True

    def readinto(self, buffer: Any, /) -> int:  # noqa: ANN401 - any buffer; Python 3.11 has no name for that
        """The beginning first, then what comes."""
        found = self._start[: len(buffer)] or self._rest.read(len(buffer))
        self._start = self._start[len(buffer) :]
        buffer[: len(found)] = found
        return len(found)


def _json(source: IO[bytes] | str, name: str) -> pa.RecordBatchReader:
    """JSON lines. Texts that are dates are dates: Arrow alone takes them for timestamps at midnight."""
    rows: IO[bytes] | str = source
    if isinstance(source, str):
        with Path(source).open("rb") as file:
            start = file.read(_LOOKED_AT)
    else:
        start = source.read(_LOOKED_AT)
        rows = io.BufferedReader(_Replayed(start, source), _LOOKED_AT)
    columns = _looked_at(start)
    dates = pa.schema([(column, pa.string()) for column, is_date in columns.items() if is_date])
    reader = pa_json.open_json(rows, parse_options=pa_json.ParseOptions(explicit_schema=dates))
    if not dates.names:
        return reader
    # Arrow puts columns whose types it was told before all others.
    names = sorted(
        reader.schema.names, key=lambda n: list(columns).index(n) if n in columns else len(columns)
    )
    schema = pa.schema(
        [pa.field(n, pa.date32() if n in dates.names else reader.schema.field(n).type) for n in names]
    )

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in reader:
            try:
                yield pa.RecordBatch.from_arrays(
                    [batch.column(field.name).cast(field.type) for field in schema], schema=schema
                )
            except pa.ArrowInvalid as error:
                raise SchemaError(f"{name} has dates first, and then other texts: {error}") from error

    return pa.RecordBatchReader.from_batches(schema, batches())


def _looked_at(start: bytes) -> dict[str, bool]:
    """The columns in their order, and whether they hold dates only, as far as the first lines tell."""
    found: dict[str, bool | None] = {}
    for line in start.splitlines()[:_LINES]:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        for column, value in row.items() if isinstance(row, dict) else ():
            known = found.setdefault(column, None)
            if value is not None and known is not False:
                found[column] = isinstance(value, str) and _DATE.fullmatch(value) is not None
    return {column: bool(is_date) for column, is_date in found.items()}


def _guessed(name: str) -> str:
    if name == STDIN:
        return "json"
    found = _SUFFIXES.get(Path(name).suffix.lower())
    if found is None:
        raise OptionError(f"{name}: what kind of file is it? give --format {{{', '.join(FORMATS)}}}")
    return found
