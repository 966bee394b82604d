"""Options of reading: scans, searches, aggregates, and the local cache of indexes."""

from indextables.options.declare import Option, Parser, Where, option, refused
from indextables.options.parsers import boolean, choice, integer, optional_text, size

_READ = frozenset({Where.READ, Where.COMMAND})


def _size_or_auto(text: str) -> int | None:
    return None if text.strip().lower() == "auto" else size.parse(text)


def _count_or_auto(text: str) -> int | None:
    return None if text.strip().lower() == "auto" else integer(1).parse(text)


_auto_size: Parser[int | None] = Parser(_size_or_auto, "a size such as 64M or 2G, or auto")
_auto_count: Parser[int | None] = Parser(_count_or_auto, "a whole number of at least 1, or auto")

READ_MODE = option(
    "read.mode",
    choice("complete"),
    "complete",
    "Every matching row is returned; the original's mode 'fast', which cuts answers, is not offered.",
    where=_READ,
)
BATCH_ROWS = option(
    "read.batchSize", integer(1, 1 << 20), 32768, "The most rows in one Arrow batch of a scan.", where=_READ
)
BATCH_BYTES = option(
    "read.batchBytes",
    size,
    16 << 20,
    "The most bytes in one Arrow batch of a scan; a single row may be larger.",
    where=_READ,
)
PARALLELISM: Option[int | None] = option(
    "read.parallelism",
    _auto_count,
    None,
    "How many splits a plain Python reader works on at once; auto takes the number of processors.",
    where=_READ,
    default_text="auto",
)
SPLITS_PER_TASK: Option[int | None] = option(
    "read.splitsPerTask",
    _auto_count,
    None,
    "Splits in one task of a scan; auto takes one while there are few splits, then more.",
    where=_READ,
    default_text="auto",
)
MAX_SPLITS_PER_TASK = option(
    "read.maxSplitsPerTask", integer(1), 8, "The most splits auto puts into one task.", where=_READ
)
AGGREGATE_SPLITS_PER_TASK: Option[int | None] = option(
    "read.aggregate.splitsPerTask",
    _auto_count,
    None,
    "Splits in one task of an aggregate; auto goes by the number of splits and of tasks at once.",
    where=_READ,
    default_text="auto",
)
AGGREGATE_MAX_SPLITS_PER_TASK = option(
    "read.aggregate.maxSplitsPerTask",
    integer(1),
    32,
    "The most splits auto puts into one task of an aggregate.",
    where=_READ,
)

INLINE_ROWS = option(
    "read.inline.maxRows",
    integer(0),
    1000,
    "Answers of no more rows than this are found by Spark's driver, without a task; 0 turns that off.",
    where=_READ,
)
INLINE_SPLITS = option(
    "read.inline.maxSplits",
    integer(0),
    8,
    "The most splits that Spark's driver reads itself to answer without a task.",
    where=_READ,
)

PATTERNS = option(
    "filter.stringPattern.pushdown",
    boolean,
    True,
    "Answer LIKE, starts-with, ends-with and contains from the index where it is exact; else from the rows.",
    where=_READ,
)
STARTS_WITH = option(
    "filter.stringStartsWith.pushdown", boolean, True, "The same for starts-with alone.", where=_READ
)
ENDS_WITH = option(
    "filter.stringEndsWith.pushdown", boolean, True, "The same for ends-with alone.", where=_READ
)
CONTAINS = option(
    "filter.stringContains.pushdown", boolean, True, "The same for contains alone.", where=_READ
)
STATISTICS_SPLITS = option(
    "search.statisticsSplits",
    integer(0),
    256,
    "The most splits in which the words of a ranked search are counted, evenly spread; 0 sets no limit.",
    where=_READ,
)
MAX_UNQUALIFIED_FIELDS = option(
    "indexquery.indexall.maxUnqualifiedFields",
    integer(0),
    10,
    "How many fields a search over all fields may spread an unqualified term to; 0 sets no limit.",
    where=_READ,
)

