"""Arrow values as JSON text, whole arrays at a time.

Every function returns a string array with one JSON value per row, null where the row is null, and a mask of
rows whose text is incomplete (a float that JSON cannot represent, binary inside of an object).
"""

from typing import Any, TypeAlias, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.schema.type_info import TypeKind, kind_of

Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]
Floats: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]

# Powers of ten as Tantivy's JSON parser has them.
_TEN = np.array([float(f"1e{power}") for power in range(309)])
_TRIES = (0, -1, 1, -2)


def escape_json(strings: pa.Array) -> pa.Array:
    r"""The strings with quotes, backslashes and control characters escaped, without outer quotes.

    >>> print(escape_json(pa.array(['say "hi"']))[0])
    say \"hi\"
    """
    data = np.frombuffer(bytes_of(strings), np.uint8)
    if (data == ord("\\")).any():
        strings = pc.replace_substring(strings, "\\", "\\\\")
    if (data == ord('"')).any():
        strings = pc.replace_substring(strings, '"', '\\"')
    for code in np.unique(data[data < 32]).tolist():
        strings = pc.replace_substring(strings, chr(code), f"\\u{code:04x}")
    return strings


def bytes_of(strings: pa.Array) -> bytes | memoryview:
    """The bytes of all values of a string array, one after the other."""
    data = strings.buffers()[2]
    if data is None or not len(strings):
        return b""
    offsets = np.frombuffer(strings.buffers()[1], np.int32)[
        strings.offset : strings.offset + len(strings) + 1
    ]
    return memoryview(data)[int(offsets[0]) : int(offsets[-1])]


def quote_json(strings: pa.Array) -> pa.Array:
    """The strings as JSON strings."""
    return pc.binary_join_element_wise('"', escape_json(strings), '"', "")


def float_text(values: Floats) -> tuple[pa.Array, Mask]:
    """Numbers as texts that Tantivy parses to the same bits, and a mask of numbers without such a text.

    Its JSON parser computes `digits * 10^exponent` in floating point, which is off by one bit for
    many shortest forms; so other digits are tried until the result is exact.

    >>> float_text(np.array([0.5, float("inf")]))[1].tolist()
    [False, True]
    """
    size = np.abs(values)
    usable = np.isfinite(values) & (size > 1e-250) & (size < 1e250)
    safe = np.where(usable, size, 1.0)
    first = 17 - np.floor(np.log10(safe)).astype(np.int64)
    digits = np.zeros(len(values), np.float64)
    powers = np.zeros(len(values), np.int64)
    whole = usable & (size < 2.0**53) & (size == np.floor(size))
    digits[whole] = size[whole]
    missing = np.flatnonzero(usable & ~whole)
    for shift in _TRIES:
        if not len(missing):
            break
        power = first[missing] + shift
        target = safe[missing]
        near = _scale(target, power)
        for candidate in (near, np.nextafter(near, 0.0), np.nextafter(near, np.inf)):
            fits = (candidate < 2.0**63) & (candidate == np.floor(candidate)) & (digits[missing] == 0)
            hit = fits & (_scale(candidate, -power) == target)
            digits[missing[hit]] = candidate[hit]
            powers[missing[hit]] = power[hit]
        missing = missing[digits[missing] == 0]
    failed = ~usable & (values != 0)
    failed[missing] = True
    sign = pc.if_else(pa.array(values < 0), "-", "")
    text = pc.binary_join_element_wise(
        sign, pa.array(digits.astype(np.int64)).cast(pa.string()), "e",
        pa.array(-powers).cast(pa.string()), "",
    )  # fmt: skip
    return text, failed


def _scale(values: Floats, powers: np.ndarray[Any, np.dtype[np.int64]]) -> Floats:
    ten = _TEN[np.minimum(np.abs(powers), 308)]
    return np.where(powers >= 0, values * np.where(powers >= 0, ten, 1.0), values / ten)


