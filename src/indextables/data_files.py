"""Data files of a table: the add action of a split, its path, and what happens to uncommitted ones."""

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from indextables.errors import SplitError, StoreError
from indextables.log.format.actions import Add
from indextables.options import Options
from indextables.options.maintenance import PURGE_MIN_RETENTION_HOURS
from indextables.schema.values import NULL_PARTITION, partition_path
from indextables.split.writer import SplitFile
from indextables.store import Store

_HOUR_MS = 3_600_000
_CONCURRENT_LOOKUPS = 16


def add_action(path: str, built: SplitFile, *, data_change: bool) -> Add:
    """Return the add action of a split that was written."""
    return Add(
        path=path,
        partition_values=built.partition_values,
        size=built.size,
        modification_time=time.time_ns() // 1_000_000,
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
    named = [(column, NULL_PARTITION if v is None else v) for column, v in partition_values.items()]
    return f"{partition_path(named)}/{name}" if named else name


def delete_uncommitted(store: Store, paths: Iterable[str]) -> None:
    """Delete splits that no version refers to. One that cannot be deleted waits for a purge."""
    with suppress(StoreError):
        store.delete(paths)


def check_uploads(store: Store, adds: Sequence[Add], options: Options) -> None:
    """Check that the splits of a long write still exist before they are committed.

    A purge deletes files that no version refers to once they are old enough. The log refuses a commit after
    a purge that it knows of (`log.purged`), but a write whose base version was cleaned up cannot know. So
    splits older than half the shortest retention are looked up.

    Raises:
        SplitError: a split is gone; nothing was committed.
    """
    oldest = min((add.modification_time for add in adds), default=None)
    limit_ms = options.get(PURGE_MIN_RETENTION_HOURS) * _HOUR_MS / 2
    if oldest is None or time.time_ns() // 1_000_000 - oldest < limit_ms:
        return
    paths = [add.path for add in adds]
    with ThreadPoolExecutor(_CONCURRENT_LOOKUPS) as pool:
        lost = [path for path, there in zip(paths, pool.map(store.exists, paths), strict=True) if not there]
    if lost:
        raise SplitError(
            f"{len(lost)} of the {len(paths)} splits to be committed to {store.url} are gone (one "
            f"is {lost[0]}): the write took longer than a purge keeps files; nothing was changed; write "
            "again, in smaller parts or with a longer retention of purges"
        )
