"""Output: tables for people on a terminal, tab-separated text in a pipe, JSON lines or CSV for programs."""

import csv
import datetime as dt
import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Self, TextIO

import pyarrow as pa

from indextables.cli.parameters import OutputFormat
from indextables.schema.type_info import NUMERIC, TypeKind, kind_of

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID
    from rich.table import Table
    from rich.text import Text

# The number of rows that are laid out together on a terminal.
_PAGE_ROWS = 200
# Columns narrower than this are not readable: rows are then shown as records.
_MIN_COLUMN = 8
_MATCH_STYLE = "bold red"

Row = dict[str, Any]
# For each row a regular expression of the words to highlight, or None.
Matches = Mapping[str, Sequence[str | None]]


def is_coloured_terminal(out: TextIO) -> bool:
    """Whether colours can be shown: on a terminal, unless NO_COLOR is set."""
    return out.isatty() and not _console(out).no_color


def terminal_width(out: TextIO) -> int:
    """Return the number of columns of the terminal."""
    return _console(out).width


def write_tables(
    tables: Iterable[pa.Table],
    form: OutputFormat,
    out: TextIO,
    *,
    matches: Matches | None = None,
    header: bool = True,
) -> int:
    """Write results as they arrive, and return the number of rows.

    Args:
        tables: the parts of the result; all have the same columns.
        form: the format.
        out: the file.
        matches: for columns of a single part, regular expressions of the words to highlight on a terminal.
        header: whether the names of the columns are written before the first part.
    """
    rows = 0
    for number, table in enumerate(tables):
        match form:
            case OutputFormat.CSV:
                _write_csv(table, out, header=header and number == 0)
            case OutputFormat.JSON:
                out.writelines(to_json(row) + "\n" for row in _rows(table))
            case OutputFormat.TABLE:
                _write_table(table, out, header=header and number == 0, matches=matches or {})
        rows += table.num_rows
    return rows


def write_record(row: Row, form: OutputFormat, out: TextIO) -> None:
    """Write one row: on a terminal as names and values, with nested records indented."""
    match form:
        case OutputFormat.JSON:
            out.write(to_json(row) + "\n")
        case OutputFormat.CSV:
            writer = csv.writer(out, lineterminator="\n")
            writer.writerow(row)
            writer.writerow(_csv_cell(value) for value in row.values())
        case OutputFormat.TABLE if out.isatty():
            _print_record(row, out)
        case OutputFormat.TABLE:
            out.writelines(f"{name}\t{text}".rstrip() + "\n" for name, text in _flat(row))


# --- for people --------------------------------------------------------------------------------------


def _console(out: TextIO) -> "Console":
    from rich.console import Console

    return Console(file=out, highlight=False, soft_wrap=False)


def _write_table(table: pa.Table, out: TextIO, *, header: bool, matches: Matches) -> None:
    if not out.isatty():
        if header:
            out.write("\t".join(table.column_names) + "\n")
        for batch in table.to_batches(max_chunksize=_PAGE_ROWS):
            columns = [[text_of(value) for value in _values(column)] for column in batch.columns]
            out.writelines("\t".join(row) + "\n" for row in zip(*columns, strict=True))
        return
    console = _console(out)
    for start in range(0, max(table.num_rows, 1), _PAGE_ROWS):
        page = table.slice(start, _PAGE_ROWS)
        cells = [
            _cells(page.column(index), matches.get(name, ())[start : start + _PAGE_ROWS])
            for index, name in enumerate(page.column_names)
        ]
        _print_page(console, page, cells, header=header and start == 0)


def _cells(column: pa.ChunkedArray, patterns: Sequence[str | None]) -> "list[Text]":
    from rich.text import Text

    cells = [Text(text_of(value)) for value in _values(column)]
    for cell, pattern in zip(cells, patterns, strict=False):
        if pattern is not None:
            cell.highlight_regex(pattern, _MATCH_STYLE)
    return cells


