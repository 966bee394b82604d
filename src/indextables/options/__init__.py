"""Options: declared once, parsed into typed values.

Every option is a constant (`CHECKPOINT_INTERVAL`) with its key, type, default and help;
`options.get(CHECKPOINT_INTERVAL)` returns the typed value. The reference page `docs/options.md` is generated
from the same declarations.
"""

from indextables.options import cloud, log, maintenance, reading, scala_keys, writing
from indextables.options.declare import (
    OPENED,
    PREFIX,
    WRITTEN,
    Alias,
    FieldOption,
    IgnoredOption,
    Option,
    Options,
    Where,
    all_declarations,
    check_scope,
)

__all__ = [
    "OPENED",
    "PREFIX",
    "WRITTEN",
    "Alias",
    "FieldOption",
    "IgnoredOption",
    "Option",
    "Options",
    "Where",
    "check_scope",
    "cloud",
    "companion",
    "all_declarations",
    "indexing",
    "log",
    "maintenance",
    "reading",
    "scala_keys",
    "streaming",
    "writing",
]
