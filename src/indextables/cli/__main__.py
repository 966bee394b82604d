"""`python -m indextables.cli`."""

from indextables.cli.main import run

run()
