"""Commands that read: search, scan, count, changes, tail; and the overview of a table."""

import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from indextables.cli.output import (
    is_coloured_terminal,
    terminal_width,
    to_json,
    write_record,
    write_tables,
)
from indextables.cli.parameters import OutputFormat, Settings
from indextables.errors import CommandError
from indextables.schema.type_info import TypeKind, kind_of
from indextables.sizes import format_size
from indextables.table import Table, open_table

NO_MATCHES = 3
_HIGHLIGHT = "_highlight_"
# A text longer than this many lines of the terminal is shown as its matching fragment.
_MAX_LINES = 4
# How many columns a hint names.
_MOST_NAMED = 5


def search(  # noqa: PLR0913 - one for each parameter of the command
    settings: Settings,
    *,
    path: str,
    query: str,
    field: str | None,
    columns: Sequence[str] | None,
    where: str | None,
    limit: int,
    scores: bool,
    version_as_of: int | None,
    timestamp_as_of: str | None,
) -> int:
    """Write the rows that match a query; on a terminal the matches are highlighted."""
    table = _open(settings, path, version_as_of, timestamp_as_of)
    highlighted = _columns_to_highlight(table, settings, columns)
    result = table.search(
        query,
        field=field,
        columns=columns,
        where=where,
        limit=limit or None,
        scores=scores,
        highlight=highlighted,
    )
    result, matches = _take_matches(result, highlighted)
    rows = write_tables([result], settings.format, sys.stdout, matches=matches)
    if not rows and settings.format is OutputFormat.TABLE:
        sys.stderr.write(_hint(table, field))
    return 0 if rows else NO_MATCHES


def _hint(table: Table, field: str | None) -> str:
    """Why words may not be found though the rows have them; empty if there is no such reason."""
    words = [name.lower() for name in table.text_columns]
    strings = [
        f.name for f in table.schema if kind_of(f.type) is TypeKind.STRING and f.name.lower() not in words
    ]
    columns = [name for name in strings if field is None or name.lower() == field.lower()]
    if not columns or (field is None and words):
        return ""
    names = ", ".join(columns[:_MOST_NAMED])
    return (
        f"indextables: no row was found; whole values are compared in {names}, not words: columns that "
        "a table is to search by words are named by --text when it is written\n"
    )


def _take_matches(result: pa.Table, columns: Sequence[str]) -> tuple[pa.Table, dict[str, list[str | None]]]:
    """Take the fragments (HTML, matches in `<b>`) out of a result, as patterns of the matching words.

    A long text is replaced by its fragment, so that the match is visible.
    """
    matches: dict[str, list[str | None]] = {}
    for name in columns:
        fragments = result[_HIGHLIGHT + name].to_pylist()
        index = next(i for i, n in enumerate(result.column_names) if n.lower() == name.lower())
        column = result.column_names[index]
        matches[column] = [None if fragment is None else _pattern(fragment) for fragment in fragments]
        longest = _MAX_LINES * terminal_width(sys.stdout)
        texts = [
            text if fragment is None or len(text) <= longest else _text_of_fragment(fragment)
            for text, fragment in zip(result.column(index).to_pylist(), fragments, strict=True)
        ]
        result = result.set_column(index, column, pa.array(texts, pa.string()))
        result = result.drop_columns([_HIGHLIGHT + name])
    return result, matches


def _pattern(fragment: str) -> str:
    """Return a regular expression for the words in `<b>`, in any case."""
    words = {_unescape(word) for word in re.findall(r"<b>(.*?)</b>", fragment, re.DOTALL)}
    alternatives = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    return rf"(?i)(?<!\w)({alternatives})(?!\w)"


def _unescape(text: str) -> str:
    from html import unescape  # noqa: PLC0415 - only for matches on a terminal

    return unescape(text)


def _text_of_fragment(fragment: str) -> str:
    return _unescape(fragment.replace("<b>", "").replace("</b>", ""))


def scan(
    settings: Settings,
    *,
    path: str,
    columns: Sequence[str] | None,
    where: str | None,
    limit: int | None,
    version_as_of: int | None,
    timestamp_as_of: str | None,
) -> int:
    """Write the rows that meet a condition, as they are read."""
    reader = _open(settings, path, version_as_of, timestamp_as_of).stream(columns, where, limit)
    write_tables(_non_empty(reader), settings.format, sys.stdout)
    return 0


