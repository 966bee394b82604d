"""Options of the transaction log."""

from typing import TypeAlias

from indextables.options.declare import (
    Option,
    Where,
    boolean,
    choice,
    integer,
    names,
    number,
    option,
    size,
)

Milliseconds: TypeAlias = Option[int]
Count: TypeAlias = Option[int]

_WRITE = frozenset({Where.WRITE, Where.COMMAND})
_READ = frozenset({Where.READ, Where.WRITE, Where.COMMAND})

CHECKPOINT_ENABLED = option(
    "checkpoint.enabled", boolean, True, "Write checkpoints automatically.", where=_WRITE
)
CHECKPOINT_INTERVAL = option(
    "checkpoint.interval",
    integer(0),
    10,
    "Number of versions between automatic checkpoints; 0 for none. Checkpoints are left out while the last "
    "state is at most half as many versions old. The default is 20 in streams, where merges write states.",
    where=_WRITE,
)
VERSION_COMPRESSION = option(
    "transaction.compression.enabled",
    boolean,
    True,
    "Compress version files with gzip.",
    where=_WRITE,
)

RETRY_ATTEMPTS = option(
    "transaction.retry.maxAttempts",
    integer(1),
    10,
    "Maximum number of attempts of a commit when other writers commit at the same time.",
    where=_WRITE,
)
RETRY_BASE_MS = option(
    "transaction.retry.baseDelayMs",
    integer(0),
    100,
    "Milliseconds before the second attempt; each further wait is twice as long, with jitter.",
    where=_WRITE,
)
RETRY_MAX_MS = option(
    "transaction.retry.maxDelayMs",
    integer(0),
    5000,
    "The longest wait between two attempts, in milliseconds.",
    where=_WRITE,
)

STATE_FORMAT = option(
    "state.format",
    choice("avro", "json"),
    "avro",
    "What a checkpoint writes: Avro state, or the older JSON checkpoint.",
    where=_WRITE,
)
STATE_COMPRESSION = option(
    "state.compression",
    choice("zstd", "snappy", "none"),
    "zstd",
    "Compression of manifests.",
    where=_WRITE,
)
STATE_COMPRESSION_LEVEL = option(
    "state.compressionLevel",
    integer(1, 22),
    3,
    "Compression level of zstd; the other two have none.",
    where=_WRITE,
)
STATE_ENTRIES_PER_MANIFEST = option(
    "state.entriesPerManifest",
    integer(1),
    50_000,
    "Maximum number of entries in one manifest after compaction.",
    where=_WRITE,
)
STATE_READ_PARALLELISM = option(
    "state.read.parallelism", integer(1), 32, "Number of manifests that are read in parallel.", where=_READ
)
COMPACT_TOMBSTONES = option(
    "state.compaction.tombstoneThreshold",
    number(0.0),
    0.10,
    "Compact when removed entries exceed this share of the live ones.",
    where=_WRITE,
)
COMPACT_MANIFESTS = option(
    "state.compaction.maxManifests",
    integer(1),
    20,
    "Compact when a state would have more manifests.",
    where=_WRITE,
)
COMPACT_AFTER_MERGE = option(
    "state.compaction.afterMerge",
    boolean,
    True,
    "Write a compacted state after a merge.",
    where=_WRITE,
)
COMPACT_REMOVES = option(
    "state.compaction.largeRemoveThreshold",
    integer(0),
    2**31 - 1,
    "Compact when one checkpoint adds more removed files than this.",
    where=_WRITE,
)
STATE_RETENTION_VERSIONS = option(
    "state.retention.versions",
    integer(0),
    2,
    "Number of states before the current one that are always retained.",
    where=_WRITE,
)
STATE_RETENTION_HOURS = option(
    "state.retention.hours", integer(0), 168, "Hours for which older states are retained.", where=_WRITE
)
MANIFEST_MIN_AGE_HOURS = option(
    "state.gc.minManifestAgeHours",
    number(0.0),
    1.0,
    "Younger unreferenced manifests are not deleted, since a running checkpoint may refer to them.",
    where=_WRITE,
)
MANIFEST_AGE_CHECK = option(
    "state.gc.minManifestAgeCheckEnabled",
    boolean,
    True,
    "Refuse a minimum age of manifests below one hour: those of a running checkpoint could be deleted.",
    where=_WRITE,
)
STATE_RETRY_ATTEMPTS = option(
    "state.retry.maxAttempts", integer(1), 10, "Maximum number of attempts to write a state.", where=_WRITE
)
STATE_RETRY_BASE_MS = option(
    "state.retry.baseDelayMs",
    integer(0),
    100,
    "Milliseconds before the second attempt at a state; doubles, with jitter.",
    where=_WRITE,
)
STATE_RETRY_MAX_MS = option(
    "state.retry.maxDelayMs",
    integer(0),
    5000,
    "The longest wait between two attempts at a state, in milliseconds.",
    where=_WRITE,
)
FILTER_BUNDLES = option(
    "state.filterBundles.enabled",
    boolean,
    True,
    "Copy the term filters of splits into filter bundles at checkpoints, so that one read tests many splits.",
    where=_WRITE,
)
FILTER_BUNDLE_MAX_FILTER = option(
    "state.filterBundles.maxFilterSize",
    size,
    1 << 20,
    "Larger term filters of a split are not copied into a filter bundle.",
    where=_WRITE,
)
RENORMALIZE_THRESHOLD = option(
    "state.schema.renormalizeThreshold",
    integer(0),
    5,
    "Number of document mappings of a table above which a compaction removes duplicates.",
    where=_WRITE,
)

