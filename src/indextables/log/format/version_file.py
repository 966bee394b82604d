"""Version files: one action per line, plain or compressed with gzip (PROTOCOL.md, "Version files").

Three forms are read: plain JSON lines, gzip, and gzip after the two bytes `01 01`, as older writers left it.
Gzip, which has a checksum, is written unless options disable it. Plain files of this implementation have a
checksum as their first line and again as their last line.
"""

from collections.abc import Iterable

import msgspec
from isal import isal_zlib

from indextables.errors import CorruptLogError, LogError
from indextables.limits import MAX_UNPACKED, records_limit, unpacked_limit
from indextables.log.format.actions import Action, Add, Line, MergeSkip, Remove, line_of
from indextables.schema.values import NULL_PARTITION

GZIP_MAGIC = b"\x1f\x8b"
# The prefix of older writers before gzip: a marker byte, and the codec's number.
LEGACY_PREFIX = b"\x01\x01"

# The first and the last line of a plain file: the checksum of the lines between them.
_SEAL_START = b'{"checksum":'
_SEAL = _SEAL_START + b'{"crc32":%d}}\n'

_GZIP_WBITS = 31
_GZIP_LEVEL = 2
_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Line)


def encode(actions: Iterable[Action], *, compress: bool = True) -> bytes:
    """The bytes of a version file that holds the actions, in their order.

    Raises:
        LogError: no reader would accept the file: a value is out of range, or it is too large.
    """
    try:
        lines = encode_lines(actions)
        decode_lines(lines, "")
    except CorruptLogError as error:
        raise _refuse(error.problem) from None
    except (OverflowError, UnicodeEncodeError) as error:
        raise _refuse(str(error)) from None
    data = pack(lines) if compress else _seal(lines)
    size, limit = (len(lines), unpacked_limit(len(data))) if compress else (len(data), MAX_UNPACKED)
    if size > limit:
        count = lines.count(b"\n")
        raise LogError(
            f"a version of {count} actions would have {size} bytes, and readers accept at most {limit}; it "
            "was not written; write fewer or larger splits at once, or collect statistics of fewer columns "
            "(dataSkippingNumIndexedCols)"
        )
    return data


def _refuse(problem: str) -> LogError:
    return LogError(
        f"a version was not written, because readers would refuse it ({problem}): a value of this operation, "
        "or the one that it continues in the table, is out of range"
    )


def decode(data: bytes, url: str) -> list[Action]:
    """The actions of a version file, in their order; see `decode_sized`."""
    return decode_sized(data, url)[0]


def decode_sized(data: bytes, url: str) -> tuple[list[Action], int]:
    """The actions of a version file, in their order, and the size of its text in bytes.

    Blank lines, unknown actions and unknown fields are ignored.

    Args:
        data: the file, in any of the three forms.
        url: the URL of the file, for the error.

    Raises:
        CorruptLogError: the file is empty, truncated or too large, differs from its checksum, or a line is
            not an action.
    """
    if not data:
        raise CorruptLogError(url, "is empty, though every version has at least one action")
    text = unpack(data, url)
    check_lines(text, len(data), url)
    return decode_lines(_unseal(text, url), url), len(text)


def check_lines(text: bytes, packed: int, url: str) -> None:
    """Refuse more lines than this many compressed bytes can hold."""
    if text.count(b"\n") > records_limit(packed):
        raise CorruptLogError(url, f"has more than {records_limit(packed)} lines, the limit for its size")


def encode_lines(actions: Iterable[Action]) -> bytes:
    """One JSON object per line; every line ends with a newline."""
    return _ENCODER.encode_lines(line_of(_without_nulls(action)) for action in actions)


