"""Strings outside, typed values inside; this is the wall between.

Every option is declared once, as a value (`CHECKPOINT_INTERVAL`) that knows its key, type, default and
help. Whoever needs one asks `options.get(CHECKPOINT_INTERVAL)` and gets the typed value. The reference
page `docs/options.md` is printed from the same declarations.
"""

from indextables.options import cloud, indexing, log, maintenance, on_write, reading, writing
from indextables.options.declare import (
    PREFIX,
    FieldOption,
    Option,
    Options,
    Refused,
    Where,
    declared,
)

__all__ = [
    "PREFIX",
    "FieldOption",
    "Option",
    "Options",
    "Refused",
    "Where",
    "cloud",
    "declared",
    "indexing",
    "log",
    "maintenance",
    "on_write",
    "reading",
    "writing",
]
