"""Thrift's compact protocol, as far as Parquet's metadata uses it.

A struct is a dict from field number to `(kind, value)`, a list is `(kind of its elements, values)`: what is
read can be changed and written again without knowing every field.
"""

import struct
from typing import Any, TypeAlias

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)

Struct: TypeAlias = dict[int, tuple[int, Any]]


def read_struct(data: bytes | memoryview, position: int = 0) -> tuple[Struct, int]:
    """Read one struct; gives it and the position after it."""
    found: Struct = {}
    number = 0
    while True:
        head = data[position]
        position += 1
        if head == 0:
            return found, position
        kind = head & 15
        if head >> 4:
            number += head >> 4
        else:
            raw, position = _varint(data, position)
            number = _unzigzag(raw)
        if kind in (TRUE, FALSE):
            found[number] = (kind, None)
        else:
            value, position = _value(data, position, kind)
            found[number] = (kind, value)


def write_struct(values: Struct) -> bytes:
    """The bytes of one struct.

    >>> read_struct(write_struct({1: (I32, -7), 20: (BINARY, b"x")}))[0]
    {1: (5, -7), 20: (8, b'x')}
    """
    out = bytearray()
    _write_struct(out, values)
    return bytes(out)


def _varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = data[position]
        position += 1
        result |= (byte & 127) << shift
        if byte < 128:
            return result, position
        shift += 7


def _unzigzag(raw: int) -> int:
    return (raw >> 1) ^ -(raw & 1)


def _value(data: bytes | memoryview, position: int, kind: int) -> tuple[Any, int]:
    if kind in (I16, I32, I64):
        raw, position = _varint(data, position)
        return (raw >> 1) ^ -(raw & 1), position
    if kind == BINARY:
        length, position = _varint(data, position)
        return bytes(data[position : position + length]), position + length
    if kind == STRUCT:
        return read_struct(data, position)
    if kind in (LIST, SET):
        return _read_list(data, position)
    if kind in (BYTE, TRUE, FALSE):
        return data[position], position + 1
    if kind == DOUBLE:
        return struct.unpack_from("<d", data, position)[0], position + 8
    raise ValueError(f"thrift kind {kind} does not occur in Parquet metadata")


def _read_list(data: bytes | memoryview, position: int) -> tuple[tuple[int, list[Any]], int]:
    head = data[position]
    position += 1
    size, kind = head >> 4, head & 15
    if size == 15:
        size, position = _varint(data, position)
    values: list[Any] = []
    for _ in range(size):
        value, position = _value(data, position, kind)
        values.append(value)
    return (kind, values), position


def _write_varint(out: bytearray, number: int) -> None:
    while number >= 128:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)


def _write_struct(out: bytearray, values: Struct) -> None:
    last = 0
    for number, (kind, value) in sorted(values.items()):
        if 0 < number - last <= 15:
            out.append((number - last) << 4 | kind)
        else:
            out.append(kind)
            _write_varint(out, number << 1)
        last = number
        if kind not in (TRUE, FALSE):
            _write_value(out, kind, value)
    out.append(0)


def _write_value(out: bytearray, kind: int, value: Any) -> None:  # noqa: ANN401 - as read
    if kind in (I16, I32, I64):
        _write_varint(out, value << 1 if value >= 0 else (-value << 1) - 1)
    elif kind == BINARY:
        _write_varint(out, len(value))
        out += value
    elif kind == STRUCT:
        _write_struct(out, value)
    elif kind == DOUBLE:
        out += struct.pack("<d", value)
    elif kind in (LIST, SET):
        inner, items = value
        if len(items) < 15:
            out.append(len(items) << 4 | inner)
        else:
            out.append(0xF0 | inner)
            _write_varint(out, len(items))
        for item in items:
            _write_value(out, inner, item)
    else:
        out.append(value)
