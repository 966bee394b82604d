"""Results for people, as tables, and for programs, as JSON lines or CSV."""

import csv
import datetime as dt
import io
import json
import math
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from enum import StrEnum
from typing import Any, TextIO

import pyarrow as pa

from indextables.cli.terminal import BOLD, DIM, END, in_colour, is_terminal, width

_GAP = "  "
_LEAST = 8
# So many rows are looked at together, so that columns stand below each other.
_PAGE = 200


class Form(StrEnum):
    """How results are written."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def show(batches: Iterable[pa.Table], form: Form, out: TextIO, *, marks: Sequence[str] = ()) -> int:
    """Write results as they come; how many rows there were.

    `marks` are columns whose texts hold terminal codes already, so they are not cleaned.
    """
    rows = 0
    if form is Form.CSV:
        writer = csv.writer(out, lineterminator="\n")
        for number, table in enumerate(batches):
            if number == 0:
                writer.writerow(table.column_names)
            writer.writerows([_csv_cell(v) for v in row.values()] for row in _rows(table))
            rows += table.num_rows
        return rows
    if form is Form.JSON:
        for table in batches:
            out.writelines(to_json(row) + "\n" for row in _rows(table))
            rows += table.num_rows
        return rows
    for table in batches:
        for start in range(0, max(table.num_rows, 1), _PAGE):
            page = table.slice(start, _PAGE)
            _show_page(page, out, header=not rows, marks=marks)
            rows += page.num_rows
    return rows


def record(row: dict[str, Any], out: TextIO) -> None:
    """One row as a list of names and values, those of objects indented."""
    flat = list(_flat(row))
    longest = max((len(name) for name, _ in flat), default=0)
    strong, end = (BOLD, END) if in_colour(out) else ("", "")
    for name, value in flat:
        shown = "" if value is _OBJECT else text_of(value)
        out.write(f"{strong}{name.ljust(longest)}{end}{_GAP}{shown}".rstrip() + "\n")


_OBJECT = object()


def _flat(row: dict[str, Any], indent: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in row.items():
        if isinstance(value, dict):
            yield indent + name, _OBJECT
            yield from _flat(value, indent + "  ")
        else:
            yield indent + name, value


def _show_page(table: pa.Table, out: TextIO, *, header: bool, marks: Sequence[str]) -> None:
    names = table.column_names
    cells = [
        [text_of(value) if name not in marks else str(value) for value in column]
        for name, column in zip(names, (_values(c) for c in table.columns), strict=True)
    ]
    numeric = [_is_number(field.type) for field in table.schema]
    wanted = [max([_wide(n), *(_wide(c) for c in col)]) for n, col in zip(names, cells, strict=True)]
    widths = _fitted(wanted, width()) if is_terminal(out) else wanted
    strong, dim, end = (BOLD, DIM, END) if in_colour(out) else ("", "", "")
    if header:
        titles = (_padded(_cut(n, w), w, right=r) for n, w, r in zip(names, widths, numeric, strict=True))
        out.write(f"{strong}{_GAP.join(titles).rstrip()}{end}\n")
        out.write(f"{dim}{_GAP.join('-' * w for w in widths)}{end}\n")
    for row in zip(*cells, strict=True):
        line = (_padded(_cut(c, w), w, right=r) for c, w, r in zip(row, widths, numeric, strict=True))
        out.write(_GAP.join(line).rstrip() + "\n")


def _fitted(wanted: list[int], most: int) -> list[int]:
    """Widths that fit into a line: the widest columns give way first."""
    widths = list(wanted)
    room = most - len(_GAP) * (len(widths) - 1)
    while widths and sum(widths) > room:
        widest = max(range(len(widths)), key=lambda i: widths[i])
        if widths[widest] <= _LEAST:
            break
        widths[widest] -= 1
    return widths


def text_of(value: Any) -> str:  # noqa: ANN401 - any value of a result
    """A value as people read it, on one line, without codes that a terminal would obey."""
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


def _values(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_map(column.type):
        return [None if entry is None else dict(entry) for entry in column.to_pylist()]
    found: list[Any] = column.to_pylist()
    return found


def _rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    columns = [_values(column) for column in table.columns]
    for row in zip(*columns, strict=True) if columns else ():
        yield dict(zip(table.column_names, row, strict=True))


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of a small result."""
    return list(_rows(table))


def to_json(value: object) -> str:
    """A value as JSON on one line; JSON has no NaN and no infinity, so they become texts."""
    try:
        return json.dumps(value, default=_json_value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), default=_json_value, ensure_ascii=False)


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
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _wide(text: str) -> int:
    """How many places a text takes; codes of the terminal take none."""
    if text.isascii() and "\x1b" not in text:
        return len(text)
    total, hidden = 0, False
    for char in text:
        if hidden:
            hidden = char != "m"
        elif char == "\x1b":
            hidden = True
        elif not unicodedata.combining(char):
            total += 2 if unicodedata.east_asian_width(char) in "WF" else 1
    return total


def _cut(text: str, most: int) -> str:
    if _wide(text) <= most:
        return text
    out, used, hidden, coded = io.StringIO(), 0, False, False
    for char in text:
        if hidden or char == "\x1b":
            hidden, coded = not (hidden and char == "m"), True
            out.write(char)
            continue
        step = _wide(char)
        if used + step > most - 1:
            break
        used += step
        out.write(char)
    return out.getvalue() + "…" + (END if coded else "")


def _padded(text: str, wide: int, *, right: bool) -> str:
    blanks = " " * max(0, wide - _wide(text))
    return blanks + text if right else text + blanks


def readable_bytes(count: float) -> str:
    """A size as people say it.

    >>> readable_bytes(999), readable_bytes(1536), readable_bytes(5 << 30)
    ('999 B', '1.5 KB', '5.0 GB')
    """
    if count < 1024:
        return f"{int(count)} B"
    power = min(int(math.log(count, 1024)), 5)
    return f"{count / 1024**power:.1f} {'KMGTP'[power - 1]}B"
