"""Companion indexes: their properties, table roots and source, and the selection of files and columns."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields, replace
from datetime import datetime
from typing import Any

import msgspec
import pyarrow as pa

from indextables.errors import CommandError, CommitConflictError, OptionError, SourceError
from indextables.log.conflict import Draft, without_registry
from indextables.log.environment import local_time_ms
from indextables.log.format.actions import Metadata, is_companion
from indextables.log.snapshot import Snapshot
from indextables.log.transaction_log import TransactionLog
from indextables.options import Options
from indextables.options import log as opt
from indextables.options.maintenance import FRESHNESS, LATEST, METADATA_FILE, TABLE_ROOT
from indextables.options.writing import STORE_ONLY_FIELDS
from indextables.predicate import columns_of, evaluate, parse_condition
from indextables.predicate.traversal import has_search
from indextables.records import dataclass
from indextables.schema.calendar import is_utc
from indextables.schema.type_info import UTC_TIMESTAMP
from indextables.schema.values import NULL_PARTITION
from indextables.source.description import SourceDescription, relative_path
from indextables.source.partition_values import folder_values
from indextables.source.reader import catalog_table, open_source
from indextables.source.snapshot import SourceFile, SourceSnapshot
from indextables.split.mapping import Mapping as FieldMapping
from indextables.split.mapping import mapping_for
from indextables.store import Store
from indextables.store.location import locate

PREFIX = "companion."
_ROOTS = f"{PREFIX}tableRoots."
_ROOT_NAME = re.compile(r"[A-Za-z0-9_-]+")


class TableRoot(msgspec.Struct, frozen=True):
    """Another place at which the files of a source can be read, and the time when it was set."""

    path: str
    set_ms: int


@dataclass(frozen=True, kw_only=True)
class CompanionProperties:
    """The properties of a companion index, in the configuration of its table.

    Attributes:
        format: "delta", "iceberg" or "parquet".
        source: the URL of the source; of an Iceberg table the metadata file, if one was given.
        location: the URL of the source's folder.
        version: the version that was synced; None before the first sync.
        identity: identifies the source; differs after the source was dropped and created again.
        columns: the columns of the source at that version (`source.description.encode_columns`).
        indexed: for each column that a split may have, the identity of its values (`column_identities`).
        where: the condition on partition columns that indexed files meet.
        include: the columns that are indexed; all if it is empty.
        exclude: columns that are not indexed.
        relocate: prefixes of recorded paths, with the places where those files are now.
        allowed: other locations that recorded paths may refer to.
        time_zone: Spark's time zone for partition values without a zone.
        merge_schema: folders: whether the columns of all files are united.
        schema_file: folders: the file whose columns are the table's.
        partition_types: folders: types of partition columns that are not inferred (`*` means all others).
        catalog: the Iceberg catalog of the source: its name, type and warehouse. `source` is the
            name of the table then.
        roots: named places at which the files of the source can be read.
    """

    format: str
    source: str
    location: str
    version: str | None = None
    identity: str = ""
    columns: str = ""
    indexed: Mapping[str, str] = field(default_factory=dict)
    where: str | None = None
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    relocate: Mapping[str, str] = field(default_factory=dict)
    allowed: tuple[str, ...] = ()
    time_zone: str = "UTC"
    merge_schema: bool = False
    schema_file: str | None = None
    partition_types: Mapping[str, str] = field(default_factory=dict)
    catalog: Mapping[str, str] = field(default_factory=dict)
    roots: Mapping[str, TableRoot] = field(default_factory=dict)

    def configuration(self) -> dict[str, str]:
        """The entries of the table's configuration."""
        entries: dict[str, str] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name == "roots" or value in (None, "", (), {}):
                continue
            entries[PREFIX + each.name] = value if isinstance(value, str) else _text(value)
        for name, root in self.roots.items():
            entries[_ROOTS + name] = _text(root)
        return entries

    @classmethod
    def of(cls, snapshot: Snapshot) -> "CompanionProperties | None":
        """The properties of a table; None if it is not a companion index.

        Raises:
            SourceError: the configuration is damaged.
        """
        if not is_companion(snapshot.protocol):
            return None
        try:
            return _properties(snapshot.metadata)
        except (msgspec.MsgspecError, KeyError, TypeError, ValueError) as error:
            raise SourceError(
                f"the configuration of the companion index at {snapshot.url} cannot be understood "
                f"({type(error).__name__}: {error}); build the index again"
            ) from error

    def description(self, options: Options) -> SourceDescription:
        """The description of the source, with the table root that the options name.

        Raises:
            OptionError: there is no such root.
        """
        name = options.get(TABLE_ROOT)
        if name is not None and name not in self.roots:
            raise OptionError(
                f"there is no table root '{name}'; the roots are: {', '.join(sorted(self.roots)) or 'none'}. "
                "SET INDEXTABLES TABLE ROOT adds one"
            )
        return SourceDescription(
            self.format,
            self.location,
            self.columns,
            tuple(self.relocate.items()),
            self.allowed,
            None if name is None else self.roots[name].path,
        )

    def with_root(self, name: str, root: TableRoot) -> "CompanionProperties":
        """Add a root, or replace it."""
        if not _ROOT_NAME.fullmatch(name):
            raise OptionError(
                f"'{name}' is not the name of a table root; letters, digits, '_' and '-' are expected"
            )
        return replace(self, roots={**self.roots, name: root})

    def without_root(self, name: str) -> "CompanionProperties":
        """Remove a root."""
        return replace(self, roots={key: root for key, root in self.roots.items() if key != name})

    def metadata(self, metadata: Metadata) -> Metadata:
        """Return the metadata with these properties."""
        others = {
            key: value
            for key, value in without_registry(metadata.configuration).items()
            if not key.startswith(PREFIX)
        }
        return msgspec.structs.replace(metadata, configuration={**others, **self.configuration()})


