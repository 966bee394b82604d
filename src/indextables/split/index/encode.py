"""Column values as the index stores them: integers, hashes, JSON texts and JSON documents.

The functions for JSON return a string array with one JSON value per row, null where the row is null, and a
mask of rows whose text is incomplete (a float that JSON cannot represent, binary inside of an object).
"""

import ipaddress
from functools import lru_cache
from typing import Any, TypeAlias, assert_never

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.options.writing import TokenBoundary, Tokenizer
from indextables.records import dataclass
from indextables.schema.type_info import TypeKind, fixed_length, kind_of
from indextables.split.mapping import MAX_TERM, PARTIAL_FIELD, ROW_FIELD, Field, Kind, Mapping

Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]
Floats: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]

# Powers of ten, as in Tantivy's JSON parser.
_TEN = np.array([float(f"1e{power}") for power in range(309)])
_TRIES = (0, -1, 1, -2)
# Lower case and stemming lengthen a token by no more than this.
_GROWTH = 3
# Strings are hashed length by length if there are on average this many of each length.
_LEAST_OF_A_LENGTH = 16


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
    """Any array as JSON values: structs and maps as objects, lists as arrays, without nulls."""
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
            return quote_json(timestamp_text(values)), complete
        case TypeKind.NULL | TypeKind.BINARY | TypeKind.INTERVAL | TypeKind.OTHER:
            return pa.nulls(len(values), pa.string()), values.is_valid().to_numpy(zero_copy_only=False)
        case kind:
            assert_never(kind)


def _null_like(text: pa.Array, values: pa.Array) -> pa.Array:
    """The text, null where the value is null."""
    return (
        text if not values.null_count else pc.if_else(values.is_valid(), text, pa.scalar(None, pa.string()))
    )


def timestamp_text(values: pa.Array) -> pa.Array:
    """RFC 3339 in UTC, which Tantivy indexes as a date; years beyond 9999 stay texts."""
    text = values.cast(pa.timestamp("us")).cast(pa.string())
    return pc.binary_join_element_wise(pc.replace_substring(text, " ", "T"), "Z", "")


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
    if fixed_length(values.type) is not None:
        values = values.cast(pa.list_(values.type.value_type))
    items, incomplete = json_text(values.values)
    return _join_items(values, items, incomplete, "[", "]")


def _join_items(
    values: pa.Array, items: pa.Array, incomplete: Mask, start: str, end: str
) -> tuple[pa.Array, Mask]:
    """Join the items of each list; null items are omitted."""
    offsets = values.offsets.to_numpy().astype(np.int64)
    present = items.is_valid().to_numpy(zero_copy_only=False)
    before = np.concatenate(([0], np.cumsum(present)))
    lists = pa.ListArray.from_arrays(pa.array(before[offsets].astype(np.int32)), items.drop_null())
    text = pc.binary_join_element_wise(start, pc.binary_join(lists, ","), end, "")
    counts = np.concatenate(([0], np.cumsum(incomplete)))
    return _null_like(text, values), counts[offsets[1:]] > counts[offsets[:-1]]


_SPACES = b" \t\n\r\x0c"
_WORDS = bytes(b for b in range(256) if b >= 128 or chr(b).isalnum())
Ints: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Words: TypeAlias = np.ndarray[Any, np.dtype[np.uint64]]
Octets: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]

_OCTET = r"(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4 = rf"^{_OCTET}\.{_OCTET}\.{_OCTET}\.{_OCTET}$"
_raw_json = msgspec.json.Decoder(msgspec.Raw)
# `pa.scalar` would import pandas.
_NOTHING = pa.nulls(1, pa.string())[0]


def _byte_table(members: bytes) -> np.ndarray[Any, np.dtype[np.bool_]]:
    table = np.zeros(256, np.bool_)
    table[list(members)] = True
    return table


# Bytes that can be part of a token. Beyond ASCII all are listed: extra rows in `_partial` are harmless.
_WORD_BYTES = _byte_table(_WORDS)
_NON_SPACE_BYTES = ~_byte_table(_SPACES)


