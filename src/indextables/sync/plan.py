"""Plans a sync: which source files are indexed, and which splits are removed."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime

import pyarrow as pa

from indextables.errors import OptionError, SourceError, TableNotFoundError
from indextables.log.conflict import without_registry
from indextables.log.environment import local_time_ms
from indextables.log.format.actions import Format, Metadata, Remove
from indextables.log.format.files import removes_of
from indextables.log.snapshot import Snapshot, SnapshotKey
from indextables.log.transaction_log import TransactionLog
from indextables.options import Options
from indextables.options.maintenance import TARGET_INPUT_SIZE
from indextables.options.writing import (
    FAST_FIELDS,
    INDEXING_PREFIX,
    NON_FAST_FIELDS,
    RECORD,
    STORE_ONLY_FIELDS,
    TEXT_RECORD,
    TOKEN_LENGTH,
    TOKENIZER,
    TYPEMAP,
)
from indextables.records import dataclass
from indextables.schema.conversion import check_names, storage_schema
from indextables.schema.spark import from_arrow, to_arrow
from indextables.schema.type_info import UTC_TIMESTAMP, info_of, is_collated
from indextables.schema.values import format_values
from indextables.source import SourceFile, SourceReader, SourceSnapshot
from indextables.source.columns import Column, Projection
from indextables.source.companion import (
    CompanionProperties,
    field_mapping,
    open_companion_source,
    source_files,
)
from indextables.source.description import column_identities, content_name, encode_columns
from indextables.source.reader import FORMATS, METADATA_FILES
from indextables.split.mapping import Mapping as FieldMapping
from indextables.split.mapping import check_address_types
from indextables.store.location import locate
from indextables.table_properties import indexing_properties

_DELTA_LOG = "_delta_log"
_ICEBERG_METADATA = "metadata"
_SHOWN_COLUMNS = 20
# This many splits of one partition and of similar size are merged into one.
_SMALL_SPLITS = 8
# Keys of indexing options that end with a column or have columns as their value.
_FAMILIES = tuple(f"{each.key.lower()}." for each in (TYPEMAP, TOKENIZER, RECORD, TOKEN_LENGTH))
_LISTS = tuple(each.key.lower() for each in (FAST_FIELDS, NON_FAST_FIELDS, STORE_ONLY_FIELDS))
# A new index has no positions of words, which are a sixth of it: phrases are checked on the source's rows.
_DEFAULTS = {TEXT_RECORD.key.lower(): "freq"}


@dataclass(frozen=True, kw_only=True)
class SyncRequest:
    """The request of a sync; fields that are None have the value of the last sync.

    Attributes:
        source: the source's folder; for an Iceberg table a metadata file too.
        format: "delta", "iceberg" or "parquet"; None to detect it.
        version: the version to index: a number, an id, a name or a time; None for the newest.
        where: a condition on partition columns: only files that meet it are indexed.
        include: the columns to index.
        exclude: columns not to index.
        rebuild: index all files again.
        dry_run: change nothing.
        relocate: prefixes of recorded paths, with the places where those files are now.
        allowed_locations: other locations that recorded paths may refer to.
        time_zone: Spark's time zone for partition values without a zone.
        merge_schema: folders: whether to merge the schemas of all files.
        schema_file: folders: a file whose columns are the table's.
        partition_types: folders: types of partition columns, by column; `*` means all others.
        catalog: the name, type and warehouse of the Iceberg catalog of the source, whose name in that
            catalog `source` is.
        default_time_zone: the time zone of a new index, if none is given.
        default_partition_types: the types of partition columns of a new index of a folder, if none are given.
    """

    source: str
    format: str | None = None
    version: int | str | datetime | None = None
    where: str | None = None
    include: tuple[str, ...] | None = None
    exclude: tuple[str, ...] | None = None
    rebuild: bool = False
    dry_run: bool = False
    relocate: Mapping[str, str] | None = None
    allowed_locations: tuple[str, ...] | None = None
    time_zone: str | None = None
    merge_schema: bool | None = None
    schema_file: str | None = None
    partition_types: Mapping[str, str] | None = None
    catalog: Mapping[str, str] | None = None
    default_time_zone: str = "UTC"
    default_partition_types: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SourceGroup:
    """Source files of one partition that are indexed as one split."""

    files: tuple[SourceFile, ...]
    partition_values: Mapping[str, str | None]
    contents: tuple[str, ...]

    @property
    def bytes(self) -> int:
        """The size of the files."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True, kw_only=True)
