"""Parameters of the command line: value types, and the flags of declared commands.

This module imports only click and the declarations, so that help and completion are fast.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Any, assert_never

import click

from indextables.commands import Clause, ValueKind
from indextables.records import dataclass
from indextables.sizes import parse_size


class OutputFormat(StrEnum):
    """The format of results."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


@dataclass(frozen=True, slots=True)
class Settings:
    """The parameters that all commands have."""

    options: dict[str, str]
    quiet: bool
    format: OutputFormat


_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_HOURS = {"h": 1.0, "d": 24.0, "w": 168.0}


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError:
        raise click.BadParameter(f"'{text}' is not a size such as 500M or 2G.") from None


def _hours(text: str) -> float:
    try:
        return float(text[:-1]) * _HOURS[text[-1:].lower()]
    except (ValueError, KeyError):
        raise click.BadParameter(f"'{text}' is not a time span such as 12h, 7d or 4w.") from None


def names(text: str | Sequence[str]) -> tuple[str, ...]:
    """Split a list of names at its commas."""
    return tuple(n.strip() for n in text.split(",") if n.strip()) if isinstance(text, str) else tuple(text)


def _timestamp(text: str) -> int:
    """Return a time in milliseconds since 1970; without a zone it is UTC."""
    from indextables.schema.calendar import parse_timestamp_literal

    micros = parse_timestamp_literal(text, "UTC")
    if micros is None:
        raise click.BadParameter(f"'{text}' is not a date and time such as 2026-05-01T12:00:00.")
    return micros // 1000


def _key_value(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise click.BadParameter(f"'{text}' is not key=value.")
    return key, value


def _key_values(text: str | dict[str, str]) -> dict[str, str]:
    return text if isinstance(text, dict) else dict(_key_value(pair) for pair in text.split(","))


def _seconds(text: str | float) -> float:
    if isinstance(text, float):
        return text
    try:
        seconds = float(text[:-1]) * _SECONDS[text[-1:].lower()]
    except (ValueError, KeyError):
        seconds = 0.0
    if seconds <= 0:
        raise click.BadParameter(f"'{text}' is not a time span such as 30s or 5m.")
    return seconds


def table_argument(*, required: bool = True) -> click.Argument:
    """Return the argument for the table."""
    return click.Argument(["path"], required=required, type=click.Path())


def common_options() -> list[click.Parameter]:
    """Return the options that all commands have."""
    return [
        click.Option(
            ["-o", "--option", "options"],
            type=_key_value,
            multiple=True,
            metavar="KEY=VALUE",
            help="An option of the engine; may be repeated.",
        ),
        click.Option(["-q", "--quiet"], is_flag=True, help="No progress bar."),
        click.Option(["--json"], is_flag=True, help="Write one JSON object per line."),
        click.Option(["--csv"], is_flag=True, help="Write comma-separated values."),
    ]


def settings_of(values: dict[str, Any]) -> Settings:
    """Take the common parameters out of the values of a call."""
    as_json, as_csv = values.pop("json"), values.pop("csv")
    if as_json and as_csv:
        raise click.UsageError("Give --json or --csv, not both.")
    form = OutputFormat.JSON if as_json else OutputFormat.CSV if as_csv else OutputFormat.TABLE
    return Settings(dict(values.pop("options")), values.pop("quiet"), form)


def clause_options(clauses: Iterable[Clause], *, check_required: bool = True) -> list[click.Parameter]:
    """Return one option for each clause that the command line has; clauses of one name count once."""
    unique = {clause.name: clause for clause in clauses if not clause.refusal}
    return [_option(clause, required=clause.required and check_required) for clause in unique.values()]


def _option(clause: Clause, *, required: bool) -> click.Option:
    names = [clause.option, clause.name]
    help_ = clause.help[:1].upper() + clause.help[1:] + "."
    if clause.kind is ValueKind.FLAG:
        return click.Option(names, is_flag=True, help=help_)
    kind, metavar = _type(clause)
    return click.Option(names, type=kind, metavar=metavar, required=required, help=help_)


def _type(clause: Clause) -> tuple[click.ParamType[Any] | Callable[[str], object], str]:
    match clause.kind:
        case ValueKind.NUMBER | ValueKind.VERSION:
            return click.IntRange(min=clause.minimum), "N"
        case ValueKind.SIZE:
            return _size, "SIZE"
        case ValueKind.HOURS:
            return _hours, "SPAN"
        case ValueKind.NAMES:
            return names, "A,B"
        case ValueKind.TEXT:
            return click.STRING, "TEXT"
        case ValueKind.CONDITION:
            return click.STRING, "CONDITION"
        case ValueKind.TIMESTAMP:
            return _timestamp, "TIME"
        case ValueKind.SECONDS:
            return _seconds, "SPAN"
        case ValueKind.PAIR:
            return _key_value, "NAME=VALUE"
        case ValueKind.PAIRS:
            return _key_values, "A=B,C=D"
        case ValueKind.FLAG:
            raise AssertionError("a flag has no value")
        case _:
            assert_never(clause.kind)
