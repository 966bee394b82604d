"""What the program understands: its commands, their arguments, and help that teaches."""

import argparse
import re
from collections.abc import Callable
from typing import Any, NoReturn

from indextables.cli.incoming import FORMATS
from indextables.cli.statements import run
from indextables.options.parsers import size as size_parser
from indextables.predicate.names import suggestion
from indextables.predicate.times import micros_of
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

exit codes: 0 done; 1 failed, the message says why; 2 wrong usage; 3 a search found nothing;
130 interrupted."""


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help whose first column has room for the longest name."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30)
        # Commands stand further in than argparse counts.
        self._action_max_length = len("  completion") + 4


_HOURS = {"h": 1.0, "d": 24.0, "w": 168.0}


class _Parser(argparse.ArgumentParser):
    """A parser that says what a misspelt word may have been meant for."""

    def error(self, message: str) -> NoReturn:
        """Tell what is wrong, and leave."""
        wrong = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)$", message)
        if wrong is not None:
            choices = re.findall(r"[\w-]+", wrong[2])
            hint = suggestion(wrong[1], choices)
            message = f"'{wrong[1]}' is unknown{hint or ';'} there are {', '.join(choices)}"
        super().error(message)


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


def whole(least: int) -> Callable[[str], int]:
    """Numbers of at least so much."""

    def read(text: str) -> int:
        try:
            found = int(text)
        except ValueError:
            found = least - 1
        if found < least:
            raise argparse.ArgumentTypeError(f"'{text}' is not a whole number of at least {least}")
        return found

    return read


def version(text: str) -> tuple[str, int]:
    """A version to go back to."""
    return "version", whole(0)(text)


def moment(text: str) -> tuple[str, int]:
    """A time to go back to; without a zone it is UTC."""
    micros = micros_of(text, "UTC")
    if micros is None:
        raise argparse.ArgumentTypeError(f"'{text}' is no date and time such as 2026-05-01T12:00:00")
    return "timestamp", micros // 1000


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
    made = _Parser(
        prog="indextables",
        description="Search your lake: tables with full-text indexes, on the command line.",
        epilog=_EPILOG,
        formatter_class=_Help,
    )
    made.add_argument("--version", action="version", version=f"indextables {VERSION}")
    found = made.add_subparsers(dest="command", metavar="command", required=True)
    maker = _Maker(found, actions)
    _reading(maker)
    _writing(maker)
    _upkeep(maker)
    _machine(maker)
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
            formatter_class=_Help,
        )
        if path:
            made.add_argument("path", help="the table: a folder or a URL")
        # What is no action of its own is a command of SQL, found by its words.
        made.set_defaults(run=self._actions.get(name, run))
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
    describe = maker(
        "describe",
        "tell what a table is made of",
        more="""\
what there is to describe:
  table       columns, rows, size (the default)
  splits      each split: rows, size, partition
  state       how the log's newest state is made up, and whether a checkpoint helps
  log         every action since that state; with --all, of every version
  components  the parts of every split by kind and column, with their sizes
  skipping    which columns let a query skip splits""",
    )
    describe.add_argument(
        "what",
        nargs="?",
        default="table",
        choices=("table", "splits", "state", "log", "components", "skipping"),
        help="which side of it; see below",
    )
    describe.add_argument(
        "--where", metavar="condition", help="for components: a condition on partition columns"
    )
    _flag(describe, "--all", "everything", "for log: what every version file says")
    history = maker("history", "tell what was done to a table, newest version first")
    history.add_argument("--limit", type=whole(1), metavar="n", help="at most so many versions")


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


def _flag(made: argparse.ArgumentParser, name: str, dest: str, help_: str) -> None:
    """Something said or not said: then it is None, as everything that was not said."""
    made.add_argument(name, dest=dest, action="store_const", const=True, help=help_)


def _upkeep(maker: _Maker) -> None:
    merge = maker(
        "merge",
        "make few large splits of many small ones",
        more="""\
Small splits of a partition become one; no row changes. Splits of 45% of the target size are left alone
(-o merge.skipSplitThreshold=0.45). Readers and writers need not stop.

