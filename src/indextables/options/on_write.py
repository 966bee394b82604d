"""Options of the upkeep that a write starts by itself: merge-on-write and purge-on-write."""

from indextables.options.declare import Where, option, refused
from indextables.options.parsers import boolean, integer, number, size

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
    "The write returns at once and the merge runs in the background; if false, the write waits for it.",
    where=_WRITE,
)
MERGE_TARGET = option(
    "mergeOnWrite.targetSize",
    size,
    4 << 30,
    "The size that a split merged after a write should reach.",
    where=_WRITE,
    default_text="4G",
)
BATCH_CPU_FRACTION = option(
    "mergeOnWrite.batchCpuFraction",
    number(0.0),
    0.167,
    "A batch is as many merged splits as this share of the processors (in Spark: of its default "
    "parallelism), at least one. A batch becomes one version.",
    where=_WRITE,
)
MIN_BATCHES = option(
    "mergeOnWrite.minBatchesToTrigger",
    integer(1),
    1,
    "A merge starts when there is work for so many full batches.",
    where=_WRITE,
)
BATCHES_AT_ONCE = option(
    "mergeOnWrite.maxConcurrentBatches",
    integer(1),
    3,
    "In Spark: the most batches whose splits are merged at the same time; such a round is one job. Elsewhere "
    "splits are merged one after the other.",
    where=_WRITE,
)
SHUTDOWN_TIMEOUT_MS = option(
    "mergeOnWrite.shutdownTimeoutMs",
    integer(0),
    300_000,
    "A session or program that ends waits so long for merges in the background, in milliseconds. One that is "
    "cut leaves the table as it was, and files for a purge.",
    where=_WRITE,
)
PURGE_ON_WRITE = option(
    "purgeOnWrite.enabled",
    boolean,
    False,
    "After merges or writes, delete files that no version needs. A purge that fails never fails the write: "
    "it is logged.",
    where=_WRITE,
)
PURGE_AFTER_MERGE = option(
    "purgeOnWrite.triggerAfterMerge",
    boolean,
    True,
    "With purgeOnWrite.enabled: purge after each merge that a write started and that merged anything.",
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
    "Files that no version names are kept this long by such a purge; purge.minRetentionHours applies.",
    where=_WRITE,
)
PURGE_LOG_HOURS = option(
    "purgeOnWrite.txLogRetentionHours",
    integer(0),
    720,
    "Version files that a state covers are kept this long by such a purge.",
    where=_WRITE,
)

for _key, _reason in {
    "mergeOnWrite.mergeGroupMultiplier": "give mergeOnWrite.minBatchesToTrigger",
    "mergeOnWrite.minDiskSpaceGB": "a merge that finds no room fails, and the write stands",
    "mergeOnWrite.maxConcurrentMergesPerWorker": "give mergeOnWrite.maxConcurrentBatches",
    "mergeOnWrite.memoryOverheadFactor": "the memory of a merge is indexWriter.heapSize",
    "merge.heapSize": "the memory of a merge is indexWriter.heapSize",
    "merge.tempDirectoryPath": "give indexWriter.tempDirectoryPath",
    "merge.schedulerPool": "set the local property spark.scheduler.pool, as for any job of Spark",
}.items():
    refused(_key, _reason)
