"""Keys of IndexTables for Scala that have another name here, or no effect.

A configuration of IndexTables for Scala is accepted: a key with a counterpart is an alias of it, a tuning key
without a counterpart is ignored with one warning. A value is refused if ignoring it would change results or
weaken safety: a class of credentials without a counterpart.
"""

import math

from indextables.options.cloud import AWS_ENDPOINT, AWS_PATH_STYLE
from indextables.options.declare import alias, ignored_option
from indextables.options.log import LOG_RETENTION_HOURS, STATE_RETENTION_HOURS
from indextables.options.writing import OPTIMIZE_WRITE, TARGET_SPLIT_SIZE, TEMP_DIRECTORY

_MS_PER_HOUR = 3_600_000
_MILLISECONDS = "a whole number of milliseconds"


def _hours(text: str) -> str:
    """Convert milliseconds to hours, rounded up so that nothing expires earlier."""
    milliseconds = int(text.strip())
    if milliseconds < 0:
        raise ValueError
    return str(math.ceil(milliseconds / _MS_PER_HOUR))


alias("s3.endpoint", AWS_ENDPOINT)
alias("s3.serviceUrl", AWS_ENDPOINT)
alias("s3.pathStyleAccess", AWS_PATH_STYLE)
alias("aws.forcePathStyle", AWS_PATH_STYLE)
alias("logRetention.duration", LOG_RETENTION_HOURS, _hours, _MILLISECONDS)
alias("checkpointRetention.duration", STATE_RETENTION_HOURS, _hours, _MILLISECONDS)
alias("merge.tempDirectoryPath", TEMP_DIRECTORY)
alias("write.optimizeWrite.maxSplitSize", TARGET_SPLIT_SIZE)
alias("autoSize.enabled", OPTIMIZE_WRITE)
alias("autoSize.targetSplitSize", TARGET_SPLIT_SIZE)
alias("optimizeWrite.enabled", OPTIMIZE_WRITE)

_RANGES = "ranges of a split that lie close together are always read in one request"
_CACHE = "an index is written to the disk cache without changes before it is used"
_PRUNING = "all splits are pruned in one vectorised pass"
_MEASURED = "the size of a split is measured while it is written; see write.optimizeWrite.targetSplitSize"
_MERGE_IO = "a merge reads and writes through the same connections as everything else; see cloud.* and s3.*"
_STATE = "a checkpoint is an Avro state, which has options of its own; see state.*"
_LOG_CACHE = "the cache of the log has options of its own; see transaction.cache.*"
_ALWAYS = "that is always done"
_NO_DOCUMENTS = "rows are read from Parquet in batches; see read.batchSize"
_COMPLETE = "all rows are returned; give a limit in the query"
_COMPANION = "a sync compares the files of the source with those of the index; see companion.*"
_ICEBERG = "files of a table are read with aws.* or companion.parquet.aws.*, whatever its catalog is"

