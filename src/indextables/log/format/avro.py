"""Avro object containers: header, blocks, and the datum in them, as the Avro 1.12 specification has them.

This module splits a container into header and blocks and checks them. Records are encoded and decoded by
`avro_records`; large tables of records are read by DataFusion. Readers raise `AvroError` for invalid bytes;
callers add the file's name.
"""

import json
import os
import zlib
from collections.abc import Mapping
from typing import Any, TypeAlias

import pyarrow as pa
from isal import isal_zlib

from indextables.limits import MAX_AVRO_DEPTH, MAX_AVRO_FIELDS, unpacked_limit
from indextables.records import dataclass
from indextables.varint import read_varint, unzigzag, varint_bytes, zigzag

MAGIC = b"Obj\x01"
SYNC_SIZE = 16

# The header entry that holds a checksum of all the others, in containers of this implementation.
CHECKSUM_KEY = "indextables.crc"
# The Avro namespace of the records of the log.
NAMESPACE = "io.indextables.state"

# Blocks are decompressed in steps of this many bytes.
_STEP_BYTES = 1 << 20

# A schema after its JSON is parsed: a name, a list (a union), or an object.
Schema: TypeAlias = Any
Data: TypeAlias = bytes | memoryview


class AvroError(ValueError):
    """The bytes are not Avro, or are truncated."""


class HeaderCutError(AvroError):
    """The bytes end before the header does; more of them may complete it."""


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a container, before the first block."""

    metadata: Mapping[str, bytes]
    sync: bytes
    size: int

    @property
    def codec(self) -> str:
        """The codec of the blocks; an absent one means none."""
        return self.metadata.get("avro.codec", b"null").decode("utf-8", "replace")

    @property
    def schema(self) -> Schema:
        """The schema that the records were written with."""
        try:
            return json.loads(self.metadata["avro.schema"])
        except (KeyError, ValueError, RecursionError) as error:
            raise AvroError(f"the header has no schema that can be read ({error!r})") from error


@dataclass(frozen=True, slots=True)
class Block:
    """A block of records: its position in the container, from its count to the end of its sync marker."""

    count: int
    start: int
    end: int
    data_start: int
    data_end: int


# --- writing ---------------------------------------------------------------------------------------


def long_bytes(value: int) -> bytes:
    """A whole number of up to 64 bits as a variable-length integer.

    >>> long_bytes(-2).hex(), long_bytes(64).hex()
    ('03', '8001')
    """
    return varint_bytes(zigzag(value))


def schema_json(schema: Mapping[str, Any]) -> str:
    """The schema as JSON, for a container's header."""
    return json.dumps(schema, separators=(",", ":"))


def header_bytes(schema: str, codec: str, extra: Mapping[str, str], sync: bytes) -> bytes:
    """A container's header, with a checksum over all of it.

    Args:
        schema: the schema of the records, as JSON.
        codec: the codec's name in the specification.
        extra: further entries, which other readers ignore.
        sync: the marker that ends each block.
    """
    metadata = {"avro.schema": schema.encode(), "avro.codec": codec.encode()}
    metadata |= {key: value.encode() for key, value in extra.items()}
    metadata[CHECKSUM_KEY] = _checksum(metadata, sync)
    entries = b"".join(_bytes(key.encode()) + _bytes(value) for key, value in metadata.items())
    return MAGIC + long_bytes(len(metadata)) + entries + b"\x00" + sync


def plain_header(header: Header) -> bytes:
    """The header of a container with the same schema and marker whose blocks are not compressed."""
    entries = _bytes(b"avro.schema") + _bytes(header.metadata["avro.schema"])
    return MAGIC + long_bytes(1) + entries + b"\x00" + header.sync


def new_sync() -> bytes:
    """A random sync marker, which with overwhelming probability no record contains."""
    return os.urandom(SYNC_SIZE)


def block_bytes(count: int, records: Data, codec: str, level: int, sync: bytes) -> bytes:
    """A block of encoded records."""
    packed = _pack(records, codec, level)
    return b"".join((long_bytes(count), long_bytes(len(packed)), packed, sync))


def _pack(records: Data, codec: str, level: int) -> Data:
    if codec == "null":
        return records
    if codec == "zstandard":
        zstd: bytes = pa.Codec("zstd", compression_level=level).compress(records, asbytes=True)
        return zstd
    if codec == "snappy":
        snappy: bytes = pa.Codec("snappy").compress(records, asbytes=True)
        return snappy + zlib.crc32(records).to_bytes(4, "big")
    raise AssertionError(f"no codec of this implementation: {codec}")


