"""Which tables this release may read and write (PROTOCOL.md, "Protocol versions and features")."""

from collections.abc import Iterable

import msgspec

from indextables.errors import ProtocolError
from indextables.log.format.actions import Add, Metadata, Protocol
from indextables.schema.statistics import PARQUET_TAG

# Tables with states. The original's releases check this number and nothing else.
STATES = 4
# Tables that list the features they need.
FEATURES = 5
PARQUET_SPLITS = "parquetSplits"
# Splits that index the files of another table and hold no rows.
COMPANION_SPLITS = "companionSplits"

_READER_FEATURES = frozenset(
    {
        "avroState",
        "extendedMetadata",
        "footerOffsets",
        "multiPartCheckpoint",
        "schemaDeduplication",
        "skippedFiles",
        PARQUET_SPLITS,
        COMPANION_SPLITS,
    }
)
_WRITER_FEATURES = _READER_FEATURES | {"checkpoint", "optimizeWrite"}

# Keys of the original in the configuration of its companion tables.
_COMPANION = "indextables.companion.enabled"
_COMPANION_KIND = "indextables.companion.sourceFormat"
_COMPANION_SOURCE = "indextables.companion.sourceTablePath"


def new_table_protocol() -> Protocol:
    """The protocol of a table that this release creates."""
    return _with_parquet_splits(Protocol())


def companion_protocol() -> Protocol:
    """The protocol of a companion table that this release creates."""
    protocol = new_table_protocol()
    return msgspec.structs.replace(
        protocol,
        reader_features=sorted([*(protocol.reader_features or ()), COMPANION_SPLITS]),
        writer_features=sorted([*(protocol.writer_features or ()), COMPANION_SPLITS]),
    )


def is_companion(protocol: Protocol) -> bool:
    """Whether a table is a companion index, whose splits hold no rows."""
    return COMPANION_SPLITS in (protocol.reader_features or ())


def upgrade_for(adds: Iterable[Add], protocol: Protocol) -> Protocol | None:
    """The protocol that a table needs once it holds these splits; nothing if it has it already."""
    if not any(PARQUET_TAG in (add.split_tags or ()) for add in adds):
        return None
    needed = _with_parquet_splits(protocol)
    return None if needed == protocol else needed


def _with_parquet_splits(protocol: Protocol) -> Protocol:
    return msgspec.structs.replace(
        protocol,
        min_reader_version=max(protocol.min_reader_version, FEATURES),
        min_writer_version=max(protocol.min_writer_version, FEATURES),
        reader_features=_with_feature(protocol.reader_features),
        writer_features=_with_feature(protocol.writer_features),
    )


def _with_feature(features: list[str] | None) -> list[str]:
    present = features or []
    return present if PARQUET_SPLITS in present else sorted([*present, PARQUET_SPLITS])


def check_readable(protocol: Protocol, url: str) -> None:
    """Refuse a table whose data we might misread."""
    _check(url, "reader", protocol.min_reader_version, protocol.reader_features, _READER_FEATURES)


def check_writable(protocol: Protocol, url: str) -> None:
    """Refuse a table that our writes might harm."""
    check_readable(protocol, url)
    _check(url, "writer", protocol.min_writer_version, protocol.writer_features, _WRITER_FEATURES)


def check_not_companion(metadata: Metadata, url: str) -> None:
    """Refuse a companion table of the original: its splits index files of another table and hold no rows."""
    if (metadata.configuration or {}).get(_COMPANION, "").lower() == "true":
        raise companion_error(metadata, url)


def companion_error(metadata: Metadata, url: str) -> ProtocolError:
    """The error of a companion table of the original, or of a table with such splits."""
    known = metadata.configuration or {}
    kind = known.get(_COMPANION_KIND, "").upper()
    kind = kind if kind in ("DELTA", "ICEBERG", "PARQUET") else "{DELTA | ICEBERG | PARQUET}"
    path = known.get(_COMPANION_SOURCE, "<source>").replace("'", "\\'")
    source = f"{kind} '{path}'"
    return ProtocolError(
        f"the table at {url} is a companion table of the original system: its splits index the files of "
        "another table and hold no rows, so it cannot be read, written or maintained here; build an index "
        f"of the same source at another place: BUILD INDEXTABLES COMPANION FOR {source} AT LOCATION '<path>'"
    )


def _check(url: str, role: str, version: int, features: list[str] | None, supported: frozenset[str]) -> None:
    if unknown := sorted(set(features or ()) - supported):
        raise ProtocolError(
            f"the table at {url} requires {role} features that this release does not have: "
            f"{', '.join(unknown)}; use a newer release of indextables"
        )
    if not 1 <= version <= FEATURES:
        raise ProtocolError(
            f"the table at {url} requires {role} version {version}, and this release has versions 1 to "
            f"{FEATURES}; use a newer release of indextables"
        )
