"""Strings outside, typed values inside; this is the wall between.

Every option is declared once, as a value (`CHECKPOINT_INTERVAL`) that knows its key, type, default and
help. Whoever needs one asks `options.get(CHECKPOINT_INTERVAL)` and gets the typed value. The reference
page `docs/options.md` is printed from the same declarations.
"""

from indextables.options import cloud, indexing, log, maintenance, on_write, reading, writing
from indextables.options.declare import (
    OPENED,
    PREFIX,
    WRITTEN,
    FieldOption,
    Option,
    Options,
    Refused,
    Where,
    check_scope,
    declared,
)

__all__ = [
    "OPENED",
    "PREFIX",
    "WRITTEN",
    "FieldOption",
    "Option",
    "Options",
    "Refused",
    "Where",
    "check_scope",
    "cloud",
    "declared",
    "indexing",
    "log",
    "maintenance",
    "on_write",
    "reading",
    "writing",
]
