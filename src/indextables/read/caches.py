"""The caches that reading fills: what is in them, emptying them, and filling them beforehand."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from indextables.errors import OptionError
from indextables.log.snapshot import Snapshot
from indextables.options import Options
from indextables.predicate import Predicate
from indextables.read.parallel import each
from indextables.read.scan import parallelism
from indextables.read.sources import OurSplit, close_sources, open_source
from indextables.read.tasks import SplitRef, TableFacts, prepare
from indextables.split.index.cache import CacheStats, Removed, index_cache
from indextables.split.query import search
from indextables.store import Store

_NAMES = {
    "TERM": "TERM",
    "TERM_DICT": "TERM",
    "TERM_DICTIONARY": "TERM",
    "FASTFIELD": "FASTFIELD",
    "FAST_FIELD": "FASTFIELD",
    "POSTINGS": "POSTINGS",
    "POSTING_LISTS": "POSTINGS",
    "POSITIONS": "POSITIONS",
    "POSITION_LISTS": "POSITIONS",
    "FIELDNORM": "FIELDNORM",
    "FIELD_NORM": "FIELDNORM",
    "STORE": "STORE",
    "DOC_STORE": "STORE",
}


@dataclass(frozen=True, slots=True)
class Flushed:
    """What emptying the caches of a process freed: splits it had open, and entries on disk."""

    open_splits: int
    disk: Removed


@dataclass(frozen=True, slots=True)
class Prewarmed:
    """What was brought near: splits, and bytes of the parts that were read into memory."""

    splits: int
    bytes: int


def cache_stats(options: Options) -> CacheStats:
    """What the disk cache holds, and what this process asked of it."""
    return index_cache(options).stats()


def flush_caches(options: Options) -> Flushed:
    """Close the splits that this process keeps open, and remove what nobody uses from the disk cache."""
    count = close_sources()
    return Flushed(count, index_cache(options).flush())


def index_parts(names: Sequence[str]) -> tuple[str, ...]:
    """The parts of an index that names mean (`TERM_DICT`, `POSTINGS`, ...), each once."""
    unknown = [name for name in names if name.upper() not in _NAMES]
    if unknown:
        raise OptionError(f"no part of an index is called '{unknown[0]}'; the parts are: {', '.join(_NAMES)}")
    return tuple(dict.fromkeys(_NAMES[name.upper()] for name in names))


def prewarm(
    snapshot: Snapshot,
    store: Store,
    options: Options,
    *,
    where: Predicate | None = None,
    parts: Sequence[str] = ("TERM", "POSTINGS"),
    fields: Sequence[str] = (),
) -> Prewarmed:
    """Bring indexes of the splits that a condition leaves into the disk cache, open, with parts in memory.

    The files of an index hold all fields together, so `fields` are only checked to exist. Splits of the
    original are indexed and kept likewise. The newest splits come first.
    """
    table, splits = prepare(snapshot, where, options)
    for name in fields:
        table.fields.resolve(tuple(name.split(".")))
    wanted = index_parts(parts)
    works = [partial(_prewarm_one, store, ref, table, wanted) for ref in reversed(splits)]
    read = list(each(works, parallelism(options)))
    return Prewarmed(len(read), sum(read))


def _prewarm_one(store: Store, ref: SplitRef, table: TableFacts, parts: tuple[str, ...]) -> int:
    source = open_source(store, ref, table)
    if isinstance(source, OurSplit):
        return search.prewarm(store, source.footer, table.options, parts)
    source.index(table.options)
    return 0
