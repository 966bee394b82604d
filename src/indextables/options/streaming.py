"""Options of changes and of streams from a table."""

from indextables.options.declare import (
    Option,
    Parser,
    Where,
    boolean,
    integer,
    option,
    optional_text,
)

LATEST = -1

_CHANGES = frozenset({Where.CHANGES})
_BOTH = frozenset({Where.CHANGES, Where.STREAM})


def _version_or_latest(text: str) -> int | None:
    return LATEST if text.strip().lower() == "latest" else integer(0).parse(text)


_version: Parser[int | None] = Parser(integer(0).parse, "a version: a whole number from 0 on")
_start: Parser[int | None] = Parser(_version_or_latest, "a version (a whole number from 0 on), or latest")

READ_CHANGES = option(
    "readChanges",
    boolean,
    False,
    "Return inserted and deleted rows with the columns `_change_type`, `_commit_version` and "
    "`_commit_timestamp`, instead of the table.",
    where=_BOTH,
)
STARTING_VERSION: Option[int | None] = option(
    "startingVersion",
    _start,
    None,
    "The first version whose changes are read. For a stream also latest: only versions after the newest. A "
    "stream without it starts with all rows of the table.",
    where=_BOTH,
)
STARTING_TIMESTAMP: Option[str | None] = option(
    "startingTimestamp",
    optional_text,
    None,
    "Instead of startingVersion: changes that were committed at this time or later, such as "
    "2026-05-01 12:00:00 in the time zone of the session.",
    where=_BOTH,
)
ENDING_VERSION: Option[int | None] = option(
    "endingVersion",
    _version,
    None,
    "The last version whose changes are read; by default the newest.",
    where=_CHANGES,
)
ENDING_TIMESTAMP: Option[str | None] = option(
    "endingTimestamp",
    optional_text,
    None,
    "Instead of endingVersion: changes that were committed at this time or earlier.",
    where=_CHANGES,
)
