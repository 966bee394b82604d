"""The record of a state: its manifests, tombstones, registry and metadata (PROTOCOL.md, "The state").

Written as an Avro container with one record. Read also as the JSON object that the format's first
description has in its place.
"""

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import Struct

from indextables.errors import CorruptLogError, ProtocolError
from indextables.limits import records_limit
from indextables.log.format import avro, version_file
from indextables.log.format.actions import Metadata
from indextables.log.format.avro import CHECKSUM_KEY, AvroError
from indextables.log.format.avro_datum import decode_datum, encode_datum
from indextables.log.format.avro_schemas import STATE_MANIFEST, schema_json
from indextables.log.format.block_index import BLOCKS_KEY, BlockInfo, Bounds, encode_index, read_index
from indextables.log.format.schema_registry import REGISTRY_PREFIX

__all__ = [
    "FORMAT_VERSION",
    "Bounds",
    "ManifestInfo",
    "StateManifest",
    "encode_state",
    "decode_state",
    "resolve_manifest_path",
]

# The one layout of states that there is so far.
FORMAT_VERSION = 1

# Header entries of ours start like this.
_OURS = "indextables."
_LOG_FOLDER = "_transaction_log/"


@dataclass(frozen=True, slots=True)
class ManifestInfo:
    """What a state says of one of its manifests."""

    path: str
    num_entries: int
    min_added_at_version: int
    max_added_at_version: int
    partition_bounds: Mapping[str, Bounds] | None = None
    tombstone_count: int = 0
    live_entry_count: int = -1


@dataclass(frozen=True, slots=True)
class StateManifest:
    """A state of the table: where its entries are, and which of them no longer count."""

    state_version: int
    created_at: int
    num_files: int
    total_bytes: int
    manifests: tuple[ManifestInfo, ...]
    tombstones: tuple[str, ...] = ()
    schema_registry: Mapping[str, str] = field(default_factory=dict)
    protocol_version: int = 4
    metadata: Metadata | None = None
    # Our own entries of the Avro header, which other readers pass over.
    extra: Mapping[str, str] = field(default_factory=dict)
    format_version: int = FORMAT_VERSION


# --- on disk ---------------------------------------------------------------------------------------


class _Bounds(Struct):
    min: str | None = None
    max: str | None = None


class _Manifest(Struct, rename="camel"):
    path: str
    num_entries: int
    min_added_at_version: int = 0
    max_added_at_version: int = 0
    partition_bounds: dict[str, _Bounds] | None = None
    tombstone_count: int = 0
    live_entry_count: int = -1


class _State(Struct, rename="camel"):
    format_version: int
    state_version: int
    num_files: int
    manifests: list[_Manifest]
    created_at: int = 0
    total_bytes: int = 0
    tombstones: list[str] = []
    schema_registry: dict[str, str] = {}
    protocol_version: int = 4
    # Text in Avro; in JSON possibly the object itself.
    metadata: str | dict[str, Any] | None = None


def encode_state(state: StateManifest, *, codec: str, level: int) -> bytes:
    """The file of a state.

    Args:
        state: the state.
        codec: Avro's name of the codec: `zstandard`, `snappy` or `null`.
        level: how hard zstd tries, 1 to 22.
    """
    record = encode_datum(STATE_MANIFEST, _record(state))
    sync = avro.new_sync()
    block = avro.block_bytes(1, record, codec, level, sync)
    extra = {**state.extra, BLOCKS_KEY: encode_index([BlockInfo.of(1, block, {})])}
    return avro.header_bytes(schema_json(STATE_MANIFEST), codec, extra, sync) + block


def _record(state: StateManifest) -> dict[str, Any]:
    metadata = None
    if state.metadata is not None:
        metadata = msgspec.json.encode({"metaData": state.metadata}).decode()
    return {
        "formatVersion": state.format_version,
        "stateVersion": state.state_version,
        "createdAt": state.created_at,
        "numFiles": state.num_files,
        "totalBytes": state.total_bytes,
        "manifests": [_manifest_record(manifest) for manifest in state.manifests],
        "tombstones": state.tombstones,
        "schemaRegistry": state.schema_registry,
        "protocolVersion": state.protocol_version,
        "metadata": metadata,
    }


def _manifest_record(manifest: ManifestInfo) -> dict[str, Any]:
    bounds = manifest.partition_bounds
    return {
        "path": manifest.path,
        "numEntries": manifest.num_entries,
        "minAddedAtVersion": manifest.min_added_at_version,
        "maxAddedAtVersion": manifest.max_added_at_version,
        "partitionBounds": None
        if bounds is None
        else {column: {"min": b.min, "max": b.max} for column, b in bounds.items()},
        "tombstoneCount": manifest.tombstone_count,
        "liveEntryCount": manifest.live_entry_count,
    }


