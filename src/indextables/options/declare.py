"""Declares options, and parses and validates sets of them."""

import difflib
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any, Generic, TypeVar, cast

from indextables.errors import OptionError
from indextables.records import dataclass
from indextables.sizes import parse_size, size_literal

_logger = logging.getLogger("indextables.options")

PREFIX = "spark.indextables."
HADOOP_PREFIX = "spark.hadoop."
MASK = "***"

T = TypeVar("T")


class Where(StrEnum):
    """Where an option takes effect."""

    READ = "read"
    WRITE = "write"
    COMMAND = "command"
    CHANGES = "changes"
    STREAM = "stream"


EVERYWHERE = frozenset({Where.READ, Where.WRITE, Where.COMMAND})
# Session settings apply to all operations of a session.
_ANY = frozenset(Where)
# An open table is used for reads, and has commands as methods.
OPENED = frozenset({Where.READ, Where.COMMAND})
# A write returns a table, which is read with the same options.
WRITTEN = frozenset({Where.READ, Where.WRITE})

_PLURALS = {
    Where.READ: "reads",
    Where.WRITE: "writes",
    Where.COMMAND: "commands",
    Where.CHANGES: "reads of changes in Spark",
    Where.STREAM: "streams from a table",
}


@dataclass(frozen=True, slots=True, eq=False)
class Option(Generic[T]):
    """One option: its key without the prefix, how its text is parsed, its default and its help."""

    key: str
    parse: Callable[[str], T]
    default: T
    help: str
    expects: str
    where: frozenset[Where] = EVERYWHERE
    secret: bool = False
    default_text: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class FieldOption:
    """A family of options whose keys end with the name of a column, or with a value."""

    key: str
    suffix: str
    help: str
    expects: str
    check: Callable[[str, str], None]
    where: frozenset[Where] = frozenset({Where.WRITE})
    is_secret: Callable[[str], bool] = lambda suffix: False  # noqa: ARG005 - most families have no secrets


@dataclass(frozen=True, slots=True, eq=False)
class IgnoredOption:
    """A key of IndexTables for Scala without an effect; it is accepted with one warning."""

    key: str
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Alias:
    """A key of IndexTables for Scala that sets an option of another name, which takes precedence if set."""

    key: str
    target: Option[Any]
    convert: Callable[[str], str]
    unit: str = ""


Declaration = Option[Any] | FieldOption | IgnoredOption | Alias
_declared: dict[str, Declaration] = {}
# Keys without an effect for which a warning was logged.
_warned: set[str] = set()


def _register(declaration: Declaration) -> None:
    name = declaration.key.lower()
    if name in _declared:
        raise AssertionError(f"option {declaration.key} is declared twice")
    _declared[name] = declaration


def option(
    key: str,
    parser: "Parser[T]",
    default: T,
    help: str,  # noqa: A002 - the word of the reference page
    *,
    where: frozenset[Where] = EVERYWHERE,
    secret: bool = False,
    default_text: str = "",
) -> Option[T]:
    """Declare an option."""
    if not default_text and default is not None and default != ():
        default_text = parser.show(default)
    declaration: Option[T] = Option(
        key, parser.parse, default, help, parser.expects, where, secret, default_text
    )
    _register(declaration)
    return declaration


def field_option(
    key: str,
    suffix: str,
    check: Callable[[str, str], None],
    help: str,  # noqa: A002 - the word of the reference page
    *,
    expects: str,
    where: frozenset[Where] = frozenset({Where.WRITE}),
    is_secret: Callable[[str], bool] = lambda suffix: False,  # noqa: ARG005
) -> FieldOption:
    """Declare a family of options, one for each column (`indexing.typemap.<column>`)."""
    declaration = FieldOption(key, suffix, help, expects, check, where, is_secret)
    _register(declaration)
    return declaration


def ignored_option(key: str, reason: str) -> IgnoredOption:
    """Declare that a key of IndexTables for Scala has no effect, and what applies instead."""
    declaration = IgnoredOption(key, reason)
    _register(declaration)
    return declaration


def alias(key: str, target: Option[Any], convert: Callable[[str], str] = str, unit: str = "") -> Alias:
    """Declare that a key of IndexTables for Scala is another name of an option.

    Args:
        key: the key.
        target: the option that it sets.
        convert: turns the text of its value into that of the option; raises ValueError if it cannot.
        unit: a description of the value, if it differs from that of the option.
    """
    declaration = Alias(key, target, convert, unit)
    _register(declaration)
    return declaration


def all_declarations() -> Iterator[Declaration]:
    """Every declaration, in the order of the reference page."""
    yield from _declared.values()


