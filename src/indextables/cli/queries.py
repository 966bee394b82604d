"""Commands of the program that read: search, scan, count, describe; and write."""

import argparse
import html
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from indextables.cli.incoming import rows_from
from indextables.cli.render import Form, readable_bytes, record, show, text_of, to_json
from indextables.cli.statements import run, shown
from indextables.cli.terminal import END, MARK, ProgressBar, in_colour, width
from indextables.errors import CommandError, TableNotFoundError
from indextables.table import Table, open_table, write

NOTHING_FOUND = 3
_HIGHLIGHT = "_highlight_"


def opened(arguments: argparse.Namespace) -> Table:
    """The table that the arguments name, at the version they name."""
    return open_table(
        arguments.path,
        version=getattr(arguments, "version_as_of", None),
        timestamp=getattr(arguments, "timestamp_as_of", None),
        options=dict(arguments.option),
    )


def search(arguments: argparse.Namespace) -> int:
    """Rows by relevance; matches are highlighted where somebody looks."""
    table = opened(arguments)
    form = Form(arguments.form)
    coloured = form is Form.TABLE and in_colour(sys.stdout)
    shown_columns = arguments.columns or table.schema.names
    lower = {name.lower() for name in shown_columns}
    marks = [name for name in table.text_columns if name.lower() in lower] if coloured else []
    found = table.search(
        arguments.query,
        field=arguments.field,
        columns=arguments.columns,
        where=arguments.where,
        limit=arguments.limit or None,
        scores=arguments.scores,
        highlight=marks,
    )
    rows = show([_marked(found, marks)], form, sys.stdout, marks=marks)
    return 0 if rows else NOTHING_FOUND


def _marked(found: pa.Table, columns: list[str]) -> pa.Table:
    """The rows with matching fragments in place of their texts, marked for a terminal."""
    for name in columns:
        fragments = found[_HIGHLIGHT + name].to_pylist()
        place = next(i for i, n in enumerate(found.column_names) if n.lower() == name.lower())
        whole = found.column(place).to_pylist()
        texts = [
            text_of(text) if fragment is None else _coloured(text, fragment)
            for text, fragment in zip(whole, fragments, strict=True)
        ]
        found = found.set_column(place, found.column_names[place], pa.array(texts, pa.string()))
        found = found.drop_columns([_HIGHLIGHT + name])
    return found


def _coloured(text: str, fragment: str) -> str:
    """The text with its matches marked; of a long one, the fragment (HTML, matches in <b>) that has some."""
    matches = {html.unescape(match) for match in re.findall(r"<b>(.*?)</b>", fragment, re.DOTALL)}
    if len(text) > width():
        text = html.unescape(fragment.replace("<b>", "").replace("</b>", ""))
    either = "|".join(re.escape(match) for match in sorted(matches, key=len, reverse=True))
    parts = re.split(rf"(?<!\w)({either})(?!\w)", text, flags=re.IGNORECASE)
    return "".join(
        f"{MARK}{text_of(part)}{END}" if number % 2 else text_of(part) for number, part in enumerate(parts)
    )


def scan(arguments: argparse.Namespace) -> int:
    """Rows as they come."""
    reader = opened(arguments).stream(arguments.columns, arguments.where, arguments.limit)
    show(_tables(reader), Form(arguments.form), sys.stdout)
    return 0


def _tables(reader: pa.RecordBatchReader) -> Iterator[pa.Table]:
    any_ = False
    for batch in reader:
        if batch.num_rows:
            any_ = True
            yield pa.Table.from_batches([batch])
    if not any_:
        yield reader.schema.empty_table()


def count(arguments: argparse.Namespace) -> int:
    """How many rows."""
    found = opened(arguments).count(arguments.where)
    if arguments.form == Form.TABLE:
        print(found)  # noqa: T201 - what the command is for
    else:
        show([pa.table({"count": [found]})], Form(arguments.form), sys.stdout)
    return 0


