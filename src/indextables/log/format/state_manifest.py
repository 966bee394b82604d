"""The record of a state: its manifests, tombstones, registry and metadata (PROTOCOL.md, "The state").

The header of the Avro file holds, under a key that other readers ignore, what the record has no field for:
the protocol with its features, the time and the token of the commit, skipped splits, the last batches of
streams, and the filter bundles.
"""

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from isal import isal_zlib
from msgspec import Struct

from indextables.errors import CorruptLogError, ProtocolError
from indextables.limits import MAX_BUNDLE, records_limit
from indextables.log.format import avro, version_file
from indextables.log.format.actions import REGISTRY_PREFIX, MergeSkip, Metadata, Protocol, Txn
from indextables.log.format.avro import CHECKSUM_KEY, AvroError, Data, Header
from indextables.log.format.avro_records import decode_datum, encode_datum
from indextables.log.format.names import is_filter_bundle
from indextables.records import dataclass
from indextables.schema.conversion import lookup

BLOCKS_KEY = "indextables.blocks"

# The schema of a state in Avro. Fields are found by their names.
_NULLABLE_STRING = ["null", "string"]

_BOUNDS: dict[str, Any] = {
    "type": "record",
    "name": "PartitionBoundsItem",
    "fields": [
        {"name": "min", "type": _NULLABLE_STRING, "default": None},
        {"name": "max", "type": _NULLABLE_STRING, "default": None},
    ],
}

_MANIFEST_INFO: dict[str, Any] = {
    "type": "record",
    "name": "ManifestInfoItem",
    "fields": [
        {"name": "path", "type": "string"},
        {"name": "numEntries", "type": "long"},
        {"name": "minAddedAtVersion", "type": "long"},
        {"name": "maxAddedAtVersion", "type": "long"},
        {"name": "partitionBounds", "type": ["null", {"type": "map", "values": _BOUNDS}], "default": None},
        {"name": "tombstoneCount", "type": "long", "default": 0},
        {"name": "liveEntryCount", "type": "long", "default": -1},
    ],
}

STATE_MANIFEST: dict[str, Any] = {
    "type": "record",
    "name": "StateManifest",
    "namespace": avro.NAMESPACE,
    "fields": [
        {"name": "formatVersion", "type": "int"},
        {"name": "stateVersion", "type": "long"},
        {"name": "createdAt", "type": "long"},
        {"name": "numFiles", "type": "long"},
        {"name": "totalBytes", "type": "long"},
        {"name": "manifests", "type": {"type": "array", "items": _MANIFEST_INFO}},
        {"name": "tombstones", "type": {"type": "array", "items": "string"}, "default": []},
        {"name": "schemaRegistry", "type": {"type": "map", "values": "string"}, "default": {}},
        {"name": "protocolVersion", "type": "int", "default": 4},
        {"name": "metadata", "type": _NULLABLE_STRING, "default": None},
    ],
}


@dataclass(frozen=True, slots=True)
class Bounds:
    """The least and the greatest value of a partition column; both None where all values are null."""

    min: str | None
    max: str | None


@dataclass(frozen=True, slots=True)
class BlockInfo:
    """How many records a block has, how many bytes it takes, their checksum, and its bounds.

    A column without bounds may have any value.
    """

    count: int
    size: int
    crc: int
    bounds: Mapping[str, Bounds] = field(default_factory=dict)

    @classmethod
    def of(cls, count: int, block: Data, bounds: Mapping[str, Bounds]) -> "BlockInfo":
        """The record of a block."""
        return cls(count, len(block), isal_zlib.crc32(block), bounds)

    def check(self, block: Data) -> None:
        """Raise if the block does not match its checksum."""
        if len(block) != self.size or isal_zlib.crc32(block) != self.crc:
            raise AvroError("a block does not match its checksum")


_Stored = list[tuple[int, int, int, dict[str, tuple[str, str]]]]


def encode_index(blocks: Iterable[BlockInfo]) -> str:
    """The header entry that lists the blocks, in their order."""
    rows = [
        (block.count, block.size, block.crc, {name: (b.min, b.max) for name, b in block.bounds.items()})
        for block in blocks
    ]
    return msgspec.json.encode(rows).decode()


def read_index(header: Header) -> list[BlockInfo] | None:
    """The blocks that the header lists; None if another implementation wrote the container."""
    if (BLOCKS_KEY in header.metadata) != (CHECKSUM_KEY in header.metadata):
        raise AvroError("the header lacks its checksum or its list of blocks")
    if BLOCKS_KEY not in header.metadata:
        return None
    try:
        rows = msgspec.json.decode(header.metadata[BLOCKS_KEY], type=_Stored)
    except msgspec.DecodeError as error:
        raise AvroError(f"the header's list of blocks is malformed ({error})") from error
    return [
        BlockInfo(count, size, crc, {name: Bounds(*pair) for name, pair in bounds.items()})
        for count, size, crc, bounds in rows
    ]


# --- bounds ----------------------------------------------------------------------------------------

# Texts whose order as strings is also the order of their values, for every column type.
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_DIGITS = re.compile(r"0|[1-9]\d*")
_NOT_A_WORD = re.compile(r"[\s\d+.-]|inf|nan", re.IGNORECASE)


