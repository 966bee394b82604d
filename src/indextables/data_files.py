"""Data files of a table: the add action of a split, its path, and what happens to uncommitted ones."""

from collections.abc import Iterable, Mapping
from contextlib import suppress

from indextables.errors import StoreError
from indextables.log.format.actions import Add
from indextables.schema.values import NULL_PARTITION, partition_path
from indextables.split.writer import SplitFile
from indextables.store import Store


def add_action(path: str, built: SplitFile, *, data_change: bool, started_ms: int) -> Add:
    """Return the add action of a split that was written.

    `started_ms` is when its upload began, by this machine's clock. Object stores stamp an object that was
    sent in parts with that time, which a purge uses (PROTOCOL.md, "Clocks").
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
    named = [(column, NULL_PARTITION if v is None else v) for column, v in partition_values.items()]
    return f"{partition_path(named)}/{name}" if named else name


def delete_uncommitted(store: Store, paths: Iterable[str]) -> None:
    """Delete splits that no version refers to. One that cannot be deleted waits for a purge."""
    with suppress(StoreError):
        store.delete(paths)