examples:
  indextables merge logs --target-size 1G
  indextables merge logs --where "day >= DATE '2026-05-01'" --max-dest-splits 20""",
    )
    merge.add_argument(
        "--target-size", type=size, metavar="n[M|G]", help="the size a split should reach (default 5G)"
    )
    merge.add_argument("--where", metavar="condition", help="a condition on partition columns")
    merge.add_argument(
        "--max-dest-splits", dest="max_dest", type=whole(1), metavar="n", help="at most so many merged splits"
    )
    merge.add_argument(
        "--max-source-splits",
        dest="max_source",
        type=whole(2),
        metavar="n",
        help="at most so many splits become one (default 1000)",
    )
    purge = maker(
        "purge",
        "delete files that no version names, and old files of the log",
        more="""\
A file that any version names that can still be read is never deleted. Less than 24 hours is refused:
a write that runs has not named its splits yet.

examples:
  indextables purge logs --dry-run
  indextables purge logs --older-than 2d --log-retention 4w""",
    )
    purge.add_argument(
        "--older-than", type=hours, metavar="7d", help="only files older than this (default 7d, at least 24h)"
    )
    purge.add_argument(
        "--log-retention",
        type=hours,
        metavar="30d",
        help="how long earlier versions can be read (default 30d)",
    )
    _flag(purge, "--dry-run", "dry_run", "only tell what would be deleted")
    maker("checkpoint", "write a compacted state of the log now; an older table becomes a current one")
    truncate = maker("truncate", "forget all versions before the newest one; that cannot be undone")
    _flag(truncate, "--dry-run", "dry_run", "only tell what would be deleted")
    drop = maker("drop", "take whole partitions out of a table")
    drop.add_argument("--where", required=True, metavar="condition", help="a condition on partition columns")
    restore = maker("restore", "make an earlier version the newest one; no history is lost")
    to = restore.add_mutually_exclusive_group(required=True)
    to.add_argument("--to-version", dest="to", type=version, metavar="n", help="which version")
    to.add_argument(
        "--to-timestamp",
        dest="to",
        type=moment,
        metavar="time",
        help="the newest version of a time, such as 2026-05-01T12:00; without a zone it is UTC",
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
    repair.add_argument("--at", dest="location", metavar="folder", help="the log folder to write")


def _machine(maker: _Maker) -> None:
    prewarm = maker(
        "prewarm",
        "bring indexes to the local disk before the first search",
        more="""\
example, in the background:
  indextables prewarm logs --fields message --async
  indextables jobs prewarm
  indextables wait""",
    )
    prewarm.add_argument("--where", metavar="condition", help="a condition on partition columns")
    prewarm.add_argument(
        "--segments",
        type=columns,
        metavar="a,b",
        help="TERM, POSTINGS, POSITIONS, FASTFIELD, FIELDNORM, STORE (default TERM,POSTINGS)",
    )
    prewarm.add_argument("--fields", type=columns, metavar="a,b", help="only these columns")
    prewarm.add_argument(
        "--parallelism", type=whole(1), metavar="n", help="how many splits are warmed at once (default 2)"
    )
    _flag(prewarm, "--async", "async", "in the background; the program returns at once")
    wait = maker("wait", "wait until prewarm jobs of this machine have ended", path=False)
    wait.add_argument("path", nargs="?", help="only those of this table")
    wait.add_argument("--job", metavar="id", help="only this one")
    wait.add_argument(
        "--timeout", type=whole(1), metavar="seconds", help="wait no longer than this (default 3600)"
    )
    jobs = maker(
        "jobs", "list merges or prewarm jobs of this machine, running and recently ended", path=False
    )
    jobs.add_argument("what", nargs="?", default="merge", choices=("merge", "prewarm"), help="default merge")
    cache = maker(
        "cache",
        "show or empty caches",
        path=False,
        more="""\
what to do:
  show    how full the local cache of indexes is (the default)
  flush   delete what nobody uses of it
  close   close the splits and indexes that this process keeps open
  invalidate  drop what this process has cached of logs, of one table if PATH is given
Close and forget mean most in Spark and Python: the program's own process ends with its command.""",
    )
    cache.add_argument(
        "what", nargs="?", default="show", choices=("show", "flush", "close", "invalidate"), help="see below"
    )
    cache.add_argument("path", nargs="?", help="for invalidate: the table")
    maker("storage", "tell what this process has read from storage", path=False)
    maker(
        "environment",
        "tell options, variables, libraries and the process; secrets are masked",
        path=False,
    )


def _others(maker: _Maker) -> None:
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