def block_bounds(
    partition_values: pa.ChunkedArray, columns: Sequence[str], cuts: Sequence[int]
) -> list[dict[str, Bounds]]:
    """The bounds of each block, for the columns where they do not depend on the type.

    Args:
        partition_values: the map column of all entries.
        columns: the partition columns.
        cuts: the row at which each block starts, and the number of rows as the last element.
    """
    bounds: list[dict[str, Bounds]] = [{} for _ in cuts[1:]]
    for column in columns:
        values = [lookup(chunk, column)[0] for chunk in partition_values.chunks]
        encoded = pa.chunked_array(values, pa.string()).combine_chunks().dictionary_encode()
        texts = encoded.dictionary.to_pylist()
        codes = pc.fill_null(encoded.indices, -1).to_numpy()
        for block, (start, end) in enumerate(pairwise(cuts)):
            distinct = np.unique(codes[start:end]).tolist()
            # Bounds do not show that there are nulls, so a block with a null has no bounds.
            if distinct and distinct[0] >= 0:
                column_bounds = ordered_bounds([texts[code] for code in distinct])
                if column_bounds is not None:
                    bounds[block][column] = column_bounds
    return bounds


def ordered_bounds(values: Sequence[str]) -> Bounds | None:
    """The bounds of values, unless their order depends on the column's type.

    >>> ordered_bounds(["2024-01-02", "2024-01-01"])
    Bounds(min='2024-01-01', max='2024-01-02')
    >>> ordered_bounds(["9", "10"]) is None
    True
    """
    least, greatest = min(values), max(values)
    if least != greatest and not _ordered_as_strings(values):
        return None
    # The order of NaN among numbers depends on the engine.
    if least.lower() == "nan":
        return None
    return Bounds(least, greatest)


def _ordered_as_strings(values: Sequence[str]) -> bool:
    if all(_DATE.fullmatch(value) for value in values):
        return True
    if all(_DIGITS.fullmatch(value) for value in values):
        # Digits of one length: as numbers and as strings alike.
        return len({len(value) for value in values}) == 1
    return not any(_NOT_A_WORD.match(value) for value in values)


__all__ = [
    "FORMAT_VERSION",
    "Bounds",
    "ManifestInfo",
    "StateManifest",
    "encode_state",
    "decode_state",
    "resolve_manifest_path",
]

# The only format version of states so far.
FORMAT_VERSION = 1

# The prefix of our header entries.
_OURS = "indextables."
_LOG_FOLDER = "_transaction_log/"


@dataclass(frozen=True, slots=True)
class ManifestInfo:
    """The record of a manifest in a state."""

    path: str
    num_entries: int
    min_added_at_version: int
    max_added_at_version: int
    partition_bounds: Mapping[str, Bounds] | None = None
    tombstone_count: int = 0
    live_entry_count: int = -1


@dataclass(frozen=True, slots=True)
class StateManifest:
    """A state of the table: its manifests, and the tombstones of removed splits."""

    state_version: int
    created_at: int
    num_files: int
    total_bytes: int
    manifests: tuple[ManifestInfo, ...]
    tombstones: tuple[str, ...] = ()
    schema_registry: Mapping[str, str] = field(default_factory=dict)
    protocol_version: int = 4
    metadata: Metadata | None = None
    # Our own entries of the Avro header, which other readers ignore.
    extra: Mapping[str, str] = field(default_factory=dict)
    format_version: int = FORMAT_VERSION


# --- on disk ---------------------------------------------------------------------------------------


class _StoredBounds(Struct):
    min: str | None = None
    max: str | None = None


class _StoredManifest(Struct, rename="camel"):
    path: str
    num_entries: int
    min_added_at_version: int = 0
    max_added_at_version: int = 0
    partition_bounds: dict[str, _StoredBounds] | None = None
    tombstone_count: int = 0
    live_entry_count: int = -1


class _StoredState(Struct, rename="camel"):
    format_version: int
    state_version: int
    num_files: int
    manifests: list[_StoredManifest]
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
    return avro.header_bytes(avro.schema_json(STATE_MANIFEST), codec, extra, sync) + block


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

    The keys of the registry are returned without their prefix.

    Args:
        data: an Avro container with one record, or a JSON object.
        url: the URL of the file, for the error.

    Raises:
        CorruptLogError: the file is damaged, or has impossible values.
        ProtocolError: a newer release wrote it, in a layout that this release cannot read.
    """
    try:
        if data.startswith(avro.MAGIC):
            record, extra = _read_avro(data)
        else:
            record, extra = _read_json(data, url), {}
        # The format version is checked first: a newer one may differ in everything else.
        _check_format(record, url)
        fields = msgspec.convert(record, _StoredState)
        metadata = _read_metadata(fields.metadata)
    except (AvroError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptLogError(url, f"the state cannot be read: {error}") from error
    state = StateManifest(
        format_version=fields.format_version,
        state_version=fields.state_version,
        created_at=fields.created_at,
        num_files=fields.num_files,
        total_bytes=fields.total_bytes,
        manifests=tuple(_manifest_info(manifest) for manifest in fields.manifests),
        tombstones=tuple(fields.tombstones),
        schema_registry={k.removeprefix(REGISTRY_PREFIX): v for k, v in fields.schema_registry.items()},
        protocol_version=fields.protocol_version,
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


def _read_metadata(metadata: str | dict[str, Any] | None) -> Metadata | None:
    """Read metadata that is stored as text or as an object, with or without the action's key."""
    if not metadata:
        return None
    value = msgspec.json.decode(metadata) if isinstance(metadata, str) else metadata
    if isinstance(value, dict) and "metaData" in value:
        value = value["metaData"]
    return msgspec.convert(value, Metadata)