def _print_page(console: "Console", page: pa.Table, cells: "list[list[Text]]", *, header: bool) -> None:
    from rich import box
    from rich.table import Table

    names = page.column_names
    widths = [
        max([len(name), *(cell.cell_len for cell in column)])
        for name, column in zip(names, cells, strict=True)
    ]
    needed = sum(min(width, _MIN_COLUMN) + 2 for width in widths)
    if needed > console.width and page.num_rows:
        for row in zip(*cells, strict=True):
            console.print(_record_table(zip(names, row, strict=True)))
            console.print()
        return
    table = Table(
        box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, show_header=header, header_style="bold"
    )
    for name, field in zip(names, page.schema, strict=True):
        numeric = _is_number(field.type)
        table.add_column(
            _plain(name), justify="right" if numeric else "left", overflow="fold", no_wrap=numeric
        )
    for row in zip(*cells, strict=True):
        table.add_row(*row)
    console.print(table)


def _plain(text: str) -> "Text":
    from rich.text import Text

    return Text(text)


def _record_table(pairs: "Iterable[tuple[str, str | Text]]") -> "Table":
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in pairs:
        grid.add_row(_plain(name), _plain(value) if isinstance(value, str) else value)
    return grid


def _print_record(row: Row, out: TextIO) -> None:
    _console(out).print(_record_table(_flat(row)))


def _flat(row: Mapping[str, Any], indent: str = "") -> Iterator[tuple[str, str]]:
    for name, value in row.items():
        if isinstance(value, dict):
            yield indent + name, ""
            yield from _flat(value, indent + "  ")
        else:
            yield indent + name, text_of(value)


def text_of(value: Any) -> str:  # noqa: ANN401 - any value of a result
    """Return a value as one line of text, without control codes of terminals."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dt.datetime):
        text = value.isoformat(sep=" ", timespec="milliseconds" if value.microsecond else "seconds")
        return text.removesuffix("+00:00") + ("Z" if text.endswith("+00:00") else "")
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, (dict, list, tuple)):
        value = json.dumps(value, default=_json_value, ensure_ascii=False)
    return "".join(char if char.isprintable() else " " for char in str(value))


class ProgressBar:
    """A progress bar on standard error while a command runs; nothing if it is not a terminal.

    What a command reports that does not end is written there in any case, unless it is to be quiet.
    """

    def __init__(self, description: str, *, quiet: bool = False) -> None:
        self._description = description
        self._quiet = quiet
        self._enabled = not quiet and sys.stderr.isatty()
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def __call__(self, done: int, total: int) -> None:
        """Show the number of finished tasks and of all tasks; a total of 0 is unknown."""
        if not self._enabled:
            return
        if self._progress is None or self._task is None:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
            self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._progress.add_task(self._description, total=total or None)
            self._progress.start()
        self._progress.update(self._task, completed=done, total=total or None)

    def report(self, sentence: str) -> None:
        """Write one line, and start a new bar."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = self._task = None
        if not self._quiet:
            sys.stderr.write(f"{text_of(sentence)}\n")
            sys.stderr.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.refresh()
            self._progress.stop()


# --- for programs ------------------------------------------------------------------------------------


def _write_csv(table: pa.Table, out: TextIO, *, header: bool) -> None:
    writer = csv.writer(out, lineterminator="\n")
    if header:
        writer.writerow(table.column_names)
    writer.writerows([_csv_cell(value) for value in row.values()] for row in _rows(table))


def to_json(value: object) -> str:
    """Return a value as JSON on one line; NaN and infinity, which JSON does not have, become strings."""
    try:
        return json.dumps(value, default=_json_value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), default=_json_value, ensure_ascii=False)


def _values(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    if kind_of(column.type) is TypeKind.MAP:
        return [None if entry is None else dict(entry) for entry in column.to_pylist()]
    values: list[Any] = column.to_pylist()
    return values


def _rows(table: pa.Table) -> Iterator[Row]:
    columns = [_values(column) for column in table.columns]
    for row in zip(*columns, strict=True) if columns else ():
        yield dict(zip(table.column_names, row, strict=True))


def _finite(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value


def _json_value(value: object) -> object:
    if isinstance(value, (dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal):
        return str(value)
    return str(value)


def _csv_cell(value: Any) -> object:  # noqa: ANN401
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (dict, list, tuple)):
        return json.dumps(value, default=_json_value, ensure_ascii=False)
    return _json_value(value) if not isinstance(value, (str, int, float)) else value


def _is_number(kind: pa.DataType) -> bool:
    return kind_of(kind) in NUMERIC
