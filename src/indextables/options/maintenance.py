"""Options of maintenance, as commands and after writes, and of companion indexes."""

from typing import Any

from indextables.options import cloud
from indextables.options.declare import (
    EVERYWHERE,
    Option,
    Where,
    boolean,
    choice,
    field_option,
    integer,
    names,
    number,
    option,
    optional_text,
    size,
)

_READ = frozenset({Where.READ, Where.COMMAND})
_BUILD = frozenset({Where.WRITE, Where.COMMAND})
_CLOUDS = ("aws.", "azure.", "gcp.")

SYNCED = "synced"
LATEST = "latest"
FRESHNESS = option(
    "companion.freshness",
    choice(SYNCED, LATEST),
    SYNCED,
    "The version of the source that a read returns: that of the last sync, or the newest version. With "
    "latest, source files that the index does not cover, or that changed since, are read without the index.",
    where=_READ,
)
TABLE_ROOT: Option[str | None] = option(
    "companion.tableRootDesignator",
    optional_text,
    None,
    "Name of the table root (SET INDEXTABLES TABLE ROOT) at which the files of the source are read.",
    where=_READ,
    default_text="the place at which the source was indexed",
)
METADATA_FILE: Option[str | None] = option(
    "companion.sourceMetadataFile",
    optional_text,
    None,
    "The current metadata file of an Iceberg table, which companion.freshness = latest reads. Only the "
    "catalog of the table has it; a search of the table by its own name in Spark sets it.",
    where=_READ,
    default_text="that of the folder, or of the catalog that the index was built with",
)
TARGET_INPUT_SIZE = option(
    "companion.targetInputSize",
    size,
    2 << 30,
    "Source files of one partition are indexed together, in one split, up to this size.",
    where=_BUILD,
)
ICEBERG_CATALOG_TYPE: Option[str | None] = option(
    "iceberg.catalogType",
    optional_text,
    None,
    "Type of the Iceberg catalog of a companion index's source: rest, hive, glue, dynamodb or sql; the "
    "clause TYPE.",
    default_text="pyiceberg's configuration of the catalog",
)
ICEBERG_URI: Option[str | None] = option(
    "iceberg.uri",
    optional_text,
    None,
    "URI of the Iceberg catalog of a companion index's source. It can contain a password: it is treated as a "
    "secret, and not recorded in the index.",
    secret=True,
    default_text="pyiceberg's configuration of the catalog",
)
ICEBERG_TOKEN: Option[str | None] = option(
    "iceberg.token",
    optional_text,
    None,
    "Token for the Iceberg catalog of a companion index's source.",
    secret=True,
    default_text="pyiceberg's configuration of the catalog",
)
ICEBERG_CREDENTIAL: Option[str | None] = option(
    "iceberg.credential",
    optional_text,
    None,
    "Client id and secret (id:secret) for the Iceberg catalog of a companion index's source.",
    secret=True,
    default_text="pyiceberg's configuration of the catalog",
)
ICEBERG_WAREHOUSE: Option[str | None] = option(
    "iceberg.warehouse",
    optional_text,
    None,
    "Warehouse of the Iceberg catalog of a companion index's source; the clause WAREHOUSE.",
    default_text="pyiceberg's configuration of the catalog",
)
MAX_ERRORS = option(
    "companion.stream.maxConsecutiveErrors",
    integer(1),
    10,
    "A continuous sync stops after this many consecutive failed syncs.",
    where=_BUILD,
)
BACKOFF_MULTIPLIER = option(
    "companion.stream.errorBackoffMultiplier",
    number(1),
    2.0,
    "Factor by which the pause of a continuous sync grows after each failed sync.",
    where=_BUILD,
)


def _check_source_option(key: str, value: str) -> None:
    declaration = _store_option(key)
    if declaration is None:
        raise ValueError("aws.*, azure.* and gcp.* options of stores are expected")
    declaration.parse(value)


def _store_option(key: str) -> Option[Any] | None:
    return next(
        (
            each
            for each in vars(cloud).values()
            if isinstance(each, Option) and each.key.lower() == key and key.startswith(_CLOUDS)
        ),
        None,
    )


def _is_secret(key: str) -> bool:
    declaration = _store_option(key)
    return declaration is None or declaration.secret


