"""Commands of the program that keep tables in shape, and the odd ones."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from indextables.cli.statements import do, shown
from indextables.cli.terminal import ProgressBar
from indextables.commands.execute import execute
from indextables.errors import OptionError
from indextables.options import Options
from indextables.predicate.times import micros_of
from indextables.report import report_page
from indextables.table import open_table


def _merge(arguments: argparse.Namespace) -> int:
    said = {
        "target_size": arguments.target_size,
        "where": arguments.where,
        "max_dest": arguments.max_dest_splits,
        "max_source": arguments.max_source_splits,
    }
    return shown(do("MERGE SPLITS", arguments, said), arguments)


def _purge(arguments: argparse.Namespace) -> int:
    said = {
        "older_than": arguments.older_than,
        "log_retention": arguments.log_retention,
        "dry_run": arguments.dry_run or None,
    }
    return shown(do("PURGE INDEXTABLE", arguments, said), arguments)


def _checkpoint(arguments: argparse.Namespace) -> int:
    return shown(do("CHECKPOINT INDEXTABLES", arguments, {}), arguments)


def _truncate(arguments: argparse.Namespace) -> int:
    said = {"dry_run": arguments.dry_run or None}
    return shown(do("TRUNCATE INDEXTABLES TIME TRAVEL", arguments, said), arguments)


def _drop(arguments: argparse.Namespace) -> int:
    return shown(do("DROP INDEXTABLES PARTITIONS FROM", arguments, {"where": arguments.where}), arguments)


def _restore(arguments: argparse.Namespace) -> int:
    to: tuple[str, int] = ("version", arguments.to_version)
    if arguments.to_timestamp is not None:
        micros = micros_of(arguments.to_timestamp, "UTC")
        if micros is None:
            raise OptionError(f"'{arguments.to_timestamp}' is no date and time such as 2026-05-01T12:00:00")
        to = ("timestamp", micros // 1000)
    return shown(do("RESTORE INDEXTABLES", arguments, {"to": to}), arguments)


def _repair(arguments: argparse.Namespace) -> int:
    said = {"path": arguments.path, "location": arguments.at}
    elsewhere = argparse.Namespace(**{**vars(arguments), "path": None})
    return shown(do("REPAIR INDEXFILES TRANSACTION LOG", elsewhere, said), arguments)


def _prewarm(arguments: argparse.Namespace) -> int:
    said = {
        "where": arguments.where,
        "segments": tuple(arguments.segments) or None,
        "fields": tuple(arguments.fields) or None,
    }
    return shown(do("PREWARM INDEXTABLES CACHE", arguments, said), arguments)


def _cache(arguments: argparse.Namespace) -> int:
    opening = (
        "DESCRIBE INDEXTABLES DISK CACHE" if arguments.what == "show" else "FLUSH INDEXTABLES DISK CACHE"
    )
    return shown(do(opening, arguments, {}), arguments)


def _sql(arguments: argparse.Namespace) -> int:
    options = Options.parse(dict(arguments.option))
    with ProgressBar("working", quiet=arguments.quiet) as progress:
        result = execute(arguments.statement, options, progress=progress)
    return shown(result, arguments)


def _report(arguments: argparse.Namespace) -> int:
    page = report_page(open_table(arguments.path, options=dict(arguments.option)))
    Path(arguments.output).write_text(page, encoding="utf-8")
    sys.stdout.write(f"{Path(arguments.output).absolute()}\n")
    return 0


ACTIONS: dict[str, Callable[[argparse.Namespace], int]] = {
    "merge": _merge,
    "purge": _purge,
    "checkpoint": _checkpoint,
    "truncate": _truncate,
    "drop": _drop,
    "restore": _restore,
    "repair": _repair,
    "prewarm": _prewarm,
    "cache": _cache,
    "sql": _sql,
    "report": _report,
}
