"""The command `write`: rows from Parquet, CSV or JSON lines, from files or from standard input."""

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

from indextables.cli.output import ProgressBar, write_record
from indextables.cli.parameters import OutputFormat, Settings
from indextables.errors import OptionError, SchemaError
from indextables.ingest import Mode, write_table
from indextables.maintain import on_write
from indextables.options import WRITTEN, Options
from indextables.sizes import format_size
from indextables.store import open_store
from indextables.version import ENGINE

_FORMATS = ("parquet", "csv", "json")
_SUFFIXES = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}
_STDIN = "-"
_SAMPLE_BYTES = 1 << 20
_SAMPLE_LINES = 200
_DATE = re.compile(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])")


def write_rows(
    settings: Settings,
    *,
    path: str,
    files: Sequence[str],
    file_format: str | None,
    mode: str,
    partition_by: Sequence[str],
    text: Sequence[str],
) -> int:
    """Write the rows of files, or of standard input, to a table."""
    options: dict[str, object] = dict(settings.options)
    options.update({f"indexing.typemap.{name.lower()}": "text" for name in text})
    checked = Options.parse(options, WRITTEN)
    on_write.check(checked)
    with ProgressBar("rows", quiet=settings.quiet) as progress:
        written = write_table(
            open_store(path, checked),
            _report_rows(open_files(files or ["-"], file_format), progress),
            mode=Mode.of(mode),
            partition_by=partition_by,
            options=checked,
            engine=ENGINE,
        )
    if written.committed:
        on_write.after_write(written.log, checked)
    # The rows are committed: nothing is read any more, so neither an error nor another write shows here.
    size = sum(add.size for add in written.adds)
    people = settings.format is OutputFormat.TABLE
    nothing = "nothing: the table exists" if mode == "ignore" else "nothing: there are no rows"
    operation = "OVERWRITE" if mode == "overwrite" else "WRITE"
    row = {
        "table": written.snapshot.url,
        "version": written.snapshot.version,
        "operation": operation if written.committed else nothing,
        "rows": sum(add.num_records or 0 for add in written.adds),
        "splits": len(written.adds),
        **({"size": format_size(size)} if people else {"bytes": size}),
    }
    write_record(row, settings.format, sys.stdout)
    return 0


def _report_rows(reader: pa.RecordBatchReader, progress: ProgressBar) -> pa.RecordBatchReader:
    """Report the number of rows while they are read."""

    def batches() -> Iterator[pa.RecordBatch]:
        rows = 0
        for batch in reader:
            yield batch
            rows += batch.num_rows
            progress(rows, 0)

    return pa.RecordBatchReader.from_batches(reader.schema, batches())


# --- input files -------------------------------------------------------------------------------------


def open_files(files: Sequence[str], form: str | None) -> pa.RecordBatchReader:
    """Open files as one stream of rows.

    Args:
        files: their paths; `-` is standard input. All must have the columns of the first.
        form: `parquet`, `csv` or `json`; by default it follows from the names of the files.

    Raises:
        OptionError: a file does not exist, or its format is unknown.
        SchemaError: a file cannot be read, or has other columns or types than the first.
    """
    readers = _readers(files, form)
    first = next(readers)
    schema = first.schema

    def batches() -> Iterator[pa.RecordBatch]:
        yield from _readable(first, files[0])
        for name, reader in zip(files[1:], readers, strict=True):
            yield from _with_schema(reader, schema, name)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _readers(files: Sequence[str], form: str | None) -> Iterator[pa.RecordBatchReader]:
    for name in files:
        yield _reader(name, form or _format_of(name))


def _readable(reader: pa.RecordBatchReader, name: str) -> Iterator[pa.RecordBatch]:
    """The batches of a file; an error of Arrow within it names the file."""
    while True:
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            return
        except (pa.ArrowException, OSError) as error:
            raise SchemaError(
                f"{name} cannot be read to its end: {error}; correct the file, whose columns and types are "
                "those of its first rows"
            ) from error
        yield batch