SOURCE_STORE = field_option(
    "companion.parquet",
    "<option>",
    _check_source_option,
    "An option of stores (aws.*, azure.*, gcp.*) for the source of a companion index. If one of a cloud is "
    "set, those of the index for that cloud are not used for the source.",
    expects="as of the option",
    where=EVERYWHERE,
    is_secret=_is_secret,
)


_WHERE = frozenset({Where.WRITE, Where.COMMAND})
_COMMAND = frozenset({Where.COMMAND})

# The smallest target size that a merge accepts.
MIN_MERGE_TARGET = 1 << 20
# The default timeout of waiting for background jobs.
MAX_WAIT_SECONDS = 3600.0

MERGE_TARGET_SIZE = option(
    "merge.targetSize",
    size,
    5 << 30,
    "Default target size of merged splits.",
    where=_WHERE,
    default_text="5G",
)
MERGE_SKIP_THRESHOLD = option(
    "merge.skipSplitThreshold",
    number(0.0, 1.0),
    0.45,
    "Splits of at least this fraction of the target size are not merged.",
    where=_WHERE,
)
MERGE_MAX_PASSES = option(
    "merge.maxPasses",
    integer(1),
    10,
    "Maximum number of passes: merged splits may be merged again.",
    where=_WHERE,
)
MERGE_MAX_SOURCES = option(
    "merge.maxSourceSplitsPerMerge",
    integer(2),
    1000,
    "Maximum number of splits that are merged into one.",
    where=_WHERE,
)
SKIP_TRACKING = option(
    "skippedFiles.trackingEnabled",
    boolean,
    True,
    "Exclude splits that a merge could not read from merging until their cool-down ends.",
    where=_WHERE,
)
SKIP_COOLDOWN_HOURS = option(
    "skippedFiles.cooldownDuration",
    integer(0),
    24,
    "Cool-down of damaged or missing splits, in hours.",
    where=_WHERE,
)
SKIP_STORAGE_MINUTES = option(
    "skippedFiles.storageRetryMinutes",
    integer(0),
    10,
    "Cool-down of splits that could not be read from storage, in minutes.",
    where=_WHERE,
)

MERGE_BATCH = option(
    "merge.batchSize",
    integer(1),
    16,
    "Number of merged splits that are committed in one version.",
    where=_WHERE,
)

PURGE_RETENTION_HOURS = option(
    "purge.defaultRetentionHours",
    number(0.0),
    168.0,
    "Default retention of files that no version refers to, in hours.",
    where=_WHERE,
)
PURGE_MIN_RETENTION_HOURS = option(
    "purge.minRetentionHours",
    number(0.0),
    24.0,
    "Shortest retention that a purge accepts, in hours: the files of a running write are not committed yet.",
    where=_WHERE,
)
PURGE_CHECK = option(
    "purge.retentionCheckEnabled",
    boolean,
    True,
    "Refuse a retention below purge.minRetentionHours.",
    where=_WHERE,
)
PURGE_MOST = option(
    "purge.maxFilesToDelete",
    integer(1),
    1_000_000,
    "Maximum number of files that one purge deletes; the next purge continues.",
    where=_WHERE,
)
PURGE_RETRIES = option(
    "purge.deleteRetries",
    integer(0),
    3,
    "Maximum number of retries for a batch of files that could not be deleted.",
    where=_WHERE,
)
PURGE_PARALLELISM = option(
    "purge.parallelism",
    integer(1),
    4,
    "Number of batches of files that are deleted in parallel.",
    where=_WHERE,
)

