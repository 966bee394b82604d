"""Options of writing a table: the size of splits, schema evolution, and metadata of commits."""

from indextables.options.declare import Where, boolean, choice, integer, option, optional_text, size

_WRITE = frozenset({Where.WRITE})

TARGET_SPLIT_SIZE = option(
    "write.optimizeWrite.targetSplitSize",
    size,
    1 << 30,
    "Size at which a split is closed and the next one is started; splits are within 20% of it.",
    where=_WRITE,
    default_text="1G",
)
MERGE_SCHEMA = option(
    "mergeSchema",
    boolean,
    False,
    "Allow an append to add columns; they are null in existing rows.",
    where=_WRITE,
)
OVERWRITE_SCHEMA = option(
    "overwriteSchema",
    boolean,
    False,
    "Allow an overwrite of the whole table to replace its schema and partition columns.",
    where=_WRITE,
)
USER_METADATA = option(
    "commit.userMetadata",
    optional_text,
    None,
    "A text that is recorded in the table's history.",
    where=_WRITE,
)
TXN_APP_ID = option(
    "txn.appId",
    optional_text,
    None,
    "With txn.version: the id of the application that writes. A batch is never committed twice.",
    where=_WRITE,
)
TXN_VERSION = option(
    "txn.version", integer(0), 0, "Number of the batch; it must increase from batch to batch.", where=_WRITE
)
REPLACE_WHERE = option(
    "replaceWhere",
    optional_text,
    None,
    "With mode overwrite: replace only the rows that meet this condition; the new rows must meet it, "
    "too. The condition must select whole splits, as one on partition columns does.",
    where=_WRITE,
)
PARTITION_OVERWRITE = option(
    "partitionOverwriteMode",
    choice("static", "dynamic"),
    "static",
    "With mode overwrite: static replaces the whole table, dynamic only the partitions that are written. "
    "In Spark the default is spark.sql.sources.partitionOverwriteMode.",
    where=_WRITE,
)
OPTIMIZE_WRITE = option(
    "write.optimizeWrite.enabled",
    boolean,
    False,
    "In Spark: shuffle the rows before they are written, for fewer and evenly sized splits.",
    where=_WRITE,
)
DISTRIBUTION_MODE = option(
    "write.optimizeWrite.distributionMode",
    choice("hash", "balanced", "none"),
    "hash",
    "How rows are shuffled: hash brings all rows of a partition into one task; balanced divides large "
    "partitions among tasks and combines small ones; none does not shuffle. Rows of a table without "
    "partition columns are balanced by hash and balanced.",
    where=_WRITE,
)
