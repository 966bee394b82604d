"""The program: read the arguments, do what they say, tell how it went."""

import argparse
import os
import sys
from collections.abc import Sequence

from indextables.cli import others, queries
from indextables.cli.arguments import build
from indextables.cli.completion import script
from indextables.errors import IndexTablesError

FAILED = 1
INTERRUPTED = 130


def main(given: Sequence[str] | None = None) -> int:
    """Run the program; its exit code."""
    arguments = _parser().parse_args(given)
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()
    except IndexTablesError as error:
        sys.stderr.write(f"indextables: {error}\n")
        return FAILED
    except BrokenPipeError:
        # Whoever read our output has seen enough; nothing more may be written, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        sys.stderr.write("indextables: interrupted\n")
        return INTERRUPTED
    return code


def _parser() -> argparse.ArgumentParser:
    return build({**queries.ACTIONS, **others.ACTIONS, "completion": _completion})


def _completion(arguments: argparse.Namespace) -> int:
    sys.stdout.write(script(arguments.shell, _parser()))
    return 0
