"""Dates and times of any year that Spark holds, as text; years beyond four digits carry a sign."""

import re

DAY_MICROS = 86_400_000_000
# Days since 1970 from 0000-01-01 to 9999-12-31: the years that have four digits.
FIRST_PLAIN_DAY, LAST_PLAIN_DAY = -719_528, 2_932_896

_DATE = r"([+-]?)(\d{4,7})-(\d\d)-(\d\d)"
_WIDE_DATE = re.compile(_DATE)
_WIDE_TIME = re.compile(_DATE + r"[ T](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,6}))?)?(Z|[+-]\d\d:?\d\d)?")
_MONTH_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def days_of(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01 in the proleptic Gregorian calendar."""
    # Years start in March here, so that the leap day is a year's last.
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def date_of(days: int) -> tuple[int, int, int]:
    """Year, month and day of a count of days since 1970-01-01."""
    era, of_era = divmod(days + 719_468, 146_097)
    year_of_era = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * of_year + 2) // 153
    month = (shifted + 2) % 12 + 1
    return era * 400 + year_of_era + (month <= 2), month, of_year - (153 * shifted + 2) // 5 + 1


def date_text(days: int) -> str:
    """A date as Spark writes it.

    >>> date_text(0), date_text(2_932_897), date_text(-719_529)
    ('1970-01-01', '+10000-01-01', '-0001-12-31')
    """
    year, month, day = date_of(days)
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{month:02d}-{day:02d}"


def time_text(micros: int) -> str:
    """A time without zone, always with six digits of fraction."""
    days, rest = divmod(micros, DAY_MICROS)
    seconds, fraction = divmod(rest, 1_000_000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return f"{date_text(days)}T{hour:02d}:{minute:02d}:{second:02d}.{fraction:06d}"


def parse_date(text: str) -> int | None:
    """Days since 1970-01-01, or None if the text is no date."""
    found = _WIDE_DATE.fullmatch(text)
    return None if found is None else _days(found)


def parse_time(text: str, *, zoned: bool) -> int | None:
    """Microseconds since 1970, or None; without a zone UTC is meant, and only `zoned` texts may name one."""
    if (days := parse_date(text)) is not None:
        return days * DAY_MICROS
    found = _WIDE_TIME.fullmatch(text)
    if found is None or (found[9] and not zoned) or (days := _days(found)) is None:
        return None
    hour, minute, second = int(found[5]), int(found[6]), int(found[7] or 0)
    if hour > 23 or minute > 59 or second > 59:
        return None
    micros = ((hour * 60 + minute) * 60 + second) * 1_000_000 + int((found[8] or "").ljust(6, "0"))
    if (zone := found[9]) and zone != "Z":
        ahead = (int(zone[1:3]) * 60 + int(zone[-2:])) * 60_000_000
        micros += ahead if zone[0] == "-" else -ahead
    return days * DAY_MICROS + micros


def _days(found: re.Match[str]) -> int | None:
    year, month, day = int(found[2]), int(found[3]), int(found[4])
    if not 1 <= month <= 12 or not 1 <= day <= _MONTH_DAYS[month - 1]:
        return None
    year = -year if found[1] == "-" else year
    days = days_of(year, month, day)
    return days if date_of(days) == (year, month, day) else None