def _with_schema(reader: pa.RecordBatchReader, schema: pa.Schema, name: str) -> Iterator[pa.RecordBatch]:
    if set(reader.schema.names) != set(schema.names):
        raise SchemaError(
            f"{name} has the columns {', '.join(reader.schema.names)}, but the first file has "
            f"{', '.join(schema.names)}; write them one by one"
        )
    for batch in _readable(reader, name):
        table = pa.Table.from_batches([batch]).select(schema.names)
        try:
            yield from table.cast(schema).to_batches()
        except pa.ArrowException as error:
            raise SchemaError(f"{name} has other types than the first file: {error}") from error


def _reader(name: str, form: str) -> pa.RecordBatchReader:
    source: IO[bytes] | str = sys.stdin.buffer if name == _STDIN else name
    if name != _STDIN and not Path(name).is_file():
        raise OptionError(f"there is no file {name}")
    try:
        if form == "parquet":
            return _parquet(source)
        if form == "csv":
            tabs = name.endswith(".tsv")
            # Values may have line breaks, and such a value may lie at the end of a block.
            parsing = pa_csv.ParseOptions(delimiter="\t" if tabs else ",", newlines_in_values=True)
            return pa_csv.open_csv(source, parse_options=parsing)
        return _json(source, name)
    except (pa.ArrowException, OSError) as error:
        raise SchemaError(f"{name} cannot be read as {form}: {error}") from error


def _parquet(source: IO[bytes] | str) -> pa.RecordBatchReader:
    # Parquet is read from its end, so the content of a pipe is read into memory.
    opened: Any = source if isinstance(source, str) else pa.BufferReader(source.read())
    file = pq.ParquetFile(opened)
    return pa.RecordBatchReader.from_batches(file.schema_arrow, file.iter_batches())


class _Replay(io.RawIOBase):
    """A stream whose first bytes were read already."""

    def __init__(self, start: bytes, rest: IO[bytes]) -> None:
        super().__init__()
        self._start = memoryview(start)
        self._rest = rest

    def readable(self) -> bool:
        """Return true: the stream is for reading."""
        return True

    def readinto(self, buffer: Any, /) -> int:  # noqa: ANN401 - any buffer; Python 3.11 has no name for that
        """Read the first bytes again, then the rest of the stream."""
        chunk = self._start[: len(buffer)] or self._rest.read(len(buffer))
        self._start = self._start[len(buffer) :]
        buffer[: len(chunk)] = chunk
        return len(chunk)


def _json(source: IO[bytes] | str, name: str) -> pa.RecordBatchReader:
    """Open JSON lines. Strings that are dates become dates, not timestamps as in Arrow."""
    rows: IO[bytes] | str = source
    if isinstance(source, str):
        with Path(source).open("rb") as file:
            start = file.read(_SAMPLE_BYTES)
    else:
        start = source.read(_SAMPLE_BYTES)
        rows = io.BufferedReader(_Replay(start, source), _SAMPLE_BYTES)
    columns = _date_columns(start)
    dates = pa.schema([(column, pa.string()) for column, is_date in columns.items() if is_date])
    reader = pa_json.open_json(rows, parse_options=pa_json.ParseOptions(explicit_schema=dates))
    if not dates.names:
        return reader
    # Arrow puts columns with an explicit type before all others.
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
                raise SchemaError(f"{name} has dates first and other strings later: {error}") from error

    return pa.RecordBatchReader.from_batches(schema, batches())


def _date_columns(start: bytes) -> dict[str, bool]:
    """Return the columns of the first lines in their order, and whether all their values are dates."""
    formats: dict[str, bool | None] = {}
    for line in start.splitlines()[:_SAMPLE_LINES]:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        for column, value in row.items() if isinstance(row, dict) else ():
            is_date = formats.setdefault(column, None)
            if value is not None and is_date is not False:
                formats[column] = isinstance(value, str) and _DATE.fullmatch(value) is not None
    return {column: bool(is_date) for column, is_date in formats.items()}


def _format_of(name: str) -> str:
    if name == _STDIN:
        return "json"
    name_format = _SUFFIXES.get(Path(name).suffix.lower())
    if name_format is None:
        raise OptionError(
            f"{name}: the name does not show the format; give --format {{{', '.join(_FORMATS)}}}"
        )
    return name_format