class SyncPlan:
    """A sync between its plan and its commit; picklable, without secrets.

    Attributes:
        base: the version of the index from which it was planned; None if there is no index yet.
        properties: those of the index after the sync.
        metadata: that of the index after the sync.
        schema: the columns of the index.
        mapping: the fields of the columns.
        splits: the splits to build.
        removes: the splits to remove from the index.
        options: indexing options of the build, without secrets.
        unchanged: whether the index is up to date.
        notes: messages for the user.
    """

    base: SnapshotKey | None
    properties: CompanionProperties
    metadata: Metadata
    schema: pa.Schema
    partition_columns: tuple[str, ...]
    mapping: FieldMapping
    splits: tuple[SourceGroup, ...]
    removes: tuple[Remove, ...]
    options: Options
    unchanged: bool
    notes: tuple[str, ...] = ()
    source_version: int | str | None = None


def existing_index(log: TransactionLog) -> Snapshot | None:
    """The newest version of the index, or None if there is no table yet."""
    try:
        return log.snapshot()
    except TableNotFoundError:
        return None


def plan_sync(log: TransactionLog, request: SyncRequest, options: Options) -> SyncPlan:
    """Compare a source with its index.

    Raises:
        SourceError: there is another table at the location of the index, or the source cannot be read
            exactly.
        OptionError: the columns or options of the request do not fit the source.
    """
    snapshot = existing_index(log)
    before = _properties(snapshot)
    merged = _properties_after(log, before, request)
    source = open_companion_source(log.store, merged, options, request.version)
    return _Planner(log, snapshot, before, merged, source, request, options).plan()


def _properties(snapshot: Snapshot | None) -> CompanionProperties | None:
    if snapshot is None:
        return None
    properties = CompanionProperties.of(snapshot)
    if properties is None:
        raise SourceError(
            f"there is a table at {snapshot.url} that is not a companion index; choose another location for "
            "the index"
        )
    return properties


def _properties_after(
    log: TransactionLog, before: CompanionProperties | None, request: SyncRequest
) -> CompanionProperties:
    """The properties of the index after the sync, without those that come from the source."""
    catalog = _catalog(before, request)
    source = request.source if catalog else locate(request.source).url
    recorded = "iceberg" if catalog else before.format if before else None
    kind = (request.format or recorded or _detect_format(log, source)).lower()
    if kind not in FORMATS:
        raise OptionError(f"{kind!r} is not a format of sources; expected one of {', '.join(FORMATS)}")
    if catalog and kind != "iceberg":
        raise OptionError(f"a catalog is for sources of the format iceberg only, not for {kind}")
    if before is not None and (before.format, _folder(before.source)) != (kind, _folder(source)):
        raise SourceError(
            f"the companion index at {log.store.url} is that of the {before.format} table at "
            f"{before.source}, not of the {kind} table at {source}; choose another location for the index"
        )
    old = before or CompanionProperties(
        format=kind,
        source=source,
        location=source,
        time_zone=request.default_time_zone,
        partition_types=dict(request.default_partition_types) if kind == "parquet" else {},
    )
    types = old.partition_types if request.partition_types is None else dict(request.partition_types)
    if types and kind != "parquet":
        raise OptionError(f"types of partition columns are for folders of Parquet files only, not for {kind}")
    include = old.include if request.include is None else request.include
    exclude = old.exclude if request.exclude is None else request.exclude
    if include and exclude:
        raise OptionError("columns are included or excluded, not both; give one of the lists")
    return replace(
        old,
        source=source,
        where=old.where if request.where is None else request.where,
        include=include,
        exclude=exclude,
        relocate=old.relocate if request.relocate is None else dict(request.relocate),
        allowed=old.allowed if request.allowed_locations is None else request.allowed_locations,
        time_zone=old.time_zone if request.time_zone is None else request.time_zone,
        merge_schema=old.merge_schema if request.merge_schema is None else request.merge_schema,
        schema_file=old.schema_file if request.schema_file is None else request.schema_file,
        partition_types=types,
        catalog=catalog,
    )