def describe(arguments: argparse.Namespace) -> int:
    """What a table is made of."""
    if arguments.what in ("table", "splits") and (arguments.where or arguments.everything):
        raise CommandError(f"'indextables describe {arguments.what}' takes neither --where nor --all")
    if arguments.what == "table":
        return _overview(arguments)
    if arguments.what == "splits":
        files = opened(arguments).files()
        wanted = ["path", "numRecords", "size", "partitionValues", "addedAtVersion", "numMergeOps"]
        if arguments.form == Form.TABLE:
            # Where a split is tells its partition.
            wanted.remove("partitionValues")
        show([files.select(wanted)], Form(arguments.form), sys.stdout)
        return 0
    return run(arguments)


def _overview(arguments: argparse.Namespace) -> int:
    table = opened(arguments)
    files = table.files()
    size = pc.sum(files["size"]).as_py() or 0
    state = table.state()
    fields = {field.name: str(field.type) for field in table.schema}
    known = files["numRecords"].null_count == 0
    facts: dict[str, Any] = {
        "table": table.url,
        "version": table.version,
        "rows": (pc.sum(files["numRecords"]).as_py() or 0) if known else table.count(),
        "splits": files.num_rows,
        "size": size,
        "partition_columns": list(table.partition_columns),
        "text_columns": list(table.text_columns),
        "columns": fields,
        "state": {
            "format": state.format,
            "version": state.version,
            "tombstones": state.num_tombstones,
            "needs_compaction": state.needs_compaction,
        },
    }
    if arguments.form == Form.TABLE:
        facts["size"] = readable_bytes(size)
        facts["partition_columns"] = ", ".join(table.partition_columns) or "none"
        facts["text_columns"] = ", ".join(table.text_columns) or "none"
        record(facts, sys.stdout)
    elif arguments.form == Form.JSON:
        sys.stdout.write(to_json(facts) + "\n")
    else:
        flat = {k: to_json(v) if isinstance(v, (dict, list)) else v for k, v in facts.items()}
        show([pa.Table.from_pylist([flat])], Form.CSV, sys.stdout)
    return 0


def write_rows(arguments: argparse.Namespace) -> int:
    """Rows into a table."""
    options: dict[str, object] = dict(arguments.option)
    before = _version(arguments) if arguments.mode == "ignore" else None
    options.update({f"indexing.typemap.{name.lower()}": "text" for name in arguments.text})
    with ProgressBar("rows read:", quiet=arguments.quiet) as progress:
        table = write(
            arguments.path,
            _counted(rows_from(arguments.files, arguments.format), progress),
            mode=arguments.mode,
            partition_by=arguments.partition_by,
            options=options,
        )
    newest = table.history(1).to_pylist()[0]
    figures = dict(newest["metrics"]) if table.version != before else {}
    row = {
        "table": table.url,
        "version": table.version,
        "operation": newest["operation"] if table.version != before else "nothing: the table exists",
        "rows": figures.get("numAddedRecords", 0),
        "splits": figures.get("numAddedFiles", 0),
        "bytes": figures.get("numAddedBytes", 0),
    }
    if arguments.form == Form.TABLE:
        row["size"] = readable_bytes(row.pop("bytes"))
    return shown(pa.Table.from_pylist([row]), arguments)


def _counted(reader: pa.RecordBatchReader, progress: ProgressBar) -> pa.RecordBatchReader:
    """The same rows; how many went by is told."""

    def batches() -> Iterator[pa.RecordBatch]:
        rows = 0
        for batch in reader:
            yield batch
            rows += batch.num_rows
            progress(rows, 0)

    return pa.RecordBatchReader.from_batches(reader.schema, batches())


def _version(arguments: argparse.Namespace) -> int | None:
    try:
        return opened(arguments).version
    except TableNotFoundError:
        return None


ACTIONS: dict[str, Callable[[argparse.Namespace], int]] = {
    "search": search,
    "scan": scan,
    "count": count,
    "describe": describe,
    "write": write_rows,
}
