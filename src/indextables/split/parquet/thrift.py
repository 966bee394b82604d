"""Thrift's compact protocol, as far as Parquet's metadata uses it.

A struct is a dict from field number to `(kind, value)`, a list is `(kind of its elements, values)`: a
struct can be changed and written again without a schema.
"""

import struct
from typing import Any, TypeAlias

from indextables.limits import MAX_THRIFT_DEPTH, MAX_THRIFT_VALUES
from indextables.varint import read_varint, unzigzag, varint_bytes, zigzag

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)

Struct: TypeAlias = dict[int, tuple[int, Any]]


def read_struct(data: bytes | memoryview, position: int = 0) -> tuple[Struct, int]:
    """Read one struct; returns it and the position after it.

    Raises:
        ValueError: The bytes are not a struct, or exceed the limits of values and depth.
    """
    try:
        return _Reader(data).struct(position, 0)
    except (IndexError, struct.error) as error:
        raise ValueError("thrift data are truncated") from error


class _Reader:
    """Reads values, and limits their number: a byte of input may become a hundred bytes of memory."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = data
        self._left = MAX_THRIFT_VALUES

    def struct(self, position: int, depth: int) -> tuple[Struct, int]:
        if depth > MAX_THRIFT_DEPTH:
            raise ValueError(f"thrift structs are nested more than {MAX_THRIFT_DEPTH} deep")
        fields: Struct = {}
        number = 0
        while True:
            head = self._data[position]
            position += 1
            if head == 0:
                return fields, position
            kind = head & 15
            if head >> 4:
                number += head >> 4
            else:
                raw, position = read_varint(self._data, position)
                number = unzigzag(raw)
            if not 0 < number < 1 << 15:
                raise ValueError(f"thrift field {number} cannot be: fields have numbers of 15 bits")
            if kind in (TRUE, FALSE):
                fields[number] = (kind, None)
            else:
                value, position = self._value(position, kind, depth)
                fields[number] = (kind, value)

    def _value(self, position: int, kind: int, depth: int) -> tuple[Any, int]:
        self._left -= 1
        if self._left < 0:
            raise ValueError(f"thrift data have more than {MAX_THRIFT_VALUES} values")
        if kind in (I16, I32, I64):
            raw, position = read_varint(self._data, position)
            return unzigzag(raw), position
        if kind == BINARY:
            length, position = read_varint(self._data, position)
            if length > len(self._data) - position:
                raise ValueError("thrift data are truncated")
            return bytes(self._data[position : position + length]), position + length
        if kind == STRUCT:
            return self.struct(position, depth + 1)
        if kind in (LIST, SET):
            return self._list(position, depth + 1)
        if kind in (BYTE, TRUE, FALSE):
            return self._data[position], position + 1
        if kind == DOUBLE:
            return struct.unpack_from("<d", self._data, position)[0], position + 8
        raise ValueError(f"thrift kind {kind} does not occur in Parquet metadata")

    def _list(self, position: int, depth: int) -> tuple[tuple[int, list[Any]], int]:
        if depth > MAX_THRIFT_DEPTH:
            raise ValueError(f"thrift lists are nested more than {MAX_THRIFT_DEPTH} deep")
        head = self._data[position]
        position += 1
        size, kind = head >> 4, head & 15
        if size == 15:
            size, position = read_varint(self._data, position)
        # Every element takes a byte at least.
        if size > len(self._data) - position:
            raise ValueError("thrift data are truncated")
        values: list[Any] = []
        for _ in range(size):
            value, position = self._value(position, kind, depth)
            values.append(value)
        return (kind, values), position


def write_struct(values: Struct) -> bytes:
    """The bytes of one struct.

    >>> read_struct(write_struct({1: (I32, -7), 20: (BINARY, b"x")}))[0]
    {1: (5, -7), 20: (8, b'x')}
    """
    out = bytearray()
    _write_struct(out, values)
    return bytes(out)


def _write_struct(out: bytearray, values: Struct) -> None:
    last = 0
    for number, (kind, value) in sorted(values.items()):
        if 0 < number - last <= 15:
            out.append((number - last) << 4 | kind)
        else:
            out.append(kind)
            out += varint_bytes(zigzag(number))
        last = number
        if kind not in (TRUE, FALSE):
            _write_value(out, kind, value)
    out.append(0)


def _write_value(out: bytearray, kind: int, value: Any) -> None:  # noqa: ANN401 - as read
    if kind in (I16, I32, I64):
        out += varint_bytes(zigzag(value))
    elif kind == BINARY:
        out += varint_bytes(len(value))
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
            out += varint_bytes(len(items))
        for item in items:
            _write_value(out, inner, item)
    else:
        out.append(value)