class HiddenValueError(ValueError):
    """An invalid value that messages must not quote, because it may be a secret."""


@dataclass(frozen=True, slots=True)
class Parser(Generic[T]):
    """The type of an option: how its text is parsed, what is expected, and how a default is shown."""

    parse: Callable[[str], T]
    expects: str
    show: Callable[[Any], str] = str


# --- types of options --------------------------------------------------------------------------------


def _boolean(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered in ("true", "1", "yes"):
        return True
    if lowered in ("false", "0", "no"):
        return False
    raise ValueError


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _number_parser(kind: type, low: float | None, high: float | None) -> Callable[[str], int | float]:
    def parse(text: str) -> int | float:
        number: int | float = kind(text.strip())
        if (low is not None and number < low) or (high is not None and number > high):
            raise ValueError
        return number

    return parse


def _range(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f" from {low} to {high}"
    return f" of at least {low}" if low is not None else ""


def integer(low: int | None = None, high: int | None = None) -> Parser[int]:
    """Return the type of whole numbers within bounds."""
    return Parser(_number_parser(int, low, high), f"a whole number{_range(low, high)}")  # type: ignore[arg-type]


def number(low: float | None = None, high: float | None = None) -> Parser[float]:
    """Return the type of numbers within bounds."""
    return Parser(_number_parser(float, low, high), f"a number{_range(low, high)}")


def choice(*words: str) -> Parser[str]:
    """Return the type of one of a few words, in any case."""

    def parse(text: str) -> str:
        lowered = text.strip().lower()
        if lowered not in words:
            raise ValueError
        return lowered

    return Parser(parse, "one of " + ", ".join(words))


def _endpoint(text: str) -> str | None:
    if "@" in text:
        raise HiddenValueError
    return text


boolean: Parser[bool] = Parser(_boolean, "true or false", lambda value: str(value).lower())
size: Parser[int] = Parser(parse_size, "a size such as 64M or 2G", size_literal)
text: Parser[str] = Parser(str, "text")
optional_text: Parser[str | None] = Parser(str, "text")
endpoint: Parser[str | None] = Parser(
    _endpoint, "a URL without a user and a password (credentials have options of their own)"
)
names: Parser[tuple[str, ...]] = Parser(_names, "names separated by commas", ",".join)


# --- sets of options ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, repr=False)
class Options:
    """A validated set of options; its `repr` shows no secrets."""

    values: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, raw: Mapping[str, object] | None, scope: Collection[Where] = _ANY) -> "Options":
        """Check every key and value, with or without the prefix, in any case.

        Args:
            raw: the options by key.
            scope: the kinds of operations that the options are for; options without an effect on them are
                refused. Session settings, which apply to all operations, are parsed without a scope.

        Raises:
            OptionError: a key is unknown, or a value cannot be parsed.

        >>> Options.parse({"spark.indextables.checkpoint.interval": "5"})
        Options(checkpoint.interval=5)
        >>> Options.parse({"chekpoint.interval": 5})
        Traceback (most recent call last):
        indextables.errors.OptionError: unknown option 'chekpoint.interval'; did you mean 'checkpoint.interval'? docs/options.md lists all
        """  # noqa: E501 - the sentence as it is raised
        values: dict[str, str] = {}
        weaker: dict[str, str] = {}
        for spelling, value in (raw or {}).items():
            declaration, key = _find(spelling)
            text = _text(value)
            if isinstance(declaration, IgnoredOption):
                _warn_once(declaration)
                continue
            if isinstance(declaration, Alias):
                weaker.setdefault(declaration.target.key.lower(), _convert_alias(declaration, text, spelling))
                _check_scope(declaration.target, spelling, scope)
                continue
            _check(declaration, key, text, spelling)
            _check_scope(declaration, spelling, scope)
            if values.get(key, text) != text:
                raise OptionError(f"option '{key}' is given twice with different values; give it once")
            values[key] = text
        return cls({**weaker, **values})

    def get(self, option: Option[T]) -> T:
        """Return the value of an option: as it was set, or its default."""
        text = self.values.get(option.key.lower())
        return option.default if text is None else option.parse(text)

    def is_set(self, option: Option[Any]) -> bool:
        """Whether the option was set."""
        return option.key.lower() in self.values

    def family(self, option: FieldOption) -> dict[str, str]:
        """Return the options of a family that were set, by the last part of their keys (lower case)."""
        start = option.key.lower() + "."
        return {k.removeprefix(start): v for k, v in self.values.items() if k.startswith(start)}

    def over(self, weaker: "Options") -> "Options":
        """Return these options, and those of `weaker` that are not set here."""
        return Options({**weaker.values, **self.values})

    def public(self) -> "Options":
        """Return the options without secrets, which may be stored, logged or shown."""
        return Options({k: v for k, v in self.values.items() if not is_secret(k)})

    def __repr__(self) -> str:
        """Show the options, secrets masked."""
        shown = (f"{k}={MASK if is_secret(k) else v}" for k, v in sorted(self.values.items()))
        return f"Options({', '.join(shown)})"


def check_scope(keys: Iterable[str], scope: Collection[Where]) -> None:
    """Refuse options that have no effect in a scope."""
    for spelling in keys:
        declaration, _ = _find(spelling)
        _check_scope(declaration, spelling, scope)


def _warn_once(declaration: IgnoredOption) -> None:
    if declaration.key not in _warned:
        _warned.add(declaration.key)
        _logger.warning("option '%s' has no effect: %s", declaration.key, declaration.reason)


def _convert_alias(declaration: Alias, text: str, spelling: str) -> str:
    """Return the value of an alias as that of its option."""
    try:
        converted = declaration.convert(text)
    except ValueError:
        expects = declaration.unit or declaration.target.expects
        raise OptionError(f"option '{spelling}' is '{text}', but {expects} is expected") from None
    _check(declaration.target, declaration.target.key.lower(), converted, spelling)
    return converted


def _check_scope(declaration: Declaration, spelling: str, scope: Collection[Where]) -> None:
    if isinstance(declaration, Alias):
        declaration = declaration.target
    if isinstance(declaration, IgnoredOption) or not declaration.where.isdisjoint(scope):
        return
    belongs = " and ".join(_PLURALS[each] for each in Where if each in declaration.where)
    here = " or ".join(f"a {each.value}" for each in Where if each in scope and each is not Where.CHANGES)
    raise OptionError(
        f"option '{spelling}' belongs to {belongs} and has no effect on {here}; leave it out, or give it "
        "where it belongs"
    )


def is_secret(key: str) -> bool:
    """Whether the value of this key must never be shown or stored."""
    plain = plain_key(key)
    declaration = _declared.get(plain)
    if isinstance(declaration, Alias):
        declaration = declaration.target
    if isinstance(declaration, Option):
        return declaration.secret
    family = _family(plain)
    return family is not None and family.is_secret(plain.removeprefix(f"{family.key.lower()}."))


def plain_key(spelling: str) -> str:
    """Return a key in lower case, without the prefix of our options or of Hadoop's.

    >>> plain_key("spark.indextables.aws.secretKey"), plain_key("spark.hadoop.fs.s3a.access.key")
    ('aws.secretkey', 'fs.s3a.access.key')
    """
    return spelling.lower().removeprefix(PREFIX).removeprefix(HADOOP_PREFIX)


def resolved_key(spelling: str) -> str:
    """Return the plain key of the option that a spelling stands for: that of its target for an alias."""
    key = plain_key(spelling)
    declaration = _declared.get(key)
    return declaration.target.key.lower() if isinstance(declaration, Alias) else key


def _family(key: str) -> FieldOption | None:
    parts = key.split(".")
    for end in range(len(parts) - 1, 0, -1):
        family = _declared.get(".".join(parts[:end]))
        if isinstance(family, FieldOption):
            return family
    return None


def _find(spelling: str) -> tuple[Declaration, str]:
    key = plain_key(spelling)
    if (exact := _declared.get(key)) is not None and not isinstance(exact, FieldOption):
        return exact, key
    if (family := _family(key)) is not None:
        return family, key
    names = {d.key.lower(): d.key for d in _declared.values() if not isinstance(d, IgnoredOption)}
    close = difflib.get_close_matches(key, list(names), n=1, cutoff=0.6)
    hint = f"did you mean '{names[close[0]]}'? " if close else ""
    raise OptionError(f"unknown option '{spelling}'; {hint}docs/options.md lists all")


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ",".join(str(v) for v in cast("list[object]", value))
    return str(value)


def _check(declaration: Declaration, key: str, text: str, spelling: str) -> None:
    assert not isinstance(declaration, (IgnoredOption, Alias)), "handled before"
    try:
        if isinstance(declaration, FieldOption):
            declaration.check(key.removeprefix(declaration.key.lower() + "."), text)
        else:
            declaration.parse(text)
    except ValueError as error:
        hidden = is_secret(key) or isinstance(error, HiddenValueError)
        shown = MASK if hidden else f"'{text}'"
        detail = f" ({error})" if str(error) and not hidden else ""
        raise OptionError(
            f"option '{spelling}' is {shown}, but {declaration.expects} is expected{detail}"
        ) from None