def _non_empty(reader: pa.RecordBatchReader) -> Iterator[pa.Table]:
    """Yield the batches with rows; if there are none, one empty batch, for the header."""
    empty = True
    for batch in reader:
        if batch.num_rows:
            empty = False
            yield pa.Table.from_batches([batch])
    if empty:
        yield reader.schema.empty_table()


def changes(
    settings: Settings,
    *,
    path: str,
    since: int | str,
    until: int | str | None,
    columns: Sequence[str] | None,
    where: str | None,
) -> int:
    """Write the rows that were inserted and deleted, as they are read."""
    table = _open(settings, path)
    reader = table.stream_changes(since, until, columns=columns, where=where)
    write_tables(_non_empty(reader), settings.format, sys.stdout)
    return 0


def tail(  # noqa: PLR0913 - one for each parameter of the command
    settings: Settings,
    *,
    path: str,
    query: str | None,
    field: str | None,
    columns: Sequence[str] | None,
    where: str | None,
    since: int | None,
    interval: float,
    timeout: float | None,
) -> int:
    """Write the rows that new versions insert; on a terminal the matches are highlighted."""
    table = _open(settings, path)
    highlighted = _columns_to_highlight(table, settings, columns) if query is not None else []
    header = True
    rows = 0
    for result in table.follow(
        query,
        field=field,
        columns=columns,
        where=where,
        highlight=highlighted,
        since=since,
        interval=interval,
        timeout=timeout,
    ):
        shown, matches = _take_matches(result, highlighted)
        rows += write_tables([shown], settings.format, sys.stdout, matches=matches, header=header)
        sys.stdout.flush()
        header = False
    return 0 if rows else NO_MATCHES


def watch(
    settings: Settings,
    *,
    path: str,
    queries: str,
    columns: Sequence[str] | None,
    command: str | None,
    since: int | None,
    interval: float,
    timeout: float | None,
) -> int:
    """Write the rows that match standing queries, or run a command for each of them."""
    from indextables.read.standing import SINCE  # noqa: PLC0415 - only this command needs it

    program = None if command is None else _words(command)
    table = _open(settings, path)
    matches = table.watch(
        _read_queries(queries), columns=columns, since=since, interval=interval, timeout=timeout
    )
    rows = 0
    for result in matches:
        if program is not None:
            again = int((result.schema.metadata or {})[SINCE])
            for row in result.to_pylist():
                _run_for_match(program, row, again)
            rows += result.num_rows
        else:
            rows += write_tables([result], settings.format, sys.stdout, header=rows == 0)
            sys.stdout.flush()
    return 0 if rows else NO_MATCHES


# The tag of the key `<<`, whose value is a mapping with more keys.
_YAML_MERGE = "tag:yaml.org,2002:merge"


def _read_queries(path: str) -> Mapping[str, object]:
    """The queries of a YAML or JSON file, by their ids."""
    import yaml  # noqa: PLC0415 - only this command needs it

    try:
        loader = yaml.SafeLoader(Path(path).read_text(encoding="utf-8"))
        node = loader.get_single_node()
        if isinstance(node, yaml.MappingNode):
            # An id is the text in the file: YAML takes `on` for true, and 007 for 7.
            for key, _ in node.value:
                key.tag = key.tag if key.tag == _YAML_MERGE else "tag:yaml.org,2002:str"
        queries = None if node is None else loader.construct_document(node)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise CommandError(f"{path} is not YAML: {error}") from error
    if not isinstance(queries, Mapping):
        raise CommandError(f"{path} has no queries; an id and a query on each line are expected: 'id: query'")
    # A YAML parser takes the last of equal keys.
    members = [(str(key.value), value) for key, value in node.value]
    if repeated := _first_duplicate([key for key, _ in members]):
        raise CommandError(
            f"{path} has more than one query with the id '{repeated}'; each needs an id of its own"
        )
    for key, value in members:
        if isinstance(value, yaml.MappingNode) and (
            repeated := _first_duplicate([str(each.value) for each, _ in value.value])
        ):
            raise CommandError(f"{path}: the query '{key}' has '{repeated}' more than once; give it once")
    return {str(key): value for key, value in queries.items()}


