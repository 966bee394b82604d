"""Dates and timestamps as text: the forms of the log, and the forms of Spark SQL literals.

Days and microseconds are integers counted from 1970-01-01 in the proleptic Gregorian calendar, since
Python's own dates end with the year 9999. Years of more than four digits have a sign.
"""

import datetime as dt
import re
import zoneinfo

from indextables.errors import OptionError, PredicateError

DAY_MICROS = 86_400_000_000
# Days since 1970 from 0000-01-01 to 9999-12-31: the years that have four digits.
FIRST_FOUR_DIGIT_DAY, LAST_FOUR_DIGIT_DAY = -719_528, 2_932_896

_SECOND_MICROS = 1_000_000
_DATE = r"([+-]?)(\d{4,7})-(\d\d)-(\d\d)"
_LOG_DATE = re.compile(_DATE)
_LOG_TIMESTAMP = re.compile(_DATE + r"[ T](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,6}))?)?(Z|[+-]\d\d:?\d\d)?")
_LITERAL_DATE = re.compile(r"([+-]?)([0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2}))?)?")
_LITERAL_TIME = re.compile(r"([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]{0,9}))?)?")
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])([0-9]{1,2})(?::?([0-9]{2})(?::?([0-9]{2}))?)?")
_UTC_NAMES = frozenset({"UTC", "Z", "GMT", "UT", "ETC/UTC", "ETC/GMT", "UNIVERSAL", "ZULU"})


# --- days and dates -----------------------------------------------------------------------------------

# The calendar repeats every 400 years (146,097 days). Here years start in March, so that the leap day is the
# last day of a year.