DISK_CACHE = option(
    "cache.disk.enabled",
    boolean,
    True,
    "Keep indexes on the local disk for the next reader; if false they last as long as the process.",
    where=_READ,
)
DISK_CACHE_PATH: Option[str | None] = option(
    "cache.disk.path",
    optional_text,
    None,
    "The folder of the disk cache, on a local disk; readers of one user share it.",
    where=_READ,
    default_text="/local_disk0/indextables-cache where there is one, else a folder of the user's below the "
    "folder for temporary files",
)
CACHE_DIRECTORY: Option[str | None] = option(
    "cache.directoryPath", optional_text, None, "Another name of cache.disk.path.", where=_READ
)
DISK_CACHE_SIZE: Option[int | None] = option(
    "cache.disk.maxSize",
    _auto_size,
    None,
    "The most bytes the disk cache keeps; auto takes two thirds of what is free and its own.",
    where=_READ,
    default_text="auto",
)
OPEN_INDEXES_SIZE = option(
    "cache.maxSize",
    size,
    4 << 30,
    "Bytes of index (mapped, not copied into memory) that a process keeps open for the next search.",
    where=_READ,
)
MAX_LOADS = option(
    "cache.maxConcurrentLoads",
    integer(1),
    8,
    "How many indexes a process copies into the cache at once.",
    where=_READ,
)

for _key, _reason in {
    "read.defaultLimit": "answers are never cut; ask for a limit in the query",
    "read.requireAggregatePushdown": "an aggregate is complete wherever it is computed",
    "read.companion.requireAggregatePushdown": "there is no companion mode",
    "read.aggregation.arrowFfi.enabled": "aggregates are always Arrow",
    "read.columnar.enabled": "reads are always columnar",
    "read.batchOptimization.enabled": "ranges of a split are always joined where that saves requests",
    "read.batchOptimization.profile": "ranges of a split are always joined where that saves requests",
    "read.batchOptimization.maxRangeSize": "ranges of a split are always joined where that saves requests",
    "read.batchOptimization.gapTolerance": "ranges of a split are always joined where that saves requests",
    "read.batchOptimization.minDocsForOptimization": "rows are Parquet; there are no documents to batch",
    "read.batchOptimization.maxConcurrentPrefetch": "nothing is prefetched; see read.parallelism",
    "read.adaptiveTuning.enabled": "there is nothing to tune while reading",
    "read.adaptiveTuning.minBatchesBeforeAdjustment": "there is nothing to tune while reading",
    "docBatch.enabled": "rows are read from Parquet in batches; see read.batchSize",
    "docBatch.maxSize": "rows are read from Parquet in batches; see read.batchSize",
    "bloom.filters.enabled": "the term dictionary of each split answers what a bloom filter would",
    "partitionPruning.filterCacheEnabled": "pruning is vectorised and needs no cache",
    "partitionPruning.indexEnabled": "pruning is vectorised and needs no index",
    "partitionPruning.parallelThreshold": "pruning is vectorised in one thread",
    "partitionPruning.selectivityOrdering": "pruning weighs all conditions at once",
    "cache.queryCache": "answers are not cached; indexes are kept open instead",
    "cache.name": "a process has one cache for each folder",
    "cache.coalesceMaxGap": "pieces of an index that lie side by side are read at once, others apart",
    "cache.disk.compression": "index files are mapped from the cache as they are",
    "cache.disk.minCompressSize": "index files are mapped from the cache as they are",
    "cache.disk.manifestSyncInterval": "the cache keeps no manifest: its folder is its state",
    "cache.disk.writeQueue.mode": "an index is written to the cache before it is used",
    "cache.disk.writeQueue.capacity": "an index is written to the cache before it is used",
    "cache.disk.writeQueue.maxBudget": "an index is written to the cache before it is used",
    "cache.disk.dropWritesWhenFull": "an index must be on the local disk to be searched",
}.items():
    refused(_key, _reason)
