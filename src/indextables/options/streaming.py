"""Options of changes and of streams from a table."""

from indextables.options.declare import (
    Option,
    Parser,
    Where,
    boolean,
    integer,
    option,
    optional_text,
    size,
)

LATEST = -1

_CHANGES = frozenset({Where.CHANGES})
_BOTH = frozenset({Where.CHANGES, Where.STREAM})
_STREAM = frozenset({Where.STREAM})


def _version_or_latest(text: str) -> int | None:
    return LATEST if text.strip().lower() == "latest" else integer(0).parse(text)


_version: Parser[int | None] = Parser(integer(0).parse, "a version: a whole number from 0 on")
_start: Parser[int | None] = Parser(_version_or_latest, "a version (a whole number from 0 on), or latest")
_count: Parser[int | None] = Parser(integer(1).parse, "a whole number of at least 1")
_limit: Parser[int | None] = Parser(size.parse, size.expects)

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
MAX_FILES = option(
    "maxFilesPerTrigger", integer(1), 1000, "Maximum number of splits in a micro-batch.", where=_STREAM
)
MAX_BYTES: Option[int | None] = option(
    "maxBytesPerTrigger",
    _limit,
    None,
    "Approximate maximum size of the splits in a micro-batch; it has at least one split.",
    where=_STREAM,
    default_text="no limit",
)
MAX_VERSIONS: Option[int | None] = option(
    "maxVersionsPerTrigger",
    _count,
    None,
    "Maximum number of versions in a micro-batch.",
    where=_STREAM,
    default_text="no limit",
)
IGNORE_DELETES = option(
    "ignoreDeletes",
    boolean,
    False,
    "Continue at a version that only deletes rows; the deletions are not in the stream.",
    where=_STREAM,
)
IGNORE_CHANGES = option(
    "ignoreChanges",
    boolean,
    False,
    "Continue at a version that deletes or replaces rows, and return all rows that it inserts: existing rows "
    "that it wrote again are returned again.",
    where=_STREAM,
)
SKIP_CHANGE_COMMITS = option(
    "skipChangeCommits",
    boolean,
    False,
    "Skip versions that delete or replace rows, with all rows that they insert.",
    where=_STREAM,
)
FAIL_ON_DATA_LOSS = option(
    "failOnDataLoss",
    boolean,
    True,
    "Stop if the files of a version were deleted; if false, continue with the first version "
    "whose changes can be read. If the files of the version that a stream began with were deleted, false "
    "skips those of its rows that the stream has not returned yet.",
    where=_STREAM,
)
