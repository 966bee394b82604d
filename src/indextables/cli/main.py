"""The program `indextables`: its commands, their help, and its exit codes.

The modules that do the work are imported by the command that needs them: `--help`, `--version` and completion
start without Arrow.
"""

import atexit
import gc
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import click
from click.shell_completion import get_completion_class

from indextables.cli.imports import use_cheap_imports
from indextables.cli.parameters import (
    Settings,
    clause_options,
    common_options,
    names,
    settings_of,
    table_argument,
)
from indextables.commands import COMMANDS, Command, TableArgument
from indextables.errors import IndexTablesError
from indextables.version import VERSION

# Far above Python's default of 700, so that a short command runs without a collection; memory stays bounded.
_GC_THRESHOLDS = (200_000, 10, 10)

FAILED = 1
INTERRUPTED = 130

_NAME = "indextables"
_COMPLETE_VARIABLE = "_INDEXTABLES_COMPLETE"

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

exit codes: 0 done; 1 failed, the message says why; 2 wrong usage; 3 a search or tail found nothing;
130 interrupted."""

_SEARCH_DETAILS = """\
a query:
  timeout                     rows with the word (in any text column)
  timeout AND refused         both words; also OR, NOT, parentheses
  "connection refused"        the words next to each other
  level:ERROR                 a word in one column
  time*                       words with this prefix
docs/query-language.md has the whole language. On a terminal matches are highlighted."""

_WATCH_DETAILS = """\
FILE is YAML or JSON, a query for each id:
  disk: disk AND (full OR failed)
  slow:
    query: timeout
    field: message

examples:
  indextables watch logs queries.yaml --json
  indextables watch logs queries.yaml --exec 'notify-on-call'"""

_WRITE_DETAILS = """\
examples:
  indextables write logs app.jsonl --text message
  indextables write logs part-*.parquet --partition-by day
  kubectl logs pod | indextables write logs --format json"""

_SQL_DETAILS = """\
example:
  indextables sql "MERGE SPLITS 'logs' TARGET SIZE 1G"
docs/commands.md has all commands."""

_COMPLETION_DETAILS = """\
bash:  source <(indextables completion bash)
zsh:   source <(indextables completion zsh)
fish:  indextables completion fish | source"""

# Commands with a second word: the help of the command, and its default.
_GROUPS = {
    "describe": ("Describe a table: its columns, splits, log and history.", "table"),
    "jobs": ("List merge or prewarm jobs of this machine, running and recently ended.", "merge"),
    "cache": ("Show or empty caches.", "show"),
    "root": ("List or change the table roots of a companion index's source.", "list"),
}
_DESCRIBE_TABLE = {
    "table": "Columns, rows and size.",
    "splits": "Each split: rows, size, partition.",
}

Action = Callable[..., int]


class _HelpWithEpilog(click.Command):
    """A command whose epilog is printed without changes."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the epilog without filling its lines."""
        del ctx
        if self.epilog:
            formatter.write(f"\n{self.epilog}\n")


class _Program(_HelpWithEpilog, click.Group):
    """All commands, in the order of their declaration; each is built on demand."""

    builders: Mapping[str, Callable[[], click.Command]]

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in their order."""
        del ctx
        return list(self.builders)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Build a command; without one of that name, build all, so that click suggests one."""
        del ctx
        for name in [cmd_name] if cmd_name in self.builders else self.builders:
            if name not in self.commands:
                self.add_command(self.builders[name]())
        return self.commands.get(cmd_name)


