"""Arrow tables to Avro records, a column at a time.

Each column becomes, for all rows at once, the bytes it contributes to each record: numbers and lengths
as a narrow matrix with a count of bytes a row, strings as they lie in Arrow. One join across the
columns makes the records. No Python is run per row.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.log.format.avro import Schema
from indextables.log.format.nested import list_parts, map_parts

_Bytes: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]
_Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True)
class _Narrow:
    """A few bytes a row: of each line of the matrix, the first `lengths` count; all of them if None."""

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


def _encode(kind: Schema, array: pa.Array, wanted: _Mask | None, parts: list[_Part]) -> None:
    """Append what a column contributes; rows that are not wanted contribute nothing."""
    if isinstance(kind, list):
        _encode_nullable(kind, array, parts)
    elif kind == "string":
        _encode_strings(array, wanted, parts)
    elif kind == "boolean":
        bits = pc.fill_null(array, False).to_numpy(zero_copy_only=False)
        parts.append(_only(_Narrow(bits.astype(np.uint8)[:, None]), wanted))
    elif kind in ("int", "long"):
        numbers = pc.fill_null(array, 0).to_numpy().astype(np.int64, copy=False)
        parts.append(_only(_varints(numbers), wanted))
    elif kind["type"] == "map":
        offsets, keys, items = map_parts(array)
        children: list[_Part] = []
        _encode("string", keys, None, children)
        _encode(kind["values"], items, None, children)
        _encode_items(offsets, _join(children, len(keys)), wanted, parts)
    else:
        offsets, values = list_parts(array)
        children = []
        _encode(kind["items"], values, None, children)
        _encode_items(offsets, _join(children, len(values)), wanted, parts)


def _encode_nullable(branches: list[Schema], array: pa.Array, parts: list[_Part]) -> None:
    """The branch's number, and the value of the rows that have one."""
    null = branches.index("null")
    rows = len(array)
    if array.null_count == rows:
        parts.append(_Narrow(np.full((rows, 1), 2 * null, np.uint8)))
        return
    wanted: _Mask | None = None
    if array.null_count:
        wanted = array.is_valid().to_numpy(zero_copy_only=False)
        chosen = np.where(wanted, 2 - 2 * null, 2 * null).astype(np.uint8)
    else:
        chosen = np.full(rows, 2 - 2 * null, np.uint8)
    parts.append(_Narrow(chosen[:, None]))
    _encode(branches[1 - null], array, wanted, parts)


def _encode_strings(array: pa.Array, wanted: _Mask | None, parts: list[_Part]) -> None:
    """The length, then the bytes; a null that is not wanted has none."""
    data = pc.fill_null(array.cast(pa.binary()), b"")
    lengths = pc.binary_length(data).to_numpy().astype(np.int64)
    parts.append(_only(_varints(lengths), wanted))
    parts.append(data)


def _encode_items(
    offsets: np.ndarray[Any, Any], items: pa.BinaryArray, wanted: _Mask | None, parts: list[_Part]
) -> None:
    """One block of items and the count 0 that ends it; no items are the count 0 alone."""
    counts = np.diff(offsets).astype(np.int64)
    parts.append(_only(_varints(counts), wanted))
    starts, data = _layout(items)
    parts.append(_binary(np.ascontiguousarray(starts[offsets]), data))
    parts.append(_Narrow(np.zeros((len(counts), 1), np.uint8), (counts > 0).astype(np.uint8)))


def _only(part: _Narrow, wanted: _Mask | None) -> _Narrow:
    if wanted is None:
        return part
    lengths = part.matrix.shape[1] if part.lengths is None else part.lengths
    return _Narrow(part.matrix, np.where(wanted, lengths, 0).astype(np.uint8))


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
    """The parts side by side; neighbouring narrow ones are made one first."""
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
    used = np.concatenate([_used(part) for part in parts], axis=1)
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(np.count_nonzero(used, axis=1), out=offsets[1:])
    return _binary(offsets, matrix[used])


def _used(part: _Narrow) -> np.ndarray[Any, np.dtype[np.bool_]]:
    width = part.matrix.shape[1]
    if part.lengths is None:
        return np.ones(part.matrix.shape, np.bool_)
    return np.arange(width, dtype=np.uint8)[None, :] < part.lengths[:, None]


def _binary(offsets: np.ndarray[Any, Any], data: _Bytes | pa.Buffer) -> pa.BinaryArray:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.BinaryArray.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def _layout(array: pa.BinaryArray) -> tuple[np.ndarray[Any, np.dtype[np.int32]], pa.Buffer]:
    """Where each value starts, and at last the end; and the bytes."""
    _, offsets, data = array.buffers()
    if len(array) == 0:
        return np.zeros(1, np.int32), pa.py_buffer(b"")
    starts = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    return starts, pa.py_buffer(b"") if data is None else data


def record_layout(records: pa.BinaryArray) -> tuple[np.ndarray[Any, np.dtype[np.int32]], memoryview]:
    """Where each record starts, and at last the end; and the bytes."""
    starts, data = _layout(records)
    return starts, memoryview(data)
