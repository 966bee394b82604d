"""Rows for `write`: from Parquet, CSV or JSON lines; from files or from standard input, in a stream."""

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
        return pa_json.open_json(source)
    except (pa.ArrowException, OSError) as error:
        raise SchemaError(f"{name} cannot be read as {form}: {error}") from error


def _parquet(source: IO[bytes] | str) -> pa.RecordBatchReader:
    # Parquet is read from its end, so what comes through a pipe is taken as a whole.
    opened: Any = source if isinstance(source, str) else pa.BufferReader(source.read())
    file = pq.ParquetFile(opened)
    return pa.RecordBatchReader.from_batches(file.schema_arrow, file.iter_batches())


def _guessed(name: str) -> str:
    if name == STDIN:
        return "json"
    found = _SUFFIXES.get(Path(name).suffix.lower())
    if found is None:
        raise OptionError(f"{name}: what kind of file is it? give --format {{{', '.join(FORMATS)}}}")
    return found
