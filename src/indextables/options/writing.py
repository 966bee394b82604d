"""Options of writing a table: how large splits get, how a schema may grow, what a commit says."""

from indextables.options.declare import Where, option, refused
from indextables.options.parsers import boolean, choice, integer, optional_text, size

_WRITE = frozenset({Where.WRITE})

TARGET_SPLIT_SIZE = option(
    "write.optimizeWrite.targetSplitSize",
    size,
    1 << 30,
    "A split is closed when it has about this size, and the next rows go into another.",
    where=_WRITE,
    default_text="1G",
)
MERGE_SCHEMA = option(
    "mergeSchema",
    boolean,
    False,
    "Let an append bring new columns; they are null in older rows.",
    where=_WRITE,
)
OVERWRITE_SCHEMA = option(
    "overwriteSchema",
    boolean,
    False,
    "Let an overwrite of the whole table replace its schema and partition columns.",
    where=_WRITE,
)
USER_METADATA = option(
    "commit.userMetadata", optional_text, None, "A text that the table's history keeps.", where=_WRITE
)
TXN_APP_ID = option(
    "txn.appId",
    optional_text,
    None,
    "With txn.version: the application whose batch this is; a batch is never written twice.",
    where=_WRITE,
)
TXN_VERSION = option(
    "txn.version", integer(0), 0, "The number of the batch; it grows from batch to batch.", where=_WRITE
)
REPLACE_WHERE = option(
    "replaceWhere",
    optional_text,
    None,
    "With the mode overwrite: a condition; only rows for which it is true are replaced, and only such rows "
    "may be written. It must cover whole splits, as a condition on partition columns does.",
    where=_WRITE,
)
PARTITION_OVERWRITE = option(
    "partitionOverwriteMode",
    choice("static", "dynamic"),
    "static",
    "With the mode overwrite: static replaces the whole table, dynamic only partitions that get new rows. "
    "In Spark the default is spark.sql.sources.partitionOverwriteMode.",
    where=_WRITE,
)
OPTIMIZE_WRITE = option(
    "write.optimizeWrite.enabled",
    boolean,
    False,
    "In Spark: shuffle the rows before they are written, so that there are few, well-sized splits.",
    where=_WRITE,
)
DISTRIBUTION_MODE = option(
    "write.optimizeWrite.distributionMode",
    choice("hash", "balanced", "none"),
    "hash",
    "How rows are shuffled: hash brings all rows of a partition into one task; balanced divides large "
    "partitions among tasks and joins small ones; none leaves rows where they are. Rows of a table without "
    "partition columns are balanced by either.",
    where=_WRITE,
)

for _key, _reason in {
    "write.optimizeWrite.samplingRatio": "the size of a split is measured while it is written",
    "write.optimizeWrite.minRowsForEstimation": "the size of a split is measured while it is written",
    "write.optimizeWrite.maxSplitSize": "a split is closed at write.optimizeWrite.targetSplitSize",
}.items():
    refused(_key, _reason)