def _bytes(value: bytes) -> bytes:
    return long_bytes(len(value)) + value


def _checksum(metadata: Mapping[str, bytes], sync: bytes) -> bytes:
    crc = isal_zlib.crc32(sync)
    for key in sorted(metadata):
        if key != CHECKSUM_KEY:
            crc = isal_zlib.crc32(_bytes(key.encode()) + _bytes(metadata[key]), crc)
    return f"{crc:08x}".encode()


# --- splitting a container ------------------------------------------------------------------


def read_header(data: Data) -> Header:
    """The header at the start of a container, of which `data` may be only the first bytes.

    A header with a checksum is checked against it.
    """
    if bytes(data[: len(MAGIC)]) != MAGIC:
        if MAGIC.startswith(bytes(data[: len(MAGIC)])):
            raise HeaderCutError("it is cut short within the header")
        raise AvroError("it is not an Avro container: the magic bytes are missing")
    metadata: dict[str, bytes] = {}
    position = len(MAGIC)
    try:
        while True:
            count, position = read_long(data, position)
            if count == 0:
                break
            if count < 0:
                _, position = read_long(data, position)
            for _ in range(abs(count)):
                key, position = _read_bytes(data, position)
                metadata[key.decode()], position = _read_bytes(data, position)
        sync, position = _take(data, position, SYNC_SIZE)
    except EOFError as error:
        raise HeaderCutError("it is cut short within the header") from error
    except UnicodeDecodeError as error:
        raise AvroError("the header holds a name that is not UTF-8") from error
    if CHECKSUM_KEY in metadata and metadata[CHECKSUM_KEY] != _checksum(metadata, sync):
        raise AvroError("the header does not match its checksum")
    return Header(metadata, sync, position)


def read_blocks(data: Data, header: Header) -> list[Block]:
    """All blocks of a container, which must end exactly where its last block does."""
    blocks: list[Block] = []
    position = header.size
    while position < len(data):
        block = read_block(data, position, header.sync)
        blocks.append(block)
        position = block.end
    return blocks


def read_block(data: Data, start: int, sync: bytes) -> Block:
    """The block that starts at a position."""
    try:
        count, position = read_long(data, start)
        size, position = read_long(data, position)
        if count < 0 or size < 0:
            raise AvroError(f"the block at byte {start} has a negative count or size")
        marker, end = _take(data, position + size, SYNC_SIZE)
    except EOFError as error:
        raise AvroError(f"it is cut short within the block at byte {start}") from error
    if marker != sync:
        raise AvroError(f"the block at byte {start} does not end with the container's sync marker")
    return Block(count, start, end, position, position + size)


def unpack(data: Data, codec: str, limit: int | None = None) -> bytes:
    """The decompressed records of a block: at most `limit` bytes, by default a multiple of its size."""
    most = unpacked_limit(len(data)) if limit is None else limit
    try:
        return _unpack(data, codec, most)
    except (OSError, pa.ArrowException, zlib.error) as error:
        raise AvroError(f"a block cannot be unpacked ({error})") from error


def _unpack(data: Data, codec: str, limit: int) -> bytes:
    if codec == "null":
        return bytes(data)
    if codec == "zstandard":
        return _unpack_zstd(data, limit)
    if codec == "snappy":
        return _unpack_snappy(data, limit)
    if codec == "deflate":
        inflater = zlib.decompressobj(-zlib.MAX_WBITS)
        records = inflater.decompress(data, limit + 1)
        if len(records) > limit:
            raise _too_large(limit)
        if not inflater.eof:
            raise AvroError("a block is cut short")
        return records
    raise AvroError(f"its codec {codec} is not one of null, deflate, snappy, zstandard")


def _unpack_zstd(data: Data, limit: int) -> bytes:
    """Decompress in steps, because the announced size may be missing or wrong."""
    parts: list[bytes] = []
    room = limit
    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        while part := stream.read(min(_STEP_BYTES, room + 1)):
            room -= len(part)
            if room < 0:
                raise _too_large(limit)
            parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _unpack_snappy(data: Data, limit: int) -> bytes:
    try:
        size, _ = read_varint(data, 0)
    except (IndexError, ValueError) as error:
        raise AvroError(f"a block has no length ({error})") from error
    if size > limit:
        raise _too_large(limit)
    records: bytes = pa.Codec("snappy").decompress(data[:-4], decompressed_size=size, asbytes=True)
    if zlib.crc32(records).to_bytes(4, "big") != bytes(data[-4:]):
        raise AvroError("a block does not match its checksum")
    return records