def run() -> NoReturn:
    """Run the program as a process.

    A search takes a few hundred milliseconds, so overhead of Python is avoided: needless imports, frequent
    garbage collection while libraries are loaded, and the release of every object at the end.
    """
    gc.set_threshold(*_GC_THRESHOLDS)
    use_cheap_imports()
    code = main()
    # The other steps at the end of a process: wait for threads, run exit functions, flush output.
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001
    atexit._run_exitfuncs()  # noqa: SLF001
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        code = code or FAILED
    os._exit(code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code."""
    try:
        code = program().main(
            args=None if arguments is None else list(arguments),
            prog_name=_NAME,
            complete_var=_COMPLETE_VARIABLE,
            standalone_mode=False,
        )
    except click.Abort:
        sys.stderr.write("indextables: interrupted\n")
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    return int(code or 0)


def program() -> click.Group:
    """Return the program with all its commands."""
    result = _Program(
        _NAME,
        help="Search your lake: tables with full-text indexes, on the command line.",
        epilog=_EPILOG,
        params=[
            click.Option(
                ["--version"],
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=_print_version,
                help="Print the version.",
            )
        ],
    )
    declared = _declared_commands()
    result.builders = {
        "search": _search,
        "scan": _scan,
        "count": _count,
        "changes": _changes,
        "tail": _tail,
        "watch": _watch,
        "describe": declared.pop("describe"),
        "history": declared.pop("history"),
        "write": _write,
        **declared,
        "sql": _sql,
        "report": _report,
        "completion": _completion,
    }
    return result


def _print_version(context: click.Context, parameter: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's
    del parameter
    if value and not context.resilient_parsing:
        click.echo(f"{_NAME} {VERSION}")
        context.exit()


def _command(
    name: str, help_: str, parameters: Sequence[click.Parameter], action: Action, details: str = ""
) -> click.Command:
    def callback(**values: Any) -> int:  # noqa: ANN401 - what the parameters are
        settings = settings_of(values)
        return _exit_code_of(lambda: action(settings, **values))

    return _HelpWithEpilog(
        name,
        params=[*parameters, *common_options()],
        help=help_,
        short_help=help_.rstrip("."),
        epilog=details or None,
        callback=callback,
    )


def _exit_code_of(action: Callable[[], int]) -> int:
    """Run a command; failures become one line and an exit code."""
    try:
        code = action()
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has closed our output, so nothing more may be written, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (IndexTablesError, OSError) as error:
        sys.stderr.write(f"indextables: {error}\n")
        return FAILED
    return code


# --- declared commands -----------------------------------------------------------------------------


def _declared_commands() -> dict[str, Callable[[], click.Command]]:
    """Return the builder of a command for each first word of the declarations, in their order."""
    by_word: dict[str, list[Command]] = {}
    for command in COMMANDS:
        by_word.setdefault(command.program.split()[0], []).append(command)
    return {
        word: partial(_declared_group, word, commands)
        if word in _GROUPS
        else partial(_declared_command, commands[0])
        for word, commands in by_word.items()
    }


def _declared_command(command: Command) -> click.Command:
    def run(settings: Settings, **values: Any) -> int:  # noqa: ANN401 - what the clauses are
        chosen = [name for name in command.one_of if values[name] is not None]
        if command.one_of and len(chosen) != 1:
            flags = [clause.option for clause in command.clauses if clause.name in command.one_of]
            raise click.UsageError(f"Give one of {' and '.join(flags)}.")
        from indextables.cli.statements import run_command

        return run_command(command, settings, values.pop("path", None), values)

    parameters: list[click.Parameter] = []
    if command.table is not TableArgument.NONE:
        parameters.append(table_argument(required=command.table is not TableArgument.OPTIONAL))
    parameters += clause_options(command.clauses)
    return _command(command.program, command.help, parameters, run, command.details)


def _declared_group(word: str, commands: Sequence[Command]) -> click.Command:
    """Return a command whose second word chooses among several declared ones."""
    help_, default = _GROUPS[word]
    by_choice = {command.program.split()[1]: command for command in commands}
    described = {choice: command.help for choice, command in by_choice.items()}
    if word == "describe":
        described = _DESCRIBE_TABLE | described

    def run(settings: Settings, what: str, path: str | None = None, **values: Any) -> int:  # noqa: ANN401
        if what in by_choice:
            for clause in by_choice[what].clauses:
                if clause.required and values[clause.name] is None:
                    raise click.UsageError(f"'{_NAME} {word} {what}' needs {clause.option}.")
            from indextables.cli.statements import run_command

            return run_command(by_choice[what], settings, path, values)
        from indextables.cli.queries import describe

        assert path is not None, "describe requires a table"
        return describe(settings, path, what, values)

    choice = click.Argument(["what"], type=click.Choice(list(described)), default=default, required=False)
    parameters: list[click.Parameter] = [choice]
    if all(command.table is TableArgument.REQUIRED for command in commands):
        parameters.insert(0, table_argument())
    elif any(command.table is TableArgument.OPTIONAL for command in commands):
        parameters.append(table_argument(required=False))
    clauses = (clause for command in commands for clause in command.clauses)
    parameters += clause_options(clauses, check_required=False)
    width = max(map(len, described))
    lines = (
        f"  {name.ljust(width)}  {text}{' (default)' * (name == default)}" for name, text in described.items()
    )
    return _command(word, help_, parameters, run, "\n".join(("choices:", *lines)))


# --- reading and writing ---------------------------------------------------------------------------


def _version_options() -> list[click.Parameter]:
    return [
        click.Option(["--version-as-of"], type=click.IntRange(min=0), metavar="N", help="Read this version."),
        click.Option(["--timestamp-as-of"], metavar="TIME", help="Read the newest version at this time."),
    ]


def _columns_option() -> click.Option:
    return click.Option(["--columns"], type=names, metavar="A,B", help="The columns to show (default all).")


def _where_option(help_: str) -> click.Option:
    return click.Option(["--where"], metavar="CONDITION", help=help_)


def _search() -> click.Command:
    def run(settings: Settings, **values: Any) -> int:  # noqa: ANN401
        from indextables.cli.queries import search

        return search(settings, **values)

    parameters = [
        table_argument(),
        click.Argument(["query"]),
        click.Option(["--field"], metavar="COLUMN", help="The default field for words without one."),
        _columns_option(),
        _where_option("A SQL condition that rows must also meet."),
        click.Option(
            ["--limit"],
            type=click.IntRange(min=0),
            default=10,
            metavar="N",
            help="The maximum number of rows (default 10, 0 for all).",
        ),
        click.Option(["--scores"], is_flag=True, help="Show the score of each row (BM25)."),
        *_version_options(),
    ]
    return _command(
        "search", "Find rows by a query, the most relevant first.", parameters, run, _SEARCH_DETAILS
    )


def _scan() -> click.Command:
    def run(settings: Settings, **values: Any) -> int:  # noqa: ANN401
        from indextables.cli.queries import scan

        return scan(settings, **values)

    parameters = [
        table_argument(),
        _columns_option(),
        _where_option("A SQL condition, INDEXQUERY included."),
        click.Option(
            ["--limit"], type=click.IntRange(min=0), metavar="N", help="The maximum number of rows."
        ),
        *_version_options(),
    ]
    return _command("scan", "Read the rows that meet a condition.", parameters, run)


def _count() -> click.Command:
    def run(settings: Settings, **values: Any) -> int:  # noqa: ANN401
        from indextables.cli.queries import count

        return count(settings, **values)

    parameters = [
        table_argument(),
        _where_option("A SQL condition, INDEXQUERY included."),
        *_version_options(),
    ]
    return _command("count", "Count the rows that meet a condition.", parameters, run)


def _version_or_time(text: str) -> int | str:
    """A version is a number; anything else is a time."""
    return int(text) if text.lstrip("-").isdecimal() else text


def _changes() -> click.Command:
    def run(settings: Settings, **values: Any) -> int:  # noqa: ANN401
        from indextables.cli.queries import changes

        return changes(settings, **values)

    parameters = [
        table_argument(),
        click.Option(
            ["--since"],
            type=_version_or_time,
            required=True,
            metavar="N|TIME",
            help="The version after which changes are shown (-1 for all), or a time.",
        ),
        click.Option(
            ["--until"],
            type=_version_or_time,
            metavar="N|TIME",
            help="The last version, or a time (default the newest version).",
        ),
        _columns_option(),
        _where_option("A SQL condition, INDEXQUERY and _change_type included."),
    ]
    return _command(
        "changes", "Show the rows that were inserted and deleted since a version.", parameters, run
    )


def _tail() -> click.Command:
    def run(settings: Settings, **values: Any) -> int:  # noqa: ANN401
        from indextables.cli.queries import tail

        return tail(settings, **values)

    parameters = [
        table_argument(),
        click.Argument(["query"], required=False),
        click.Option(["--field"], metavar="COLUMN", help="The default field for words without one."),
        _columns_option(),
        _where_option("A SQL condition that rows must also meet."),
        click.Option(
            ["--since"],
            type=click.IntRange(min=-1),
            metavar="N",
            help="The version after which to start (default the newest; -1 for all).",
        ),
        *_polling_options(),
    ]
    return _command("tail", "Follow a table: show new rows, as they are committed.", parameters, run)


def _watch() -> click.Command:
    def run(settings: Settings, **values: Any) -> int:  # noqa: ANN401
        from indextables.cli.queries import watch

        return watch(settings, **values)

    parameters = [
        table_argument(),
        click.Argument(["queries"], type=click.Path(), metavar="FILE"),
        _columns_option(),
        click.Option(
            ["--exec", "command"],
            metavar="COMMAND",
            help="Run this for each match, with the row as JSON on its standard input.",
        ),
        click.Option(
            ["--since"],
            type=click.IntRange(min=-1),
            metavar="N",
            help="The version after which to start (default the newest; -1 for all).",
        ),
        *_polling_options(),
    ]
    help_ = "Follow a table: show new rows that match saved queries, with the queries' ids."
    return _command("watch", help_, parameters, run, _WATCH_DETAILS)


def _polling_options() -> list[click.Parameter]:
    return [
        click.Option(
            ["--interval"],
            type=click.FloatRange(min=0.01),
            default=1.0,
            metavar="SECONDS",
            help="The polling interval (default 1).",
        ),
        click.Option(
            ["--timeout"],
            type=click.FloatRange(min=0),
            metavar="SECONDS",
            help="Stop if nothing is committed for this long (default never).",
        ),
    ]


def _write() -> click.Command:
    def run(settings: Settings, **values: Any) -> int:  # noqa: ANN401
        from indextables.cli.write import write_rows

        return write_rows(settings, **values)

    parameters = [
        table_argument(),
        click.Argument(["files"], nargs=-1, metavar="[FILE]...", type=click.Path()),
        click.Option(
            ["--format", "file_format"],
            type=click.Choice(["parquet", "csv", "json"]),
            help="The format of the files (default by their names; standard input is json).",
        ),
        click.Option(
            ["--mode"],
            type=click.Choice(["append", "overwrite", "error", "ignore"]),
            default="append",
            help="What to do if the table exists (default append).",
        ),
        click.Option(
            ["--partition-by"], type=names, default=(), metavar="A,B", help="The columns to partition by."
        ),
        click.Option(
            ["--text"],
            type=names,
            default=(),
            metavar="A,B",
            help="The columns to index as text; the table keeps this setting.",
        ),
    ]
    help_ = "Write rows from Parquet, CSV or JSON lines, or from standard input (-), into a table."
    return _command("write", help_, parameters, run, _WRITE_DETAILS)


# --- everything else -------------------------------------------------------------------------------


def _sql() -> click.Command:
    def run(settings: Settings, statement: str) -> int:
        from indextables.cli.statements import run_sql

        return run_sql(statement, settings)

    return _command("sql", "Run a command of SQL.", [click.Argument(["statement"])], run, _SQL_DETAILS)


def _report() -> click.Command:
    def run(settings: Settings, path: str, output: str) -> int:
        from indextables.cli.output import write_record
        from indextables.report import report_page
        from indextables.table import open_table

        Path(output).write_text(
            report_page(open_table(path, options=dict(settings.options))), encoding="utf-8"
        )
        write_record({"report": str(Path(output).absolute())}, settings.format, sys.stdout)
        return 0

    parameters = [
        table_argument(),
        click.Option(
            ["--output"],
            type=click.Path(),
            default="report.html",
            metavar="FILE",
            help="The page to write (default report.html).",
        ),
    ]
    return _command("report", "Write a page about a table's health.", parameters, run)


def _completion() -> click.Command:
    def run(settings: Settings, shell: str) -> int:
        del settings
        completion = get_completion_class(shell)
        assert completion is not None, "the shell is one of the choices"
        click.echo(completion(program(), {}, _NAME, _COMPLETE_VARIABLE).source())
        return 0

    parameters = [click.Argument(["shell"], type=click.Choice(["bash", "zsh", "fish"]))]
    help_ = "Print a script that completes commands, flags, choices and files in a shell."
    return _command("completion", help_, parameters, run, _COMPLETION_DETAILS)
