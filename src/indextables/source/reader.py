"""Opens sources, and reads rows of their files as Spark does: all of a file, or those at some positions."""

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa

from indextables.cache import Cache
from indextables.errors import MissingExtraError, ObjectMissingError, SourceChangedError, SourceError
from indextables.options import Options
from indextables.schema.type_info import decode_dictionary
from indextables.source.columns import Column, Projection
from indextables.source.delta import open_delta
from indextables.source.locations import Locations
from indextables.source.parquet_file import BATCH_ROWS, FileBytes, ParquetFile
from indextables.source.parquet_folder import open_folder
from indextables.source.snapshot import SourceFile, SourceSnapshot, content_tag
from indextables.split.parquet.pages import Ints
from indextables.store import Store, open_store

# The formats of sources.
FORMATS = ("delta", "iceberg", "parquet")
# The suffixes of Iceberg's metadata files.
METADATA_FILES = (".metadata.json", ".metadata.json.gz")
# The maximum number of open files.
_OPEN_FILES = 64


def open_source(  # noqa: PLR0913 - what a source may need
    source_format: str,
    url: str,
    options: Options = Options(),  # noqa: B008 - immutable
    *,
    version: int | str | datetime | None = None,
    open_base: Callable[[str], Store] | None = None,
    relocate: Mapping[str, str] | None = None,
    allowed_locations: Sequence[str] = (),
    time_zone: str = "UTC",
    merge_schema: bool = False,
    schema_file: str | None = None,
    partition_types: Mapping[str, str] | None = None,
    metadata_file: str | None = None,
) -> SourceSnapshot:
    """Open a table at one version; data files are not read.

    Args:
        source_format: "delta", "iceberg" or "parquet".
        url: the table's folder; for an Iceberg table a metadata file too.
        options: the storage options of the source (keys, endpoints).
        version: Delta: a version's number. Iceberg: a snapshot's id, or the name of a branch or tag. Both: a
            time. By default the newest version. Folders of Parquet files have no versions.
        open_base: opens the store of a bucket, container or disk; by default with the options.
        relocate: prefixes of recorded paths, with the places where those files are now.
        allowed_locations: other buckets, containers or folders that recorded paths may refer to. A path to
            any other store is refused.
        time_zone: Spark's session time zone, for times in partition values without a zone.
        merge_schema: folders: merge the schemas of all files, as Spark's `mergeSchema`.
        schema_file: folders: a file whose columns are the table's.
        partition_types: folders: types of partition columns that are not inferred, by column in Spark's names
            of types; those of `*` are the types of all others.
        metadata_file: Iceberg: the metadata file to read, of the table at `url`.

    Raises:
        SourceNotFoundError: there is no such table, or not the version.
        UnsupportedSourceError: the table uses a feature with which it cannot be read exactly.
        SourceError: the table is damaged.
    """
    source_format = source_format.lower()
    if source_format == "iceberg" and metadata_file is None and url.endswith(METADATA_FILES):
        metadata_file, url = url, url.rpartition("/metadata/")[0] or url.rpartition("/")[0]
    opener = open_base or partial(open_store, options=options)
    locations = Locations(url, opener, relocate=relocate, allowed=allowed_locations)
    if source_format == "delta":
        if isinstance(version, str):
            raise SourceError(f"version {version!r} of a Delta table is not a number or a time")
        return open_delta(locations, version, time_zone=time_zone)
    if source_format == "iceberg":
        opened: SourceSnapshot = _iceberg().open_iceberg(locations, metadata_file, version)
        return opened
    if source_format == "parquet":
        if version is not None:
            raise SourceError(f"{url} is a folder of Parquet files, which has no versions; leave it out")
        return open_folder(
            locations,
            merge_schema=merge_schema,
            schema_file=schema_file,
            time_zone=time_zone,
            partition_types=partition_types or {},
        )
    raise SourceError(f"{source_format!r} is not a format of sources; expected one of {', '.join(FORMATS)}")