def _too_large(limit: int) -> AvroError:
    return AvroError(f"a block holds more than {limit} bytes, the limit for its compressed size")


def read_long(data: Data, position: int) -> tuple[int, int]:
    """A whole number and the position after it; EOFError if the data end within it."""
    try:
        value, position = read_varint(data, position)
    except IndexError:
        raise EOFError from None
    except ValueError as error:
        raise AvroError(str(error)) from None
    return unzigzag(value), position


def _take(data: Data, position: int, size: int) -> tuple[bytes, int]:
    end = position + size
    if size < 0:
        raise AvroError(f"the value at byte {position} has a negative length")
    if end > len(data):
        raise EOFError
    return bytes(data[position:end]), end


def _read_bytes(data: Data, position: int) -> tuple[bytes, int]:
    size, position = read_long(data, position)
    return _take(data, position, size)


_WIDTHS = {
    "null": 0,
    "boolean": 1,
    "int": 1,
    "long": 1,
    "float": 4,
    "double": 8,
    "bytes": 1,
    "string": 1,
}


@dataclass(frozen=True, slots=True)
class _Size:
    """The fewest bytes that a value takes, and how many fields it has, nested ones included."""

    width: int
    fields: int


def check_schema(schema: Schema) -> None:
    """Refuse a schema that is malformed, nested too deep or recursive, or has lists of zero-byte values.

    Raises:
        AvroError: the message names the problem.
    """
    try:
        size = _size(schema, {}, "", 0)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, AvroError):
            raise
        raise AvroError(f"the schema is malformed ({error!r})") from error
    if size.width == 0:
        raise AvroError("the schema describes records that take no bytes")


def _size(schema: Schema, types: dict[str, _Size], namespace: str, depth: int) -> _Size:
    if depth > MAX_AVRO_DEPTH:
        raise AvroError(f"the schema is nested more than {MAX_AVRO_DEPTH} deep")
    if isinstance(schema, str):
        return _size_of_name(schema, types, namespace)
    if isinstance(schema, list):
        branches = [_size(branch, types, namespace, depth + 1) for branch in schema]
        return _limit_fields(1, 1 + sum(branch.fields for branch in branches))
    match schema["type"]:
        case "record":
            return _record(schema, types, namespace, depth)
        case "array" | "map" as kind:
            items = _size(schema["items" if kind == "array" else "values"], types, namespace, depth + 1)
            if kind == "array" and items.width == 0:
                raise AvroError("the schema has a list of values that take no bytes")
            return _limit_fields(1, 1 + items.fields)
        case "fixed":
            return _declare(schema, types, namespace, _Size(max(int(schema["size"]), 0), 1))
        case "enum":
            return _declare(schema, types, namespace, _Size(1, 1))
        case inner:
            return _size(inner, types, namespace, depth + 1)


def _record(schema: Mapping[str, Any], types: dict[str, _Size], namespace: str, depth: int) -> _Size:
    # A record is registered after its fields, so that a reference to itself is an error.
    inner = full_name(schema, namespace).rpartition(".")[0]
    sizes = [_size(field["type"], types, inner, depth + 1) for field in schema["fields"]]
    size = _limit_fields(sum(size.width for size in sizes), 1 + sum(size.fields for size in sizes))
    return _declare(schema, types, namespace, size)


def _size_of_name(name: str, types: Mapping[str, _Size], namespace: str) -> _Size:
    if name in _WIDTHS:
        return _Size(_WIDTHS[name], 1)
    for full in (f"{namespace}.{name}", name):
        if full in types:
            return types[full]
    raise AvroError(f"the schema refers to a type {name!r} that it does not declare before")


def _declare(schema: Mapping[str, Any], types: dict[str, _Size], namespace: str, size: _Size) -> _Size:
    types[full_name(schema, namespace)] = size
    return size


def full_name(schema: Mapping[str, Any], namespace: str) -> str:
    """The name of a declared type, with its namespace."""
    name: str = schema["name"]
    space = schema.get("namespace", namespace)
    return name if "." in name or not space else f"{space}.{name}"


def _limit_fields(width: int, fields: int) -> _Size:
    if fields > MAX_AVRO_FIELDS:
        raise AvroError(f"the schema has more than {MAX_AVRO_FIELDS} fields")
    return _Size(width, fields)
