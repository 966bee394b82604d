"""Records of Avro: single values one by one, and whole Arrow batches at once."""

import struct
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.log.format.avro import AvroError, Schema, check_schema, full_name, long_bytes, read_long
from indextables.records import dataclass
from indextables.schema.conversion import as_mask, list_parts, map_parts

# A value of any schema.
Datum: TypeAlias = Any
# Takes the data and a position; returns the value and the position after it.
Reader: TypeAlias = Callable[[bytes, int], tuple[Datum, int]]
Writer: TypeAlias = Callable[[Datum, list[bytes]], None]


def encode_datum(schema: Schema, value: Datum) -> bytes:
    """The bytes of a value."""
    out: list[bytes] = []
    _writer(schema)(value, out)
    return b"".join(out)


def decode_datum(schema: Schema, data: bytes, most_items: int | None = None) -> Datum:
    """The value that the bytes hold; it must take all of them.

    `most_items` is the maximum number of elements of all lists and maps together; by default the number of
    bytes.
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
    """The values that the bytes hold, one after another; they must take all bytes."""
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
    raise AssertionError(f"no record of the log has the type {kind}")


# Most strings are short, and there may be a hundred thousand of them.
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
    """The readers of named types, and how many elements of lists and maps may still be read."""

    def __init__(self, most_items: int) -> None:
        super().__init__()
        self.items_left = most_items


def _reader(schema: Schema, types: _Types, namespace: str) -> Reader:
    """The reader of a schema; `types` are the types that it may refer to by name."""
    if isinstance(schema, list):
        return _union_reader([_reader(branch, types, namespace) for branch in schema])
    if isinstance(schema, str):
        return _named_reader(schema, types, namespace)
    try:
        kind = schema["type"]
        if kind == "record":
            return _record_reader(schema, types, namespace)
        if kind == "array":
            return _array_reader(_reader(schema["items"], types, namespace), types)
        if kind == "map":
            return _map_reader(_reader(schema["values"], types, namespace), types)
        if kind in ("fixed", "enum"):
            return _declare(schema, types, namespace, _simple_named(schema))
    except (KeyError, TypeError) as error:
        raise AvroError(f"the schema is malformed ({error!r})") from error
    return _reader(kind, types, namespace)


def _named_reader(name: str, types: _Types, namespace: str) -> Reader:
    if name in _PRIMITIVES:
        return _PRIMITIVES[name]
    for full in (f"{namespace}.{name}", name):
        if full in types:
            return types[full]
    raise AvroError(f"the schema refers to an unknown type {name}")


def _declare(schema: Mapping[str, Any], types: _Types, namespace: str, reader: Reader) -> Reader:
    types[full_name(schema, namespace)] = reader
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


def _record_reader(schema: Mapping[str, Any], types: _Types, namespace: str) -> Reader:
    full = full_name(schema, namespace)
    fields: list[tuple[str, Reader]] = []

    def read_record(data: bytes, position: int) -> tuple[dict[str, Any], int]:
        record: dict[str, Any] = {}
        for name, read in fields:
            record[name], position = read(data, position)
        return record, position

    _declare(schema, types, namespace, read_record)
    inner = full.rpartition(".")[0]
    fields += [(field["name"], _reader(field["type"], types, inner)) for field in schema["fields"]]
    return read_record


def _union_reader(branches: list[Reader]) -> Reader:
    def read_union(data: bytes, position: int) -> tuple[Datum, int]:
        index, position = read_long(data, position)
        if not 0 <= index < len(branches):
            raise AvroError(f"byte {position} chooses branch {index} of {len(branches)}")
        return branches[index](data, position)

    return read_union


def _block_count(data: bytes, position: int, types: _Types) -> tuple[int, int]:
    """The number of items that follow; a negative count is followed by the size of the items in bytes."""
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
    """Read strings in one loop, for speed: a state may list a hundred thousand tombstones."""
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


_Bytes: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]
_Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True)
class _Narrow:
    """A few bytes per row: the first `lengths` bytes of each line of the matrix; all of them if None."""

    matrix: _Bytes
    lengths: _Bytes | None = None


_Part: TypeAlias = _Narrow | pa.BinaryArray


def encode_records(schema: Schema, batch: pa.RecordBatch) -> pa.BinaryArray:
    """The records, one value a row.

    Args:
        schema: an Avro record of strings, booleans, whole numbers, and arrays and maps of strings; any
            of them may be in a union with null.
        batch: a column for each field, of the like type, with nulls only where a union allows them.
    """
    parts: list[_Part] = []
    for field in schema["fields"]:
        _encode(field["type"], batch.column(field["name"]), None, parts)
    return _join(parts, batch.num_rows)


def _encode(kind: Schema, array: pa.Array, mask: _Mask | None, parts: list[_Part]) -> None:
    """Append the bytes of a column; rows outside the mask have none."""
    if isinstance(kind, list):
        _encode_nullable(kind, array, parts)
    elif kind == "string":
        _encode_strings(array, mask, parts)
    elif kind == "boolean":
        bits = as_mask(array)
        parts.append(_only(_Narrow(bits.astype(np.uint8)[:, None]), mask))
    elif kind in ("int", "long"):
        numbers = pc.fill_null(array, 0).to_numpy().astype(np.int64, copy=False)
        parts.append(_only(_varints(numbers), mask))
    elif kind["type"] == "map":
        offsets, keys, items = map_parts(array)
        children: list[_Part] = []
        _encode("string", keys, None, children)
        _encode(kind["values"], items, None, children)
        _encode_items(offsets, _join(children, len(keys)), mask, parts)
    else:
        offsets, values = list_parts(array)
        children = []
        _encode(kind["items"], values, None, children)
        _encode_items(offsets, _join(children, len(values)), mask, parts)


def _encode_nullable(branches: list[Schema], array: pa.Array, parts: list[_Part]) -> None:
    """Append the branch's number, and for rows with a value the value."""
    null = branches.index("null")
    rows = len(array)
    if array.null_count == rows:
        parts.append(_Narrow(np.full((rows, 1), 2 * null, np.uint8)))
        return
    mask: _Mask | None = None
    if array.null_count:
        mask = array.is_valid().to_numpy(zero_copy_only=False)
        chosen = np.where(mask, 2 - 2 * null, 2 * null).astype(np.uint8)
    else:
        chosen = np.full(rows, 2 - 2 * null, np.uint8)
    parts.append(_Narrow(chosen[:, None]))
    _encode(branches[1 - null], array, mask, parts)