def days_from_civil(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01 of a year, month and day."""
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def civil_from_days(days: int) -> tuple[int, int, int]:
    """Year, month and day of a count of days since 1970-01-01."""
    era, of_era = divmod(days + 719_468, 146_097)
    year_of_era = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * of_year + 2) // 153
    month = (shifted + 2) % 12 + 1
    return era * 400 + year_of_era + (month <= 2), month, of_year - (153 * shifted + 2) // 5 + 1


def format_date(days: int) -> str:
    """A date as Spark writes it.

    >>> format_date(0), format_date(2_932_897), format_date(-719_529)
    ('1970-01-01', '+10000-01-01', '-0001-12-31')
    """
    year, month, day = civil_from_days(days)
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{month:02d}-{day:02d}"


def format_timestamp(micros: int, separator: str = "T") -> str:
    """A timestamp without zone, always with six digits of fraction."""
    days, rest = divmod(micros, DAY_MICROS)
    seconds, fraction = divmod(rest, _SECOND_MICROS)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return f"{format_date(days)}{separator}{hour:02d}:{minute:02d}:{second:02d}.{fraction:06d}"


def _days(match: re.Match[str]) -> int | None:
    """The days of a match with the groups sign, year, month and day; None if there is no such date."""
    year = int(match[2]) * (-1 if match[1] == "-" else 1)
    month, day = int(match[3] or 1), int(match[4] or 1)
    if not 1 <= month <= 12 or not 1 <= day <= 31:
        return None
    days = days_from_civil(year, month, day)
    return days if civil_from_days(days) == (year, month, day) else None


def _time_micros(hour: str, minute: str, second: str | None, fraction: str | None) -> int | None:
    """Microseconds since midnight; None if there is no such time."""
    numbers = int(hour), int(minute), int(second or 0)
    if numbers[0] > 23 or numbers[1] > 59 or numbers[2] > 59:
        return None
    seconds = (numbers[0] * 60 + numbers[1]) * 60 + numbers[2]
    return seconds * _SECOND_MICROS + int((fraction or "")[:6].ljust(6, "0"))


# --- texts of the log ---------------------------------------------------------------------------------


def parse_date(text: str) -> int | None:
    """Days since 1970-01-01 of a date in the log, or None if the text is not a date."""
    match = _LOG_DATE.fullmatch(text)
    return None if match is None else _days(match)


def parse_timestamp(text: str, *, zoned: bool) -> int | None:
    """Microseconds since 1970 of a timestamp in the log, or None if the text is not a timestamp.

    Args:
        text: A date, or a date and a time. Without a zone it is in UTC.
        zoned: Whether the text may have a zone.
    """
    if (days := parse_date(text)) is not None:
        return days * DAY_MICROS
    match = _LOG_TIMESTAMP.fullmatch(text)
    if match is None or (match[9] and not zoned) or (days := _days(match)) is None:
        return None
    micros = _time_micros(match[5], match[6], match[7], match[8])
    if micros is None:
        return None
    if (zone := match[9]) and zone != "Z":
        ahead = (int(zone[1:3]) * 60 + int(zone[-2:])) * 60 * _SECOND_MICROS
        micros += ahead if zone[0] == "-" else -ahead
    return days * DAY_MICROS + micros


# --- literals of Spark SQL ----------------------------------------------------------------------------


def parse_date_literal(text: str) -> int | None:
    """Days of `yyyy`, `yyyy-m` or `yyyy-m-d`; after a day, text that follows a blank or a T is ignored."""
    text = text.strip()
    match = _LITERAL_DATE.match(text)
    if not match:
        return None
    rest = text[match.end() :]
    if rest and (match[4] is None or rest[0] not in " T"):
        return None
    return _days(match)


def parse_timestamp_literal(text: str, zone: str | None) -> int | None:
    """The microseconds of a timestamp: since 1970 in UTC if there is a zone, else in local time.

    A zone within the text takes precedence over `zone`. Without `zone` it is ignored, as in Spark.
    """
    text = text.strip()
    days = parse_date_literal(text)
    match = _LITERAL_DATE.match(text)
    if days is None or match is None:
        return None
    rest = text[match.end() :]
    micros: int | None = 0
    own_zone = ""
    if rest:
        clock = _LITERAL_TIME.match(rest, 1)
        micros = _time_micros(*clock.groups()) if clock else None
        if clock is None or micros is None:
            return None
        own_zone = rest[clock.end() :].strip()
    if own_zone and not _is_zone(own_zone):
        return None
    local = days * DAY_MICROS + (micros or 0)
    return local if zone is None else to_utc(local, own_zone or zone)


def is_utc(zone: str) -> bool:
    """Whether the zone never differs from UTC."""
    return zone.upper() in _UTC_NAMES or _fixed_offset(zone) == 0


def to_utc(local: int, zone: str) -> int:
    """Convert a local time in a zone to UTC, in microseconds.

    Within a gap of the clock, the offset before the gap is used. Of two possible instants, the earlier is
    returned.

    Raises:
        PredicateError: The zone is unknown, or the year lies outside of the zone's rules.
    """
    if is_utc(zone):
        return local
    fixed = _fixed_offset(zone)
    if fixed is not None:
        return local - fixed * _SECOND_MICROS
    try:
        moment = dt.datetime(1970, 1, 1, tzinfo=zoneinfo.ZoneInfo(zone)) + dt.timedelta(microseconds=local)
        offset = moment.utcoffset()
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise PredicateError(f"unknown time zone {zone!r}; use a name as Europe/Berlin, or +02:00") from None
    except OverflowError:
        raise PredicateError(
            f"a timestamp outside the years 1 to 9999 needs an offset, as +00:00, instead of zone {zone!r}"
        ) from None
    assert offset is not None
    return local - offset // dt.timedelta(microseconds=1)


def _is_zone(name: str) -> bool:
    if is_utc(name) or _fixed_offset(name) is not None:
        return True
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def _fixed_offset(zone: str) -> int | None:
    """Seconds east of UTC for a zone written as an offset of at most 18 hours."""
    match = _OFFSET.fullmatch(zone.strip())
    if not match:
        return None
    hours, minutes, seconds = (int(part or 0) for part in match.groups()[1:])
    total = (hours * 60 + minutes) * 60 + seconds
    if minutes > 59 or seconds > 59 or total > 18 * 3600:
        return None
    return -total if match[1] == "-" else total


def epoch_milliseconds(moment: dt.datetime | str) -> int:
    """Convert a time, or its text in ISO 8601, to milliseconds since 1970; a time without a zone is UTC.

    Raises:
        OptionError: it is neither.
    """
    if isinstance(moment, str):
        try:
            moment = dt.datetime.fromisoformat(moment)
        except ValueError:
            raise OptionError(
                f"timestamp '{moment}' is not a date and time such as 2024-05-01 or 2024-05-01T12:00:00+02:00"
            ) from None
    if not isinstance(moment, dt.datetime):
        raise OptionError(
            f"{moment!r} is no time: give a datetime, or a text such as 2024-05-01T12:00:00+02:00"
        )
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(milliseconds=1)


def hours_of(span: dt.timedelta | None) -> float | None:
    """The length of a span in hours; None for None."""
    if span is not None and not isinstance(span, dt.timedelta):
        raise OptionError(f"a time is a timedelta, such as timedelta(days=7), not {span!r}")
    return None if span is None else span / dt.timedelta(hours=1)
