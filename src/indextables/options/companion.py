"""Options of companion indexes: the freshness of reads, and how they are built from their source."""

from typing import Any

from indextables.options import cloud
from indextables.options.declare import (
    EVERYWHERE,
    Option,
    Where,
    choice,
    field_option,
    integer,
    number,
    option,
    optional_text,
    size,
)

_READ = frozenset({Where.READ, Where.COMMAND})
_BUILD = frozenset({Where.WRITE, Where.COMMAND})
_CLOUDS = ("aws.", "azure.", "gcp.")

SYNCED = "synced"
LATEST = "latest"
FRESHNESS = option(
    "companion.freshness",
    choice(SYNCED, LATEST),
    SYNCED,
    "The version of the source that a read returns: that of the last sync, or the newest version. With "
    "latest, source files that the index does not cover, or that changed since, are read without the index.",
    where=_READ,
)
TABLE_ROOT: Option[str | None] = option(
    "companion.tableRootDesignator",
    optional_text,
    None,
    "Name of the table root (SET INDEXTABLES TABLE ROOT) at which the files of the source are read.",
    where=_READ,
    default_text="the place at which the source was indexed",
)
METADATA_FILE: Option[str | None] = option(
    "companion.sourceMetadataFile",
    optional_text,
    None,
    "The current metadata file of an Iceberg table, which companion.freshness = latest reads. Only the "
    "catalog of the table knows it; a search of the table by its own name in Spark sets it.",
    where=_READ,
    default_text="that of the folder, or of the catalog that the index was built with",
)
TARGET_INPUT_SIZE = option(
    "companion.targetInputSize",
    size,
    2 << 30,
    "Source files of one partition are indexed together, in one split, up to this size.",
    where=_BUILD,
)
ICEBERG_CATALOG_TYPE: Option[str | None] = option(
    "iceberg.catalogType",
    optional_text,
    None,
    "Type of the Iceberg catalog of a companion index's source: rest, hive, glue, dynamodb or sql; the "
    "clause TYPE.",
    default_text="pyiceberg's configuration of the catalog",
)
ICEBERG_URI: Option[str | None] = option(
    "iceberg.uri",
    optional_text,
    None,
    "URI of the Iceberg catalog of a companion index's source. It can contain a password: it is treated as a "
    "secret, and not recorded in the index.",
    secret=True,
    default_text="pyiceberg's configuration of the catalog",
)
ICEBERG_TOKEN: Option[str | None] = option(
    "iceberg.token",
    optional_text,
    None,
    "Token for the Iceberg catalog of a companion index's source.",
    secret=True,
    default_text="pyiceberg's configuration of the catalog",
)
ICEBERG_CREDENTIAL: Option[str | None] = option(
    "iceberg.credential",
    optional_text,
    None,
    "Client id and secret (id:secret) for the Iceberg catalog of a companion index's source.",
    secret=True,
    default_text="pyiceberg's configuration of the catalog",
)
ICEBERG_WAREHOUSE: Option[str | None] = option(
    "iceberg.warehouse",
    optional_text,
    None,
    "Warehouse of the Iceberg catalog of a companion index's source; the clause WAREHOUSE.",
    default_text="pyiceberg's configuration of the catalog",
)
MAX_ERRORS = option(
    "companion.stream.maxConsecutiveErrors",
    integer(1),
    10,
    "A continuous sync stops after so many consecutive failed syncs.",
    where=_BUILD,
)
BACKOFF_MULTIPLIER = option(
    "companion.stream.errorBackoffMultiplier",
    number(1),
    2.0,
    "Factor by which the pause of a continuous sync grows after each failed sync.",
    where=_BUILD,
)


def _check_source_option(key: str, value: str) -> None:
    declaration = _store_option(key)
    if declaration is None:
        raise ValueError("aws.*, azure.* and gcp.* options of stores are expected")
    declaration.parse(value)


def _store_option(key: str) -> Option[Any] | None:
    return next(
        (
            each
            for each in vars(cloud).values()
            if isinstance(each, Option) and each.key.lower() == key and key.startswith(_CLOUDS)
        ),
        None,
    )


def _is_secret(key: str) -> bool:
    declaration = _store_option(key)
    return declaration is None or declaration.secret


SOURCE_STORE = field_option(
    "companion.parquet",
    "<option>",
    _check_source_option,
    "An option of stores (aws.*, azure.*, gcp.*) for the source of a companion index. If one of a cloud is "
    "set, those of the index for that cloud are not used for the source.",
    expects="as of the option",
    where=EVERYWHERE,
    is_secret=_is_secret,
)
