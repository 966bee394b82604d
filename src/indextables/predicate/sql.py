"""Parses a SQL condition to the condition tree.

The grammar is the subset of Spark's that compares columns with values, and the search operators. Errors name
unsupported expressions.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from indextables.errors import PredicateError
from indextables.predicate.literals import (
    CASTS,
    cast_literal,
    negate_literal,
    number_literal,
    parse_literal,
    read_type,
)
from indextables.predicate.operands import (
    AllFields,
    ColumnOperand,
    ComputedOperand,
    ConditionOperand,
    LiteralOperand,
    Operand,
    array_contains,
    combine,
    comparison,
    condition_of,
    element,
    in_list,
    is_null,
    like,
    negate,
    size,
    struct_field,
    text_match,
)
from indextables.predicate.query_language import parse_search
from indextables.predicate.sql_text import ARITHMETIC, OPERATORS, SEARCHES, Cursor, Token, TokenKind
from indextables.predicate.traversal import depth_of
from indextables.predicate.tree import (
    And,
    Compare,
    Op,
    Or,
    Predicate,
    Search,
    SearchKind,
    TextMatchKind,
    resolve,
    suggestion,
)
from indextables.schema.type_info import LOCAL_TIMESTAMP, UTC_TIMESTAMP, TypeKind, kind_of

REGEX_WORDS = ("RLIKE", "REGEXP")

_TEXT_FUNCTIONS = {
    "STARTSWITH": TextMatchKind.STARTS,
    "ENDSWITH": TextMatchKind.ENDS,
    "CONTAINS": TextMatchKind.CONTAINS,
}
_TYPED_STRINGS = {
    "DATE": pa.date32(),
    "TIMESTAMP": UTC_TIMESTAMP,
    "TIMESTAMP_LTZ": UTC_TIMESTAMP,
    "TIMESTAMP_NTZ": LOCAL_TIMESTAMP,
}
_FUNCTIONS = (
    "startswith, endswith, contains, isnull, isnotnull, isnan, size, cardinality, array_contains, "
    "indexquery, textsearch, fieldmatch, indexqueryall"
)
# The maximum depth of a condition; a chain of one operator is one level, a double NOT none.
_MAX_DEPTH = 100
_MAX_PARENTHESES = 10_000
_COMPARISONS = {
    "=": Op.EQ,
    "==": Op.EQ,
    "<": Op.LT,
    "<=": Op.LE,
    "!>": Op.LE,
    ">": Op.GT,
    ">=": Op.GE,
    "!<": Op.GE,
    "<=>": Op.NULL_SAFE,
}
_UNEQUAL = ("<>", "!=")


class OperandParser(Cursor, ABC):
    """Parses the operands of conditions."""

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
        operands = [self.operand()]
        while self.accept_symbol(","):
            operands.append(self.operand())
        if not self.token.is_symbol(")"):
            raise self.unexpected_token()
        self.take()
        return operands

    def text_of(self, operand: Operand, name: str) -> str | None:
        """The text of a string literal, None for NULL."""
        if isinstance(operand, LiteralOperand):
            if not operand.scalar.is_valid:
                return None
            if kind_of(operand.scalar.type) is TypeKind.STRING:
                return str(operand.scalar.as_py())
        raise self.error(f"{name} takes a text in quotes here", operand.start)

    def search(self, kind: SearchKind, left: Operand) -> Predicate:
        """A search operator, whose query comes next."""
        name = kind.value.upper()
        if not isinstance(left, ColumnOperand | AllFields):
            raise self.error(f"{name} takes a column, or * for all fields, on its left", left.start)
        if self.token.kind is not TokenKind.STRING:
            raise self.error(f"{name} takes its query in quotes")
        query = self.text_of(self.operand(), name)
        assert query is not None
        search = Search(kind, left.column if isinstance(left, ColumnOperand) else None, query)
        parse_search(search)
        return search

    def operand(self) -> Operand:
        """An operand, with casts, elements and fields that follow it."""
        token = self.token
        return self.with_suffixes(self.primary(), token.start)

    def with_suffixes(self, operand: Operand, start: int) -> Operand:
        """An operand with the casts, elements and fields that follow it."""
        while True:
            if self.accept_symbol("::"):
                operand = self.cast_literal(operand, start)
            elif self.token.is_symbol("["):
                operand = self.element(operand)
            elif isinstance(operand, ComputedOperand) and self.token.is_symbol("."):
                operand = self.field(operand)
            else:
                return operand

    def element(self, operand: Operand) -> Operand:
        """An element in brackets."""
        opening = self.take()
        with self.nesting(opening):
            key = self.operand()
        if not self.accept_symbol("]"):
            raise self.error(
                "this '[' is never closed" if self.has_ended() else "']' is missing", opening.start
            )
        with self.at(opening.start):
            return element(operand, key, self.zone)

    def field(self, operand: ComputedOperand) -> Operand:
        """A field of an element that is a struct."""
        self.take()
        if self.token.kind not in {TokenKind.WORD, TokenKind.NAME}:
            raise self.error("the name of a field is missing here")
        with self.at(self.token.start):
            return struct_field(operand, self.take().value)

    def primary(self) -> Operand:
        """An operand by itself."""
        token = self.token
        match token.kind:
            case TokenKind.STRING:
                return LiteralOperand(pa.scalar(self.strings()), token.start)
            case TokenKind.NUMBER:
                return self.number_literal("")
            case TokenKind.NAME:
                return self.column()
            case TokenKind.WORD:
                return self.word()
            case TokenKind.END:
                raise self.error("a column or a value is missing here")
            case _:
                pass
        if token.is_symbol("("):
            return self.parentheses()
        if token.is_symbol("*"):
            return AllFields(self.take().start)
        if token.is_symbol("-", "+"):
            return self.signed_value()
        if token.is_symbol("?", ":"):
            raise self.error("parameters are not supported; write the value")
        raise self.error(f"a column or a value is expected here, not {token.text!r}")

    def signed_value(self) -> Operand:
        """A value with signs before it."""
        start = self.token.start
        minus = False
        while sign := self.accept_symbol("-", "+"):
            minus ^= sign.text == "-"
        if self.token.kind is TokenKind.NUMBER:
            return self.number_literal("-" if minus else "")
        inner = self.operand()
        if not isinstance(inner, LiteralOperand):
            raise self.error("arithmetic on columns is not supported; compare the column with a value", start)
        with self.at(start):
            return LiteralOperand(negate_literal(inner.scalar) if minus else inner.scalar, start)

    def parentheses(self) -> Operand:
        """A condition or an operand in parentheses."""
        opening = self.take()
        with self.nesting(opening):
            if self.token.is_word("SELECT", "WITH"):
                raise self.error("subqueries are not supported in a condition")
            operand = self.condition()
        if self.has_ended():
            raise self.error("this '(' is never closed", opening.start)
        if not self.accept_symbol(")"):
            raise self.unexpected_token()
        return operand

    @contextmanager
    def nesting(self, opening: Token) -> Iterator[None]:
        """One level deeper, up to a limit."""
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise self.error(f"the condition is nested more than {_MAX_DEPTH} deep", opening.start)
        yield
        self.depth -= 1

    def strings(self) -> str:
        """Adjacent strings are concatenated, as in Spark."""
        pieces = [self.take().value]
        while self.token.kind is TokenKind.STRING:
            pieces.append(self.take().value)
        return "".join(pieces)

    def number_literal(self, sign: str) -> Operand:
        """A number."""
        token = self.take()
        with self.at(token.start):
            return LiteralOperand(number_literal(sign + token.text), token.start)

    def word(self) -> Operand:
        """An operand that starts with a word: a function, a typed or a constant value, a column."""
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
                return AllFields(self.take().start)
            case "CASE" | "INTERVAL" | "EXISTS" if not self.has_column(token.text):
                raise self.error(f"{upper} is not supported in a condition")
            case _ if upper in {*OPERATORS, *REGEX_WORDS} and not self.has_column(token.text):
                raise self.error(f"a column or a value is missing before {upper}")
        return self.column()

    def has_column(self, name: str) -> bool:
        """Whether there is a column of this name, in any case."""
        return any(name.lower() == column_name.lower() for column_name in self.schema.names)

    def typed_string(self, upper: str) -> pa.Scalar:
        """A value such as `DATE '2024-01-01'`."""
        text = self.strings()
        if upper != "X":
            return parse_literal(text, _TYPED_STRINGS[upper], self.zone)
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
            literal = self.cast_literal(operand, start)
            self.expect_symbol(")", "after CAST")
            return literal
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
            null_test = is_null(operand)
            return ConditionOperand(null_test if upper == "ISNULL" else negate(null_test), start)
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
            if not isinstance(operand, ColumnOperand) or kind_of(operand.type) is not TypeKind.FLOAT:
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
        arguments = self.operands(name.lower())
        if len(arguments) != count:
            raise self.error(
                f"{name.lower()} takes {count} argument{'s' if count > 1 else ''}, not {len(arguments)}",
                start,
            )
        return arguments

    def search_function(self, upper: str) -> Predicate:
        """`indexquery(column, 'query')` and `indexqueryall('query')`."""
        left: Operand = AllFields(self.token.start)
        self.expect_symbol("(", f"after {upper.lower()}")
        if upper != "INDEXQUERYALL":
            left = self.operand()
            self.expect_symbol(",", f"before the query of {upper.lower()}")
        search = self.search(SEARCHES.get(upper, SearchKind.INDEXQUERY), left)
        self.expect_symbol(")", f"after the query of {upper.lower()}")
        return search

    def cast_literal(self, operand: Operand, start: int) -> Operand:
        """The operand as the type whose name comes next."""
        return self.cast_to(operand, read_type(self), start)

    def cast_to(self, operand: Operand, type_: pa.DataType, start: int) -> Operand:
        """The operand as a type."""
        if not isinstance(operand, LiteralOperand):
            raise self.error("only values are cast, not columns; write the value in the column's type", start)
        with self.at(start):
            return LiteralOperand(cast_literal(operand.scalar, type_, self.zone), start)


def parse_condition(text: str, schema: pa.Schema, *, time_zone: str = "UTC") -> Predicate:
    """Parse a Spark SQL WHERE condition against a schema.

    Names of columns are matched without case, and returned in the schema's spelling. Every value of a
    `Compare` or `In` in the result has exactly the type of its column's values; a literal of another type is
    converted as Spark does. Queries of search operators are checked for their syntax.

    Args:
        text: The condition, as `status >= 500 AND message INDEXQUERY 'timeout OR refused'`.
        schema: The columns it may name.
        time_zone: The session's time zone, in which a TIMESTAMP without a zone is read.

    Raises:
        PredicateError: The condition is malformed, names an unknown column, or is not supported; the message
            shows the position.
        QuerySyntaxError: The query of a search operator is malformed.
    """
    return _Parser(text, schema, time_zone).whole()


class _Level:
    """The parsed part of a condition within one pair of parentheses."""

    def __init__(self, first: Token, opening: Token | None = None) -> None:
        self.start = first.start
        self.opening = opening
        self.alternatives: list[Predicate] = []
        self.parts: list[Operand] = []
        self.negations = 0
        self.sign = first.start


class _Parser(OperandParser):
    def whole(self) -> Predicate:
        if self.has_ended():
            raise self.error("the condition is empty")
        operand = self.condition()
        if not self.has_ended():
            raise self.unexpected_token()
        condition = self.as_condition(operand)
        if depth_of(condition) > _MAX_DEPTH:
            raise PredicateError(
                f"the condition is nested more than {_MAX_DEPTH} deep (AND in OR in AND, and so on): "
                "write it with fewer levels"
            )
        return condition

    def as_condition(self, operand: Operand) -> Predicate:
        with self.at(operand.start):
            return condition_of(operand)

    def condition(self) -> Operand:
        """Alternatives joined by OR, each of parts joined by AND; a single operand is returned unchanged.

        Parentheses are on an explicit stack: a generated condition may have very many.
        """
        levels = [_Level(self.token)]
        while True:
            level = levels[-1]
            level.sign = self.token.start
            while self.accept_word("NOT") or self.accept_symbol("!"):
                level.negations += 1
            if self.token.is_symbol("("):
                levels.append(self.open_level(len(levels)))
                continue
            operand: Operand | None = self.predicate()
            while operand is not None:
                level = levels[-1]
                level.parts.append(self.signed_condition(operand, level))
                operand = None
                if self.accept_word("AND"):
                    break
                condition = self.alternative(level)
                if condition is None:
                    break
                levels.pop()
                if not levels:
                    return condition
                operand = self.predicate(self.close_level(condition, level))

    def open_level(self, depth: int) -> "_Level":
        """The level of the current parenthesis."""
        opening = self.take()
        if depth > _MAX_PARENTHESES:
            problem = f"more than {_MAX_PARENTHESES:,} parentheses are nested"
            raise self.error(problem, opening.start)
        if self.token.is_word("SELECT", "WITH"):
            raise self.error("subqueries are not supported in a condition")
        return _Level(self.token, opening)

    def close_level(self, operand: Operand, level: "_Level") -> Operand:
        """The operand in parentheses, with the casts, elements and fields that follow it."""
        assert level.opening is not None
        if self.has_ended():
            raise self.error("this '(' is never closed", level.opening.start)
        if not self.accept_symbol(")"):
            raise self.unexpected_token()
        return self.with_suffixes(operand, level.opening.start)

    def signed_condition(self, operand: Operand, level: "_Level") -> Operand:
        """The operand under the NOTs before it."""
        count, level.negations = level.negations, 0
        if not count:
            return operand
        predicate = self.as_condition(operand)
        return ConditionOperand(negate(predicate) if count % 2 else predicate, level.sign)

    def alternative(self, level: "_Level") -> Operand | None:
        """The operand of a level, if it ends; None if another alternative follows."""
        more = self.accept_word("OR")
        if not more and not level.alternatives and len(level.parts) == 1:
            return level.parts[0]
        level.alternatives.append(combine(And, [self.as_condition(part) for part in level.parts]))
        level.parts = []
        return None if more else ConditionOperand(combine(Or, level.alternatives), level.start)

    def predicate(self, first: Operand | None = None) -> Operand:
        """An operand with the comparisons or the one test that follow it."""
        left = self.operand() if first is None else first
        while (token := self.token).is_symbol(*_COMPARISONS, *_UNEQUAL):
            self.take()
            right = self.operand()
            if self.token.is_symbol(*ARITHMETIC):
                raise self.unexpected_token()
            with self.at(right.start if isinstance(right, LiteralOperand | ConditionOperand) else left.start):
                if token.text in _UNEQUAL:
                    condition = negate(comparison(Op.EQ, left, right, self.zone))
                else:
                    condition = comparison(_COMPARISONS[token.text], left, right, self.zone)
            left = ConditionOperand(condition, left.start)
        negative = self.token.is_word("NOT")
        test = self.following if negative else self.token
        if not test.is_word("BETWEEN", "IN", "LIKE", "ILIKE", "IS", *SEARCHES, *REGEX_WORDS):
            return left
        self.index += negative
        predicate = self.test(left, self.take())
        return ConditionOperand(negate(predicate) if negative else predicate, left.start)

    def test(self, left: Operand, operator: Token) -> Predicate:
        word = operator.text.upper()
        if word in SEARCHES:
            return self.search(SEARCHES[word], left)
        with self.at(left.start):
            match word:
                case "BETWEEN":
                    lower = self.operand()
                    if not self.accept_word("AND"):
                        raise self.error("AND is missing between the two values of BETWEEN")
                    upper = self.operand()
                    return And(
                        (
                            comparison(Op.GE, left, lower, self.zone),
                            comparison(Op.LE, left, upper, self.zone),
                        )
                    )
                case "IN":
                    return in_list(left, self.operands("IN"), self.zone)
                case "LIKE" | "ILIKE":
                    return self.like(left, ignore_case=word == "ILIKE")
                case "IS":
                    return self.state(left)
                case _:
                    pass
        raise self.error(
            f"{word} is not supported, as its regular expressions are Java's; "
            f"use LIKE, or INDEXQUERY '/.../' to match single words",
            operator.start,
        )

    def like(self, left: Operand, *, ignore_case: bool) -> Predicate:
        quantifier = self.accept_word("ANY", "SOME", "ALL")
        if quantifier:
            items = [self.text_of(item, "LIKE") for item in self.operands(quantifier.text.upper())]
            kind = And if quantifier.is_word("ALL") else Or
            return combine(kind, [like(left, item, "\\", ignore_case=ignore_case) for item in items])
        pattern_at = self.token.start
        pattern = self.text_of(self.operand(), "LIKE")
        escape = "\\"
        if self.accept_word("ESCAPE"):
            if self.token.kind is not TokenKind.STRING or len(self.token.value) != 1:
                raise self.error("ESCAPE takes one character in quotes")
            escape = self.take().value
        with self.at(left.start if not isinstance(left, ColumnOperand) else pattern_at):
            return like(left, pattern, escape, ignore_case=ignore_case)

    def state(self, left: Operand) -> Predicate:
        """The test that follows IS."""
        negative = bool(self.accept_word("NOT"))
        word = self.accept_word("NULL", "TRUE", "FALSE", "UNKNOWN", "DISTINCT")
        if not word:
            raise self.error(
                "after IS, NULL, TRUE, FALSE, UNKNOWN or DISTINCT FROM is expected, optionally after NOT"
            )
        match word.text.upper():
            case "NULL":
                condition = is_null(left)
            case "UNKNOWN":
                condition_of(left)
                condition = is_null(left)
            case "DISTINCT":
                if not self.accept_word("FROM"):
                    raise self.error("FROM is missing after DISTINCT")
                condition = negate(comparison(Op.NULL_SAFE, left, self.operand(), self.zone))
            case truth:
                value = LiteralOperand(pa.scalar(truth == "TRUE"), word.start)
                condition = comparison(Op.NULL_SAFE, left, value, self.zone)
        return negate(condition) if negative else condition
