"""What the program understands: its commands, their arguments, and help that teaches."""

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from indextables.cli.incoming import FORMATS
from indextables.options.parsers import size as size_parser
from indextables.version import VERSION

_EPILOG = """\
examples:
  indextables write logs app.jsonl --text message --partition-by day
  indextables search logs 'timeout AND level:ERROR'
  indextables scan logs --where "status >= 500" --columns day,message --csv > errors.csv
  indextables count logs --where "day = DATE '2026-05-01'"
  indextables describe logs
  indextables merge logs --target-size 1G
  indextables purge logs --older-than 7d --dry-run
  indextables report logs --output report.html

A table is a folder or a URL (s3://, abfss://, gs://). Options of the engine are given as
-o key=value, for example -o aws.region=eu-central-1; docs/options.md lists them.

exit codes: 0 done; 1 failed, the message says why; 2 wrong usage; 3 a search found nothing."""

_HOURS = {"h": 1.0, "d": 24.0, "w": 168.0}


def size(text: str) -> int:
    """A size such as 500M or 2G."""
    try:
        return size_parser.parse(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a size such as 500M or 2G") from None


def hours(text: str) -> float:
    """A time span such as 12h, 7d or 4w, in hours."""
    unit = _HOURS.get(text[-1:].lower())
    try:
        if unit is not None:
            return float(text[:-1]) * unit
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"'{text}' is not a time span such as 12h, 7d or 4w")


def columns(text: str) -> list[str]:
    """Names separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def option(text: str) -> tuple[str, str]:
    """key=value."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError(f"'{text}' is not key=value")
    return key, value


def build(actions: dict[str, Callable[[argparse.Namespace], int]]) -> argparse.ArgumentParser:
    """The parser; `actions` are what each command does."""
    made = argparse.ArgumentParser(
        prog="indextables",
        description="Search your lake: tables with full-text indexes, on the command line.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--version", action="version", version=f"indextables {VERSION}")
    found = made.add_subparsers(dest="command", metavar="command", required=True)
    maker = _Maker(found, actions)
    _reading(maker)
    _writing(maker)
    _upkeep(maker)
    _others(maker)
    return made


