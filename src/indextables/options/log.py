"""Options of the transaction log."""

from typing import TypeAlias

from indextables.options.declare import Option, Where, option, refused
from indextables.options.parsers import boolean, choice, integer, names, number, size

Milliseconds: TypeAlias = Option[int]
Count: TypeAlias = Option[int]

_WRITE = frozenset({Where.WRITE, Where.COMMAND})
_READ = frozenset({Where.READ, Where.WRITE, Where.COMMAND})

CHECKPOINT_ENABLED = option(
    "checkpoint.enabled", boolean, True, "Write a state of the table now and then.", where=_WRITE
)
CHECKPOINT_INTERVAL = option(
    "checkpoint.interval",
    integer(0),
    10,
    "Write a state every so many versions; 0 never does by itself.",
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
    "How often a commit tries to claim a version before it gives up.",
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
    "The most entries that one manifest holds after compaction.",
    where=_WRITE,
)
STATE_READ_PARALLELISM = option(
    "state.read.parallelism", integer(1), 8, "How many manifests are read at once.", where=_READ
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
    "Compact when a state takes in more removes at once.",
    where=_WRITE,
)
STATE_RETENTION_VERSIONS = option(
    "state.retention.versions",
    integer(0),
    2,
    "How many states before the current one are always kept.",
    where=_WRITE,
)
STATE_RETENTION_HOURS = option(
    "state.retention.hours", integer(0), 168, "States younger than this are kept.", where=_WRITE
)
MANIFEST_MIN_AGE_HOURS = option(
    "state.gc.minManifestAgeHours",
    number(0.0),
    1.0,
    "Manifests younger than this are kept, since a running write may be about to refer to them.",
    where=_WRITE,
)
MANIFEST_AGE_CHECK = option(
    "state.gc.minManifestAgeCheckEnabled",
    boolean,
    True,
    "Refuse a minimum age of manifests below one hour: a checkpoint that still runs could lose them.",
    where=_WRITE,
)
STATE_RETRY_ATTEMPTS = option(
    "state.retry.maxAttempts", integer(1), 10, "How often a state write tries.", where=_WRITE
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
RENORMALIZE_THRESHOLD = option(
    "state.schema.renormalizeThreshold",
    integer(0),
    5,
    "When a table has more document mappings, a compaction hashes them anew and drops doubles.",
    where=_WRITE,
)

STATS_TRUNCATION = option(
    "stats.truncation.enabled", boolean, True, "Cut long values in statistics.", where=_WRITE
)
STATS_MAX_LENGTH = option(
    "stats.truncation.maxLength",
    integer(1),
    32,
    "The most characters of a value in statistics. A cut maximum is rounded up.",
    where=_WRITE,
)
STATS_COLUMNS = option(
    "dataSkippingStatsColumns",
    names,
    (),
    "Exactly these columns get statistics.",
    where=_WRITE,
    default_text="the first ones that can have them",
)
STATS_NUM_COLUMNS = option(
    "dataSkippingNumIndexedCols",
    integer(-1),
    32,
    "How many columns get statistics, in the order of the schema; -1 all, 0 none.",
    where=_WRITE,
)

LOG_RETENTION_HOURS = option(
    "purge.txLogRetentionHours",
    integer(0),
    720,
    "Version files that a state covers are kept this long for time travel.",
    where=_WRITE,
)

CACHE_ENABLED = option(
    "transaction.cache.enabled", boolean, True, "Keep what was read of the log.", where=_READ
)
CACHE_TTL_MS = option(
    "transaction.cache.ttl.ms",
    integer(0),
    300_000,
    "How long what was read of the log is kept, where nothing more precise is set.",
    where=_READ,
)
CACHE_TTL_SECONDS = option(
    "transaction.cache.expirationSeconds",
    integer(0),
    300,
    "The older name of transaction.cache.ttl.ms, in seconds; the newer one wins.",
    where=_READ,
)
CACHE_VERSION_TTL_MS = option(
    "transaction.cache.version.ttl.ms", integer(0), 300_000, "Kept version files.", where=_READ
)
CACHE_VERSION_CAPACITY = option(
    "transaction.cache.version.capacity", integer(0), 1000, "How many version files.", where=_READ
)
CACHE_SNAPSHOT_TTL_MS = option(
    "transaction.cache.snapshot.ttl.ms", integer(0), 600_000, "Kept snapshots.", where=_READ
)
CACHE_SNAPSHOT_CAPACITY = option(
    "transaction.cache.snapshot.capacity", integer(0), 100, "How many snapshots.", where=_READ
)
CACHE_FILES_TTL_MS = option(
    "transaction.cache.fileList.ttl.ms", integer(0), 120_000, "Kept file lists.", where=_READ
)
CACHE_FILES_CAPACITY = option(
    "transaction.cache.fileList.capacity", integer(0), 50, "How many file lists.", where=_READ
)
CACHE_FILES_MAX_BYTES = option(
    "transaction.cache.fileList.maxBytes",
    size,
    1 << 30,
    "How much memory all kept file lists may take.",
    where=_READ,
    default_text="1G",
)
CACHE_METADATA_TTL_MS = option(
    "transaction.cache.metadata.ttl.ms", integer(0), 1_800_000, "Kept metadata.", where=_READ
)
MAX_CONCURRENT_READS = option(
    "transaction.maxConcurrentReads",
    integer(1),
    32,
    "How many version files are read at once.",
    where=_READ,
)
PROTOCOL_CHECK = option(
    "protocol.checkEnabled",
    boolean,
    True,
    "Refuse tables that ask for a newer protocol or unknown features.",
    where=_READ,
)

refused("transaction.allowDirectUsage", "it was a hook of the original's tests")
