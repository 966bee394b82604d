"""The command `write`: rows from Parquet, CSV or JSON lines, from files or from standard input.

Types of columns are those of the first rows of a file, but no value changes: identifiers that look like
numbers stay strings, as does every column that is a string in the table or has an option for its index.
"""

import io
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pq

from indextables.cli.output import ProgressBar, write_record
from indextables.cli.parameters import OutputFormat, Settings
from indextables.errors import OptionError, SchemaError, TableNotFoundError
from indextables.ingest import Mode, write_table
from indextables.maintain import on_write
from indextables.options import WRITTEN, Options
from indextables.schema.type_info import TypeKind, kind_of, storage_kind_of
from indextables.sizes import format_size
from indextables.store import open_store
from indextables.table import open_table
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
_COMPRESSIONS = {".gz", ".bz2", ".zst", ".lz4"}
_STDIN = "-"
_SAMPLE_BYTES = 1 << 20
_SAMPLE_LINES = 200
_DELIMITERS = (",", ";", "\t", "|")
# Whole numbers that would lose their zeros, and telephone numbers, which would become floating-point numbers.
_IDENTIFIER = r"^(-?0\d+|\+\d{5,})$"
_DATE = r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"
_TIME = r"[T ]([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{1,6})?)?"
# Strings of JSON with one of these forms in all rows of the sample become values of the type.
_JSON_TYPES: tuple[tuple[re.Pattern[str], pa.DataType], ...] = (
    (re.compile(_DATE), pa.date32()),
    (re.compile(_DATE + _TIME), pa.timestamp("us")),
    (re.compile(_DATE + _TIME + r"(Z|[+-]\d\d:?\d\d)"), pa.timestamp("us", "UTC")),
)


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
    declared = _declared_strings(path, options, overwrites=mode == "overwrite")
    with ProgressBar("rows", quiet=settings.quiet) as progress:
        written = write_table(
            open_store(path, checked),
            _report_rows(open_files(files or ["-"], file_format, declared), progress),
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


def _declared_strings(path: str, options: Mapping[str, object], *, overwrites: bool) -> dict[str, bool]:
    """Whether columns are strings, by names in lower case: those with an option, and those of the table."""
    declared: dict[str, bool] = {}
    if not overwrites:
        try:
            schema = open_table(path, options=options).schema
            declared = {each.name.lower(): kind_of(each.type) is TypeKind.STRING for each in schema}
        except TableNotFoundError:
            pass
    prefix = "indexing.typemap."
    keys = (key.lower().removeprefix("spark.indextables.") for key in options)
    return declared | {key.removeprefix(prefix): True for key in keys if key.startswith(prefix)}


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


def open_files(files: Sequence[str], form: str | None, declared: Mapping[str, bool]) -> pa.RecordBatchReader:
    """Open files as one stream of rows.

    Args:
        files: their paths; `-` is standard input. All must have the columns of the first.
        form: `parquet`, `csv` or `json`; by default it follows from the names of the files.
        declared: by names in lower case, whether columns are strings; others are what their values are.

    Raises:
        OptionError: a file does not exist, or its format is unknown.
        SchemaError: a file cannot be read, or has other columns or types than the first.
    """
    readers = _readers(files, form, declared)
    first = next(readers)
    schema = first.schema

    def batches() -> Iterator[pa.RecordBatch]:
        yield from _readable(first, files[0])
        for name, reader in zip(files[1:], readers, strict=True):
            yield from _with_schema(reader, schema, name)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _readers(
    files: Sequence[str], form: str | None, declared: Mapping[str, bool]
) -> Iterator[pa.RecordBatchReader]:
    for name in files:
        yield _reader(name, form or _format_of(name), declared)


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


def _reader(name: str, form: str, declared: Mapping[str, bool]) -> pa.RecordBatchReader:
    if name != _STDIN and not Path(name).is_file():
        raise OptionError(f"there is no file {name}")
    try:
        if form == "parquet":
            return _parquet(sys.stdin.buffer if name == _STDIN else name)
        start, rows = _open_text(name)
        return (_csv if form == "csv" else _json)(name, start, rows, declared)
    except (pa.ArrowException, OSError) as error:
        raise SchemaError(f"{name} cannot be read as {form}: {error}") from error


def _open_text(name: str) -> tuple[bytes, Any]:
    """The first bytes of a file, and the whole of it; a compressed one is decompressed."""
    if name == _STDIN:
        start = sys.stdin.buffer.read(_SAMPLE_BYTES)
        return start, io.BufferedReader(_Replay(start, sys.stdin.buffer), _SAMPLE_BYTES)
    with pa.input_stream(name, compression="detect") as file:
        start = file.read(_SAMPLE_BYTES)
    return start, pa.input_stream(name, compression="detect")


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


def _csv(name: str, start: bytes, rows: Any, declared: Mapping[str, bool]) -> pa.RecordBatchReader:  # noqa: ANN401
    delimiter = "\t" if ".tsv" in Path(name).suffixes else _delimiter(start)
    # Values may have line breaks, and such a value may lie at the end of a block.
    parsing = pa_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    strings = dict.fromkeys(_csv_strings(start, parsing, declared), pa.string())
    reader = pa_csv.open_csv(
        rows, parse_options=parsing, convert_options=pa_csv.ConvertOptions(column_types=strings)
    )
    for column in reader.schema:
        if storage_kind_of(column.type) is TypeKind.BINARY:
            raise SchemaError(
                f"{name}: the column {column.name} is not in UTF-8; convert the file first, for example by "
                "iconv -f latin1 -t utf-8"
            )
    return reader


def _delimiter(start: bytes) -> str:
    """The one that the first line has most often outside of quotes; a comma if it has none."""
    line = re.sub(rb'"[^"]*"', b"", start.split(b"\n", 1)[0])
    return max(_DELIMITERS, key=lambda each: line.count(each.encode()))


def _csv_strings(start: bytes, parsing: pa_csv.ParseOptions, declared: Mapping[str, bool]) -> list[str]:
    """The columns that are strings, whatever their values look like."""
    whole = start if len(start) < _SAMPLE_BYTES else start[: start.rfind(b"\n") + 1]
    try:
        names = pa_csv.open_csv(pa.BufferReader(whole), parse_options=parsing).schema.names
        text = pa_csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
        sample = pa_csv.open_csv(
            pa.BufferReader(whole), parse_options=parsing, convert_options=text
        ).read_next_batch()
    except (pa.ArrowException, StopIteration):
        return []  # what is wrong, or that there are no rows, shows when the file is read
    return [
        name
        for name, values in zip(names, sample.columns, strict=True)
        if declared.get(name.lower(), pc.any(pc.match_substring_regex(values, _IDENTIFIER)).as_py())
    ]


def _json(name: str, start: bytes, rows: Any, declared: Mapping[str, bool]) -> pa.RecordBatchReader:  # noqa: ANN401
    """Open JSON lines. Strings that are dates or times become these types; Arrow knows few forms."""
    columns = {
        column: pa.string() if kind is not None and declared.get(column.lower()) else kind
        for column, kind in _json_types(start).items()
    }
    strings = [(column, pa.string()) for column, kind in columns.items() if kind is not None]
    reader = pa_json.open_json(rows, parse_options=pa_json.ParseOptions(explicit_schema=pa.schema(strings)))
    # Arrow puts columns with an explicit type before all others.
    order = {column: number for number, column in enumerate(columns)}
    names = sorted(reader.schema.names, key=lambda column: order.get(column, len(order)))
    schema = pa.schema([pa.field(n, columns.get(n) or reader.schema.field(n).type) for n in names])

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in reader:
            yield pa.RecordBatch.from_arrays(
                [_cast(batch.column(field.name), field, name) for field in schema], schema=schema
            )

    return pa.RecordBatchReader.from_batches(schema, batches())


def _cast(values: pa.Array, field: pa.Field, name: str) -> pa.Array:
    try:
        return values.cast(field.type)
    except pa.ArrowInvalid as error:
        raise SchemaError(
            f"{name} has dates or times first in the column {field.name}, and other strings later: {error}; "
            f"write them as strings by -o indexing.typemap.{field.name}=string"
        ) from error


def _json_types(start: bytes) -> dict[str, pa.DataType | None]:
    """The columns of the first lines in their order: the type of all their strings; None for other values."""
    types: dict[str, set[pa.DataType | None]] = {}
    for line in start.splitlines()[:_SAMPLE_LINES]:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        for column, value in row.items() if isinstance(row, dict) else ():
            types.setdefault(column, set()).update(() if value is None else (_json_type(value),))
    return {column: _common_type(kinds) for column, kinds in types.items()}


def _common_type(types: set[pa.DataType | None]) -> pa.DataType | None:
    if None in types or not types:
        return None
    return types.pop() if len(types) == 1 else pa.string()


def _json_type(value: object) -> pa.DataType | None:
    if not isinstance(value, str):
        return None
    return next((kind for pattern, kind in _JSON_TYPES if pattern.fullmatch(value)), pa.string())


def _format_of(name: str) -> str:
    if name == _STDIN:
        return "json"
    path = Path(name)
    suffix = Path(path.stem).suffix if path.suffix.lower() in _COMPRESSIONS else path.suffix
    name_format = _SUFFIXES.get(suffix.lower())
    if name_format is None:
        raise OptionError(
            f"{name}: the name does not show the format; give --format {{{', '.join(_FORMATS)}}}"
        )
    return name_format
