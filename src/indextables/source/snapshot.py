"""A source at one version: its schema, its files, and their deleted rows."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from indextables.errors import SourceError
from indextables.records import dataclass
from indextables.source.columns import FIELD_ID, Column
from indextables.source.locations import Locations
from indextables.split.parquet.pages import Ints
from indextables.store import ObjectInfo


class ColumnStatistics(NamedTuple):
    """The reliable statistics of a column in a file, deleted rows included.

    `minimum` and `maximum` are bounds, not necessarily values of the column; None if there is no reliable
    bound. `nulls` is None if it is unknown. Floating point columns have no bounds, because bounds ignore NaN.
    """

    minimum: Any
    maximum: Any
    nulls: int | None


class RowDeletes(Protocol):
    """The deleted rows of a file; loaded on demand."""

    @property
    def identity(self) -> str:
        """An identity that differs if other rows are deleted."""
        ...

    def positions(self, snapshot: "SourceSnapshot", file: "SourceFile") -> Ints:
        """The positions of the deleted rows in their file, ascending and distinct."""
        ...


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A data file of a source.

    `identity` is the same for the same content in every snapshot of the source, and different for different
    contents, as far as the format guarantees; `deletes` is None if no rows are deleted. `records` is the
    number of physical rows if the log has it. `partition` has the typed values of the partition columns.
    `etag` and `modified_ms` are set for folders, to detect replaced files.
    """

    url: str
    size: int
    identity: str
    records: int | None = None
    partition: Mapping[str, Any] = field(default_factory=dict)
    constants: Mapping[int, Any] = field(default_factory=dict)
    statistics: Mapping[str, ColumnStatistics] = field(default_factory=dict)
    deletes: RowDeletes | None = None
    etag: str = ""
    modified_ms: int | None = None

    @property
    def content(self) -> tuple[str, str]:
        """The identity of the file and of its deleted rows."""
        return self.identity, "" if self.deletes is None else self.deletes.identity


def content_tag(info: ObjectInfo) -> str:
    """A tag that differs between contents of an object: its ETag, or its time in stores without ETags.

    Azure lists ETags without quotes, but returns them with quotes for single objects; and times with another
    precision.
    """
    return info.etag.strip('"') or str(info.modified_ms)


class FileChanges(NamedTuple):
    """The differences between the files of two snapshots.

    `redeleted` are files of both snapshots with different deleted rows, from the newer one.
    """

    added: list[SourceFile]
    removed: list[str]
    redeleted: list[SourceFile]


@dataclass(frozen=True, slots=True)
class SourceSnapshot:
    """A source at one version.

    `schema` is what Spark reads, as Arrow. `version` is the number (Delta), the snapshot's id (Iceberg) or a
    digest of the listing (folders); `identity` also differs after the table was dropped and created again.
    """

    kind: str
    url: str
    version: int | str | None
    identity: str
    schema: pa.Schema
    partition_columns: tuple[str, ...]
    files: Sequence[SourceFile]
    columns: tuple[Column, ...]
    locations: Locations
    timestamp_ms: int | None = None
    name: str | None = None
    comment: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    # Field ids for files without ids, by dotted name (Iceberg).
    name_mapping: Mapping[str, int] | None = None

    def changes_since(self, earlier: Mapping[str, str]) -> FileChanges:
        """The changes since files were indexed; `earlier` maps identities of files to those of deletes."""
        added, redeleted, current = [], [], set()
        for file in self.files:
            identity, deletes = file.content
            current.add(identity)
            if identity not in earlier:
                added.append(file)
            elif earlier[identity] != deletes:
                redeleted.append(file)
        return FileChanges(added, [each for each in earlier if each not in current], redeleted)

    def field_ids(self, file: pa.Schema, url: str) -> Mapping[str, int] | None:
        """The field ids of a file without ids; None if the file has them, or columns are matched by name."""
        if not any(isinstance(each.key, int) for each in self.columns):
            return None
        if any(FIELD_ID in (field.metadata or {}) for field in file):
            return None
        if self.name_mapping is not None:
            return self.name_mapping
        if self.kind == "iceberg":
            # As in Iceberg: without ids and without a name mapping, columns have ids by their position.
            return {field.name: number + 1 for number, field in enumerate(file)}
        raise SourceError(f"{url} has no field ids, but the table maps its columns by id; rewrite the file")

    def __iter__(self) -> Iterator[SourceFile]:
        return iter(self.files)