STATS_TRUNCATION = option(
    "stats.truncation.enabled", boolean, True, "Truncate long values in statistics.", where=_WRITE
)
STATS_MAX_LENGTH = option(
    "stats.truncation.maxLength",
    integer(0),
    32,
    "Maximum number of characters of a value in statistics. A truncated maximum is rounded up. 0 for no "
    "statistics of texts.",
    where=_WRITE,
)
STATS_COLUMNS = option(
    "dataSkippingStatsColumns",
    names,
    (),
    "Collect statistics of exactly these columns.",
    where=_WRITE,
    default_text="the first dataSkippingNumIndexedCols columns that can have statistics",
)
STATS_NUM_COLUMNS = option(
    "dataSkippingNumIndexedCols",
    integer(-1),
    32,
    "Number of columns with statistics, in the order of the schema; -1 for all, 0 for none.",
    where=_WRITE,
)

LOG_RETENTION_HOURS = option(
    "purge.txLogRetentionHours",
    integer(0),
    720,
    "Hours for which version files are retained for time travel after a checkpoint covers them.",
    where=_WRITE,
)

CLEANUP_ENABLED = option(
    "cleanup.enabled",
    boolean,
    True,
    "After an automatic checkpoint, delete the files of the log whose retention is over "
    "(purge.txLogRetentionHours, state.retention.*). Splits are deleted by a purge only.",
    where=_WRITE,
)

CLEANUP_MAX_VERSIONS = option(
    "cleanup.maxVersions",
    integer(0),
    0,
    "Maximum number of version files: after an automatic checkpoint older ones are deleted although "
    "purge.txLogRetentionHours is not over, and so are the states before them, unless they are less than an "
    "hour old. 0 for no limit. In streams the default is 10000, unless purge.txLogRetentionHours is set.",
    where=_WRITE,
)
# A stream of a batch per second would leave 2.6 million version files within the default retention.
STREAM_MAX_VERSIONS = 10_000

CACHE_ENABLED = option(
    "transaction.cache.enabled",
    boolean,
    True,
    "Cache parts of the log in memory. The newest version is always looked up in storage.",
    where=_READ,
)
CACHE_TTL_MS = option(
    "transaction.cache.ttl.ms",
    integer(0),
    300_000,
    "Milliseconds for which parts of the log are cached, unless a more specific option is set.",
    where=_READ,
)
CACHE_TTL_SECONDS = option(
    "transaction.cache.expirationSeconds",
    integer(0),
    300,
    "Older name of transaction.cache.ttl.ms, in seconds; the newer one has precedence.",
    where=_READ,
)
CACHE_VERSION_TTL_MS = option(
    "transaction.cache.version.ttl.ms",
    integer(0),
    300_000,
    "Milliseconds for which version files are cached.",
    where=_READ,
)
CACHE_VERSION_CAPACITY = option(
    "transaction.cache.version.capacity",
    integer(0),
    1000,
    "Maximum number of cached version files.",
    where=_READ,
)
CACHE_SNAPSHOT_TTL_MS = option(
    "transaction.cache.snapshot.ttl.ms",
    integer(0),
    600_000,
    "Milliseconds for which snapshots are cached.",
    where=_READ,
)
CACHE_SNAPSHOT_CAPACITY = option(
    "transaction.cache.snapshot.capacity", integer(0), 100, "Maximum number of cached snapshots.", where=_READ
)
CACHE_FILES_TTL_MS = option(
    "transaction.cache.fileList.ttl.ms",
    integer(0),
    120_000,
    "Milliseconds for which file lists are cached.",
    where=_READ,
)
CACHE_FILES_CAPACITY = option(
    "transaction.cache.fileList.capacity", integer(0), 50, "Maximum number of cached file lists.", where=_READ
)
CACHE_FILES_MAX_BYTES = option(
    "transaction.cache.fileList.maxBytes",
    size,
    1 << 30,
    "Maximum memory of all cached file lists. Texts of version files and starts of manifests are "
    "limited to a sixteenth of it each.",
    where=_READ,
    default_text="1G",
)
CACHE_METADATA_TTL_MS = option(
    "transaction.cache.metadata.ttl.ms",
    integer(0),
    1_800_000,
    "Milliseconds for which table metadata are cached.",
    where=_READ,
)
MAX_CONCURRENT_READS = option(
    "transaction.maxConcurrentReads",
    integer(1),
    32,
    "Number of version files that are read in parallel.",
    where=_READ,
)
PROTOCOL_CHECK = option(
    "protocol.checkEnabled",
    boolean,
    True,
    "Refuse tables that require a newer protocol version or unknown features.",
    where=_READ,
)