_TYPES: dict[str, Any] = {
    "indexed": dict[str, str],
    "include": tuple[str, ...],
    "exclude": tuple[str, ...],
    "relocate": dict[str, str],
    "allowed": tuple[str, ...],
    "merge_schema": bool,
    "partition_types": dict[str, str],
    "catalog": dict[str, str],
}


def _properties(metadata: Metadata) -> CompanionProperties:
    properties = metadata.configuration or {}
    values: dict[str, Any] = {}
    for each in fields(CompanionProperties):
        text = properties.get(PREFIX + each.name)
        if text is not None:
            kind = _TYPES.get(each.name)
            values[each.name] = text if kind is None else msgspec.json.decode(text, type=kind)
    values["roots"] = {
        key.removeprefix(_ROOTS): msgspec.json.decode(text, type=TableRoot)
        for key, text in properties.items()
        if key.startswith(_ROOTS)
    }
    for name in ("format", "source", "location"):
        if name not in values:
            raise KeyError(PREFIX + name)
    return CompanionProperties(**values)


def _text(value: object) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


def refuse_companion(snapshot: Snapshot, operation: str) -> None:
    """Refuse an operation that would make a companion index differ from its source.

    Raises:
        SourceError: the table is a companion index.
    """
    properties = CompanionProperties.of(snapshot)
    if properties is not None:
        raise SourceError(
            f"{operation} is not possible for the companion index at {snapshot.url}: it has no own rows, "
            f"but those of the {properties.format} table at {properties.location}; change that table, "
            "and sync the index (BUILD INDEXTABLES COMPANION)"
        )


@dataclass(frozen=True, kw_only=True)
class SearchedTable:
    """A table of Spark that is searched by its own name.

    Attributes:
        name: the table's name, for errors.
        location: the location of the table.
        format: "delta", "iceberg" or "parquet", if Spark has it.
        zone: the time zone of the session that searches it.
        partitions: the folders and values of the partitions that a catalog lists; None if the folders that
            exist are the partitions.
    """

    name: str
    location: str
    format: str | None = None
    zone: str = "UTC"
    partitions: Sequence[tuple[str, Mapping[str, str | None]]] | None = None


def check_index_of(snapshot: Snapshot, table: SearchedTable, store: Store, options: Options) -> None:
    """Check that a table is a companion index of all files of a source, which is searched by its name.

    Args:
        snapshot: the index, which a property of the source refers to.
        table: the source.
        store: the store of the index.
        options: the options with which the index is read.

    Raises:
        SourceError: it is another table, the index of another one, that of some files only, or one that has
            other partitions than a catalog says.
    """
    properties = CompanionProperties.of(snapshot)
    if properties is None:
        raise SourceError(
            f"the table at {snapshot.url} is not a companion index, but a property of {table.name} names it; "
            "build one (BUILD INDEXTABLES COMPANION), or change the property"
        )
    problem = _mismatch(snapshot, properties, table)
    if problem is None and table.partitions is not None:
        folders = _covered_folders(snapshot, properties, store, options)
        problem = _partition_mismatch(properties, table.partitions, folders)
    if problem is not None:
        raise SourceError(
            f"{table.name} at {table.location} cannot be searched by the companion index at {snapshot.url}: "
            f"{problem}; search the index itself, by its path"
        )


