"""Reads the newest version of a companion index's source: indexed rows by the index, others from the source.

Source files that no split covers, or whose rows were deleted since, become entries of the file list without a
split. They are read from the source, and indexed in the local cache when they are searched.
"""

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from indextables.errors import OptionError, SourceError
from indextables.log.format.actions import Add, is_companion
from indextables.log.format.files import from_adds
from indextables.log.snapshot import Snapshot
from indextables.log.transaction_log import TransactionLog
from indextables.options import Options
from indextables.options.maintenance import FRESHNESS, LATEST, METADATA_FILE
from indextables.read.table_context import UNINDEXED_TAG
from indextables.schema.values import format_values
from indextables.split.footer import PARQUET_TAG
from indextables.store import Store
from indextables.table_properties import indexing_properties

if TYPE_CHECKING:
    from indextables.source import SourceFile, SourceSnapshot
    from indextables.source.companion import CompanionProperties

_FOLDER = "_unindexed"


def read_snapshot(
    log: TransactionLog, *, version: int | None = None, timestamp: int | None = None
) -> Snapshot:
    """The version of a table to read; of a companion index with `companion.freshness` = latest, its source.

    Raises:
        OptionError: an earlier version of the index is to be read with the newest version of the source.
        SourceError: the first sync has not ended; or the source's columns changed since the last sync, or its
            newest version is unknown.
    """
    snapshot = log.snapshot(version=version, timestamp=timestamp)
    if log.options.get(FRESHNESS) == LATEST and (version is not None or timestamp is not None):
        raise OptionError(
            f"{FRESHNESS.key} = {LATEST} reads the newest version of the source, so a version of the index "
            "cannot be given with it; leave one of them out"
        )
    return newest_source(snapshot, log.store, log.options)


def newest_source(snapshot: Snapshot, store: Store, options: Options) -> Snapshot:
    """A snapshot of a companion index with the files of its source as they are now, if that is requested."""
    if not is_companion(snapshot.protocol):
        return snapshot
    # Imported for companion indexes only, since most tables are not companion indexes.
    from indextables.source.companion import CompanionProperties, open_companion_source, source_files
    from indextables.source.description import content_name
    from indextables.source.reader import METADATA_FILES

    properties = CompanionProperties.of(snapshot)
    assert properties is not None
    if not properties.indexed:
        raise SourceError(
            f"version {snapshot.version} of the companion index at {snapshot.url} was created by the first "
            f"sync with {properties.source} and has none of its rows yet: wait for that sync, or sync again"
        )
    if options.get(FRESHNESS) != LATEST:
        return snapshot
    if properties.source.endswith(METADATA_FILES) and options.get(METADATA_FILE) is None:
        raise SourceError(
            f"the companion index at {snapshot.url} was built from the metadata file {properties.source}; "
            f"only the table's catalog has the path of the newest one: set {METADATA_FILE.key} to it, "
            f"sync again with it or with the catalog, or leave {FRESHNESS.key} = {LATEST} out"
        )
    source = open_companion_source(store, properties, options)
    _check_columns(snapshot, properties, source)
    current = {content_name(file, source.url): file for file in source_files(source, properties.where)}
    file_list = snapshot.files()
    indexed: set[str] = set()
    stays = []
    for contents in file_list["companionSourceFiles"].to_pylist():
        stays.append(all(content in current for content in contents or ()))
        indexed.update(contents if stays[-1] else ())
    pending = {content: file for content, file in current.items() if content not in indexed}
    if not pending and all(stays):
        return snapshot
    adds = _entries(snapshot, properties, source, pending)
    entries = from_adds(adds, version=snapshot.version, timestamp=snapshot.timestamp or 0)
    files = pa.concat_tables([file_list.filter(pa.array(stays, pa.bool_())), entries])
    digest = hashlib.sha256("\n\n".join(current).encode()).hexdigest()
    return replace(
        snapshot,
        base=replace(snapshot.base, file_list=files),
        delta=type(snapshot.delta)(),
        identity=f"{snapshot.identity}+{digest}",
        since=None,
        fallback=None,
    )


def _check_columns(snapshot: Snapshot, properties: "CompanionProperties", source: "SourceSnapshot") -> None:
    from indextables.source.description import column_identities

    now = column_identities(source)
    changed = [name for name in snapshot.schema.names if now.get(name) != properties.indexed.get(name)]
    if source.identity != properties.identity or changed:
        what = f"the column {changed[0]} of" if changed else "the table at"
        raise SourceError(
            f"{what} {properties.location} was replaced since the companion index at {snapshot.url} was "
            "synced, so that its newest version cannot be read by the index: sync again"
        )


def _entries(
    snapshot: Snapshot,
    properties: "CompanionProperties",
    source: "SourceSnapshot",
    pending: "dict[str, SourceFile]",
) -> list[Add]:
    """Entries of the file list for source files."""
    from indextables.source import SourceReader
    from indextables.source.companion import field_mapping
    from indextables.source.description import UnindexedFile, indexed_file

    partitions = snapshot.partition_columns
    mapping = field_mapping(
        snapshot.schema, indexing_properties(snapshot.metadata), properties, partitions
    ).to_json()
    reader = SourceReader(source)
    entries = []
    for content, file in pending.items():
        if missing := [name for name in partitions if name not in file.partition]:
            raise SourceError(
                f"the source file {file.url} has no partition value of {missing[0]}, by which the companion "
                "index is partitioned: sync again"
            )
        records = reader.open(file).num_rows if file.records is None else file.records
        deleted = reader.deleted_positions(file)
        rows = records - len(deleted)
        values = {
            name: format_values(
                pa.array([file.partition[name]], snapshot.schema.field(name).type), partition=True
            )[0].as_py()
            for name in partitions
        }
        recorded = indexed_file(file, properties.location, records=records, rows=rows)
        entries.append(
            Add(
                path=f"{_FOLDER}/{hashlib.sha256(content.encode()).hexdigest()}",
                partition_values=values,
                size=file.size,
                num_records=rows,
                split_tags=[PARQUET_TAG, UNINDEXED_TAG],
                doc_mapping_json=mapping,
                companion_source_files=[UnindexedFile(recorded, deleted).to_text()],
            )
        )
    return entries