class _Maker:
    """Makes the parsers of commands, each with what all have in common."""

    def __init__(self, parsers: Any, actions: dict[str, Callable[[argparse.Namespace], int]]) -> None:  # noqa: ANN401
        self._parsers = parsers
        self._actions = actions
        common = argparse.ArgumentParser(add_help=False)
        common.add_argument(
            "-o", "--option", type=option, action="append", default=[], metavar="key=value",
            help="an option of the engine; may be repeated",
        )  # fmt: skip
        common.add_argument("-q", "--quiet", action="store_true", help="no progress bar")
        form = common.add_mutually_exclusive_group()
        form.add_argument(
            "--json", action="store_const", const="json", dest="form", help="one JSON object a line"
        )
        form.add_argument(
            "--csv", action="store_const", const="csv", dest="form", help="comma-separated values"
        )
        common.set_defaults(form="table")
        self._common = common

    def __call__(
        self, name: str, help_: str, *, path: bool = True, more: str = ""
    ) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = self._parsers.add_parser(
            name,
            help=help_,
            description=help_[:1].upper() + help_[1:] + ".",
            epilog=more or None,
            parents=[self._common],
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if path:
            made.add_argument("path", help="the table: a folder or a URL")
        made.set_defaults(run=self._actions[name])
        return made


def _at_version(made: argparse.ArgumentParser) -> None:
    made.add_argument("--version-as-of", type=int, metavar="n", help="read an earlier version")
    made.add_argument("--timestamp-as-of", metavar="time", help="read the newest version of a time")


def _reading(maker: _Maker) -> None:
    search = maker(
        "search",
        "find rows by a query, the most relevant first",
        more="""\
a query:
  timeout                     rows with the word (in any text column)
  timeout AND refused         both; also OR, NOT, parentheses
  "connection refused"        the words next to each other
  level:ERROR                 a word in one column
  time*                       words that begin so
docs/query-language.md tells all. On a terminal matches are highlighted.""",
    )
    search.add_argument("query", help="what to look for")
    search.add_argument(
        "--field", metavar="column", help="the column that words without one are looked for in"
    )
    search.add_argument("--columns", type=columns, metavar="a,b", help="what to show; by default all")
    search.add_argument("--where", metavar="condition", help="a SQL condition that rows must meet besides")
    search.add_argument(
        "--limit", type=int, default=10, metavar="n", help="how many rows (default 10, 0 for all)"
    )
    search.add_argument("--scores", action="store_true", help="show how well each row matches (BM25)")
    _at_version(search)
    scan = maker("scan", "read rows, those that a condition is true for")
    scan.add_argument("--columns", type=columns, metavar="a,b", help="what to show; by default all")
    scan.add_argument("--where", metavar="condition", help="a SQL condition, INDEXQUERY included")
    scan.add_argument("--limit", type=int, metavar="n", help="at most so many rows")
    _at_version(scan)
    count = maker("count", "count rows, those that a condition is true for")
    count.add_argument("--where", metavar="condition", help="a SQL condition, INDEXQUERY included")
    _at_version(count)
    describe = maker("describe", "tell what a table is made of")
    describe.add_argument(
        "what", nargs="?", default="table",
        choices=("table", "state", "splits", "log", "full-log", "components", "skipping"),
        help="the table (default), the log's state, its splits, its actions, the parts of splits, statistics",
    )  # fmt: skip
    describe.add_argument(
        "--where", metavar="condition", help="for components: a condition on partition columns"
    )
    history = maker("history", "tell what was done to a table, newest version first")
    history.add_argument("--limit", type=int, metavar="n", help="at most so many versions")


def _writing(maker: _Maker) -> None:
    write = maker(
        "write",
        "write rows into a table, which is made if there is none",
        more="""\
examples:
  indextables write logs app.jsonl --text message
  indextables write logs part-*.parquet --partition-by day
  kubectl logs pod | indextables write logs --format json""",
    )
    write.add_argument(
        "files",
        nargs="*",
        default=["-"],
        metavar="file",
        help="Parquet, CSV or JSON lines; - reads standard input (default)",
    )
    write.add_argument(
        "--format",
        choices=FORMATS,
        help="what the files are; by default their names tell, and standard input is json",
    )
    write.add_argument(
        "--mode",
        choices=("append", "overwrite", "error", "ignore"),
        default="append",
        help="if there is a table already (default append)",
    )
    write.add_argument(
        "--partition-by", type=columns, default=[], metavar="a,b", help="columns whose values become folders"
    )
    write.add_argument(
        "--text",
        type=columns,
        default=[],
        metavar="a,b",
        help="columns to be searched by words; the table remembers it",
    )


def _upkeep(maker: _Maker) -> None:
    merge = maker("merge", "make few large splits of many small ones")
    merge.add_argument(
        "--target-size", type=size, metavar="n[M|G]", help="the size a split should reach (default 5G)"
    )
    merge.add_argument("--where", metavar="condition", help="a condition on partition columns")
    merge.add_argument("--max-dest-splits", type=int, metavar="n", help="at most so many merged splits")
    merge.add_argument("--max-source-splits", type=int, metavar="n", help="at most so many splits become one")
    purge = maker("purge", "delete files that no version names, and old files of the log")
    purge.add_argument(
        "--older-than", type=hours, metavar="7d", help="only files older than this (default 7d, at least 24h)"
    )
    purge.add_argument(
        "--log-retention",
        type=hours,
        metavar="30d",
        help="how long earlier versions can be read (default 30d)",
    )
    purge.add_argument("--dry-run", action="store_true", help="only tell what would be deleted")
    maker("checkpoint", "write a compacted state of the log now")
    truncate = maker("truncate", "forget all versions before the newest one")
    truncate.add_argument("--dry-run", action="store_true", help="only tell what would be deleted")
    drop = maker("drop", "take whole partitions out of a table")
    drop.add_argument("--where", required=True, metavar="condition", help="a condition on partition columns")
    restore = maker("restore", "make an earlier version the newest one")
    to = restore.add_mutually_exclusive_group(required=True)
    to.add_argument("--to-version", type=int, metavar="n", help="which version")
    to.add_argument(
        "--to-timestamp", metavar="time", help="the newest version of a time, such as 2026-05-01T12:00"
    )
    repair = maker(
        "repair",
        "write a log anew, from one that can be read or from the splits",
        more="""\
without --at: the log is lost; it is rebuilt from the splits, in its place.
with --at: PATH is the log folder (.../_transaction_log) of a table; what can be read of it is written
to the folder given, which must be absent or empty and end in _transaction_log; splits that are missing
are left out.""",
    )
    repair.add_argument("--at", metavar="folder", help="the log folder to write")
    prewarm = maker("prewarm", "bring index parts to the local disk before the first search")
    prewarm.add_argument("--where", metavar="condition", help="a condition on partition columns")
    prewarm.add_argument(
        "--segments",
        type=columns,
        default=[],
        metavar="a,b",
        help="TERM, POSTINGS, POSITIONS, FASTFIELD, FIELDNORM, STORE",
    )
    prewarm.add_argument("--fields", type=columns, default=[], metavar="a,b", help="only these columns")


def _others(maker: _Maker) -> None:
    cache = maker("cache", "show or empty the local cache of index parts", path=False)
    cache.add_argument(
        "what", nargs="?", default="show", choices=("show", "flush"), help="show (default) or flush"
    )
    sql = maker("sql", "do a command of SQL", path=False, more="docs/commands.md lists the commands.")
    sql.add_argument("statement", help="such as \"MERGE SPLITS 'logs' TARGET SIZE 1G\"")
    report = maker("report", "write a page about a table's health")
    report.add_argument(
        "--output", metavar="file", default="report.html", help="the page (default report.html)"
    )
    completion = maker(
        "completion",
        "print a script that completes commands in a shell",
        path=False,
        more="""\
bash:  source <(indextables completion bash)
zsh:   source <(indextables completion zsh)
fish:  indextables completion fish | source""",
    )
    completion.add_argument("shell", choices=("bash", "zsh", "fish"))


def commands_of(parser: argparse.ArgumentParser) -> dict[str, Sequence[str]]:
    """Each command and the options it takes."""
    parsers = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))  # noqa: SLF001
    return {
        name: [flag for action in made._actions for flag in action.option_strings if flag.startswith("--")]  # noqa: SLF001
        for name, made in parsers.choices.items()
    }
