"""Spark's daemon of Python workers, for local sessions: its workers end quietly.

A worker whose connection Spark closes, because it was idle for a minute or the session ends, fails to write
to it. Over TCP nobody sees that; over Unix sockets Spark's daemon prints a traceback.
"""

import sys

from pyspark import daemon


def print_unless_closed(*values: object, **options: object) -> None:
    """Print what Spark's daemon says of an error, unless the error is that the connection was closed."""
    if not isinstance(sys.exc_info()[1], BrokenPipeError | ConnectionResetError):
        print(*values, **options)  # type: ignore[call-overload]  # noqa: T201 - in place of Spark's


if __name__ == "__main__":
    vars(daemon)["print"] = print_unless_closed
    daemon.manager()
