"""Options of upkeep: merging, purging, prewarming."""

from indextables.options.declare import Where, option, refused
from indextables.options.parsers import boolean, integer, names, number, size

_WHERE = frozenset({Where.WRITE, Where.COMMAND})
_COMMAND = frozenset({Where.COMMAND})

# The smallest target size that a merge accepts.
MIN_MERGE_TARGET = 1 << 20

MERGE_TARGET_SIZE = option(
    "merge.targetSize",
    size,
    5 << 30,
    "The size a merged split should reach, where the command does not say.",
    where=_WHERE,
    default_text="5G",
)
MERGE_SKIP_THRESHOLD = option(
    "merge.skipSplitThreshold",
    number(0.0, 1.0),
    0.45,
    "Splits of at least this share of the target size are left alone.",
    where=_WHERE,
)
MERGE_MAX_PASSES = option(
    "merge.maxPasses",
    integer(1),
    10,
    "How often merged splits are looked at again for further merging.",
    where=_WHERE,
)
MERGE_MAX_SOURCES = option(
    "merge.maxSourceSplitsPerMerge",
    integer(2),
    1000,
    "The most splits that are merged into one.",
    where=_WHERE,
)
SKIP_TRACKING = option(
    "skippedFiles.trackingEnabled",
    boolean,
    True,
    "Remember splits that a merge could not read, and leave them alone for a while.",
    where=_WHERE,
)
SKIP_COOLDOWN_HOURS = option(
    "skippedFiles.cooldownDuration",
    integer(0),
    24,
    "Hours until a split whose content is damaged, or whose file is missing, is tried again by a merge.",
    where=_WHERE,
)
SKIP_STORAGE_MINUTES = option(
    "skippedFiles.storageRetryMinutes",
    integer(0),
    10,
    "Minutes until a split that storage did not deliver is tried again by a merge.",
    where=_WHERE,
)

MERGE_BATCH = option(
    "merge.batchSize",
    integer(1),
    16,
    "How many merged splits become visible in one version.",
    where=_WHERE,
)

PURGE_RETENTION_HOURS = option(
    "purge.defaultRetentionHours",
    number(0.0),
    168.0,
    "Files that no version names are kept this long, where the command does not say.",
    where=_WHERE,
)
PURGE_MIN_RETENTION_HOURS = option(
    "purge.minRetentionHours",
    number(0.0),
    24.0,
    "The shortest retention that a purge accepts: a running write may be older than it looks.",
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
    "The most files that one purge deletes; the next one goes on.",
    where=_WHERE,
)
PURGE_RETRIES = option(
    "purge.deleteRetries",
    integer(0),
    3,
    "How often a batch of files that could not be deleted is tried again.",
    where=_WHERE,
)
PURGE_PARALLELISM = option(
    "purge.parallelism",
    integer(1),
    4,
    "How many batches of files are deleted at once.",
    where=_WHERE,
)

PREWARM_SEGMENTS = option(
    "prewarm.segments",
    names,
    ("TERM", "POSTINGS"),
    "Which parts of an index are read into memory, where the command does not say.",
    where=_COMMAND,
    default_text="TERM,POSTINGS",
)
PREWARM_FIELDS = option(
    "prewarm.fields",
    names,
    (),
    "Of which columns, where the command does not say.",
    where=_COMMAND,
    default_text="all",
)
PREWARM_PER_TASK = option(
    "prewarm.splitsPerTask", integer(1), 2, "How many splits one task warms at once.", where=_COMMAND
)
PREWARM_FAIL_ON_MISSING = option(
    "prewarm.failOnMissingField",
    boolean,
    True,
    "Refuse a column that has no index; if false it is left out and reported.",
    where=_COMMAND,
)
PREWARM_RETRIES = option(
    "prewarm.maxRetries",
    integer(0),
    10,
    "How often a split that storage could not give is tried again.",
    where=_COMMAND,
)
JOBS_AT_ONCE = option(
    "prewarm.async.maxConcurrent",
    integer(1),
    1,
    "How many prewarm jobs run in the background at once; others wait.",
    where=_COMMAND,
)
JOB_RETENTION_MS = option(
    "prewarm.async.completedJobRetentionMs",
    integer(0),
    3_600_000,
    "How long a finished job is still listed, in milliseconds.",
    where=_WHERE,
)

refused("logRetention.duration", "give purge.txLogRetentionHours, in hours")
refused("prewarm.enabled", "a read warms what it needs by itself; use PREWARM INDEXTABLES CACHE")
refused("prewarm.partitionFilter", "give PREWARM INDEXTABLES CACHE a WHERE")
refused("prewarm.catchUpNewHosts", "run PREWARM INDEXTABLES CACHE again: what is warm already costs little")
refused("merge.maxConcurrentBatches", "a batch is one version, and versions come one after the other")
refused("merge.debug", "what a merge does is in its result and in the table's history")