def _mismatch(snapshot: Snapshot, properties: CompanionProperties, table: SearchedTable) -> str | None:
    """Why an index cannot be that of a table, according to the metadata of both."""
    if locate(properties.location).url != locate(table.location).url:
        return f"it is the index of the table at {properties.location}"
    if table.format is not None and table.format != properties.format:
        return f"it is the index of a table of the format {properties.format}, not {table.format}"
    if properties.where is not None:
        return f"it only has the files with {properties.where}"
    moments = [
        name for name in snapshot.partition_columns if snapshot.schema.field(name).type == UTC_TIMESTAMP
    ]
    if moments and properties.format != "iceberg" and not _is_same_zone(properties.time_zone, table.zone):
        return (
            f"it reads the partition column {moments[0]} in the time zone {properties.time_zone}, and this "
            f"session reads it in {table.zone} (spark.sql.session.timeZone); set that zone, or build the "
            f"index again with TIME ZONE '{table.zone}'"
        )
    return None


def _is_same_zone(one: str, other: str) -> bool:
    return one == other or (is_utc(one) and is_utc(other))


def _covered_folders(
    snapshot: Snapshot, properties: CompanionProperties, store: Store, options: Options
) -> set[str]:
    """The folders, relative to the source, with the files that are in the index."""
    if options.get(FRESHNESS) == LATEST:
        source = open_companion_source(store, properties, options)
        names = [relative_path(file.url, source.url) for file in source.files]
    else:
        names = [
            content.partition("\n")[0].rpartition("#")[0]
            for contents in snapshot.files()["companionSourceFiles"].to_pylist()
            for content in contents or ()
        ]
    return {name.rpartition("/")[0] for name in names}


def _partition_mismatch(
    properties: CompanionProperties,
    partitions: Sequence[tuple[str, Mapping[str, str | None]]],
    folders: set[str],
) -> str | None:
    """How the partitions of a catalog differ from the folders that an index covers."""
    partition_folders = set()
    base = locate(properties.location).url
    for path, values in partitions:
        folder = relative_path(locate(path).url, base)
        folder_texts = {name.lower(): text for name, text in folder_values(folder)}
        own = {
            name.lower(): NULL_PARTITION if text is None or text == "" else text
            for name, text in values.items()
        }
        if folder_texts != own:
            shown = ", ".join(f"{name}={text}" for name, text in values.items())
            return f"the partition {shown} of the catalog is at {path}, which is not its folder in the table"
        partition_folders.add(folder)
    if missing := sorted(folders - partition_folders):
        return (
            f"the catalog has no partition for the folder {missing[0] or '.'}; MSCK REPAIR TABLE adds it, or "
            "delete its files"
        )
    return None


def open_companion_source(
    store: Store,
    properties: CompanionProperties,
    options: Options,
    version: int | str | datetime | None = None,
) -> SourceSnapshot:
    """Open the source of a companion index at a version, by default its newest.

    The newest metadata file of an Iceberg table is that of its catalog, or of the option
    `companion.sourceMetadataFile`.
    """
    location, metadata_file = properties.source, options.get(METADATA_FILE)
    if metadata_file is not None and properties.format == "iceberg":
        location = properties.location
    elif properties.catalog:
        location, metadata_file = catalog_table(properties.catalog, properties.source, options)
    else:
        metadata_file = None
    return open_source(
        properties.format,
        location,
        options,
        metadata_file=metadata_file,
        version=version,
        open_base=store.source_store,
        relocate=properties.relocate,
        allowed_locations=properties.allowed,
        time_zone=properties.time_zone,
        merge_schema=properties.merge_schema,
        schema_file=properties.schema_file,
        partition_types=properties.partition_types,
    )