for _reason, _keys in {
    # reading
    _COMPLETE: ("read.defaultLimit",),
    "an aggregate is always complete": (
        "read.requireAggregatePushdown",
        "read.companion.requireAggregatePushdown",
    ),
    "all results are Arrow batches": ("read.aggregation.arrowFfi.enabled", "read.columnar.enabled"),
    _RANGES: (
        "read.batchOptimization.enabled",
        "read.batchOptimization.profile",
        "read.batchOptimization.maxRangeSize",
        "read.batchOptimization.gapTolerance",
        "read.batchOptimization.minDocsForOptimization",
        "read.batchOptimization.metrics.enabled",
        "read.adaptiveTuning.enabled",
        "read.adaptiveTuning.minBatchesBeforeAdjustment",
        "cache.coalesceMaxGap",
    ),
    "several splits are read in parallel; see read.parallelism": (
        "read.batchOptimization.maxConcurrentPrefetch",
        "parallel.read.enabled",
    ),
    _NO_DOCUMENTS: ("docBatch.enabled", "docBatch.maxSize"),
    "splits have term filters instead; see indexing.termFilters": ("bloom.filters.enabled",),
    _PRUNING: (
        "partitionPruning.filterCacheEnabled",
        "partitionPruning.indexEnabled",
        "partitionPruning.parallelThreshold",
        "partitionPruning.selectivityOrdering",
        "dataSkipping.enabled",
        "dataSkipping.parallelThreshold",
    ),
    "a read sees the newest version": ("snapshot.maxStaleness",),
    # the local cache
    "indexes stay open, results are not cached": ("cache.queryCache",),
    "a process has one cache for each folder; see cache.disk.path": ("cache.name",),
    _CACHE: (
        "cache.disk.compression",
        "cache.disk.minCompressSize",
        "cache.disk.manifestSyncInterval",
        "cache.disk.writeQueue.mode",
        "cache.disk.writeQueue.capacity",
        "cache.disk.writeQueue.maxBudget",
        "cache.disk.dropWritesWhenFull",
    ),
    "a read loads what it needs; to load indexes before, run PREWARM INDEXTABLES CACHE": (
        "prewarm.enabled",
        "cache.prewarm.enabled",
    ),
    "give PREWARM INDEXTABLES CACHE a WHERE": ("prewarm.partitionFilter",),
    "run PREWARM INDEXTABLES CACHE again; it skips splits that are cached": ("prewarm.catchUpNewHosts",),
    # writing
    _MEASURED: (
        "write.optimizeWrite.samplingRatio",
        "write.optimizeWrite.minRowsForEstimation",
        "autoSize.inputRowCount",
        "optimizeWrite.targetRecordsPerSplit",
    ),
    "a split contains every column of its rows": ("indexing.indexonlyfields",),
    "the fields of objects are not listed in a split": ("schema.filterEmptyObjects",),
    "see indexWriter.batchSize": ("write.arrowFfi.batchSize", "indexWriter.useBatch"),
    "a split is written in one pass; see indexWriter.threads": ("splitConversion.maxParallelism",),
    # merging
    _MERGE_IO: (
        "merge.download.maxConcurrencyPerCore",
        "merge.download.memoryBudget",
        "merge.download.retries",
        "merge.download.retryBaseDelayMs",
        "merge.download.retryMaxDelayMs",
        "merge.upload.maxConcurrency",
    ),
    "the batches of a merge are committed one after the other; see merge.batchSize": (
        "merge.maxConcurrentBatches",
    ),
    "the result of a merge and the table's history have its metrics": ("merge.debug",),
    "set Spark's local property spark.scheduler.pool": ("merge.schedulerPool",),
    "see mergeOnWrite.minBatchesToTrigger": ("mergeOnWrite.mergeGroupMultiplier",),
    "a merge that lacks disk space fails, and the write succeeds": ("mergeOnWrite.minDiskSpaceGB",),
    "see mergeOnWrite.maxConcurrentBatches": ("mergeOnWrite.maxConcurrentMergesPerWorker",),
    "the memory of a merge is merge.heapSize": ("mergeOnWrite.memoryOverheadFactor",),
    # the log
    _STATE: (
        "checkpoint.actionsPerPart",
        "checkpoint.compression.enabled",
        "checkpoint.maxRetries",
        "checkpoint.multiPart.enabled",
        "checkpoint.parallelism",
        "checkpoint.read.timeoutSeconds",
    ),
    _LOG_CACHE: tuple(
        f"cache.{part}.{what}"
        for part in ("checkpoint", "filelist", "log", "metadata", "snapshot")
        for what in ("size", "ttl")
    ),
    "version files are compressed with gzip": (
        "transaction.compression.codec",
        "transaction.compression.gzip.level",
    ),
    _ALWAYS: ("transaction.optimized.enabled", "transaction.allowDirectUsage"),
    "the protocol is always checked": ("protocol.enforceReaderVersion", "protocol.enforceWriterVersion"),
    "a table gets a protocol feature when a write first needs it": ("protocol.autoUpgrade",),
    # stores
    "the bucket of a table is in its URL": ("gcp.projectId", "gcp.bucketName"),
    "a store is chosen by the scheme of the URL": ("storage.force.standard",),
    "objects are read in the ranges that a query needs": ("cloud.bufferSize",),
    "every upload is streamed; see s3.multipartThreshold": ("s3.streamingThreshold",),
    "see s3.maxConcurrency": ("s3.maxQueueSize",),
    "the memory of an index that is built is indexWriter.heapSize": ("native.memory.enabled",),
    _ICEBERG: (
        "iceberg.s3Endpoint",
        "iceberg.s3PathStyleAccess",
        "iceberg.uc.tableId",
    ),
    _COMPANION: (
        "companion.maxAutomaticHashedFastfields",
        "companion.parquetTableRoot",
        "companion.readerBatchSize",
        "companion.schedulerPool",
        "companion.stream.maxIncrementalCommits",
        "companion.stream.quietPollLogInterval",
        "companion.sync.arrowFfi.enabled",
        "companion.sync.batchSize",
        "companion.sync.distributedLogRead.enabled",
        "companion.sync.iceberg.maxIncrementalManifests",
        "companion.sync.maxConcurrentBatches",
        "companion.sync.maxIncrementalCommits",
    ),
    "credentials are taken from the options of the store": (
        "companion.credential.preferPathCredentials",
        "companion.aws.accessKey",
        "companion.aws.secretKey",
        "companion.aws.sessionToken",
    ),
    "credentials of Unity Catalog are renewed five minutes before they expire, and no others are tried": (
        "databricks.cache.maxSize",
        "databricks.credential.refreshBuffer.minutes",
        "databricks.fallback.enabled",
    ),
}.items():
    for _key in _keys:
        ignored_option(_key, _reason)