def json_text(values: pa.Array) -> tuple[pa.Array, Mask]:
    """Any array as JSON values: structs and maps as objects, lists as arrays, nulls left out."""
    complete: Mask = np.zeros(len(values), np.bool_)
    match kind_of(values.type):
        case TypeKind.STRUCT:
            return _struct_text(values)
        case TypeKind.MAP:
            return _map_text(values)
        case TypeKind.LIST:
            return _list_text(values)
        case TypeKind.STRING | TypeKind.DATE | TypeKind.TIME:
            return quote_json(values.cast(pa.string())), complete
        case TypeKind.FLOAT:
            numbers = values.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
            text, failed = float_text(numbers)
            nothing = pa.scalar(None, pa.string())
            return pc.if_else(pa.array(failed), nothing, _null_like(text, values)), failed
        case TypeKind.INTEGER | TypeKind.BOOLEAN | TypeKind.DECIMAL:
            return values.cast(pa.string()), complete
        case TypeKind.TIMESTAMP | TypeKind.TIMESTAMP_NTZ:
            return _timestamp_text(values), complete
        case TypeKind.NULL | TypeKind.BINARY | TypeKind.INTERVAL | TypeKind.OTHER:
            return pa.nulls(len(values), pa.string()), values.is_valid().to_numpy(zero_copy_only=False)
        case kind:
            assert_never(kind)


def _null_like(text: pa.Array, values: pa.Array) -> pa.Array:
    """The text, null where the value is null."""
    return (
        text if not values.null_count else pc.if_else(values.is_valid(), text, pa.scalar(None, pa.string()))
    )


def _timestamp_text(values: pa.Array) -> pa.Array:
    """RFC 3339 in UTC, which Tantivy indexes as a date; years beyond 9999 stay texts."""
    text = values.cast(pa.timestamp("us")).cast(pa.string())
    return quote_json(pc.binary_join_element_wise(pc.replace_substring(text, " ", "T"), "Z", ""))


def _struct_text(values: pa.Array) -> tuple[pa.Array, Mask]:
    partial: Mask = np.zeros(len(values), np.bool_)
    pieces: list[Any] = []
    for i, field in enumerate(values.type):
        child = pc.struct_field(values, [i])
        text, incomplete = json_text(child)
        key = escape_json(pa.array([field.name]))[0].as_py()
        pieces.append(pc.binary_join_element_wise(f',"{key}":', text, ""))
        partial |= incomplete
    inner = _join_fields(pieces, len(values))
    text = pc.binary_join_element_wise("{", pc.utf8_slice_codeunits(inner, 1), "}", "")
    return _null_like(text, values), partial


def _join_fields(pieces: list[Any], rows: int) -> pa.Array:
    if not pieces:
        return pa.array([""] * rows, pa.string())
    return pc.binary_join_element_wise(*pieces, "", null_handling="replace", null_replacement="")


def _map_text(values: pa.Array) -> tuple[pa.Array, Mask]:
    keys, incomplete_keys = json_text(values.keys)
    if kind_of(values.type.key_type) is not TypeKind.STRING:
        keys = quote_json(pc.replace_substring(keys, '"', ""))
    items, incomplete = json_text(values.items)
    pairs = pc.binary_join_element_wise(keys, ":", items, "")
    return _join_items(values, pairs, incomplete | incomplete_keys, "{", "}")


def _list_text(values: pa.Array) -> tuple[pa.Array, Mask]:
    if pa.types.is_fixed_size_list(values.type):
        values = values.cast(pa.list_(values.type.value_type))
    items, incomplete = json_text(values.values)
    return _join_items(values, items, incomplete, "[", "]")


def _join_items(
    values: pa.Array, items: pa.Array, incomplete: Mask, start: str, end: str
) -> tuple[pa.Array, Mask]:
    """Join the items of each list; null items are left out."""
    offsets = values.offsets.to_numpy().astype(np.int64)
    present = items.is_valid().to_numpy(zero_copy_only=False)
    before = np.concatenate(([0], np.cumsum(present)))
    lists = pa.ListArray.from_arrays(pa.array(before[offsets].astype(np.int32)), items.drop_null())
    text = pc.binary_join_element_wise(start, pc.binary_join(lists, ","), end, "")
    spoilt = np.concatenate(([0], np.cumsum(incomplete)))
    return _null_like(text, values), spoilt[offsets[1:]] > spoilt[offsets[:-1]]
