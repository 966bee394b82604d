"""The kinds of values that options have."""

from collections.abc import Callable

from indextables.options.declare import HiddenValueError, Parser
from indextables.sizes import parse_size


def _boolean(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered in ("true", "1", "yes"):
        return True
    if lowered in ("false", "0", "no"):
        return False
    raise ValueError


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _bounded(kind: type, low: float | None, high: float | None) -> Callable[[str], int | float]:
    def parse(text: str) -> int | float:
        number: int | float = kind(text.strip())
        if (low is not None and number < low) or (high is not None and number > high):
            raise ValueError
        return number

    return parse


def _span(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f" from {low} to {high}"
    return f" of at least {low}" if low is not None else ""


def integer(low: int | None = None, high: int | None = None) -> Parser[int]:
    """A whole number within bounds."""
    return Parser(_bounded(int, low, high), f"a whole number{_span(low, high)}")  # type: ignore[arg-type]


def number(low: float | None = None, high: float | None = None) -> Parser[float]:
    """A number within bounds."""
    return Parser(_bounded(float, low, high), f"a number{_span(low, high)}")


def choice(*words: str) -> Parser[str]:
    """One of a few words, in any case."""

    def parse(text: str) -> str:
        lowered = text.strip().lower()
        if lowered not in words:
            raise ValueError
        return lowered

    return Parser(parse, "one of " + ", ".join(words))


def _endpoint(given: str) -> str | None:
    if "@" in given:
        raise HiddenValueError
    return given


boolean: Parser[bool] = Parser(_boolean, "true or false")
size: Parser[int] = Parser(parse_size, "a size such as 64M or 2G")
text: Parser[str] = Parser(str, "text")
optional_text: Parser[str | None] = Parser(str, "text")
endpoint: Parser[str | None] = Parser(
    _endpoint, "a URL without a user and a password (credentials have options of their own)"
)
names: Parser[tuple[str, ...]] = Parser(_names, "names separated by commas")
