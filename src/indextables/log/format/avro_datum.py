"""Single Avro records to and from Python values, by their schema.

For the few, small records of the log (a state's one record); manifests, with their many, never pass
here. Records are dicts, maps are dicts, arrays are lists; unions are of null and one other type.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from indextables.log.format.avro import AvroError, Schema, long_bytes, read_long
from indextables.log.format.avro_limits import check_schema, full_name

# Whatever a schema describes.
Datum: TypeAlias = Any
# Takes the data and a position; gives the value and the position after it.
Reader: TypeAlias = Callable[[bytes, int], tuple[Datum, int]]
Writer: TypeAlias = Callable[[Datum, list[bytes]], None]


def encode_datum(schema: Schema, value: Datum) -> bytes:
    """The bytes of a value."""
    out: list[bytes] = []
    _writer(schema)(value, out)
    return b"".join(out)


def decode_datum(schema: Schema, data: bytes, most_items: int | None = None) -> Datum:
    """The value that the bytes hold, from the first to the last of them.

    `most_items` are the elements of all lists and maps together; by default as many as there are bytes.
    """
    check_schema(schema)
    try:
        value, end = _reader(schema, _Types(len(data) if most_items is None else most_items), "")(data, 0)
    except (EOFError, IndexError, struct.error) as error:
        raise AvroError("a record is cut short") from error
    except UnicodeDecodeError as error:
        raise AvroError("a record holds a string that is not UTF-8") from error
    if end != len(data):
        raise AvroError(f"a record ends at byte {end} of {len(data)}")
    return value


def decode_data(schema: Schema, data: bytes, count: int) -> list[Datum]:
    """The values that the bytes hold, one after another, from the first byte to the last."""
    read = _reader(schema, _Types(len(data)), "")
    values: list[Datum] = []
    position = 0
    try:
        for _ in range(count):
            value, position = read(data, position)
            values.append(value)
    except (EOFError, IndexError, struct.error) as error:
        raise AvroError("a record is cut short") from error
    except UnicodeDecodeError as error:
        raise AvroError("a record holds a string that is not UTF-8") from error
    if position != len(data):
        raise AvroError(f"the records of a block end at byte {position} of {len(data)}")
    return values


# --- writing ---------------------------------------------------------------------------------------


def _writer(schema: Schema) -> Writer:
    kind = schema["type"] if isinstance(schema, dict) else schema
    if isinstance(kind, list):
        return _nullable_writer(kind)
    if kind == "record":
        return _record_writer(schema)
    if kind == "array":
        return _array_writer(schema["items"])
    if kind == "map":
        return _map_writer(schema["values"])
    if kind == "string":
        return _write_string
    if kind in ("int", "long"):
        return lambda value, out: out.append(long_bytes(value))
    raise AssertionError(f"no record of ours holds {kind}")


# Strings are short, as a rule, and there may be a hundred thousand of them.
_LENGTHS = [long_bytes(length) for length in range(256)]


def _write_string(value: str, out: list[bytes]) -> None:
    data = value.encode()
    length = len(data)
    out.append(_LENGTHS[length] if length < len(_LENGTHS) else long_bytes(length))
    out.append(data)


def _nullable_writer(branches: list[Schema]) -> Writer:
    null = branches.index("null")
    write = _writer(branches[1 - null])

    def write_nullable(value: Datum, out: list[bytes]) -> None:
        out.append(long_bytes(null if value is None else 1 - null))
        if value is not None:
            write(value, out)

    return write_nullable


def _record_writer(schema: Mapping[str, Any]) -> Writer:
    fields = [(field["name"], _writer(field["type"])) for field in schema["fields"]]

    def write_record(value: Mapping[str, Any], out: list[bytes]) -> None:
        for name, write in fields:
            write(value[name], out)

    return write_record


def _array_writer(items: Schema) -> Writer:
    write = _writer(items)

    def write_array(values: Datum, out: list[bytes]) -> None:
        if values:
            out.append(long_bytes(len(values)))
            for value in values:
                write(value, out)
        out.append(b"\x00")

    return write_array


def _map_writer(items: Schema) -> Writer:
    write = _writer(items)

    def write_map(values: Mapping[str, Any], out: list[bytes]) -> None:
        if values:
            out.append(long_bytes(len(values)))
            for key, value in values.items():
                _write_string(key, out)
                write(value, out)
        out.append(b"\x00")

    return write_map


# --- reading ---------------------------------------------------------------------------------------


class _Types(dict[str, Reader]):
    """The readers of types that have a name, and how many elements of lists and maps may still be read."""

    def __init__(self, most_items: int) -> None:
        super().__init__()
        self.items_left = most_items


def _reader(schema: Schema, named: _Types, namespace: str) -> Reader:
    """The reader of a schema; `named` are the types that it may refer to by name."""
    if isinstance(schema, list):
        return _union_reader([_reader(branch, named, namespace) for branch in schema])
    if isinstance(schema, str):
        return _named_reader(schema, named, namespace)
    try:
        kind = schema["type"]
        if kind == "record":
            return _record_reader(schema, named, namespace)
        if kind == "array":
            return _array_reader(_reader(schema["items"], named, namespace), named)
        if kind == "map":
            return _map_reader(_reader(schema["values"], named, namespace), named)
        if kind in ("fixed", "enum"):
            return _declare(schema, named, namespace, _simple_named(schema))
    except (KeyError, TypeError) as error:
        raise AvroError(f"the schema is malformed ({error!r})") from error
    return _reader(kind, named, namespace)


def _named_reader(name: str, named: _Types, namespace: str) -> Reader:
    if name in _PRIMITIVES:
        return _PRIMITIVES[name]
    for full in (f"{namespace}.{name}", name):
        if full in named:
            return named[full]
    raise AvroError(f"the schema refers to an unknown type {name}")


def _declare(schema: Mapping[str, Any], named: _Types, namespace: str, reader: Reader) -> Reader:
    named[full_name(schema, namespace)] = reader
    return reader


def _simple_named(schema: Mapping[str, Any]) -> Reader:
    if schema["type"] == "enum":
        symbols = schema["symbols"]

        def read_enum(data: bytes, position: int) -> tuple[Datum, int]:
            index, position = read_long(data, position)
            if not 0 <= index < len(symbols):
                raise AvroError(f"byte {position} chooses symbol {index} of {len(symbols)}")
            return symbols[index], position

        return read_enum
    size = schema["size"]
    return lambda data, position: _slice(data, position, size)


def _record_reader(schema: Mapping[str, Any], named: _Types, namespace: str) -> Reader:
    full = full_name(schema, namespace)
    fields: list[tuple[str, Reader]] = []

    def read_record(data: bytes, position: int) -> tuple[dict[str, Any], int]:
        record: dict[str, Any] = {}
        for name, read in fields:
            record[name], position = read(data, position)
        return record, position

    _declare(schema, named, namespace, read_record)
    inner = full.rpartition(".")[0]
    fields += [(field["name"], _reader(field["type"], named, inner)) for field in schema["fields"]]
    return read_record


def _union_reader(branches: list[Reader]) -> Reader:
    def read_union(data: bytes, position: int) -> tuple[Datum, int]:
        index, position = read_long(data, position)
        if not 0 <= index < len(branches):
            raise AvroError(f"byte {position} chooses branch {index} of {len(branches)}")
        return branches[index](data, position)

    return read_union


def _block_count(data: bytes, position: int, types: _Types) -> tuple[int, int]:
    """How many items follow; a negative count has the size of the items behind it."""
    count, position = read_long(data, position)
    if count < 0:
        _, position = read_long(data, position)
    types.items_left -= abs(count)
    if types.items_left < 0:
        raise AvroError(f"byte {position} announces {abs(count)} items, more than so few bytes can hold")
    return abs(count), position


def _array_reader(read: Reader, types: _Types) -> Reader:
    def read_array(data: bytes, position: int) -> tuple[list[Datum], int]:
        values: list[Datum] = []
        while True:
            count, position = _block_count(data, position, types)
            if count == 0:
                return values, position
            if read is _read_string:
                position = _read_strings(data, position, count, values)
                continue
            for _ in range(count):
                value, position = read(data, position)
                values.append(value)

    return read_array


def _read_strings(data: bytes, position: int, count: int, values: list[Datum]) -> int:
    """Many strings in one loop: a state may list a hundred thousand tombstones."""
    append = values.append
    for _ in range(count):
        zigzag = data[position]
        if zigzag & 0x81:
            size, start = read_long(data, position)
            value, position = _slice(data, start, size)
        else:
            start = position + 1
            position = start + (zigzag >> 1)
            value = data[start:position]
        append(value.decode())
    if position > len(data):
        raise EOFError
    return position


def _map_reader(read: Reader, types: _Types) -> Reader:
    def read_map(data: bytes, position: int) -> tuple[dict[str, Any], int]:
        values: dict[str, Any] = {}
        while True:
            count, position = _block_count(data, position, types)
            if count == 0:
                return values, position
            for _ in range(count):
                key, position = _read_string(data, position)
                values[key], position = read(data, position)

    return read_map


def _slice(data: bytes, position: int, size: int) -> tuple[bytes, int]:
    end = position + size
    if size < 0 or end > len(data):
        raise EOFError
    return data[position:end], end


def _read_data(data: bytes, position: int) -> tuple[bytes, int]:
    size, position = read_long(data, position)
    return _slice(data, position, size)


def _read_string(data: bytes, position: int) -> tuple[str, int]:
    raw, position = _read_data(data, position)
    return raw.decode(), position


def _read_boolean(data: bytes, position: int) -> tuple[bool, int]:
    return data[position] != 0, position + 1


def _read_float(data: bytes, position: int) -> tuple[float, int]:
    return struct.unpack_from("<f", data, position)[0], position + 4


def _read_double(data: bytes, position: int) -> tuple[float, int]:
    return struct.unpack_from("<d", data, position)[0], position + 8


_PRIMITIVES: dict[str, Reader] = {
    "null": lambda _data, position: (None, position),
    "boolean": _read_boolean,
    "int": read_long,
    "long": read_long,
    "float": _read_float,
    "double": _read_double,
    "bytes": _read_data,
    "string": _read_string,
}