def _catalog(before: CompanionProperties | None, request: SyncRequest) -> Mapping[str, str]:
    """The catalog of a source; that of the last sync, if the source has the same name."""
    if request.catalog is not None:
        return dict(request.catalog)
    return before.catalog if before is not None and before.source == request.source else {}


def _folder(source: str) -> str:
    """The folder of a source, which of an Iceberg table may be given by a metadata file."""
    return source.rpartition("/metadata/")[0] or source if source.endswith(METADATA_FILES) else source


def _detect_format(log: TransactionLog, source: str) -> str:
    """The format of the table at a place."""
    if source.endswith(METADATA_FILES):
        return "iceberg"
    objects, folders = log.store.source_store(source).list_folder()
    if _DELTA_LOG in folders:
        return "delta"
    if _ICEBERG_METADATA in folders and not any(info.path.endswith(".parquet") for info in objects):
        return "iceberg"
    return "parquet"


class _Planner:
    """Compares one snapshot of a source with one of its index."""

    def __init__(
        self,
        log: TransactionLog,
        snapshot: Snapshot | None,
        before: CompanionProperties | None,
        merged: CompanionProperties,
        source: SourceSnapshot,
        request: SyncRequest,
        options: Options,
    ) -> None:
        self._log = log
        self._snapshot = snapshot
        self._before = before
        self._properties_after = merged
        self._source = source
        self._request = request
        self._options = options
        self._reader = SourceReader(source)
        self._notes: list[str] = []

    def plan(self) -> SyncPlan:
        source = self._source
        schema = _table_schema(source)
        files = source_files(source, self._properties_after.where)
        partitions = _partition_columns(source, files)
        indexing, mapping = self._mapping(schema, partitions)
        identities = column_identities(source)
        stale = self._stale_reason(partitions, mapping, identities)
        if stale:
            self._notes.append(f"all files are indexed again: {stale}")
        file_list = None if self._snapshot is None else self._snapshot.files()
        remaining: set[str] = set()
        removals: list[bool] = []
        current = {content_name(file, source.url): file for file in files}
        if file_list is not None:
            added_columns = self._added_columns(identities)
            for contents in file_list["companionSourceFiles"].to_pylist():
                stays = (
                    not stale
                    and all(content in current for content in contents or ())
                    and not self._have_values(added_columns, [current[content] for content in contents or ()])
                )
                removals.append(not stays)
            self._add_small_splits(file_list, current, removals)
            for contents, leaves in zip(file_list["companionSourceFiles"].to_pylist(), removals, strict=True):
                remaining.update(() if leaves else (contents or ()))
        pending = {content: file for content, file in current.items() if content not in remaining}
        properties = replace(
            self._properties_after,
            location=source.url,
            version=None if source.version is None else str(source.version),
            identity=source.identity,
            columns=encode_columns(source),
            indexed=identities if stale or self._before is None else {**self._before.indexed, **identities},
        )
        removes: tuple[Remove, ...] = ()
        if file_list is not None and any(removals):
            removes = removes_of(file_list.filter(pa.array(removals)), timestamp=local_time_ms())
        metadata = self._metadata(schema, partitions, indexing, properties)
        return SyncPlan(
            base=None if self._snapshot is None else self._snapshot.key,
            properties=properties,
            metadata=metadata,
            schema=schema,
            partition_columns=partitions,
            mapping=mapping,
            splits=self._splits(pending, partitions, schema),
            removes=removes,
            options=self._options.over(Options(indexing)).public(),
            unchanged=(
                self._snapshot is not None
                and not pending
                and not removes
                and _same(metadata, self._snapshot.metadata)
            ),
            notes=tuple(self._notes),
            source_version=source.version,
        )

    # --- columns ---------------------------------------------------------------------------------------

    def _mapping(self, schema: pa.Schema, partitions: tuple[str, ...]) -> tuple[dict[str, str], FieldMapping]:
        """The indexing options of the table, and the fields of its columns."""
        options = {k: v for k, v in self._options.values.items() if k.startswith(INDEXING_PREFIX)}
        table_properties = (
            _DEFAULTS if self._snapshot is None else indexing_properties(self._snapshot.metadata)
        )
        indexing = {**_still_valid(table_properties, schema), **options}
        for columns in (self._properties_after.include, self._properties_after.exclude):
            _check_columns(columns, schema)
            if own := [name for name in columns if name.lower() in {p.lower() for p in partitions}]:
                self._notes.append(f"{own[0]} is a partition column, which is not indexed in any case")
        check_address_types(schema, Options(options), partitions)
        mapping = field_mapping(schema, indexing, self._properties_after, partitions)
        if not mapping.fields:
            raise OptionError(
                "no column is left to be indexed; include one, or exclude fewer. A partition column is not "
                "indexed, as its value is known for each split"
            )
        return dict(sorted(indexing.items())), mapping

    def _stale_reason(
        self, partitions: tuple[str, ...], mapping: FieldMapping, identities: Mapping[str, str]
    ) -> str:
        """Why all splits of the index have to be rebuilt; empty if they are still valid."""
        if self._snapshot is None or self._before is None or self._before.version is None:
            return ""
        if self._request.rebuild:
            return "a rebuild was requested"
        if self._before.identity != self._source.identity:
            return "the source was replaced by another table"
        if self._snapshot.partition_columns != partitions:
            return "the source is partitioned by other columns"
        if self._before.time_zone != self._properties_after.time_zone and any(
            self._source.schema.field(name).type == UTC_TIMESTAMP for name in self._source.partition_columns
        ):
            return "times in partition values are read in another time zone"
        indexed = {name.lower(): (name, text) for name, text in self._before.indexed.items()}
        for name, text in identities.items():
            old = indexed.get(name.lower())
            if old is not None and old != (name, text):
                return f"the column {name} was renamed, replaced, or has another type"
        before = field_mapping(
            self._snapshot.schema, indexing_properties(self._snapshot.metadata), self._before, partitions
        )
        for column in self._snapshot.schema.names:
            if column in identities and before.fields_of(column) != mapping.fields_of(column):
                return f"the column {column} is indexed in another way"
        return ""

    def _added_columns(self, identities: Mapping[str, str]) -> list[Column]:
        """Columns that some splits of the index lack: new ones, and those that the last sync did not find.

        Splits that were built while a column was away, such as one that had another name, lack it.
        """
        before: set[str] = set()
        if self._before is not None and self._snapshot is not None:
            before = set(self._before.indexed) & set(self._snapshot.schema.names)
        return [each for each in self._source.columns if each.field.name in identities.keys() - before]

    def _have_values(self, columns: Sequence[Column], files: Iterable[SourceFile]) -> bool:
        """Whether columns that were added to the source have values in files that were indexed before."""
        for file in files if columns else ():
            opened = self._reader.open(file)
            names = self._source.field_ids(opened.schema, opened.url)
            if any(
                each.default is not None
                or each.field.name in file.partition
                or Projection(opened, [each], names=names).columns
                for each in columns
            ):
                return True
        return False

    # --- splits ----------------------------------------------------------------------------------------

    def _add_small_splits(
        self, file_list: pa.Table, current: Mapping[str, SourceFile], removals: list[bool]
    ) -> None:
        """Mark many small splits of one partition and similar size as removed, to rebuild them as one split.

        Each sync adds splits, and a search opens all of them.
        """
        target = self._options.get(TARGET_INPUT_SIZE)
        tiers: dict[tuple[object, int], list[int]] = {}
        rows = zip(
            file_list["companionSourceFiles"].to_pylist(),
            file_list["partitionValues"].to_pylist(),
            strict=True,
        )
        for number, (contents, values) in enumerate(rows):
            size = sum(current[content].size for content in contents or () if content in current)
            if not removals[number] and size * _SMALL_SPLITS <= target:
                tiers.setdefault((tuple(values or ()), size.bit_length() // 3), []).append(number)
        for numbers in tiers.values():
            if len(numbers) >= _SMALL_SPLITS:
                for number in numbers:
                    removals[number] = True

    def _splits(
        self, pending: Mapping[str, SourceFile], partitions: tuple[str, ...], schema: pa.Schema
    ) -> tuple[SourceGroup, ...]:
        """Group the files of each partition, up to the target size."""
        target = self._options.get(TARGET_INPUT_SIZE)
        texts = {
            name: format_values(
                pa.array([file.partition[name] for file in pending.values()], schema.field(name).type),
                partition=True,
            ).to_pylist()
            for name in partitions
        }
        open_groups: dict[tuple[str | None, ...], list[tuple[str, SourceFile]]] = {}
        splits: list[SourceGroup] = []

        def close(values: tuple[str | None, ...]) -> None:
            group = open_groups.pop(values)
            partition_values = dict(zip(partitions, values, strict=True))
            files = tuple(replace(file, statistics={}) for _, file in group)
            splits.append(SourceGroup(files, partition_values, tuple(content for content, _ in group)))

        for number, (content, file) in enumerate(pending.items()):
            values = tuple(texts[name][number] for name in partitions)
            group = open_groups.setdefault(values, [])
            if group and sum(each.size for _, each in group) + file.size > target:
                close(values)
                group = open_groups.setdefault(values, [])
            group.append((content, file))
        for values in list(open_groups):
            close(values)
        return tuple(splits)

    def _metadata(
        self,
        schema: pa.Schema,
        partitions: tuple[str, ...],
        indexing: Mapping[str, str],
        properties: CompanionProperties,
    ) -> Metadata:
        old = None if self._snapshot is None else self._snapshot.metadata
        return Metadata(
            id=str(uuid.uuid4()) if old is None else old.id,
            schema_string=from_arrow(schema),
            partition_columns=list(partitions),
            format=Format(),
            configuration={**indexing, **properties.configuration()},
            created_time=local_time_ms() if old is None else old.created_time,
            name=None if old is None else old.name,
            description=None if old is None else old.description,
        )


def _table_schema(source: SourceSnapshot) -> pa.Schema:
    """The columns of the index: those of the source, in the types of the log."""
    schema = pa.schema([field.with_nullable(True) for field in storage_schema(source.schema)])
    check_names(schema)
    return to_arrow(from_arrow(schema))


def _partition_columns(source: SourceSnapshot, files: Sequence[SourceFile]) -> tuple[str, ...]:
    """The partition columns of the source that splits can have and for which every file has a value."""
    return tuple(
        name
        for name in source.partition_columns
        if info_of(source.schema.field(name).type).partitionable
        and not is_collated(source.schema.field(name))
        and all(name in file.partition for file in files)
        and len(source.schema) > len(source.partition_columns)
    )


def _check_columns(names: Sequence[str], schema: pa.Schema) -> None:
    lowered = [name.lower() for name in names]
    if len(set(lowered)) != len(lowered):
        raise OptionError(f"a column is named twice: {', '.join(names)}; name each once")
    columns = {name.lower() for name in schema.names}
    if unknown := [name for name in names if name.lower() not in columns]:
        more = len(schema.names) - _SHOWN_COLUMNS
        raise OptionError(
            f"the source has no column '{unknown[0]}'; its columns are: "
            + ", ".join(schema.names[:_SHOWN_COLUMNS])
            + (f" and {more} more" if more > 0 else "")
        )


def _still_valid(indexing: Mapping[str, str], schema: pa.Schema) -> dict[str, str]:
    """Indexing options of an earlier sync, without columns that the source lacks now."""
    columns = {name.lower() for name in schema.names}

    def present(text: str) -> str:
        return ",".join(name for name in text.split(",") if name.strip().lower() in columns)

    reasons: dict[str, str] = {}
    for key, text in indexing.items():
        family = next((each for each in _FAMILIES if key.startswith(each)), None)
        if (family is not None and key.removeprefix(family) not in columns) or key in _LISTS:
            if columns_text := present(text):
                reasons[key] = columns_text
        else:
            reasons[key] = text
    return reasons


def _same(one: Metadata, other: Metadata) -> bool:
    return (
        one.schema_string == other.schema_string
        and (one.partition_columns or []) == (other.partition_columns or [])
        and without_registry(one.configuration) == without_registry(other.configuration)
    )
