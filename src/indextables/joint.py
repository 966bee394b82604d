"""Where the log and the splits meet: a split as the log names it, an index as the table remembers it."""

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pyarrow as pa

from indextables.errors import SplitError, StoreError
from indextables.log.conflict import without_registry
from indextables.log.format.actions import Add, Metadata
from indextables.log.snapshot import Snapshot
from indextables.options import Options
from indextables.options.indexing import REMEMBERED
from indextables.options.maintenance import PURGE_MIN_RETENTION_HOURS
from indextables.schema.folders import folder
from indextables.schema.values import NULL_PARTITION
from indextables.split.build import Built
from indextables.split.mapping import Kind
from indextables.split.mapping import Mapping as FieldMapping
from indextables.split.original.mapping import original_mapping
from indextables.store import Store

_HOUR_MS = 3_600_000
_LOOKS_AT_ONCE = 16


def added(path: str, built: Built, *, data_change: bool) -> Add:
    """The action that adds a finished split."""
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
    """Where a split with these partition values lies, relative to the table.

    >>> split_path({"day": None}, "part-1.split")
    'day=__HIVE_DEFAULT_PARTITION__/part-1.split'
    """
    named = [(column, NULL_PARTITION if v is None else v) for column, v in partition_values.items()]
    return f"{folder(named)}/{name}" if named else name


def withdraw(store: Store, paths: Iterable[str]) -> None:
    """Delete splits that no version names. What cannot be deleted stays invisible; a purge finds it."""
    with suppress(StoreError):
        store.delete(paths)


def check_uploads(store: Store, adds: Sequence[Add], options: Options) -> None:
    """Refuse to name splits that are gone: a purge deletes what no version names once it is old enough.

    A commit after a version of a purge is refused by the log (`log.purged`); a write that lost its base
    cannot tell that there was one. So splits older than half the shortest retention are looked for.
    """
    oldest = min((add.modification_time for add in adds), default=None)
    limit_ms = options.get(PURGE_MIN_RETENTION_HOURS) * _HOUR_MS / 2
    if oldest is None or time.time_ns() // 1_000_000 - oldest < limit_ms:
        return
    paths = [add.path for add in adds]
    with ThreadPoolExecutor(_LOOKS_AT_ONCE) as pool:
        lost = [path for path, there in zip(paths, pool.map(store.exists, paths), strict=True) if not there]
    if lost:
        raise SplitError(
            f"{len(lost)} of the {len(paths)} splits that were to be committed to {store.url} are gone (one "
            f"is {lost[0]}): the write took longer than a purge keeps files; nothing was changed; write "
            "again, in smaller parts or with a longer retention of purges"
        )


def indexing_of(snapshot: Snapshot) -> Options:
    """The options by which the table's columns are indexed, as the table remembers them."""
    kept = remembered(snapshot.metadata)
    return Options.parse(kept or _of_the_original(snapshot))


def remembered(metadata: Metadata) -> dict[str, str]:
    """The indexing options that a table's configuration holds."""
    kept = without_registry(metadata.configuration)
    return {k: v for k, v in sorted(kept.items()) if k.startswith(REMEMBERED)}


def _of_the_original(snapshot: Snapshot) -> dict[str, str]:
    """Indexing options that describe what the original's document mappings say, if there are any."""
    for text in snapshot.registry.values():
        try:
            FieldMapping.from_json(text)
        except SplitError:
            return described(
                original_mapping(text, snapshot.schema, snapshot.partition_columns), snapshot.schema
            )
    return {}


def described(mapping: FieldMapping, schema: pa.Schema) -> dict[str, str]:
    """Indexing options that lead to such fields: words for text, addresses, JSON in texts."""
    options = {}
    for field in mapping.fields:
        if field.kind is Kind.TEXT:
            options[f"indexing.typemap.{field.column.lower()}"] = "text"
            options[f"indexing.tokenizer.{field.column.lower()}"] = field.tokenizer
        elif field.kind is Kind.IP:
            options[f"indexing.typemap.{field.column.lower()}"] = "ip"
        elif field.kind is Kind.JSON and pa.types.is_string(schema.field(field.column).type):
            options[f"indexing.typemap.{field.column.lower()}"] = "json"
    return options
