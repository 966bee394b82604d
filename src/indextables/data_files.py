"""Data files of a table: add actions, paths, deletion of uncommitted files, and filter bundles."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from indextables.errors import SplitError, StoreError
from indextables.log.format.actions import Add
from indextables.log.format.files import has_tag
from indextables.log.format.names import filter_bundle_path
from indextables.log.format.state_manifest import FilterBundle
from indextables.log.transaction_log import TransactionLog
from indextables.options import Options
from indextables.options import log as opt
from indextables.records import dataclass
from indextables.schema.values import NULL_PARTITION, partition_path
from indextables.split.footer import PARQUET_TAG, read_filter_tail, read_footer, read_ranges
from indextables.split.index.term_filter import (
    MAX_BUNDLE_BYTES,
    Bits,
    BundleContent,
    BundleDirectory,
    Keys,
    decode_bundle,
    decode_pages,
    encode_bundle,
    find_keys,
    split_keys,
)
from indextables.store import Store

if TYPE_CHECKING:
    from indextables.split.writer import SplitFile

_logger = logging.getLogger(__name__)


def add_action(path: str, built: "SplitFile", *, data_change: bool, started_ms: int) -> Add:
    """Return the add action of a split that was written.

    `started_ms` is the start of its upload, by this machine's clock. Object stores use that time for an
    object that was uploaded in parts, and a purge compares it (PROTOCOL.md, "Clocks").
    """
    return Add(
        path=path,
        partition_values=built.partition_values,
        size=built.size,
        modification_time=started_ms,
        data_change=data_change,
        stats=built.stats,
        min_values=built.min_values,
        max_values=built.max_values,
        num_records=built.num_records,
        footer_start_offset=built.footer_start,
        footer_end_offset=built.footer_end,
        has_footer_offsets=True,
        split_tags=list(built.split_tags),
        num_merge_ops=built.num_merge_ops,
        doc_mapping_json=built.doc_mapping_json,
        uncompressed_size_bytes=built.uncompressed_bytes,
    )


def split_path(partition_values: Mapping[str, str | None], name: str) -> str:
    """Return the path of a split with these partition values, relative to the table.

    >>> split_path({"day": None}, "part-1.split")
    'day=__HIVE_DEFAULT_PARTITION__/part-1.split'
    """
    values = [(column, NULL_PARTITION if v is None else v) for column, v in partition_values.items()]
    return f"{partition_path(values)}/{name}" if values else name


def delete_uncommitted(store: Store, paths: Iterable[str]) -> None:
    """Delete splits that no version refers to. A purge deletes those that cannot be deleted now."""
    with suppress(StoreError):
        store.delete(paths)


# --- filter bundles ---------------------------------------------------------------------------------

# Bundles up to this size at the end of the list are combined with new splits.
_SMALL_BUNDLE = 1 << 20
# From this size on a bundle is not combined with new splits.
_LARGE_BUNDLE = MAX_BUNDLE_BYTES // 2
# A bundle with a smaller share of live splits is rewritten without the others.
_LEAST_LIVE = 0.5
# The maximum number of splits that one checkpoint reads; the next compacted state adds the others. It is
# small for a checkpoint after a commit, because the commit waits for it.
_MAX_COLLECTED = 10_000
_MAX_AFTER_COMMIT = 500
_READERS = 16
# How many splits are read at a time, since their filters are in memory.
_AT_ONCE = 16

Filters: TypeAlias = Mapping[str, Bits]


def open_log(store: Store, options: Options | None = None, *, engine: str) -> TransactionLog:
    """The log of a table, which writes filter bundles at its checkpoints."""
    options = options or Options()
    bundler = SplitFilterBundler(store, options) if options.get(opt.FILTER_BUNDLES) else None
    return TransactionLog(store, options, engine=engine, bundler=bundler)


def read_filters(store: Store, path: str, size: int, footer_start: int | None, most: int) -> Filters:
    """The term filters of a split that have at most this many bytes, by field.

    Raises:
        SplitError: The split is damaged.
        StoreError: Storage failed.
    """
    footer = read_footer(store, path, size, footer_start, tail=read_filter_tail)
    places = [place for place in footer.term_filters if place.length <= most]
    ranges = [(place.offset, place.offset + place.length) for place in places]
    parts = read_ranges(store, path, size, ranges) if ranges else []
    return {place.field: decode_pages(place, part) for place, part in zip(places, parts, strict=True)}


@dataclass(frozen=True, slots=True)
class SplitFilterBundler:
    """Writes the term filters of a table's splits into bundles (PROTOCOL.md, "Filter bundles").

    Bundles are an optimisation: filters that cannot be read or written are skipped.
    """

    store: Store
    options: Options

    def __call__(
        self,
        log: Store,
        bundles: Sequence[FilterBundle],
        entries: pa.Table,
        *,
        whole: bool,
        after_commit: bool,
        token: Callable[[], str],
    ) -> Sequence[FilterBundle]:
        """The bundles of a new state; see `log.checkpoint.FilterBundler`."""
        splits = entries.filter(has_tag(entries, PARQUET_TAG)).select(
            ["path", "size", "modificationTime", "footerStartOffset"]
        )
        retained = [bundle for bundle in bundles if bundle.is_valid]
        contents: list[BundleContent] = []
        if whole:
            retained, contents, splits = self._without_dead(log, retained, splits)
        written: list[FilterBundle] = []
        for new in self._collect(splits, _MAX_AFTER_COMMIT if after_commit else _MAX_COLLECTED):
            if new.size >= _LARGE_BUNDLE:
                written += _write_bundles(log, new, token) or ()
            else:
                contents.append(new)
        if not contents:
            return [*retained, *written]
        # Small bundles at the end are combined with the new one, so that there are few.
        size = sum(content.size for content in contents)
        before = list(retained)
        while retained and retained[-1].size <= max(_SMALL_BUNDLE, size) < _LARGE_BUNDLE:
            last = retained.pop()
            content = _read_bundle(log, last)
            if content is not None:
                contents.insert(0, content)
                size += content.size
        last_ones = _write_bundles(log, BundleContent.merge(contents), token)
        return [*before, *written] if last_ones is None else [*retained, *written, *last_ones]

    def _without_dead(
        self, log: Store, bundles: Sequence[FilterBundle], splits: pa.Table
    ) -> tuple[list[FilterBundle], list[BundleContent], pa.Table]:
        """The bundles to retain, the live content of others, and the splits that are in none of them."""
        live = split_keys(splits)
        absent = np.ones(len(live), np.bool_)
        retained: list[FilterBundle] = []
        contents: list[BundleContent] = []
        for bundle in bundles:
            keys = _read_keys(log, bundle)
            if keys is None:
                continue
            is_live = find_keys(keys, live) >= 0
            if is_live.mean() >= _LEAST_LIVE:
                retained.append(bundle)
            elif not is_live.any() or (content := _read_bundle(log, bundle)) is None:
                continue
            else:
                contents.append(content.select(is_live))
            absent &= find_keys(live, keys) < 0
        return retained, contents, splits.filter(pa.array(absent))

    def _collect(self, splits: pa.Table, most: int) -> Iterator[BundleContent]:
        """The filters of at most `most` splits, read from them, in parts of the size of a large bundle."""
        # The newest first: they are searched most often.
        newest = splits.sort_by([("modificationTime", "descending")]).slice(0, most)
        contents: list[BundleContent] = []
        with ThreadPoolExecutor(_READERS, thread_name_prefix="indextables-filters") as pool:
            for start in range(0, newest.num_rows, _AT_ONCE):
                part = newest.slice(start, _AT_ONCE)
                filters = list(pool.map(self._filters_of, part.to_pylist()))
                is_read = pa.array([own is not None for own in filters], pa.bool_())
                keys = split_keys(part.filter(is_read))
                contents.append(BundleContent.of(keys, [own for own in filters if own is not None]))
                if sum(content.size for content in contents) >= _LARGE_BUNDLE:
                    yield BundleContent.merge(contents)
                    contents = []
        rest = BundleContent.merge(contents)
        if len(rest.keys):
            yield rest

    def _filters_of(self, entry: Mapping[str, Any]) -> Filters | None:
        most = self.options.get(opt.FILTER_BUNDLE_MAX_FILTER)
        try:
            return read_filters(self.store, entry["path"], entry["size"], entry["footerStartOffset"], most)
        except (SplitError, StoreError) as error:
            _logger.debug("the term filters of %s are in no bundle: %s", entry["path"], error)
            return None


def _read_keys(log: Store, bundle: FilterBundle) -> Keys | None:
    """The splits of a bundle; None if the bundle cannot be used."""
    try:
        data = log.get_range(bundle.path, bundle.size - bundle.directory, bundle.size)
        return BundleDirectory.decode(data, bundle.size).keys
    except (SplitError, StoreError) as error:
        _logger.debug("the filter bundle %s is not used any more: %s", bundle.path, error)
        return None


def _read_bundle(log: Store, bundle: FilterBundle) -> BundleContent | None:
    """The content of a bundle; None if the bundle cannot be used."""
    try:
        return decode_bundle(log.get_range(bundle.path, 0, bundle.size), bundle.directory)
    except (SplitError, StoreError) as error:
        _logger.debug("the filter bundle %s is not used any more: %s", bundle.path, error)
        return None


def _write_bundles(log: Store, content: BundleContent, token: Callable[[], str]) -> list[FilterBundle] | None:
    """Write filters in bundles of the right size; None if a bundle cannot be written."""
    try:
        return [_write_bundle(log, part, token()) for part in content.cut()]
    except StoreError as error:
        _logger.warning(
            "the term filters of %d splits of %s are in no filter bundle until the next compacted state, so "
            "that searches open these splits: %s",
            len(content.keys),
            log.url,
            error,
        )
        return None


def _write_bundle(log: Store, content: BundleContent, token: str) -> FilterBundle:
    data, directory = encode_bundle(content)
    path = filter_bundle_path(token)
    log.create(path, data)
    return FilterBundle(path, len(data), directory, len(content.keys))