def _manifest_info(manifest: _StoredManifest) -> ManifestInfo:
    bounds = manifest.partition_bounds
    return ManifestInfo(
        path=manifest.path,
        num_entries=manifest.num_entries,
        min_added_at_version=manifest.min_added_at_version,
        max_added_at_version=manifest.max_added_at_version,
        partition_bounds=None if bounds is None else {c: Bounds(b.min, b.max) for c, b in bounds.items()},
        tombstone_count=manifest.tombstone_count,
        live_entry_count=manifest.live_entry_count,
    )


def _check(state: StateManifest, url: str) -> None:
    """Refuse impossible numbers."""
    counts = {
        "stateVersion": state.state_version,
        "numFiles": state.num_files,
        "totalBytes": state.total_bytes,
        **{f"numEntries of {manifest.path}": manifest.num_entries for manifest in state.manifests},
        **{f"tombstoneCount of {manifest.path}": manifest.tombstone_count for manifest in state.manifests},
    }
    for name, count in counts.items():
        if count < 0:
            raise CorruptLogError(url, f"{name} is {count}, which is impossible")
    entries = sum(manifest.num_entries for manifest in state.manifests)
    if state.num_files > entries:
        raise CorruptLogError(
            url, f"it counts {state.num_files} files, but its manifests have only {entries} entries"
        )
    if len({manifest.path for manifest in state.manifests}) != len(state.manifests):
        raise CorruptLogError(url, "it lists a manifest twice")


def resolve_manifest_path(path: str, state_dir: str) -> str:
    """The path of a manifest relative to the log folder.

    Args:
        path: the path in the state: relative to the log folder, a bare name in the state's own folder, or an
            absolute URL below the log folder.
        state_dir: the state's folder; the log folder is its parent.

    >>> resolve_manifest_path("manifests/manifest-1.avro", "state-v7")
    'manifests/manifest-1.avro'
    >>> resolve_manifest_path("manifest-1.avro", "state-v7")
    'state-v7/manifest-1.avro'
    """
    folder = posixpath.dirname(state_dir)
    if "://" in path or path.startswith(("/", "file:")):
        _, separator, path = path.rpartition(_LOG_FOLDER)
        if not separator:
            raise CorruptLogError(path, f"the state {state_dir} refers to a manifest outside the log folder")
    elif "/" not in path:
        folder = state_dir
    if any(part in ("", ".", "..") for part in path.split("/")):
        raise CorruptLogError(path, f"the state {state_dir} refers to a manifest by no valid path")
    return posixpath.join(folder, path)


KEY = "indextables.carried"


class FilterBundle(Struct, frozen=True):
    """A filter bundle of a state: its path in the log folder, and how many bytes of it are its directory."""

    path: str
    size: int
    directory: int
    splits: int

    @property
    def is_valid(self) -> bool:
        """Whether name and sizes are within the limits of a bundle (PROTOCOL.md, "Limits")."""
        return is_filter_bundle(self.path) and 0 < self.directory <= self.size <= MAX_BUNDLE


class StateHeader(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The header of a state: what its record has no field for.

    `lineage` holds the tokens of the last versions, the newest last (PROTOCOL.md, "Lineage"). `filters` are
    the filter bundles. `whole` is false if another engine wrote the state: then earlier files may have more.
    """

    protocol: Protocol | None = None
    timestamp: int | None = None
    token: str | None = None
    lineage: list[str | None] = []
    mergeskips: list[MergeSkip] = []
    txns: list[Txn] = []
    filters: list[FilterBundle] = []
    whole: bool = True

    @property
    def commits(self) -> Sequence[str | None]:
        """The lineage; for states of earlier releases, which have none, the token of their version."""
        return self.lineage or ([self.own_token] if self.own_token else [])

    @property
    def own_token(self) -> str | None:
        """The token of the state's version; None if an earlier release wrote size and time of a file."""
        return None if not self.token or self.token.startswith("(") else self.token


def encode_header(header: StateHeader) -> dict[str, str]:
    """The header entries of a state."""
    return {KEY: msgspec.json.encode(header).decode()}


def decode_header(header: Mapping[str, str], url: str) -> StateHeader | None:
    """The header of a state; None if another engine wrote it."""
    text = header.get(KEY)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=StateHeader)
    except msgspec.DecodeError as error:
        raise CorruptLogError(url, f"its header entry {KEY} is damaged ({error})") from None
