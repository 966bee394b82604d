"""The operands of a SQL condition: columns and what is computed from them, values, functions.

Conditions stand in parentheses among them; the parser of conditions, which is built on this one, reads those.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from indextables.errors import PredicateError
from indextables.predicate.lexer import Token, TokenKind
from indextables.predicate.literals import LOCAL, ZONED, cast, negated, number, parsed
from indextables.predicate.names import resolve, suggestion
from indextables.predicate.operands import (
    ColumnOperand,
    ComputedOperand,
    ConditionOperand,
    EveryField,
    LiteralOperand,
    Operand,
    array_contains,
    element,
    field_of,
    inverted,
    null_test,
    size,
    text_match,
)
from indextables.predicate.query_language import parse_query
from indextables.predicate.sql_cursor import OPERATORS, SEARCHES, Cursor
from indextables.predicate.sql_types import CASTS, read_type
from indextables.predicate.tree import Compare, Op, Predicate, Search, SearchKind, TextMatchKind
from indextables.predicate.types import Family, family_of

REGEX_WORDS = ("RLIKE", "REGEXP")

_DEEPEST = 100
_TEXT_FUNCTIONS = {
    "STARTSWITH": TextMatchKind.STARTS,
    "ENDSWITH": TextMatchKind.ENDS,
    "CONTAINS": TextMatchKind.CONTAINS,
}
_TYPED_STRINGS = {
    "DATE": pa.date32(),
    "TIMESTAMP": ZONED,
    "TIMESTAMP_LTZ": ZONED,
    "TIMESTAMP_NTZ": LOCAL,
}
_FUNCTIONS = (
    "startswith, endswith, contains, isnull, isnotnull, isnan, size, cardinality, array_contains, "
    "indexquery, textsearch, fieldmatch, indexqueryall"
)


class OperandParser(Cursor, ABC):
    """A reading head that knows operands."""

    def __init__(self, text: str, schema: pa.Schema, zone: str) -> None:
        super().__init__(text)
        self.schema = schema
        self.zone = zone
        self.depth = 0

    @abstractmethod
    def condition(self) -> Operand:
        """A condition, or a lone operand."""

    def operands(self, name: str) -> list[Operand]:
        """A list in parentheses."""
        self.expect_symbol("(", f"after {name}")
        if self.token.is_word("SELECT", "WITH"):
            raise self.error("subqueries are not supported in a condition")
        found = [self.operand()]
        while self.accept_symbol(","):
            found.append(self.operand())
        if not self.token.is_symbol(")"):
            raise self.unexpected()
        self.take()
        return found

    def text_of(self, operand: Operand, name: str) -> str | None:
        """The text of a string literal, None for NULL."""
        if isinstance(operand, LiteralOperand):
            if not operand.scalar.is_valid:
                return None
            if family_of(operand.scalar.type) is Family.STRING:
                return str(operand.scalar.as_py())
        raise self.error(f"{name} takes a text in quotes here", operand.start)

    def search(self, kind: SearchKind, left: Operand) -> Predicate:
        """A search operator, whose query comes next."""
        name = kind.value.upper()
        if not isinstance(left, ColumnOperand | EveryField):
            raise self.error(f"{name} takes a column, or * for all fields, on its left", left.start)
        if self.token.kind is not TokenKind.STRING:
            raise self.error(f"{name} takes its query in quotes")
        query = self.text_of(self.operand(), name)
        assert query is not None
        parse_query(query)
        return Search(kind, left.column if isinstance(left, ColumnOperand) else None, query)

    def operand(self) -> Operand:
        """An operand, with casts, elements and fields that follow it."""
        token = self.token
        return self.followed(self.primary(), token.start)

    def followed(self, operand: Operand, start: int) -> Operand:
        """An operand with the casts, elements and fields that follow it."""
        while True:
            if self.accept_symbol("::"):
                operand = self.cast(operand, start)
            elif self.token.is_symbol("["):
                operand = self.element(operand)
            elif isinstance(operand, ComputedOperand) and self.token.is_symbol("."):
                operand = self.field(operand)
            else:
                return operand

    def element(self, operand: Operand) -> Operand:
        """An element in brackets."""
        opening = self.take()
        with self.nested(opening):
            key = self.operand()
        if not self.accept_symbol("]"):
            raise self.error("this '[' is never closed" if self.ended() else "']' is missing", opening.start)
        with self.at(opening.start):
            return element(operand, key, self.zone)

    def field(self, operand: ComputedOperand) -> Operand:
        """A field of an element that is a struct."""
        self.take()
        if self.token.kind not in {TokenKind.WORD, TokenKind.NAME}:
            raise self.error("the name of a field is missing here")
        with self.at(self.token.start):
            return field_of(operand, self.take().value)

    def primary(self) -> Operand:
        """An operand by itself."""
        token = self.token
        match token.kind:
            case TokenKind.STRING:
                return LiteralOperand(pa.scalar(self.strings()), token.start)
            case TokenKind.NUMBER:
                return self.number("")
            case TokenKind.NAME:
                return self.column()
            case TokenKind.WORD:
                return self.word()
            case TokenKind.END:
                raise self.error("a column or a value is missing here")
        if token.is_symbol("("):
            return self.parenthesised()
        if token.is_symbol("*"):
            return EveryField(self.take().start)
        if token.is_symbol("-", "+"):
            return self.signed()
        if token.is_symbol("?", ":"):
            raise self.error("parameters are not supported; write the value")
        raise self.error(f"a column or a value should stand here, not {token.text!r}")

    def signed(self) -> Operand:
        """A value with signs before it."""
        start = self.token.start
        minus = False
        while sign := self.accept_symbol("-", "+"):
            minus ^= sign.text == "-"
        if self.token.kind is TokenKind.NUMBER:
            return self.number("-" if minus else "")
        inner = self.operand()
        if not isinstance(inner, LiteralOperand):
            raise self.error("arithmetic on columns is not supported; compare the column with a value", start)
        with self.at(start):
            return LiteralOperand(negated(inner.scalar) if minus else inner.scalar, start)

    def parenthesised(self) -> Operand:
        """A condition or an operand in parentheses."""
        opening = self.take()
        with self.nested(opening):
            if self.token.is_word("SELECT", "WITH"):
                raise self.error("subqueries are not supported in a condition")
            operand = self.condition()
        if self.ended():
            raise self.error("this '(' is never closed", opening.start)
        if not self.accept_symbol(")"):
            raise self.unexpected()
        return operand

    @contextmanager
    def nested(self, opening: Token) -> Iterator[None]:
        """One level deeper, up to a limit."""
        self.depth += 1
        if self.depth > _DEEPEST:
            raise self.error(f"the condition is nested more than {_DEEPEST} deep", opening.start)
        yield
        self.depth -= 1

    def strings(self) -> str:
        """Strings next to each other are one, as in Spark."""
        pieces = [self.take().value]
        while self.token.kind is TokenKind.STRING:
            pieces.append(self.take().value)
        return "".join(pieces)

    def number(self, sign: str) -> Operand:
        """A number."""
        token = self.take()
        with self.at(token.start):
            return LiteralOperand(number(sign + token.text), token.start)

    def word(self) -> Operand:
        """What starts with a word: a function, a typed or a constant value, a column."""
        token, following = self.token, self.following
        upper = token.text.upper()
        if following.is_symbol("("):
            return self.function(upper)
        if following.kind is TokenKind.STRING and (upper in _TYPED_STRINGS or upper == "X"):
            self.take()
            with self.at(following.start):
                return LiteralOperand(self.typed_string(upper), token.start)
        match upper:
            case "NULL":
                return LiteralOperand(pa.scalar(None), self.take().start)
            case "TRUE" | "FALSE":
                return LiteralOperand(pa.scalar(upper == "TRUE"), self.take().start)
            case "_INDEXALL" if not self.has_column(token.text):
                return EveryField(self.take().start)
            case "CASE" | "INTERVAL" | "EXISTS" if not self.has_column(token.text):
                raise self.error(f"{upper} is not supported in a condition")
            case _ if upper in {*OPERATORS, *REGEX_WORDS} and not self.has_column(token.text):
                raise self.error(f"a column or a value is missing before {upper}")
        return self.column()

    def has_column(self, name: str) -> bool:
        """Whether there is a column of this name, in any case."""
        return any(name.lower() == known.lower() for known in self.schema.names)

    def typed_string(self, upper: str) -> pa.Scalar:
        """A value such as `DATE '2024-01-01'`."""
        text = self.strings()
        if upper != "X":
            return parsed(text, _TYPED_STRINGS[upper], self.zone)
        try:
            return pa.scalar(
                bytes.fromhex("0" * (len(text) % 2) + text) if " " not in text else None, pa.binary()
            )
        except ValueError:
            raise PredicateError(f"X'...' takes hexadecimal digits, not {text[:40]!r}") from None

    def column(self) -> Operand:
        """A column, or a field of one."""
        start = self.token.start
        path = [self.take().value]
        while self.token.is_symbol(".") and self.following.kind in {TokenKind.WORD, TokenKind.NAME}:
            self.take()
            path.append(self.take().value)
        with self.at(start):
            column, type_ = resolve(self.schema, path)
        return ColumnOperand(column, type_, start)

    def function(self, upper: str) -> Operand:
        """A call of a function."""
        start = self.take().start
        if upper == "CAST":
            self.take()
            operand = self.operand()
            if not self.accept_word("AS"):
                raise self.error("AS is missing in CAST(value AS type)")
            found = self.cast(operand, start)
            self.expect_symbol(")", "after CAST")
            return found
        if upper in {*SEARCHES, "INDEXQUERYALL"}:
            return ConditionOperand(self.search_function(upper), start)
        if upper in CASTS:
            (operand,) = self.arguments(upper, 1)
            return self.cast_to(operand, CASTS[upper], start)
        if upper in _TEXT_FUNCTIONS:
            left, right = self.arguments(upper, 2)
            text = self.text_of(right, upper.lower())
            with self.at(left.start):
                return ConditionOperand(text_match(_TEXT_FUNCTIONS[upper], left, text), start)
        if upper in {"ISNULL", "ISNOTNULL"}:
            (operand,) = self.arguments(upper, 1)
            found_null = null_test(operand)
            return ConditionOperand(found_null if upper == "ISNULL" else inverted(found_null), start)
        if upper in {"SIZE", "CARDINALITY"}:
            (operand,) = self.arguments(upper, 1)
            with self.at(operand.start):
                return size(operand)
        if upper == "ARRAY_CONTAINS":
            left, right = self.arguments(upper, 2)
            with self.at(left.start):
                return array_contains(left, right, self.zone)
        if upper == "ISNAN":
            (operand,) = self.arguments(upper, 1)
            if not isinstance(operand, ColumnOperand) or family_of(operand.type) is not Family.FLOAT:
                raise self.error("isnan takes a FLOAT or DOUBLE column", operand.start)
            nan = pa.scalar(float("nan"), operand.type)
            return ConditionOperand(Compare(Op.NULL_SAFE, operand.column, nan), start)
        hint = suggestion(upper.lower(), _FUNCTIONS.split(", "))
        raise self.error(
            f"the function {upper.lower()} is not supported{hint or ';'} these are: {_FUNCTIONS}", start
        )

    def arguments(self, name: str, count: int) -> list[Operand]:
        """The arguments of a function, as many as it takes."""
        start = self.token.start
        found = self.operands(name.lower())
        if len(found) != count:
            raise self.error(
                f"{name.lower()} takes {count} argument{'s' if count > 1 else ''}, not {len(found)}", start
            )
        return found

    def search_function(self, upper: str) -> Predicate:
        """`indexquery(column, 'query')` and `indexqueryall('query')`."""
        left: Operand = EveryField(self.token.start)
        self.expect_symbol("(", f"after {upper.lower()}")
        if upper != "INDEXQUERYALL":
            left = self.operand()
            self.expect_symbol(",", f"before the query of {upper.lower()}")
        found = self.search(SEARCHES.get(upper, SearchKind.INDEXQUERY), left)
        self.expect_symbol(")", f"after the query of {upper.lower()}")
        return found

    def cast(self, operand: Operand, start: int) -> Operand:
        """The operand as the type whose name comes next."""
        return self.cast_to(operand, read_type(self), start)

    def cast_to(self, operand: Operand, type_: pa.DataType, start: int) -> Operand:
        """The operand as a type."""
        if not isinstance(operand, LiteralOperand):
            raise self.error("only values are cast, not columns; write the value in the column's type", start)
        with self.at(start):
            return LiteralOperand(cast(operand.scalar, type_, self.zone), start)
