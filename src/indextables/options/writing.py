"""Options of writing a table: how large splits get, how a schema may grow, what a commit says."""

from indextables.options.declare import Where, option
from indextables.options.parsers import boolean, integer, optional_text, size

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
