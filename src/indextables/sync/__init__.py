"""Companion indexes: build an index of a Delta, Iceberg or Parquet table, and sync it with the table.

```
source at a version ─► compare with what is indexed ─► splits for new and changed files ─► one version
```
"""

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from threading import Event

from indextables.data_files import open_log
from indextables.errors import OptionError
from indextables.options import Options, Where
from indextables.options.maintenance import TARGET_INPUT_SIZE
from indextables.options.writing import COMPANION_HEAP_SIZE, TYPEMAP, with_heap_size
from indextables.source.companion import set_roots
from indextables.store import CredentialsProvider, open_store
from indextables.sync.plan import SyncRequest
from indextables.sync.run import SyncResult, follow, sync
from indextables.version import ENGINE

__all__ = ["SyncRequest", "SyncResult", "build_options", "companion", "follow", "sync"]

# Aliases of modes.
_MODES = {"ipaddress": "ip"}


def companion(  # noqa: PLR0913 - what a source may need
    source: str | os.PathLike[str],
    *,
    at: str | os.PathLike[str],
    format: str | None = None,  # noqa: A002 - Spark's word
    version: int | str | datetime | None = None,
    snapshot: int | None = None,
    where: str | None = None,
    include: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
    modes: Mapping[str, str] | None = None,
    target_size: int | None = None,
    heap_size: int | None = None,
    rebuild: bool = False,
    dry_run: bool = False,
    relocate: Mapping[str, str] | None = None,
    allowed_locations: Sequence[str] | None = None,
    time_zone: str | None = None,
    merge_schema: bool | None = None,
    schema_file: str | None = None,
    partition_types: Mapping[str, str] | None = None,
    catalog: str | None = None,
    catalog_type: str | None = None,
    warehouse: str | None = None,
    roots: Mapping[str, str] | None = None,
    options: Mapping[str, object] | None = None,
    credentials: CredentialsProvider | None = None,
    progress: Callable[[int, int], None] | None = None,
    every: float | None = None,
    stop: Event | None = None,
) -> SyncResult:
    """Build a full-text index of a Delta, Iceberg or Parquet table, or sync it with that table.

    No rows are copied: the index refers to the files of the table. Open it with `indextables.open(at)`; it
    returns exactly the rows of the table at the synced version. Arguments that are not given are those of the
    last sync.

    Args:
        source: the table's folder; for an Iceberg table a metadata file too, or with `catalog` its name.
        at: the location of the index.
        format: "delta", "iceberg" or "parquet"; detected by default.
        version: the version to index: the number of a Delta version; the id of an Iceberg snapshot, or the
            name of a branch or tag; a time. By default the newest.
        snapshot: the id of the snapshot of an Iceberg table to index; `version` takes it, too.
        where: a condition on partition columns: only files that meet it are indexed.
        include: the columns to index; by default all. Conditions on others are evaluated on the rows.
        exclude: columns not to index.
        modes: how columns are indexed: text, string, exact_only, json or ip, by column.
        target_size: source files of one partition are indexed as one split up to this size.
        heap_size: the memory for building an index, in bytes.
        rebuild: index all files again.
        dry_run: only report what would be done.
        relocate: prefixes of paths that the table recorded, with the places where those files are now.
        allowed_locations: other buckets, containers or folders that recorded paths may refer to.
        time_zone: Spark's time zone, for times in partition values without a zone.
        merge_schema: folders of Parquet files: merge the schemas of all files, as Spark's `mergeSchema`.
        schema_file: folders of Parquet files: a file whose columns are the table's.
        partition_types: folders of Parquet files: types of partition columns that are not inferred from the
            names of folders, by column, such as {"day": "string"}; those of "*" are the types of all others.
        catalog: the name of the Iceberg catalog that has the table. Its location and credentials come from
            the options `iceberg.uri`, `iceberg.token` and `iceberg.credential`, which are not recorded, or
            from pyiceberg's configuration of the catalog.
        catalog_type: the type of the catalog: rest, hive, glue, dynamodb or sql.
        warehouse: the warehouse of the catalog.
        roots: other places of the source's files, by name (`companion.tableRootDesignator`).
        options: `spark.indextables.*` options of indexing and storage, with or without the prefix.
        credentials: a callable that returns credentials, as in `open`.
        progress: called with the number of finished splits and the number of all, in each sync.
        every: sync again after this many seconds, until `stop` is set; a sync that has begun is finished.
        stop: set by another thread or a signal handler to end a call with `every`.

    Raises:
        SourceNotFoundError: there is no such table, or not the version.
        UnsupportedSourceError: the table uses a feature with which it cannot be read exactly.
    """
    parsed = build_options(
        Options.parse(options, {Where.WRITE, Where.COMMAND}),
        modes=modes,
        target_size=target_size,
        heap_size=heap_size,
    )
    request = SyncRequest(
        source=os.fspath(source),
        format=format,
        version=source_version(format, version, snapshot),
        where=where,
        include=None if include is None else tuple(include),
        exclude=None if exclude is None else tuple(exclude),
        rebuild=rebuild,
        dry_run=dry_run,
        relocate=relocate,
        allowed_locations=None if allowed_locations is None else tuple(allowed_locations),
        time_zone=time_zone,
        merge_schema=merge_schema,
        schema_file=schema_file,
        partition_types=partition_types,
        catalog=catalog_of(catalog, catalog_type, warehouse),
    )
    log = open_log(open_store(at, parsed, credentials=credentials), parsed, engine=ENGINE)
    if every is not None and (stop is None or every <= 0):
        raise OptionError("every needs a number of seconds above 0, and stop an Event that ends the call")
    if every is None or stop is None:
        result = sync(log, request, parsed, progress=progress)
        if not dry_run:
            set_roots(log, roots or {})
        return result
    last = follow(log, request, parsed, seconds=every, stop=stop, roots=roots or {}, progress=progress)
    if last is None:
        last = sync(log, request, parsed, progress=progress)
        set_roots(log, roots or {})
    return last


def catalog_of(name: str | None, kind: str | None, warehouse: str | None) -> Mapping[str, str] | None:
    """The values that an index records of a catalog.

    Raises:
        OptionError: the catalog has no name.
    """
    more = {key: text for key, text in (("type", kind), ("warehouse", warehouse)) if text is not None}
    if name is None and more:
        raise OptionError("a type and a warehouse describe a catalog; give the catalog's name, too")
    return None if name is None else {"name": name, **more}


def source_version(
    kind: str | None, version: int | str | datetime | None, snapshot: int | None
) -> int | str | datetime | None:
    """The version of a source, from either parameter of a build.

    Raises:
        OptionError: two versions are given, or a snapshot of a table that has none.
    """
    if snapshot is None:
        return version
    if version is not None:
        raise OptionError("a version and a snapshot exclude each other; leave one of them out")
    if kind not in (None, "iceberg"):
        raise OptionError(f"snapshots are those of Iceberg tables; a source of the format {kind} has none")
    return snapshot


def build_options(
    options: Options,
    *,
    modes: Mapping[str, str] | None = None,
    target_size: int | None = None,
    heap_size: int | None = None,
) -> Options:
    """The options, with those of clauses and parameters."""
    more: dict[str, object] = {
        f"{TYPEMAP.key}.{column}": _MODES.get(mode.lower(), mode) for column, mode in (modes or {}).items()
    }
    if target_size is not None:
        more[TARGET_INPUT_SIZE.key] = target_size
    if heap_size is not None:
        more[COMPANION_HEAP_SIZE.key] = heap_size
    return with_heap_size(Options.parse(more).over(options), COMPANION_HEAP_SIZE)
