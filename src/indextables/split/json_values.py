"""The values of JSON documents as the index holds them: documents of any depth, numbers, instants, texts."""

import decimal
import json
import math
import re
from collections.abc import Iterator
from enum import Enum, auto
from typing import Any, TypeAlias

from indextables.schema.calendar import civil_from_days, days_from_civil

# Whole seconds since 1970 in UTC, and the digits of the fraction: their order is that of instants.
Instant: TypeAlias = tuple[int, str]

# The index keeps whole numbers of this range exactly, all others as doubles.
_LEAST_WHOLE, _GREATEST_WHOLE = -(1 << 63), (1 << 64) - 1
# Whole numbers with more digits are no whole numbers of the index, and slow to parse.
_MAX_DIGITS = 400
# Deeper documents may be refused by the index.
_SURE_DEPTH = 64
# Up to this one, whole numbers with two zeros after the point are parsed exactly.
_SURE_WHOLE = 1 << 46
_WRONG_BITS = 2
_WHOLE = re.compile(r"([+-]?)0*([0-9]{1,20})")
# Escapes of JSON, the first group those that are no lone surrogate.
_ESCAPES = re.compile(
    r"(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\(?!u[dD][89a-fA-F][0-9a-fA-F]{2}).)"
    r"|\\u[dD][89a-fA-F][0-9a-fA-F]{2}",
    re.DOTALL,
)
_SCALAR = re.compile(r"(-?(?:0|[1-9][0-9]*))((?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)|[a-zA-Z]+|-Infinity")
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_BLANKS = re.compile(r"[ \t\n\r]*")
_NAMES = {"true": True, "false": False, "null": None, "NaN": float("nan"), "Infinity": float("inf")}
# RFC 3339 as the index reads it: any ASCII character separates the date from the time.
_INSTANT = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[\x00-\x7f]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]+))?"
    r"(?:[Zz]|([+-])([0-9]{2}):([0-9]{2}))"
)
_DAY = 86_400
# The index holds instants as nanoseconds in 64 bits; others are texts there.
_LAST_SECOND = (1 << 63) // 1_000_000_000


# --- documents ----------------------------------------------------------------------------------------


def parse_json(text: str) -> Any:  # noqa: ANN401 - JSON
    r"""A JSON text of any depth; lone surrogates become question marks, as in Spark.

    Raises:
        ValueError: It is not JSON.

    >>> parse_json('{"a": ["\\ud800", 1]}')
    {'a': ['?', 1]}
    """
    if "\\ud" in text or "\\uD" in text:
        text = _ESCAPES.sub(lambda match: match[1] or "?", text)
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except RecursionError:
        return parse_deep(text)
    except ValueError:  # Python parses no number of this many digits
        return json.loads(text, parse_int=_parse_whole)


def _parse_whole(digits: str) -> int | float:
    return int(digits) if len(digits) <= _MAX_DIGITS else float(digits)


class _Expectation(Enum):
    """What a parser expects next."""

    VALUE = auto()
    ITEM_OR_END = auto()
    KEY_OR_END = auto()
    KEY = auto()
    COMMA_OR_END = auto()


def parse_deep(text: str) -> Any:  # noqa: ANN401 - JSON
    """As `json.loads`, without recursion."""
    root: list[Any] = []
    open_: list[Any] = [root]
    keys: list[str] = []
    expected = _Expectation.VALUE
    at = _skip(text, 0)
    while at < len(text):
        c, inside = text[at], open_[-1]
        if c in "]}" and expected in (
            _Expectation.COMMA_OR_END,
            _Expectation.KEY_OR_END if c == "}" else _Expectation.ITEM_OR_END,
        ):
            if len(open_) == 1 or isinstance(inside, dict) is not (c == "}"):
                break
            open_.pop()
            expected, at = _Expectation.COMMA_OR_END, at + 1
        elif expected is _Expectation.COMMA_OR_END:
            if c != "," or len(open_) == 1:
                break
            expected = _Expectation.KEY if isinstance(inside, dict) else _Expectation.VALUE
            at += 1
        elif expected in (_Expectation.KEY, _Expectation.KEY_OR_END):
            if c != '"':
                break
            key, at = _begin(text, at)
            at = _skip(text, at)
            if text[at : at + 1] != ":":
                break
            keys.append(key)
            expected, at = _Expectation.VALUE, at + 1
        else:
            value, at = _begin(text, at)
            if isinstance(inside, dict):
                inside[keys.pop()] = value
            else:
                inside.append(value)
            expected = _Expectation.COMMA_OR_END
            if isinstance(value, (dict, list)):
                open_.append(value)
                expected = _Expectation.KEY_OR_END if isinstance(value, dict) else _Expectation.ITEM_OR_END
        at = _skip(text, at)
    if at < len(text) or len(open_) > 1 or not root:
        raise json.JSONDecodeError("not JSON", text, at)
    return root[0]


def _skip(text: str, at: int) -> int:
    match = _BLANKS.match(text, at)
    assert match is not None
    return match.end()


def _begin(text: str, at: int) -> tuple[Any, int]:
    """The scalar at a place, or an empty object or list that begins there; and where the text goes on."""
    if text[at] == "{":
        return {}, at + 1
    if text[at] == "[":
        return [], at + 1
    match = (_STRING if text[at] == '"' else _SCALAR).match(text, at)
    if match is None:
        raise json.JSONDecodeError("not JSON", text, at)
    if text[at] == '"':
        return json.loads(match[0]), match.end()
    if match[1]:
        return float(match[0]) if match[2] else _parse_whole(match[1]), match.end()
    if match[0] == "-Infinity":
        return float("-inf"), match.end()
    if match[0] not in _NAMES:
        raise json.JSONDecodeError("not JSON", text, at)
    return _NAMES[match[0]], match.end()