def rows_with_long_tokens(strings: pa.Array, tokenizer: Tokenizer, limit: int) -> Mask | None:
    """Which values may have a token that the index drops for its bytes, also in lower case; None if none can.

    These rows are listed in `_partial`, so that a search evaluates them.

    >>> from indextables.options.writing import find_tokenizer
    >>> rows_with_long_tokens(pa.array(["a bc def", "abcd e", None]), find_tokenizer("default"), 3).tolist()
    [False, True, False]
    """
    if tokenizer.grams is not None and 4 * tokenizer.grams[1] <= limit:
        return None
    # Other characters than those of ASCII may need more bytes in lower case.
    least = min(limit, MAX_TERM // _GROWTH) if tokenizer.lower_case else limit
    lengths = pc.binary_length(strings).fill_null(0).to_numpy(zero_copy_only=False)
    long: Mask = lengths > least
    if not long.any():
        return None
    match tokenizer.boundary:
        case TokenBoundary.NONE | TokenBoundary.GRAM:
            return long
        case TokenBoundary.SPACE:
            inside = _NON_SPACE_BYTES
        case TokenBoundary.WORD | TokenBoundary.CHARACTER:
            inside = _WORD_BYTES
        case _:
            assert_never(tokenizer.boundary)
    candidates = strings.filter(pa.array(long))
    has_long = _has_long_run(candidates, inside, least)
    if least < limit and has_long.any():
        ascii_ = pc.string_is_ascii(candidates).to_numpy(zero_copy_only=False)
        has_long &= ~ascii_ | _has_long_run(candidates, inside, limit)
    result: Mask = np.zeros(len(strings), np.bool_)
    result[np.flatnonzero(long)[has_long]] = True
    return result if result.any() else None


def _has_long_run(strings: pa.Array, inside: np.ndarray[Any, np.dtype[np.bool_]], limit: int) -> Mask:
    """Which of the strings (none is null or empty) have a run of more than `limit` such bytes."""
    offsets = np.frombuffer(strings.buffers()[1], np.int32)[
        strings.offset : strings.offset + len(strings) + 1
    ]
    data = np.frombuffer(strings.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
    starts = (offsets[:-1] - offsets[0]).astype(np.int64)
    # A run ends at a byte that is not part of a token, and at the end of a value.
    outside = np.flatnonzero(~inside[data])
    ends = np.sort(np.concatenate((outside, starts[1:], [len(data)])))
    begins = np.sort(np.concatenate((starts, outside + 1)))
    long = begins[ends - begins > limit]
    mask: Mask = np.zeros(len(strings), np.bool_)
    mask[np.searchsorted(starts, long, side="right") - 1] = True
    return mask


@dataclass(frozen=True, slots=True)
class Documents:
    """A batch as JSON documents, and the floats that JSON cannot represent.

    `floats` gives, by position in the batch, the fields and values that must be added to the document.
    `hashes` are the 64-bit hashes of the values of hash fields, without nulls.
    """

    lines: pa.Array
    floats: dict[int, dict[str, float]]
    hashes: dict[str, Words]


def integer_values(values: pa.Array) -> pa.Array:
    """The i64 form of integers, decimals, dates, timestamps, times and day-time intervals, in their order.

    >>> integer_values(pa.array(["1.50", None]).cast(pa.decimal128(5, 2))).to_pylist()
    [150, None]
    """
    type_ = values.type
    match kind_of(type_):
        case TypeKind.DECIMAL:
            # At most 18 digits, so the lower half of the 128 bits is the whole unscaled number.
            wide = values.cast(pa.decimal128(type_.precision, type_.scale))
            start, end = wide.offset, wide.offset + len(wide)
            halves = np.frombuffer(wide.buffers()[1], "<i8")[2 * start : 2 * end : 2]
            missing = values.is_null().to_numpy(zero_copy_only=False) if values.null_count else None
            return pa.array(halves, pa.int64(), mask=missing)
        case TypeKind.DATE:
            return values.view(pa.int32()).cast(pa.int64())
        case TypeKind.TIMESTAMP | TypeKind.TIMESTAMP_NTZ:
            return values.cast(pa.timestamp("us", type_.tz)).view(pa.int64())
        case TypeKind.TIME:
            return (values.cast(pa.time64("us")) if type_.bit_width == 32 else values).view(pa.int64())
        case TypeKind.INTERVAL:
            return values.cast(pa.duration("us")).view(pa.int64())
        case TypeKind.INTEGER:
            return values.cast(pa.int64())
        case (
            TypeKind.NULL
            | TypeKind.BOOLEAN
            | TypeKind.FLOAT
            | TypeKind.STRING
            | TypeKind.BINARY
            | TypeKind.LIST
            | TypeKind.MAP
            | TypeKind.STRUCT
            | TypeKind.OTHER
        ):
            raise ValueError(f"values of the type {type_} have no integer form")
        case kind:
            assert_never(kind)


def float_values(values: pa.Array) -> Floats:
    """Doubles with one zero and one NaN, so that equal values are equal bits; nulls become zero."""
    numbers = values.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0
    return np.where(np.isnan(numbers), np.nan, numbers)


@lru_cache(maxsize=1)
def _multipliers() -> Words:
    """One odd 64-bit number per byte position (splitmix64 from zero); part of the format."""
    state = np.arange(1, MAX_TERM + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (state ^ (state >> np.uint64(31))) | np.uint64(1)


def hash_values(strings: pa.Array) -> pa.Array:
    """The 32-bit hash of each string (PROTOCOL.md, "Hash fields"); null stays null.

    Only the first 65,530 bytes and the length count.

    >>> hash_values(pa.array(["abc", None, ""])).to_pylist()
    [985779911, None, 0]
    """
    return upper_half(hash64(strings), strings)


def upper_half(hashes: Words, strings: pa.Array) -> pa.Array:
    """The 32-bit hashes of strings from their 64-bit hashes; null where a string is null."""
    missing = strings.is_null().to_numpy(zero_copy_only=False) if strings.null_count else None
    return pa.array((hashes >> np.uint64(32)).astype(np.int64), mask=missing)


def hash64(strings: pa.Array) -> Words:
    """The 64-bit hash of each string, of which `hash_values` are the upper half; 0 for null."""
    strings = strings.fill_null("") if strings.null_count else strings
    lengths = pc.binary_length(strings).to_numpy(zero_copy_only=False).astype(np.int64)
    sums = _sums(strings, lengths)
    sums = (sums ^ (sums >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    sums ^= lengths.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return sums


def _sums(strings: pa.Array, lengths: Ints) -> Words:
    """For each string, the sum of its bytes, each plus one, times the multipliers of their positions.

    Strings of one length are rows of a table, which takes a fifth of the time or less.
    """
    if not len(lengths):
        return np.zeros(0, np.uint64)
    if lengths.max() > MAX_TERM:
        return _sums_of_any(strings, lengths)
    if lengths.min() == lengths.max():
        return _sums_of_equal(_octets(strings), int(lengths[0]), len(lengths))
    order = np.argsort(lengths, kind="stable")
    ordered = lengths[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    if len(starts) * _LEAST_OF_A_LENGTH > len(lengths):
        return _sums_of_any(strings, lengths)
    data = _octets(strings.take(pa.array(order)))
    sums = np.empty(len(lengths), np.uint64)
    reached = 0
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(ordered)], strict=True):
        length, count = int(ordered[start]), end - start
        stop = reached + length * count
        sums[order[start:end]] = _sums_of_equal(data[reached:stop], length, count)
        reached = stop
    return sums


def _octets(strings: pa.Array) -> Octets:
    return np.frombuffer(bytes_of(strings), np.uint8)


def _sums_of_equal(data: Octets, length: int, count: int) -> Words:
    """`_sums` for this many strings of one length."""
    multipliers = _multipliers()[:length]
    lines = data.reshape(count, length).astype(np.uint64)
    sums: Words = np.einsum("ij,j->i", lines, multipliers) + multipliers.sum(dtype=np.uint64)
    return sums


def _sums_of_any(strings: pa.Array, lengths: Ints) -> Words:
    """`_sums` for strings of any lengths."""
    data = _octets(strings)
    starts = np.cumsum(lengths) - lengths
    within = np.arange(len(data), dtype=np.int64) - np.repeat(starts, lengths)
    mixed = _multipliers()[np.minimum(within, MAX_TERM - 1)] * (data.astype(np.uint64) + np.uint64(1))
    if (lengths > MAX_TERM).any():
        mixed[within >= MAX_TERM] = 0
    sums = np.zeros(len(lengths), np.uint64)
    full = lengths > 0
    sums[full] = np.add.reduceat(mixed, starts[full]) if full.any() else 0
    return sums


def documents(batch: pa.RecordBatch, mapping: Mapping, ids: Ints) -> Documents:
    """The batch as documents of the index, one JSON text per row, under the given row ids."""
    pieces: list[Any] = [f'{{"{ROW_FIELD}":', pa.array(ids).cast(pa.string())]
    partial: list[tuple[str, Mask]] = []
    floats: dict[int, dict[str, float]] = {}
    hashes: dict[str, Words] = {}
    for each in mapping.fields:
        values = batch.column(each.column)
        name = escape_json(pa.array([each.name]))[0].as_py()
        if each.kind is Kind.HASH:
            text, quote, incomplete = _hash_text(each, values, hashes), "", None
        else:
            text, quote, incomplete = _text(each, values, floats)
        if text.null_count:
            pieces.append(pc.binary_join_element_wise(f',"{name}":{quote}', text, quote, ""))
        else:
            pieces += [f',"{name}":{quote}', text, quote]
        if incomplete is not None and incomplete.any():
            partial.append((name, incomplete))
    if partial:
        pieces.append(_partial_text(partial))
    pieces.append("}")
    lines = pc.binary_join_element_wise(*pieces, "", null_handling="replace", null_replacement="")
    return Documents(lines, floats, hashes)


def _partial_text(partial: list[tuple[str, Mask]]) -> pa.Array:
    """The list of incomplete fields, for rows that have any."""
    names = [pc.if_else(pa.array(incomplete), f',"{name}"', "") for name, incomplete in partial]
    joined = pc.utf8_slice_codeunits(pc.binary_join_element_wise(*names, ""), 1)
    joined = pc.if_else(pc.equal(joined, ""), _NOTHING, joined)
    return pc.binary_join_element_wise(f',"{PARTIAL_FIELD}":[', joined, "]", "")


def _text(
    each: Field, values: pa.Array, floats: dict[int, dict[str, float]]
) -> tuple[pa.Array, str, Mask | None]:
    """A field's JSON text for each row, the quote around it, and the rows with an incomplete value."""
    match each.kind:
        case Kind.I64:
            return integer_values(values).cast(pa.string()), "", None
        case Kind.BOOL:
            return values.cast(pa.string()), "", None
        case Kind.F64:
            return _float_text(each, values, floats), "", None
        case Kind.HASH:
            return _hash_text(each, values, {}), "", None
        case Kind.STRING:
            long = _longer(values, each.max_token)
            return escape_json(_null_where(values, long)), '"', long
        case Kind.TEXT:
            return escape_json(values), '"', rows_with_long_tokens(values, each.analysis, each.max_token)
        case Kind.IP:
            odd = _invalid_addresses(values)
            return _null_where(values, odd), '"', odd
        case Kind.JSON:
            return _json(each, values)


def _hash_text(each: Field, values: pa.Array, hashes: dict[str, Words]) -> pa.Array:
    """The hashes of values as texts; the 64-bit hashes are added to `hashes`."""
    whole = hash64(values)
    hashes[each.name] = (
        whole[values.is_valid().to_numpy(zero_copy_only=False)] if values.null_count else whole
    )
    return upper_half(whole, values).cast(pa.string())


def _float_text(each: Field, values: pa.Array, floats: dict[int, dict[str, float]]) -> pa.Array:
    numbers = float_values(values)
    text, failed = float_text(numbers)
    for row in np.flatnonzero(failed):
        if values[int(row)].is_valid:
            floats.setdefault(int(row), {})[each.name] = float(numbers[row])
    absent = pa.array(failed) if not values.null_count else pc.or_(pa.array(failed), values.is_null())
    return pc.if_else(absent, _NOTHING, text)


def _longer(strings: pa.Array, limit: int) -> Mask:
    lengths = pc.binary_length(strings).fill_null(0).to_numpy(zero_copy_only=False)
    long: Mask = lengths > limit
    return long


def _null_where(strings: pa.Array, mask: Mask) -> pa.Array:
    return pc.if_else(pa.array(mask), _NOTHING, strings) if mask.any() else strings


def _invalid_addresses(strings: pa.Array) -> Mask:
    """Rows with a value that is not an IPv4 or IPv6 address."""
    plain = pc.match_substring_regex(strings, _IPV4).fill_null(True).to_numpy(zero_copy_only=False)
    odd: Mask = ~plain
    if odd.any():
        # Python parses each distinct value that is not IPv4 once per batch.
        rest = pc.if_else(pa.array(odd), strings, _NOTHING).dictionary_encode()
        wrong = np.array([not _is_address(text) for text in rest.dictionary.to_pylist()], np.bool_)
        where = np.flatnonzero(odd)
        codes = rest.indices.fill_null(0).to_numpy(zero_copy_only=False)
        odd[where] = wrong[codes[where]]
    return odd


def _is_address(text: str) -> bool:
    try:
        return "%" not in text and ipaddress.IPv6Address(text) is not None
    except ValueError:
        return False


def _json(each: Field, values: pa.Array) -> tuple[pa.Array, str, Mask]:
    if kind_of(values.type) is TypeKind.STRING:
        text, partial = _validate_json(values)
        long = rows_with_long_tokens(values, each.analysis, each.max_token)
        partial |= long if long is not None else False
    else:
        text, partial = json_text(values)
        partial |= _longer(text, each.max_token)
        if each.analysis.lower_case and (may_grow := _longer(text, MAX_TERM // _GROWTH)).any():
            partial |= may_grow & ~pc.string_is_ascii(text).fill_null(True).to_numpy(zero_copy_only=False)
    partial |= _has_path_separators(text)
    if each.root:
        key = escape_json(pa.array([each.root]))[0].as_py()
        wrapped = pc.binary_join_element_wise(f'{{"{key}":', text, "}", "")
        text = pc.if_else(pc.starts_with(text, "{"), text, wrapped)
    return text, "", partial


def _has_path_separators(texts: pa.Array) -> Mask:
    """Documents that may have a key with a character by which the index separates keys."""
    mask: Mask = np.zeros(len(texts), np.bool_)
    for escape in ("\\u0000", "\\u0001"):
        mask |= pc.match_substring(texts, escape).fill_null(False).to_numpy(zero_copy_only=False)
    return mask


def _validate_json(strings: pa.Array) -> tuple[pa.Array, Mask]:
    """Texts that are a JSON value; others become null and are listed in `_partial`."""
    stripped = pc.utf8_trim(strings, " \t\r\n")
    bad = [text is not None and not _is_json(text) for text in stripped.to_pylist()]
    mask: Mask = np.array(bad, np.bool_)
    return _null_where(stripped, mask), mask


def _is_json(text: str) -> bool:
    try:
        _raw_json.decode(text)
    except (msgspec.DecodeError, RecursionError):  # nested too deep for it, as for the index
        return False
    return True
