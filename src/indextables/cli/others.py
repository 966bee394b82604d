"""Commands of the program that are neither queries nor declared: `sql` and `report`."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from indextables.cli.statements import shown
from indextables.cli.terminal import ProgressBar
from indextables.commands.execute import execute
from indextables.options import Options, Where
from indextables.report import report_page
from indextables.table import open_table


def _sql(arguments: argparse.Namespace) -> int:
    options = Options.parse(dict(arguments.option), {Where.COMMAND})
    with ProgressBar("working", quiet=arguments.quiet) as progress:
        result = execute(arguments.statement, options, progress=progress)
    return shown(result, arguments)


def _report(arguments: argparse.Namespace) -> int:
    page = report_page(open_table(arguments.path, options=dict(arguments.option)))
    Path(arguments.output).write_text(page, encoding="utf-8")
    sys.stdout.write(f"{Path(arguments.output).absolute()}\n")
    return 0


ACTIONS: dict[str, Callable[[argparse.Namespace], int]] = {"sql": _sql, "report": _report}