def decode_state(data: bytes, url: str) -> StateManifest:
    """The state that a file holds.

    Keys of the registry come without their prefix.

    Args:
        data: an Avro container with one record, or a JSON object.
        url: where it lies, for the error.

    Raises:
        CorruptLogError: the file is damaged, or says what cannot be.
        ProtocolError: a newer release wrote it, in a layout that this one does not know.
    """
    try:
        if data.startswith(avro.MAGIC):
            record, extra = _read_avro(data)
        else:
            record, extra = _read_json(data, url), {}
        # The layout comes first: a newer one may differ in everything else.
        _check_format(record, url)
        stored = msgspec.convert(record, _State)
        metadata = _read_metadata(stored.metadata)
    except (AvroError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptLogError(url, f"the state cannot be read: {error}") from error
    state = StateManifest(
        format_version=stored.format_version,
        state_version=stored.state_version,
        created_at=stored.created_at,
        num_files=stored.num_files,
        total_bytes=stored.total_bytes,
        manifests=tuple(_manifest_info(manifest) for manifest in stored.manifests),
        tombstones=tuple(stored.tombstones),
        schema_registry={k.removeprefix(REGISTRY_PREFIX): v for k, v in stored.schema_registry.items()},
        protocol_version=stored.protocol_version,
        metadata=metadata,
        extra=extra,
    )
    _check(state, url)
    return state


def _read_avro(data: bytes) -> tuple[Any, dict[str, str]]:
    header = avro.read_header(data)
    blocks = avro.read_blocks(data, header)
    if [block.count for block in blocks] != [1]:
        raise AvroError(f"it holds {sum(block.count for block in blocks)} records, expected one")
    block = blocks[0]
    index = read_index(header)
    if index is not None:
        if len(index) != 1:
            raise AvroError("the header's list of blocks does not match the blocks")
        index[0].check(data[block.start : block.end])
    record = decode_datum(
        header.schema,
        avro.unpack(data[block.data_start : block.data_end], header.codec),
        records_limit(len(data)),
    )
    extra = {
        key: value.decode()
        for key, value in header.metadata.items()
        if key.startswith(_OURS) and key not in (BLOCKS_KEY, CHECKSUM_KEY)
    }
    return record, extra


def _read_json(data: bytes, url: str) -> Any:  # noqa: ANN401 - checked by the caller
    text = version_file.unpack(data, url)
    if not text.lstrip()[:1] == b"{":
        raise AvroError("it is neither an Avro container nor a JSON object")
    return msgspec.json.decode(text)


def _check_format(record: object, url: str) -> None:
    version = record.get("formatVersion") if isinstance(record, dict) else None
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise ProtocolError(
            f"{url} has state format version {version}, and this release reads up to {FORMAT_VERSION}; "
            "install a newer release of indextables"
        )
    if version != FORMAT_VERSION:
        raise CorruptLogError(url, f"its format version is {version}, expected {FORMAT_VERSION}")


def _read_metadata(stored: str | dict[str, Any] | None) -> Metadata | None:
    """Metadata as text or object, bare or under the action's key."""
    if not stored:
        return None
    value = msgspec.json.decode(stored) if isinstance(stored, str) else stored
    if isinstance(value, dict) and "metaData" in value:
        value = value["metaData"]
    return msgspec.convert(value, Metadata)


def _manifest_info(stored: _Manifest) -> ManifestInfo:
    bounds = stored.partition_bounds
    return ManifestInfo(
        path=stored.path,
        num_entries=stored.num_entries,
        min_added_at_version=stored.min_added_at_version,
        max_added_at_version=stored.max_added_at_version,
        partition_bounds=None if bounds is None else {c: Bounds(b.min, b.max) for c, b in bounds.items()},
        tombstone_count=stored.tombstone_count,
        live_entry_count=stored.live_entry_count,
    )


def _check(state: StateManifest, url: str) -> None:
    """Refuse numbers that no state can have."""
    counts = {
        "stateVersion": state.state_version,
        "numFiles": state.num_files,
        "totalBytes": state.total_bytes,
        **{f"numEntries of {manifest.path}": manifest.num_entries for manifest in state.manifests},
        **{f"tombstoneCount of {manifest.path}": manifest.tombstone_count for manifest in state.manifests},
    }
    for name, count in counts.items():
        if count < 0:
            raise CorruptLogError(url, f"{name} is {count}, which cannot be")
    entries = sum(manifest.num_entries for manifest in state.manifests)
    if state.num_files > entries:
        raise CorruptLogError(
            url, f"it counts {state.num_files} files, but its manifests have only {entries} entries"
        )
    if len({manifest.path for manifest in state.manifests}) != len(state.manifests):
        raise CorruptLogError(url, "it lists a manifest twice")


def resolve_manifest_path(path: str, state_dir: str) -> str:
    """Where a manifest lies, seen from where the state's folder is.

    Args:
        path: as the state has it: below the log folder, a bare name in the state's own folder, or an
            absolute address of something below the log folder.
        state_dir: the state's folder; the log folder is its parent.

    >>> resolve_manifest_path("manifests/manifest-1.avro", "state-v7")
    'manifests/manifest-1.avro'
    >>> resolve_manifest_path("manifest-1.avro", "state-v7")
    'state-v7/manifest-1.avro'
    """
    folder = posixpath.dirname(state_dir)
    if "://" in path or path.startswith(("/", "file:")):
        _, found, path = path.rpartition(_LOG_FOLDER)
        if not found:
            raise CorruptLogError(path, f"the state {state_dir} refers to a manifest outside the log folder")
    elif "/" not in path:
        folder = state_dir
    if any(part in ("", ".", "..") for part in path.split("/")):
        raise CorruptLogError(path, f"the state {state_dir} refers to a manifest by no valid path")
    return posixpath.join(folder, path)