def _first_duplicate(names: Sequence[str]) -> str | None:
    """The first name that occurs more than once."""
    return next((name for name, times in Counter(names).items() if times > 1), None)


def _words(command: str) -> list[str]:
    """The program and the arguments of a command; no shell is involved."""
    import shlex  # noqa: PLC0415 - only this command needs it

    try:
        words = shlex.split(command)
    except ValueError as error:
        raise CommandError(f"--exec {command} is no command: {error}") from error
    if not words:
        raise CommandError("--exec is empty; give a program, and perhaps its arguments")
    return words


def _run_for_match(program: Sequence[str], row: dict[str, Any], again: int) -> None:
    """Run a program with a row as JSON on its standard input.

    `again` is the version after which to start to get the row again.
    """
    import shlex  # noqa: PLC0415 - only this command needs it
    import subprocess  # noqa: PLC0415

    try:
        # The command comes from the user of the program; a row is only its input.
        subprocess.run(  # noqa: S603
            program, input=to_json(row) + "\n", encoding="utf-8", check=True, env=dict(os.environ)
        )
    except (subprocess.CalledProcessError, OSError) as error:
        problem = f"could not be run ({error})"
        if isinstance(error, subprocess.CalledProcessError):
            problem = f"ended with the code {error.returncode}"
        raise CommandError(
            f"'{shlex.join(program)}' {problem}; watch stops. With --since {again} it goes on with this row; "
            "the command may get rows of the same versions again"
        ) from error


def _columns_to_highlight(table: Table, settings: Settings, columns: Sequence[str] | None) -> list[str]:
    """The text columns whose matches are highlighted."""
    coloured = settings.format is OutputFormat.TABLE and is_coloured_terminal(sys.stdout)
    shown = {name.lower() for name in columns or table.schema.names}
    return [name for name in table.text_columns if name.lower() in shown] if coloured else []


def count(
    settings: Settings,
    *,
    path: str,
    where: str | None,
    version_as_of: int | None,
    timestamp_as_of: str | None,
) -> int:
    """Write the number of rows that meet a condition."""
    rows = _open(settings, path, version_as_of, timestamp_as_of).count(where)
    if settings.format is OutputFormat.TABLE:
        sys.stdout.write(f"{rows}\n")
    else:
        write_record({"count": rows}, settings.format, sys.stdout)
    return 0


def describe(settings: Settings, path: str, what: str, flags: Mapping[str, object]) -> int:
    """Write the overview of a table, or its splits."""
    if any(flags.values()):
        raise CommandError(f"'indextables describe {what}' takes neither --where nor --all")
    table = _open(settings, path)
    if what == "table":
        write_record(_overview(table, settings.format), settings.format, sys.stdout)
        return 0
    columns = ["path", "numRecords", "size", "partitionValues", "addedAtVersion", "numMergeOps"]
    if settings.format is OutputFormat.TABLE:
        columns.remove("partitionValues")  # the path shows them
    write_tables([table.files().select(columns)], settings.format, sys.stdout)
    return 0


def _overview(table: Table, form: OutputFormat) -> dict[str, Any]:
    files = table.files()
    size = pc.sum(files["size"]).as_py() or 0
    state = table.state()
    counted = files["numRecords"].null_count == 0
    people = form is OutputFormat.TABLE
    return {
        "table": table.url,
        "version": table.version,
        "rows": (pc.sum(files["numRecords"]).as_py() or 0) if counted else table.count(),
        "splits": files.num_rows,
        "size": format_size(size) if people else size,
        "partition_columns": _names(table.partition_columns, people=people),
        "text_columns": _names(table.text_columns, people=people),
        "columns": {field.name: str(field.type) for field in table.schema},
        "state": {
            "format": state.format,
            "version": state.version,
            "tombstones": state.num_tombstones,
            "needs_compaction": state.needs_compaction,
        },
    }


def _names(names: Sequence[str], *, people: bool) -> str | list[str]:
    return (", ".join(names) or "none") if people else list(names)


def _open(settings: Settings, path: str, version: int | None = None, timestamp: str | None = None) -> Table:
    return open_table(path, version=version, timestamp=timestamp, options=dict(settings.options))