PREWARM_SEGMENTS = option(
    "prewarm.segments",
    names,
    ("TERM", "POSTINGS"),
    "Default parts of an index that a prewarm loads.",
    where=_COMMAND,
    default_text="TERM,POSTINGS",
)
PREWARM_FIELDS = option(
    "prewarm.fields",
    names,
    (),
    "Default columns whose index parts a prewarm loads.",
    where=_COMMAND,
    default_text="all",
)
PREWARM_PER_TASK = option(
    "prewarm.splitsPerTask",
    integer(1),
    2,
    "Number of splits that one prewarm task loads in parallel.",
    where=_COMMAND,
)
PREWARM_FAIL_ON_MISSING = option(
    "prewarm.failOnMissingField",
    boolean,
    True,
    "Fail if a column of a prewarm has no index; if false, it is skipped and reported.",
    where=_COMMAND,
)
PREWARM_RETRIES = option(
    "prewarm.maxRetries",
    integer(0),
    10,
    "Maximum number of retries for a split that could not be read from storage.",
    where=_COMMAND,
)
JOBS_AT_ONCE = option(
    "prewarm.async.maxConcurrent",
    integer(1),
    1,
    "Maximum number of prewarm jobs in the background; others wait.",
    where=_COMMAND,
)
JOB_RETENTION_MS = option(
    "prewarm.async.completedJobRetentionMs",
    integer(0),
    3_600_000,
    "Milliseconds for which a finished job is listed.",
    where=_WHERE,
)


# --- maintenance after writes ------------------------------------------------------------------------

_WRITE = frozenset({Where.WRITE})

MERGE_ON_WRITE = option(
    "mergeOnWrite.enabled",
    boolean,
    False,
    "After a write, merge small splits if there are enough of them. A merge that fails never fails the "
    "write: it is logged, and DESCRIBE INDEXTABLES MERGE JOBS shows it.",
    where=_WRITE,
)
MERGE_IN_BACKGROUND = option(
    "mergeOnWrite.async.enabled",
    boolean,
    True,
    "Merge in the background after the write has returned; if false, the write waits for the merge.",
    where=_WRITE,
)
MERGE_TARGET = option(
    "mergeOnWrite.targetSize",
    size,
    4 << 30,
    "Target size of splits that are merged after a write.",
    where=_WRITE,
    default_text="4G",
)
BATCH_CPU_FRACTION = option(
    "mergeOnWrite.batchCpuFraction",
    number(0.0),
    0.167,
    "Size of a batch: this fraction of the processors (in Spark: of the default "
    "parallelism), at least one merged split. A batch is committed as one version.",
    where=_WRITE,
)
MIN_BATCHES = option(
    "mergeOnWrite.minBatchesToTrigger",
    integer(1),
    1,
    "Number of full batches at which a merge starts.",
    where=_WRITE,
)
MIN_SPLITS = option(
    "mergeOnWrite.minSplits",
    integer(2),
    2,
    "Number of splits of a partition at which they are merged. With more than 2, splits of about the same "
    "size are merged into larger ones step by step. In streams the default is 10.",
    where=_WRITE,
)
BATCHES_AT_ONCE = option(
    "mergeOnWrite.maxConcurrentBatches",
    integer(1),
    3,
    "The maximum number of batches of one merge; another merge follows while there is something to merge. "
    "Spark merges them in parallel, plain Python merges one split after the other.",
    where=_WRITE,
)
SHUTDOWN_TIMEOUT_MS = option(
    "mergeOnWrite.shutdownTimeoutMs",
    integer(0),
    300_000,
    "Milliseconds that a session or program waits for background merges when it ends. A merge that is "
    "aborted leaves the table unchanged, and files for a purge.",
    where=_WRITE,
)
PURGE_ON_WRITE = option(
    "purgeOnWrite.enabled",
    boolean,
    False,
    "Purge after merges or writes. A purge that fails never fails the write: it is logged.",
    where=_WRITE,
)
PURGE_AFTER_MERGE = option(
    "purgeOnWrite.triggerAfterMerge",
    boolean,
    True,
    "With purgeOnWrite.enabled: purge after each merge after a write that merged splits.",
    where=_WRITE,
)
PURGE_AFTER_WRITES = option(
    "purgeOnWrite.triggerAfterWrites",
    integer(0),
    0,
    "With purgeOnWrite.enabled: purge after each n-th write of this session or program to the table, before "
    "the write returns. 0: never.",
    where=_WRITE,
)
PURGE_SPLIT_HOURS = option(
    "purgeOnWrite.splitRetentionHours",
    integer(0),
    168,
    "Retention of unreferenced files for such a purge, in hours; purge.minRetentionHours applies.",
    where=_WRITE,
)
PURGE_LOG_HOURS = option(
    "purgeOnWrite.txLogRetentionHours",
    integer(0),
    720,
    "Retention of version files that a checkpoint covers for such a purge, in hours.",
    where=_WRITE,
)
