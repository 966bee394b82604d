"""Options of reading: scans, searches, aggregates, changes, streams, and the local cache of indexes."""

from indextables.options.declare import (
    Option,
    Parser,
    Where,
    boolean,
    choice,
    integer,
    option,
    optional_text,
    size,
)

_READ = frozenset({Where.READ, Where.COMMAND})


def _size_or_auto(text: str) -> int | None:
    return None if text.strip().lower() in ("auto", "0") else size.parse(text)


def _count_or_auto(text: str) -> int | None:
    return None if text.strip().lower() == "auto" else integer(1).parse(text)


_auto_size: Parser[int | None] = Parser(_size_or_auto, "a size such as 64M or 2G, or auto")
_auto_count: Parser[int | None] = Parser(_count_or_auto, "a whole number of at least 1, or auto")

READ_MODE = option(
    "read.mode",
    choice("complete", "fast"),
    "complete",
    "Both modes of IndexTables for Scala return all matching rows here; its mode 'fast' truncates results.",
    where=_READ,
)
BATCH_ROWS = option(
    "read.batchSize",
    integer(1, 1 << 20),
    32768,
    "Maximum number of rows in one Arrow batch of a scan.",
    where=_READ,
)
BATCH_BYTES = option(
    "read.batchBytes",
    size,
    16 << 20,
    "Maximum size of one Arrow batch of a scan; a single row may be larger.",
    where=_READ,
)
PARALLELISM: Option[int | None] = option(
    "read.parallelism",
    _auto_count,
    None,
    "Number of splits that plain Python reads in parallel; auto is the number of processors.",
    where=_READ,
    default_text="auto",
)
CONCURRENT_OPENS = option(
    "read.concurrentOpens",
    integer(1),
    64,
    "Number of splits of an object store that one scan or task opens at once, ahead of reading their rows.",
    where=_READ,
)
SPLITS_PER_TASK: Option[int | None] = option(
    "read.splitsPerTask",
    _auto_count,
    None,
    "Number of splits in one task of a scan; auto is 1 for few splits, and more for many.",
    where=_READ,
    default_text="auto",
)
MAX_SPLITS_PER_TASK = option(
    "read.maxSplitsPerTask", integer(1), 64, "Maximum number of splits in one task with auto.", where=_READ
)
AGGREGATE_SPLITS_PER_TASK: Option[int | None] = option(
    "read.aggregate.splitsPerTask",
    _auto_count,
    None,
    "Number of splits in one task of an aggregate; auto depends on the numbers of splits and tasks.",
    where=_READ,
    default_text="auto",
)
AGGREGATE_MAX_SPLITS_PER_TASK = option(
    "read.aggregate.maxSplitsPerTask",
    integer(1),
    64,
    "Maximum number of splits in one task of an aggregate with auto.",
    where=_READ,
)

INLINE_ROWS = option(
    "read.inline.maxRows",
    integer(0),
    1000,
    "Results of at most this many rows are computed on Spark's driver, without a task; 0 disables that.",
    where=_READ,
)
INLINE_TIME = option(
    "read.inline.maxTime",
    integer(0),
    1000,
    "Maximum time in milliseconds for a result on Spark's driver, estimated from the number and size of the "
    "splits and the cached ones; a result that takes twice as long is computed by tasks.",
    where=_READ,
)
INLINE_OPEN_SPLITS = option(
    "read.inline.openSplits",
    integer(0),
    1000,
    "Up to this many splits that tasks read are also opened by Spark's driver, in the background, so that it "
    "computes later results itself. What is fetched of their indexes for that is at most a quarter of "
    "cache.maxSize. 0 disables that.",
    where=_READ,
)

PATTERNS = option(
    "filter.stringPattern.pushdown",
    boolean,
    True,
    "Push down LIKE, starts-with, ends-with and contains to the index where it is exact.",
    where=_READ,
)
STARTS_WITH = option("filter.stringStartsWith.pushdown", boolean, True, "Push down starts-with.", where=_READ)
ENDS_WITH = option("filter.stringEndsWith.pushdown", boolean, True, "Push down ends-with.", where=_READ)
CONTAINS = option("filter.stringContains.pushdown", boolean, True, "Push down contains.", where=_READ)
STATISTICS_SPLITS = option(
    "search.statisticsSplits",
    integer(0),
    256,
    "Maximum number of splits from which the term statistics of a ranked search are taken; 0 for all.",
    where=_READ,
)
MAX_UNQUALIFIED_FIELDS = option(
    "indexquery.indexall.maxUnqualifiedFields",
    integer(0),
    10,
    "Maximum number of fields that a search over all fields may have; 0 for no limit.",
    where=_READ,
)

DISK_CACHE = option(
    "cache.disk.enabled",
    boolean,
    True,
    "Cache indexes on the local disk; if false, they are deleted when the process ends.",
    where=_READ,
)
DISK_CACHE_PATH: Option[str | None] = option(
    "cache.disk.path",
    optional_text,
    None,
    "Folder of the disk cache, on a local disk; all processes of one user share it.",
    where=_READ,
    default_text="/local_disk0/indextables-cache where there is one, else a folder of the user's below the "
    "folder for temporary files",
)
CACHE_DIRECTORY: Option[str | None] = option(
    "cache.directoryPath", optional_text, None, "Alias of cache.disk.path.", where=_READ
)
DISK_CACHE_SIZE: Option[int | None] = option(
    "cache.disk.maxSize",
    _auto_size,
    None,
    "Maximum size of the disk cache; auto is two thirds of the free space and of its own.",
    where=_READ,
    default_text="auto",
)
OPEN_INDEXES_SIZE = option(
    "cache.maxSize",
    size,
    4 << 30,
    "Maximum size of the indexes that a process keeps open; they are mapped, not copied into memory.",
    where=_READ,
)
MAX_LOADS = option(
    "cache.maxConcurrentLoads",
    integer(1),
    8,
    "Number of indexes that a process loads into the cache in parallel.",
    where=_READ,
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
    "2026-05-01 12:00:00 in the time zone of the session, without the jar in UTC.",
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
