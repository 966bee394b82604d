"""Open a source by its kind and location."""

import importlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from types import ModuleType

from indextables.errors import MissingExtraError, SourceError
from indextables.options import Options
from indextables.source.delta.table import open_delta
from indextables.source.locations import Locations
from indextables.source.parquet_folder import open_folder
from indextables.source.snapshot import SourceSnapshot
from indextables.store import CredentialsProvider

KINDS = ("delta", "iceberg", "parquet")


def open_source(  # noqa: PLR0913 - what a source may need
    kind: str,
    url: str,
    options: Options = Options(),  # noqa: B008 - immutable
    *,
    version: int | str | datetime | None = None,
    credentials: CredentialsProvider | None = None,
    relocate: Mapping[str, str] | None = None,
    allowed_locations: Sequence[str] = (),
    time_zone: str = "UTC",
    merge_schema: bool = False,
    schema_file: str | None = None,
) -> SourceSnapshot:
    """Open a table at one version; data files are not read.

    Args:
        kind: "delta", "iceberg" or "parquet".
        url: the table's folder; of an Iceberg table also a metadata file.
        options: the storage options of the source (keys, endpoints).
        version: Delta: a version's number. Iceberg: a snapshot's id, or the name of a branch or tag. Both: a
            time. The newest version without it. Folders of Parquet files have no versions.
        credentials: a function that returns credentials; it wins over the options.
        relocate: prefixes of recorded paths, with the places where those files are now.
        allowed_locations: other buckets, containers or folders that recorded paths may lead to. A path to
            any other store is refused.
        time_zone: Spark's session time zone, for times in partition values that name none.
        merge_schema: folders: unite the columns of all files, as Spark's `mergeSchema`.
        schema_file: folders: a file whose columns are the table's.

    Raises:
        SourceNotFoundError: there is no such table, or not the version.
        UnsupportedSourceError: the table uses a feature with which it cannot be read exactly.
        SourceError: the table is damaged.
    """
    kind = kind.lower()
    metadata_file = None
    if kind == "iceberg" and url.endswith((".metadata.json", ".metadata.json.gz")):
        metadata_file, url = url, url.rpartition("/metadata/")[0] or url.rpartition("/")[0]
    locations = Locations(url, options, credentials=credentials, relocate=relocate, allowed=allowed_locations)
    if kind == "delta":
        if isinstance(version, str):
            raise SourceError(f"version {version!r} of a Delta table is not a number or a time")
        return open_delta(locations, version, time_zone=time_zone)
    if kind == "iceberg":
        opened: SourceSnapshot = _iceberg().open_iceberg(locations, metadata_file, version)
        return opened
    if kind == "parquet":
        if version is not None:
            raise SourceError(f"{url} is a folder of Parquet files, which has no versions; leave it out")
        return open_folder(locations, merge_schema=merge_schema, schema_file=schema_file, time_zone=time_zone)
    raise SourceError(f"{kind!r} is not a kind of source; expected one of {', '.join(KINDS)}")


def _iceberg() -> ModuleType:
    """The module that reads Iceberg tables, which needs pyiceberg."""
    try:
        return importlib.import_module("indextables.source.iceberg.table")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("pyiceberg", "pyroaring"):
            raise MissingExtraError("iceberg", "pyiceberg") from None
        raise
