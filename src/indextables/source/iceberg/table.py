"""An Iceberg table at a snapshot, as a source.

pyiceberg reads the table's metadata and manifests; this package reads data files and deletes
(docs/decisions).
"""

import re
import struct
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyiceberg.avro.file import AvroFile
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import (
    MANIFEST_ENTRY_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    read_manifest_list,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromInputFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import MappedField, parse_mapping_from_json
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import IdentityTransform, VoidTransform
from pyiceberg.types import (
    DateType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from indextables.errors import IndexTablesError, SourceError, SourceNotFoundError, UnsupportedSourceError
from indextables.source.columns import Column
from indextables.source.iceberg.deletes import DeleteIndex, DeleteReader, IcebergDeletes, PartitionKey
from indextables.source.iceberg.metadata import StoreIO, arrow_schema, columns_by_id
from indextables.source.locations import Locations
from indextables.source.snapshot import ColumnStatistics, SourceFile, SourceSnapshot
from indextables.store import Store

_METADATA_NAME = re.compile(r"v(\d+)(?:\.gz)?\.metadata\.json(?:\.gz)?")
_CATALOG_NAME = re.compile(r"(\d+)-[0-9a-fA-F-]{36}(?:\.gz)?\.metadata\.json(?:\.gz)?")
_HINT = "metadata/version-hint.text"
_V3 = 3
_BOUNDED = (IntegerType, LongType, DateType, TimestampType, TimestamptzType, StringType)


def open_iceberg(
    locations: Locations, metadata_file: str | None = None, version: int | str | datetime | None = None
) -> SourceSnapshot:
    """The Iceberg table at a location.

    Args:
        locations: the table's folder.
        metadata_file: the recorded path of the metadata file; by default the newest of the folder, which must
            be a table of a Hadoop catalog.
        version: a snapshot's id, the name of a branch or tag, or a time; by default the current snapshot.
    """
    path = metadata_file or newest_metadata(locations.store)
    try:
        return _open(locations, path, version)
    except IndexTablesError:
        raise
    except (ValueError, LookupError, TypeError, OSError, AttributeError, EOFError) as error:
        raise SourceError(
            f"the Iceberg table at {locations.url} cannot be read ({type(error).__name__}: {error}); its "
            "metadata is damaged, or of a version that pyiceberg does not support"
        ) from error


def newest_metadata(store: Store) -> str:
    """The newest metadata file of a table of a Hadoop catalog, relative to its folder."""
    objects, _ = store.list_folder("metadata")
    names = [info.path.rpartition("/")[2] for info in objects]
    versions = {int(match[1]): name for name in names if (match := _METADATA_NAME.fullmatch(name))}
    if not versions:
        newest = max(
            ((int(match[1]), name) for name in names if (match := _CATALOG_NAME.fullmatch(name))),
            default=None,
        )
        if newest is not None:
            raise SourceNotFoundError(
                f"the Iceberg table at {store.url} belongs to a catalog, which has the path of its current "
                f"metadata file; give the catalog, or a metadata file such as metadata/{newest[1]}"
            )
        raise SourceNotFoundError(
            f"no Iceberg table at {store.url}: it has no metadata folder with a version"
        )
    version = max(versions)
    if _HINT in {info.path for info in objects}:
        hint = store.get(_HINT).decode(errors="replace").strip()
        # As in Iceberg: the version of the hint, and versions directly after it.
        if hint.isdigit() and int(hint) in versions:
            version = int(hint)
            while version + 1 in versions:
                version += 1
    return f"metadata/{versions[version]}"


def _open(locations: Locations, path: str, version: int | str | datetime | None) -> SourceSnapshot:
    io = StoreIO(locations)
    metadata = FromInputFile.table_metadata(io.new_input(path))
    if metadata.format_version > _V3:
        raise UnsupportedSourceError(
            f"format version {metadata.format_version} of Iceberg", f"{locations.url} has it"
        )
    snapshot, schema = _select(metadata, version, locations.url)
    columns = columns_by_id(schema)
    specs = metadata.specs()
    files: list[SourceFile] = []
    if snapshot is not None:
        files = list(_Files(locations, io, snapshot, specs, schema, columns))
    identity_ids = _identity_ids(specs.get(metadata.default_spec_id))
    mapping = metadata.properties.get("schema.name-mapping.default")
    return SourceSnapshot(
        "iceberg",
        locations.url,
        None if snapshot is None else snapshot.snapshot_id,
        str(metadata.table_uuid),
        arrow_schema(schema),
        tuple(each.field.name for each in columns if each.key in identity_ids),
        files,
        columns,
        locations,
        None if snapshot is None else snapshot.timestamp_ms,
        None,
        metadata.properties.get("comment"),
        metadata.properties,
        None if mapping is None else dict(_mapped_names(parse_mapping_from_json(mapping), "")),
    )


def _select(
    metadata: TableMetadata, version: int | str | datetime | None, url: str
) -> tuple[Snapshot | None, Schema]:
    """The snapshot of a version, and the schema under which Spark reads it."""
    if version is None:
        return metadata.current_snapshot(), metadata.schema()
    if isinstance(version, str) and version not in metadata.refs and version.isdigit():
        version = int(version)
    if isinstance(version, str):
        reference = metadata.refs.get(version)
        if reference is None:
            raise SourceNotFoundError(
                f"the Iceberg table at {url} has no branch or tag {version!r}; "
                f"it has {', '.join(metadata.refs) or 'none'}"
            )
        snapshot = metadata.snapshot_by_id(reference.snapshot_id)
        if snapshot is None:
            raise SourceNotFoundError(f"the snapshot of {version!r} of {url} was removed")
        # A branch is read with the table's schema, a tag with that of its snapshot.
        is_branch = reference.snapshot_ref_type.value == "branch"
        return snapshot, metadata.schema() if is_branch else _snapshot_schema(metadata, snapshot)
    if isinstance(version, datetime):
        moment = int(version.timestamp() * 1000)
        log = [entry for entry in metadata.snapshot_log if entry.timestamp_ms <= moment]
        if not log:
            raise SourceNotFoundError(f"the Iceberg table at {url} has no snapshot at or before {version}")
        version = log[-1].snapshot_id
    snapshot = metadata.snapshot_by_id(version)
    if snapshot is None:
        snapshot_ids = ", ".join(str(each.snapshot_id) for each in metadata.snapshots[-20:])
        raise SourceNotFoundError(
            f"the Iceberg table at {url} has no snapshot {version}; the last are {snapshot_ids}"
        )
    return snapshot, _snapshot_schema(metadata, snapshot)


def _snapshot_schema(metadata: TableMetadata, snapshot: Snapshot) -> Schema:
    if snapshot.schema_id is None:
        return metadata.schema()
    schema = metadata.schema_by_id(snapshot.schema_id)
    if schema is None:
        raise SourceError(f"the schema {snapshot.schema_id} of snapshot {snapshot.snapshot_id} is missing")
    return schema


def _mapped_names(fields: Any, path: str) -> Iterator[tuple[str, int]]:  # noqa: ANN401 - a mapping or a list
    field: MappedField
    for field in fields:
        for name in field.names:
            if field.field_id is not None:
                yield f"{path}{name}", field.field_id
            yield from _mapped_names(field.fields, f"{path}{name}.")


def _identity_ids(spec: PartitionSpec | None) -> set[int]:
    if spec is None:
        return set()
    return {field.source_id for field in spec.fields if isinstance(field.transform, IdentityTransform)}


def _is_partitioned(spec: PartitionSpec) -> bool:
    """Whether files of a spec have partitions, as in Iceberg: fields that were removed make none."""
    return any(not isinstance(field.transform, VoidTransform) for field in spec.fields)


class _Files:
    """The data files of a snapshot, each with the deletes that apply to it."""

    def __init__(
        self,
        locations: Locations,
        io: StoreIO,
        snapshot: Snapshot,
        specs: Mapping[int, PartitionSpec],
        schema: Schema,
        columns: tuple[Column, ...],
    ) -> None:
        self._locations = locations
        self._io = io
        self._specs = specs
        self._schema = schema
        self._columns = {each.key: each for each in columns}
        self._deletes = DeleteIndex()
        self._reader = DeleteReader(columns)
        if not snapshot.manifest_list:
            raise UnsupportedSourceError(
                "a snapshot without a manifest list (Iceberg's first format)", f"{locations.url} has one"
            )
        self._manifests = list(read_manifest_list(io.new_input(snapshot.manifest_list)))

    def __iter__(self) -> Iterator[SourceFile]:
        for manifest in self._manifests:
            if manifest.content == ManifestContent.DELETES:
                for entry, sequence, key in self._entries(manifest):
                    partitioned = _is_partitioned(self._specs[manifest.partition_spec_id])
                    self._deletes.add(entry.data_file, sequence, key, partitioned=partitioned)
        for manifest in self._manifests:
            if manifest.content == ManifestContent.DATA:
                for entry, sequence, key in self._entries(manifest):
                    yield self._file(entry.data_file, sequence, key, manifest.partition_spec_id)

    def _entries(self, manifest: ManifestFile) -> Iterator[tuple[ManifestEntry, int, PartitionKey]]:
        if manifest.partition_spec_id not in self._specs:
            raise SourceError(f"the partition spec {manifest.partition_spec_id} of a manifest is missing")
        with AvroFile[ManifestEntry](
            self._io.new_input(manifest.manifest_path),
            MANIFEST_ENTRY_SCHEMAS[_V3],
            read_types={-1: ManifestEntry, 2: DataFile},
            read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
        ) as entries:
            for entry in entries:
                if entry.status == ManifestEntryStatus.DELETED:
                    continue
                sequence = entry.sequence_number
                if sequence is None:
                    if entry.status != ManifestEntryStatus.ADDED and manifest.sequence_number:
                        raise SourceError(f"an entry of {manifest.manifest_path} has no sequence number")
                    sequence = manifest.sequence_number or 0
                values = tuple(entry.data_file.partition[i] for i in range(len(entry.data_file.partition)))
                yield entry, sequence, (manifest.partition_spec_id, values)

    def _file(self, file: DataFile, sequence: int, key: PartitionKey, spec_id: int) -> SourceFile:
        if file.file_format is not FileFormat.PARQUET:
            raise UnsupportedSourceError(
                f"a data file in {file.file_format.name}",
                f"{file.file_path} is one",
                remedy="rewrite the table's data files in Parquet",
            )
        if file.key_metadata:
            raise UnsupportedSourceError("encryption of Iceberg tables", f"{file.file_path} is encrypted")
        url = self._locations.resolve(file.file_path, encoded=False).url
        constants: dict[int, Any] = {}
        partition: dict[str, Any] = {}
        for field, value in zip(self._specs[spec_id].fields, key[1], strict=True):
            column = self._columns.get(field.source_id)
            if column is not None and isinstance(field.transform, IdentityTransform):
                scalar = pa.scalar(
                    str(value) if column.uuid and value is not None else value, column.field.type
                )
                constants[field.source_id] = scalar
                partition[column.field.name] = scalar
        deletes = self._deletes.of(file.file_path, sequence, key)
        for each in deletes:
            self._reader.check(each, url)
        return SourceFile(
            url,
            file.file_size_in_bytes,
            url,
            file.record_count,
            partition,
            constants,
            dict(self._statistics(file)),
            IcebergDeletes(file.file_path, tuple(deletes), self._reader) if deletes else None,
        )

    def _statistics(self, file: DataFile) -> Iterator[tuple[str, ColumnStatistics]]:
        nulls, low, high = file.null_value_counts or {}, file.lower_bounds or {}, file.upper_bounds or {}
        for field in self._schema.fields:
            number, kind = field.field_id, field.field_type
            if number not in nulls and number not in low:
                continue
            column = self._columns[number]
            minimum = _bound(low.get(number), kind, column.field.type)
            maximum = _bound(high.get(number), kind, column.field.type)
            yield field.name, ColumnStatistics(minimum, maximum, nulls.get(number))


def _bound(data: bytes | None, kind: Any, arrow: pa.DataType) -> pa.Scalar | None:  # noqa: ANN401 - a type
    if data is None or not isinstance(kind, _BOUNDED):
        return None
    if isinstance(kind, LongType) and len(data) == 4:
        kind = IntegerType()  # the column was an int when the file was written
    assert isinstance(kind, PrimitiveType)
    try:
        return pa.scalar(from_bytes(kind, data), arrow)
    except (ValueError, TypeError, struct.error, pa.ArrowException):
        return None  # such as the date of a column that is a timestamp now
