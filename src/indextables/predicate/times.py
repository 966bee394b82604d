"""Dates and timestamps as text, read as Spark reads them, over the whole range of its types.

Days and microseconds are plain integers counted from 1970-01-01, since Python's own dates end with the
year 9999.
"""

import datetime as dt
import re
import zoneinfo

from indextables.errors import PredicateError

MICROS_PER_DAY = 86_400_000_000
_MICROS_PER_SECOND = 1_000_000
_DATE = re.compile(r"([+-]?)([0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2}))?)?")
_TIME = re.compile(r"([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]{0,9}))?)?")
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])([0-9]{1,2})(?::?([0-9]{2})(?::?([0-9]{2}))?)?")
_UTC_NAMES = frozenset({"UTC", "Z", "GMT", "UT", "ETC/UTC", "ETC/GMT", "UNIVERSAL", "ZULU"})


def is_utc(zone: str) -> bool:
    """Whether the zone never differs from UTC."""
    return zone.upper() in _UTC_NAMES or _fixed_offset(zone) == 0


def days_of(text: str) -> int | None:
    """A date as days: `yyyy`, `yyyy-m` or `yyyy-m-d`; what follows a blank or a T after a day is ignored."""
    text = text.strip()
    found = _DATE.match(text)
    if not found:
        return None
    rest = text[found.end() :]
    if rest and (found[4] is None or rest[0] not in " T"):
        return None
    return _days(found)


def micros_of(text: str, zone: str | None) -> int | None:
    """A timestamp as microseconds: of UTC if a zone is given, else of the clock on the wall.

    A zone within the text goes before the one given; without a given one it is ignored, as in Spark.
    """
    text = text.strip()
    found = _DATE.match(text)
    if not found:
        return None
    days = _days(found)
    rest = text[found.end() :]
    if days is None or (rest and (found[4] is None or rest[0] not in " T")):
        return None
    micros = 0
    named = ""
    if rest:
        clock = _TIME.match(rest, 1)
        if not clock:
            return None
        hour, minute, second = int(clock[1]), int(clock[2]), int(clock[3] or 0)
        if hour > 23 or minute > 59 or second > 59:
            return None
        seconds = (hour * 60 + minute) * 60 + second
        micros = seconds * _MICROS_PER_SECOND + int((clock[4] or "")[:6].ljust(6, "0"))
        named = rest[clock.end() :].strip()
    local = days * MICROS_PER_DAY + micros
    if named and not _is_zone(named):
        return None
    return local if zone is None else utc_of(local, named or zone)


def utc_of(local: int, zone: str) -> int:
    """The instant at which a clock in the zone shows a time; both in microseconds.

    In a gap of the clock the time before the change counts on; of two instants the earlier is meant.
    """
    if is_utc(zone):
        return local
    fixed = _fixed_offset(zone)
    if fixed is not None:
        return local - fixed * _MICROS_PER_SECOND
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


def date_text(days: int) -> str:
    """Days as `yyyy-mm-dd`."""
    year, month, day = _civil(days)
    return f"{'-' if year < 0 else ''}{abs(year):04}-{month:02}-{day:02}"


def timestamp_text(micros: int) -> str:
    """Microseconds as `yyyy-mm-dd hh:mm:ss.ffffff`."""
    days, rest = divmod(micros, MICROS_PER_DAY)
    seconds, fraction = divmod(rest, _MICROS_PER_SECOND)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{date_text(days)} {clock}.{fraction:06}"


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
    found = _OFFSET.fullmatch(zone.strip())
    if not found:
        return None
    hours, minutes, seconds = (int(part or 0) for part in found.groups()[1:])
    total = (hours * 60 + minutes) * 60 + seconds
    if minutes > 59 or seconds > 59 or total > 18 * 3600:
        return None
    return -total if found[1] == "-" else total


def _days(found: re.Match[str]) -> int | None:
    year = int(found[2]) * (-1 if found[1] == "-" else 1)
    month, day = int(found[3] or 1), int(found[4] or 1)
    if not 1 <= month <= 12 or not 1 <= day <= 31:
        return None
    days = _days_from_civil(year, month, day)
    return days if _civil(days) == (year, month, day) else None


# The Gregorian calendar repeats every 400 years (146097 days); years are counted from March, so that the
# leap day is the last day of a year.


def _days_from_civil(year: int, month: int, day: int) -> int:
    year -= month <= 2
    era, of_era = divmod(year, 400)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + day_of_year - 719468


def _civil(days: int) -> tuple[int, int, int]:
    era, of_era = divmod(days + 719468, 146097)
    year = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    day_of_year = of_era - (365 * year + year // 4 - year // 100)
    shifted = (5 * day_of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    return year + era * 400 + (month <= 2), month, day_of_year - (153 * shifted + 2) // 5 + 1
