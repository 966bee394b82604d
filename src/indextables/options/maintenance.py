"""Options of upkeep: merging splits."""

from indextables.options.declare import Where, option, refused
from indextables.options.parsers import boolean, integer, number, size

_WHERE = frozenset({Where.WRITE, Where.COMMAND})

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
    "Hours until a split that could not be read is tried again.",
    where=_WHERE,
)

refused("merge.debug", "what a merge does is in its result and in the table's history")
