"""Which tables this release may read and write (PROTOCOL.md, "Protocol versions")."""

from indextables.errors import ProtocolError
from indextables.log.format.actions import Protocol

CURRENT = 4
_FEATURES = frozenset(
    {
        "avroState",
        "extendedMetadata",
        "footerOffsets",
        "multiPartCheckpoint",
        "schemaDeduplication",
        "skippedFiles",
    }
)
_WRITER_FEATURES = _FEATURES | {"checkpoint", "optimizeWrite"}


def check_readable(protocol: Protocol, url: str) -> None:
    """Refuse a table whose data we might misread."""
    _check(url, "reader", protocol.min_reader_version, protocol.reader_features, _FEATURES)


def check_writable(protocol: Protocol, url: str) -> None:
    """Refuse a table that our writes might harm."""
    check_readable(protocol, url)
    _check(url, "writer", protocol.min_writer_version, protocol.writer_features, _WRITER_FEATURES)


def _check(url: str, role: str, version: int, features: list[str] | None, known: frozenset[str]) -> None:
    if not 1 <= version <= CURRENT:
        raise ProtocolError(
            f"the table at {url} asks for {role} version {version}, and this release has versions 1 to "
            f"{CURRENT}; use a newer release of indextables"
        )
    if unknown := sorted(set(features or ()) - known):
        raise ProtocolError(
            f"the table at {url} asks for {role} features that this release does not have: "
            f"{', '.join(unknown)}; use a newer release of indextables"
        )