def source_files(source: SourceSnapshot, where: str | None) -> list[SourceFile]:
    """The files of a source that meet a condition on its partition columns.

    Raises:
        CommandError: the condition names another column.
    """
    if where is None or not source.files:
        return list(source.files)
    condition = parse_condition(where, source.schema)
    partitions = {name.lower(): name for name in source.partition_columns}
    names = [column.path[0] for column in columns_of(condition)]
    others = [name for name in names if name.lower() not in partitions]
    if others or has_search(condition):
        raise CommandError(
            f"the condition {where!r} may only compare partition columns of the source with values; its "
            f"partition columns are: {', '.join(source.partition_columns) or 'none'}"
        )
    needed = list(dict.fromkeys(partitions[name.lower()] for name in names))
    for file in source.files:
        if missing := [name for name in needed if name not in file.partition]:
            raise SourceError(
                f"the source file {file.url} has no partition value of {missing[0]}, as it was written "
                "before the source was partitioned by it; leave the condition out"
            )
    columns = [
        pa.array([file.partition[name] for file in source.files], source.schema.field(name).type)
        for name in needed
    ]
    rows = (
        pa.RecordBatch.from_arrays(columns, names=needed)
        if needed
        else pa.RecordBatch.from_struct_array(pa.nulls(len(source.files), pa.struct([])))
    )
    met = evaluate(condition, rows).fill_null(False).to_pylist()
    return [file for file, is_met in zip(source.files, met, strict=True) if is_met]


def field_mapping(
    schema: pa.Schema,
    indexing: Mapping[str, str],
    properties: CompanionProperties,
    partitions: tuple[str, ...],
) -> FieldMapping:
    """The fields of the columns; columns that are not included, or are excluded, have none."""
    chosen = {name.lower() for name in properties.include or properties.exclude}
    left_out = [
        name
        for name in schema.names
        if (name.lower() in chosen) != bool(properties.include) and chosen and name not in partitions
    ]
    effective = Options(indexing)
    if left_out:
        names = dict.fromkeys([*effective.get(STORE_ONLY_FIELDS), *left_out])
        effective = Options({**indexing, STORE_ONLY_FIELDS.key.lower(): ",".join(names)})
    return mapping_for(schema, effective, partitions)


def set_root(log: TransactionLog, name: str, path: str) -> str:
    """Add or change a table root; returns a sentence about the change.

    Raises:
        OptionError: the name has other characters than letters, digits, '_' and '-'.
        SourceError: the table is not a companion index.
    """
    root = TableRoot(locate(path).url, local_time_ms())
    _change_properties(log, "SET TABLE ROOT", lambda old: old.with_root(name, root))
    return f"the table root '{name}' is {root.path}"


def set_roots(log: TransactionLog, roots: Mapping[str, str]) -> None:
    """Set several roots."""
    for name, path in roots.items():
        set_root(log, name, path)


def unset_root(log: TransactionLog, name: str) -> str:
    """Remove a table root; returns a sentence about the change."""
    removed = _change_properties(log, "UNSET TABLE ROOT", lambda old: old.without_root(name))
    return f"the table root '{name}' was removed" if removed else f"there is no table root '{name}'"


def table_roots(log: TransactionLog) -> dict[str, TableRoot]:
    """The table roots, sorted by name."""
    properties = CompanionProperties.of(log.snapshot())
    if properties is None:
        raise _not_a_companion(log)
    return dict(sorted(properties.roots.items()))


def _change_properties(
    log: TransactionLog, operation: str, change: Callable[[CompanionProperties], CompanionProperties]
) -> bool:
    """Commit a change of the properties; after a conflict it is applied to the newest properties."""
    attempts = log.options.get(opt.RETRY_ATTEMPTS)
    for attempt in range(1, attempts + 1):
        snapshot = log.snapshot()
        old = CompanionProperties.of(snapshot)
        if old is None:
            raise _not_a_companion(log)
        log.check_writable(snapshot)
        new = change(old)
        if new == old:
            return False
        try:
            log.commit(Draft(operation=operation, metadata=new.metadata(snapshot.metadata)), snapshot)
        except CommitConflictError:
            if attempt == attempts:
                raise
        else:
            return True
    raise AssertionError("there is at least one attempt")


def _not_a_companion(log: TransactionLog) -> SourceError:
    return SourceError(
        f"the table at {log.store.url} is not a companion index, so it has no table roots; "
        "BUILD INDEXTABLES COMPANION builds one"
    )