def _encode_strings(array: pa.Array, mask: _Mask | None, parts: list[_Part]) -> None:
    """Append the length, then the bytes; rows outside the mask have neither."""
    data = pc.fill_null(array.cast(pa.binary()), b"")
    lengths = pc.binary_length(data).to_numpy().astype(np.int64)
    parts.append(_only(_varints(lengths), mask))
    parts.append(data)


def _encode_items(
    offsets: np.ndarray[Any, Any], items: pa.BinaryArray, mask: _Mask | None, parts: list[_Part]
) -> None:
    """Append one block of items and the count 0 that ends it; an empty list is the count 0 alone."""
    counts = np.diff(offsets).astype(np.int64)
    parts.append(_only(_varints(counts), mask))
    starts, data = _layout(items)
    parts.append(_binary(np.ascontiguousarray(starts[offsets]), data))
    parts.append(_Narrow(np.zeros((len(counts), 1), np.uint8), (counts > 0).astype(np.uint8)))


def _only(part: _Narrow, mask: _Mask | None) -> _Narrow:
    if mask is None:
        return part
    lengths = part.matrix.shape[1] if part.lengths is None else part.lengths
    return _Narrow(part.matrix, np.where(mask, lengths, 0).astype(np.uint8))


def _varints(numbers: np.ndarray[Any, np.dtype[np.int64]]) -> _Narrow:
    """Whole numbers with the sign in the lowest bit, seven bits a byte, the lowest first."""
    zigzag = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    top = int(zigzag.max()) if len(zigzag) else 0
    width = max(1, (top.bit_length() + 6) // 7)
    if width == 1:
        return _Narrow(zigzag.astype(np.uint8)[:, None])
    matrix = np.empty((len(zigzag), width), np.uint8)
    lengths = np.ones(len(zigzag), np.uint8)
    rest = zigzag
    for column in range(width):
        low = (rest & np.uint64(0x7F)).astype(np.uint8)
        rest = rest >> np.uint64(7)
        more = rest > 0
        matrix[:, column] = low | (more.astype(np.uint8) << np.uint8(7))
        lengths += more
    return _Narrow(matrix, None if bool((lengths == width).all()) else lengths)


# --- from parts to records -------------------------------------------------------------------------


def _join(parts: list[_Part], rows: int) -> pa.BinaryArray:
    """Concatenate the parts of each row; adjacent narrow parts are combined first."""
    columns: list[pa.BinaryArray] = []
    narrow: list[_Narrow] = []
    for part in parts:
        if isinstance(part, _Narrow):
            narrow.append(part)
            continue
        if narrow:
            columns.append(_flat(narrow, rows))
            narrow = []
        columns.append(part)
    if narrow:
        columns.append(_flat(narrow, rows))
    if len(columns) == 1:
        return columns[0]
    return pc.binary_join_element_wise(*columns, pa.scalar(b"", pa.binary()))


def _flat(parts: list[_Narrow], rows: int) -> pa.BinaryArray:
    matrix = np.concatenate([part.matrix for part in parts], axis=1)
    width = matrix.shape[1]
    if all(part.lengths is None for part in parts):
        return _binary(np.arange(0, (rows + 1) * width, width, dtype=np.int32), matrix.reshape(-1))
    used = np.concatenate([_byte_mask(part) for part in parts], axis=1)
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(np.count_nonzero(used, axis=1), out=offsets[1:])
    return _binary(offsets, matrix[used])


def _byte_mask(part: _Narrow) -> np.ndarray[Any, np.dtype[np.bool_]]:
    width = part.matrix.shape[1]
    if part.lengths is None:
        return np.ones(part.matrix.shape, np.bool_)
    return np.arange(width, dtype=np.uint8)[None, :] < part.lengths[:, None]


def _binary(offsets: np.ndarray[Any, Any], data: _Bytes | pa.Buffer) -> pa.BinaryArray:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.BinaryArray.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def _layout(array: pa.BinaryArray) -> tuple[np.ndarray[Any, np.dtype[np.int32]], pa.Buffer]:
    """The offsets of the values, with the end as the last one; and the bytes."""
    _, offsets, data = array.buffers()
    if len(array) == 0:
        return np.zeros(1, np.int32), pa.py_buffer(b"")
    starts = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    return starts, pa.py_buffer(b"") if data is None else data


def record_layout(records: pa.BinaryArray) -> tuple[np.ndarray[Any, np.dtype[np.int32]], memoryview]:
    """The offsets of the records, with the end as the last one; and the bytes."""
    starts, data = _layout(records)
    return starts, memoryview(data)