def decode_lines(text: bytes, url: str) -> list[Action]:
    """The actions of JSON lines; an error names the line."""
    try:
        lines = _DECODER.decode_lines(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        lines = [_decode_line(line, url, number) for number, line in _number_lines(text)]
    actions: list[Action] = []
    for line in lines:
        line_actions = line.actions()
        if len(line_actions) > 1:
            raise CorruptLogError(url, "has a line with more than one action")
        actions += line_actions
    # Search the raw text first: hardly any file has null partition values.
    if NULL_PARTITION.encode() in text:
        actions = [_with_nulls(action) for action in actions]
    return actions


def pack(text: bytes, *, legacy: bool = False) -> bytes:
    """The text as gzip; `legacy` adds the two-byte prefix that the original's older readers need."""
    packed: bytes = isal_zlib.compress(text, _GZIP_LEVEL, wbits=_GZIP_WBITS)
    return LEGACY_PREFIX + packed if legacy else packed


def unpack(data: bytes, url: str) -> bytes:
    """The text of a file in any of the three forms."""
    if data[:2] == GZIP_MAGIC:
        return _gunzip(data, url)
    # The original's reader checks only the third and fourth byte, so the first two may have any value.
    if data[2:4] == GZIP_MAGIC:
        return _gunzip(data[2:], url)
    if len(data) > MAX_UNPACKED:
        raise _too_large(url, MAX_UNPACKED)
    return data


def _seal(lines: bytes) -> bytes:
    """The lines between two lines with their checksum, so that a missing start or end is detected."""
    seal = _SEAL % isal_zlib.crc32(lines)
    return seal + lines + seal


def _unseal(text: bytes, url: str) -> bytes:
    """The lines without those of the checksum, if there are any; the checksum is verified."""
    first = text[: text.find(b"\n") + 1]
    last = text[text.rfind(b"\n", 0, -1) + 1 :]
    if not first.startswith(_SEAL_START) and not last.startswith(_SEAL_START):
        return text
    lines = text[len(first) : len(text) - len(last)]
    if first != last or len(first) + len(last) > len(text) or first != _SEAL % isal_zlib.crc32(lines):
        raise CorruptLogError(url, "differs from its checksum")
    return lines


def _gunzip(data: bytes, url: str) -> bytes:
    """Decompress all members of a gzip file; raises if it is truncated."""
    parts: list[bytes] = []
    limit = room = unpacked_limit(len(data))
    rest = data
    while rest:
        member = isal_zlib.decompressobj(wbits=_GZIP_WBITS)
        try:
            part = member.decompress(rest, room + 1)
        except isal_zlib.IsalError as error:  # type: ignore[misc]  # its stub takes a class for an instance
            raise CorruptLogError(url, f"is not whole gzip ({error})") from error
        room -= len(part)
        if room < 0:
            raise _too_large(url, limit)
        if not member.eof:
            raise CorruptLogError(url, "is cut short: its gzip data has no end")
        parts.append(part)
        rest = member.unused_data
    return b"".join(parts)


def _too_large(url: str, limit: int) -> CorruptLogError:
    return CorruptLogError(url, f"holds more than {limit} bytes, the limit for its compressed size")


def _number_lines(text: bytes) -> list[tuple[int, bytes]]:
    lines = enumerate(text.split(b"\n"), start=1)
    return [(number, line) for number, line in lines if line.strip()]


def _decode_line(line: bytes, url: str, number: int) -> Line:
    try:
        return _DECODER.decode(line)
    except msgspec.ValidationError as error:
        raise CorruptLogError(url, f"line {number} is not an action of the log: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptLogError(url, f"line {number} is not JSON: {error}") from error


def _without_nulls(action: Action) -> Action:
    """The action with the reserved name in place of null partition values: other readers refuse a null."""
    if isinstance(action, Add | Remove | MergeSkip):
        values = action.partition_values
        if values and None in values.values():
            texts: dict[str, str | None] = {
                column: NULL_PARTITION if value is None else value for column, value in values.items()
            }
            return msgspec.structs.replace(action, partition_values=texts)
    return action


def _with_nulls(action: Action) -> Action:
    """The inverse of `_without_nulls`."""
    if isinstance(action, Add | Remove | MergeSkip):
        values = action.partition_values
        if values and NULL_PARTITION in values.values():
            nulls = {column: None if value == NULL_PARTITION else value for column, value in values.items()}
            return msgspec.structs.replace(action, partition_values=nulls)
    return action