def catalog_table(catalog: Mapping[str, str], name: str, options: Options) -> tuple[str, str]:
    """The folder and the current metadata file of a table of an Iceberg catalog.

    Args:
        catalog: the catalog: its name, and perhaps its type and warehouse.
        name: the table's name in the catalog, with its namespace.
        options: `iceberg.*` options say where the catalog is, and have the credentials for it.

    Raises:
        SourceNotFoundError: the catalog has no such table.
        SourceError: the catalog does not answer.
    """
    module = _iceberg("indextables.source.iceberg.metadata")
    place: tuple[str, str] = module.table_of_catalog(catalog, name, options)
    return place


def _iceberg(module: str = "indextables.source.iceberg.table") -> ModuleType:
    """A module that reads Iceberg tables, which needs pyiceberg."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("pyiceberg", "pyroaring"):
            raise MissingExtraError("iceberg", "pyiceberg") from None
        raise


class SourceReader:
    """Reads the files of a snapshot; may be shared by threads. Caches the footers of recently used files."""

    def __init__(self, snapshot: SourceSnapshot) -> None:
        self.snapshot = snapshot
        self._open: Cache[str, ParquetFile] = Cache(_OPEN_FILES)
        self._deleted: Cache[tuple[str, str], Ints] = Cache(_OPEN_FILES)

    def count(self, file: SourceFile) -> int:
        """The number of rows of a file that are not deleted."""
        records = self.open(file).num_rows if file.records is None else file.records
        return records - len(self.deleted_positions(file))

    def deleted_positions(self, file: SourceFile) -> Ints:
        """The positions of a file's deleted rows, ascending."""
        if file.deletes is None:
            return np.empty(0, np.int64)
        positions = self._deleted.get(file.content)
        if positions is None:
            positions = file.deletes.positions(self.snapshot, file)
            self._deleted.put(file.content, positions)
        return positions

    def open(self, file: SourceFile) -> ParquetFile:
        """Open a file; SourceChangedError if it is not the file of the snapshot.

        The files of Delta and Iceberg tables never change. Those of folders may be replaced at any time, so
        they are compared whenever they are used.
        """
        place = self.snapshot.locations.resolve(file.url, encoded=False)
        if file.modified_ms is not None:
            try:
                info = place.store.head(place.path)
            except ObjectMissingError:
                raise SourceChangedError(file.url, "is not there any more") from None
            if info.size != file.size or content_tag(info) != file.etag:
                raise SourceChangedError(file.url, "was replaced")
        opened = self._open.get(file.identity)
        if opened is None:
            opened = ParquetFile(FileBytes(place, file.size))
            if file.records is not None and opened.num_rows != file.records:
                raise SourceChangedError(file.url, f"has {opened.num_rows} rows instead of {file.records}")
            self._open.put(file.identity, opened)
        return opened

    def read(
        self,
        file: SourceFile,
        columns: Sequence[str] | None = None,
        positions: Ints | None = None,
        *,
        batch_rows: int = BATCH_ROWS,
        position_column: str | None = None,
        deleted_rows: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a file, in the order of their positions.

        Args:
            file: one of the snapshot's files.
            columns: names of columns of the snapshot's schema; by default all.
            positions: ascending, distinct positions of rows in the file; by default all. Deleted rows are
                skipped.
            batch_rows: the maximum number of rows of a batch.
            position_column: the name of an additional last column with each row's position in the file.
            deleted_rows: include deleted rows.

        Raises:
            SourceChangedError: the file vanished or was replaced.
            SourceError: the file is damaged, or a column cannot be read as the table's type.
        """
        fields = self._fields(columns)
        schema = pa.schema([each.field for each in fields])
        if position_column is not None:
            schema = schema.append(pa.field(position_column, pa.int64(), nullable=False))
        file_columns = [each for each in fields if not self._is_constant(each, file)]
        opened = self.open(file)
        projection = Projection(
            opened, file_columns, names=self.snapshot.field_ids(opened.schema, opened.url)
        )
        deleted = np.empty(0, np.int64) if deleted_rows else self.deleted_positions(file)
        if positions is None:
            rows = self._scan(opened, projection, deleted, batch_rows)
        else:
            selection = _without(positions, deleted)
            if opened.is_dense(selection, projection.columns):
                rows = self._select(opened, projection, selection, batch_rows)
            else:
                rows = self._fetch(opened, projection, selection, batch_rows)
        for numbers, arrays in rows:
            values = dict(zip((each.field.name for each in file_columns), arrays, strict=True))
            final = [
                values[each.field.name]
                if each.field.name in values
                else _constant(self._constant(each, file), each.field.type, len(numbers))
                for each in fields
            ]
            if position_column is not None:
                final.append(pa.array(numbers, pa.int64()))
            if not final:
                raise SourceError("no column to read; name one, or give `position_column`")
            yield pa.RecordBatch.from_arrays(final, schema=schema)

    def _fields(self, columns: Sequence[str] | None) -> list[Column]:
        own = {each.field.name: each for each in self.snapshot.columns}
        if columns is None:
            return list(own.values())
        for name in columns:
            if name not in own:
                raise SourceError(
                    f"{self.snapshot.url} has no column {name!r}; the columns are {', '.join(own)}"
                )
        return [own[name] for name in columns]

    def _is_constant(self, column: Column, file: SourceFile) -> bool:
        return column.field.name in file.partition or column.key in file.constants

    def _constant(self, column: Column, file: SourceFile) -> Any:  # noqa: ANN401 - of the column's type
        if column.field.name in file.partition:
            return file.partition[column.field.name]
        assert isinstance(column.key, int)
        return file.constants[column.key]

    def _scan(
        self, file: ParquetFile, projection: Projection, deleted: Ints, batch_rows: int
    ) -> Iterator[tuple[Ints, list[pa.Array]]]:
        for first, batch in file.scan(projection.columns, projection.leaves, batch_rows):
            rows = batch if isinstance(batch, int) else batch.num_rows
            numbers = np.arange(first, first + rows, dtype=np.int64)
            low, high = np.searchsorted(deleted, [first, first + rows])
            arrays = [] if isinstance(batch, int) else batch.columns
            if low < high:
                keep = np.ones(rows, bool)
                keep[deleted[low:high] - first] = False
                numbers = numbers[keep]
                mask = pa.array(keep)
                arrays = [array.filter(mask) for array in arrays]
            if len(numbers):
                yield numbers, projection.build(arrays, len(numbers))

    def _select(
        self, file: ParquetFile, projection: Projection, positions: Ints, batch_rows: int
    ) -> Iterator[tuple[Ints, list[pa.Array]]]:
        """Rows at positions in most pages: selected from a scan."""
        for first, batch in file.scan(projection.columns, projection.leaves, batch_rows, coded=True):
            rows = batch if isinstance(batch, int) else batch.num_rows
            low, high = np.searchsorted(positions, [first, first + rows])
            if low == high:
                continue
            numbers = positions[low:high]
            columns = [] if isinstance(batch, int) else batch.columns
            if high - low < rows:
                places = pa.array(numbers - first)
                columns = [column.take(places) for column in columns]
            yield numbers, projection.build([decode_dictionary(column) for column in columns], len(numbers))

    def _fetch(
        self, file: ParquetFile, projection: Projection, positions: Ints, batch_rows: int
    ) -> Iterator[tuple[Ints, list[pa.Array]]]:
        step = file.batch_rows(projection.leaves, batch_rows)
        for start in range(0, len(positions), step):
            numbers = positions[start : start + step]
            fetched = file.fetch(numbers, projection.columns, projection.leaves)
            yield numbers, projection.build([_combine_chunks(each) for each in fetched], len(numbers))


def _combine_chunks(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Combine the chunks of a column."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _without(positions: Ints, deleted: Ints) -> Ints:
    positions = np.asarray(positions, np.int64)
    if len(positions) > 1 and not (np.diff(positions) > 0).all():
        raise SourceError("positions of rows must be ascending and distinct")
    if not len(deleted):
        return positions
    return positions[~np.isin(positions, deleted, assume_unique=True)]


def _constant(value: Any, kind: pa.DataType, rows: int) -> pa.Array:  # noqa: ANN401 - of the column's type
    if value is None:
        return pa.nulls(rows, kind)
    return pa.repeat(value if isinstance(value, pa.Scalar) else pa.scalar(value, kind), rows)