def is_indexable(document: Any) -> bool:  # noqa: ANN401 - JSON
    """Whether an index surely takes a document as it is: neither deep nor with a number beyond doubles."""
    waiting = [(document, 0)]
    while waiting:
        value, depth = waiting.pop()
        if depth > _SURE_DEPTH or (isinstance(value, float) and not math.isfinite(value)):
            return False
        if isinstance(value, (dict, list)):
            items = value.values() if isinstance(value, dict) else value
            waiting += [(item, depth + 1) for item in items]
    return True


def values_at(document: Any, path: tuple[str, ...], *, deep: bool) -> Iterator[Any]:  # noqa: ANN401 - JSON
    """The scalar values at a path, through lists; with `deep` also those below it."""
    waiting = [(document, 0)]
    while waiting:
        value, depth = waiting.pop()
        if isinstance(value, list):
            waiting += [(item, depth) for item in value]
        elif isinstance(value, dict):
            if depth < len(path):
                waiting += [(item, depth + 1) for key, item in value.items() if _key(key) == path[depth]]
            elif deep:
                waiting += [(item, depth) for item in value.values()]
        elif value is not None and depth == len(path):
            yield value


def _key(key: Any) -> str:  # noqa: ANN401 - keys of maps have any type
    return str(key).lower() if isinstance(key, bool) else str(key)


# --- numbers ------------------------------------------------------------------------------------------


def json_number(text: str) -> int | float | None:
    """The JSON number that a text of a query denotes; None if it is not a number.

    >>> json_number("1234567890123456789"), json_number("1.5"), json_number("1e999")
    (1234567890123456789, 1.5, None)
    """
    if match := _WHOLE.fullmatch(text):
        whole = int(match[1] + match[2])
        return whole if _LEAST_WHOLE <= whole <= _GREATEST_WHOLE else float(whole)
    try:
        number = float(text)
    except ValueError:
        return None
    if "_" in text or not math.isfinite(number):
        return None
    return int(number) if number.is_integer() and _LEAST_WHOLE <= number < _GREATEST_WHOLE else number


def parsed_as(number: float, *, any_digits: bool) -> list[int | float]:
    """The values that the index may hold for a number.

    Its parser of JSON multiplies digits and a power of ten as doubles, which is off by a bit or two for many
    numbers, unless digits were chosen with this in mind: `any_digits` says that they were not.
    """
    if not any_digits or (isinstance(number, int) and abs(number) < _SURE_WHOLE):
        return [number]
    below = above = float(number)
    near = [number, below]
    for _ in range(_WRONG_BITS):
        below, above = math.nextafter(below, -math.inf), math.nextafter(above, math.inf)
        near += [n for n in (below, above) if math.isfinite(n)]
    return near


def number_of(value: float | decimal.Decimal) -> int | float:
    """A number as the index holds it: whole numbers beyond 64 bits are doubles."""
    if isinstance(value, decimal.Decimal):
        value = int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, float) or _LEAST_WHOLE <= value <= _GREATEST_WHOLE:
        return value
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


# --- instants and texts -------------------------------------------------------------------------------


def has_form_of_instant(text: str) -> bool:
    """Whether a text has the form of RFC 3339; it may be no date or time of the calendar."""
    return _INSTANT.fullmatch(text) is not None


def instant_of(value: Any) -> Instant | None:  # noqa: ANN401 - JSON
    """The instant of a text in RFC 3339; None for other values.

    >>> instant_of("2024-01-01T01:00:00.50+01:00") == instant_of("2024-01-01 00:00:00.5Z")
    True
    """
    match = _INSTANT.fullmatch(value) if isinstance(value, str) else None
    return None if match is None else _instant(match)


def _instant(match: re.Match[str]) -> Instant | None:
    year, month, day, hour, minute, second = (int(match[i]) for i in range(1, 7))
    ahead = (int(match[9]), int(match[10])) if match[8] else (0, 0)
    if not 1 <= month <= 12 or not 1 <= day <= 31 or hour > 23 or minute > 59 or second > 60:
        return None
    days = days_from_civil(year, month, day)
    if civil_from_days(days) != (year, month, day) or ahead[0] > 23 or ahead[1] > 59:
        return None
    offset = (ahead[0] * 60 + ahead[1]) * 60 * (-1 if match[8] == "-" else 1)
    fraction = (match[7] or "").rstrip("0")
    seconds = days * _DAY + (hour * 60 + minute) * 60 + min(second, 59) - offset
    if second == 60:
        # A leap second is after every fraction of the second before it; it ends a month.
        if (seconds + 1) % _DAY or civil_from_days((seconds + 1) // _DAY)[2] != 1:
            return None
        fraction = ":" + fraction
    return seconds, fraction


def text_of(value: Any) -> str | None:  # noqa: ANN401 - JSON
    """The value as a text of the index; None for instants, numbers and booleans."""
    if isinstance(value, str):
        instant = instant_of(value)
        return value if instant is None or not -_LAST_SECOND <= instant[0] <= _LAST_SECOND else None
    return None
