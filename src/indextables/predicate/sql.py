"""A SQL condition as text, parsed into the condition tree.

The grammar is the part of Spark's that compares columns with values, with the search operators added.
What lies outside is refused by name, never guessed.
"""

import pyarrow as pa

from indextables.errors import PredicateError
from indextables.predicate.lexer import Token, TokenKind
from indextables.predicate.operands import (
    ColumnOperand,
    ConditionOperand,
    LiteralOperand,
    Operand,
    among,
    compared,
    condition_of,
    inverted,
    joined,
    like,
    null_test,
)
from indextables.predicate.sql_cursor import ARITHMETIC, SEARCHES
from indextables.predicate.sql_operands import REGEX_WORDS, OperandParser
from indextables.predicate.tree import (
    And,
    Op,
    Or,
    Predicate,
    depth_of,
)

# A condition may be so deep when chains of one operator are one level, and a double NOT is none.
_DEEPEST = 100
_MOST_PARENTHESES = 10_000
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


def parse_condition(text: str, schema: pa.Schema, *, time_zone: str = "UTC") -> Predicate:
    """Parse a Spark SQL WHERE condition against a schema.

    Columns are found in any case and come back in the schema's spelling. Every value of a `Compare` or
    `In` in the result has exactly the type of its column's values; a literal of another type is moved as
    Spark's own casts would have it. Queries of search operators are checked for their syntax.

    Args:
        text: The condition, as `status >= 500 AND message INDEXQUERY 'timeout OR refused'`.
        schema: The columns it may name.
        time_zone: The session's time zone, in which a TIMESTAMP without a zone is read.

    Raises:
        PredicateError: The condition is malformed, names an unknown column, or asks for something that
            cannot be answered; the message shows where.
        QuerySyntaxError: The query of a search operator is malformed.
    """
    return _Parser(text, schema, time_zone).whole()


class _Level:
    """What was read of a condition within one pair of parentheses."""

    def __init__(self, first: Token, opening: Token | None = None) -> None:
        self.start = first.start
        self.opening = opening
        self.alternatives: list[Predicate] = []
        self.parts: list[Operand] = []
        self.negations = 0
        self.sign = first.start


class _Parser(OperandParser):
    def whole(self) -> Predicate:
        if self.ended():
            raise self.error("the condition is empty")
        operand = self.condition()
        if not self.ended():
            raise self.unexpected()
        found = self.as_condition(operand)
        if depth_of(found) > _DEEPEST:
            raise PredicateError(
                f"the condition is nested more than {_DEEPEST} deep (AND in OR in AND, and so on): "
                "write it with fewer levels"
            )
        return found

    def as_condition(self, operand: Operand) -> Predicate:
        with self.at(operand.start):
            return condition_of(operand)

    def condition(self) -> Operand:
        """Alternatives joined by OR, each of parts joined by AND; a lone operand stays what it is.

        Parentheses are kept on a stack: a condition that a program made may have very many.
        """
        levels = [_Level(self.token)]
        while True:
            level = levels[-1]
            level.sign = self.token.start
            while self.accept_word("NOT") or self.accept_symbol("!"):
                level.negations += 1
            if self.token.is_symbol("("):
                levels.append(self.opened(len(levels)))
                continue
            operand: Operand | None = self.predicate()
            while operand is not None:
                level = levels[-1]
                level.parts.append(self.signed_condition(operand, level))
                operand = None
                if self.accept_word("AND"):
                    break
                found = self.alternative(level)
                if found is None:
                    break
                levels.pop()
                if not levels:
                    return found
                operand = self.predicate(self.closed(found, level))

    def opened(self, depth: int) -> "_Level":
        """The level of the parenthesis under the head."""
        opening = self.take()
        if depth > _MOST_PARENTHESES:
            problem = f"more than {_MOST_PARENTHESES:,} parentheses stand in each other"
            raise self.error(problem, opening.start)
        if self.token.is_word("SELECT", "WITH"):
            raise self.error("subqueries are not supported in a condition")
        return _Level(self.token, opening)

    def closed(self, operand: Operand, level: "_Level") -> Operand:
        """What stands in parentheses, and what touches their end."""
        assert level.opening is not None
        if self.ended():
            raise self.error("this '(' is never closed", level.opening.start)
        if not self.accept_symbol(")"):
            raise self.unexpected()
        return self.followed(operand, level.opening.start)

    def signed_condition(self, operand: Operand, level: "_Level") -> Operand:
        """The operand under the NOTs before it."""
        count, level.negations = level.negations, 0
        if not count:
            return operand
        predicate = self.as_condition(operand)
        return ConditionOperand(inverted(predicate) if count % 2 else predicate, level.sign)

    def alternative(self, level: "_Level") -> Operand | None:
        """What a level is, if nothing more comes; None if another alternative follows."""
        more = self.accept_word("OR")
        if not more and not level.alternatives and len(level.parts) == 1:
            return level.parts[0]
        level.alternatives.append(joined(And, [self.as_condition(part) for part in level.parts]))
        level.parts = []
        return None if more else ConditionOperand(joined(Or, level.alternatives), level.start)

    def predicate(self, first: Operand | None = None) -> Operand:
        """An operand with the comparisons or the one test that follow it."""
        left = self.operand() if first is None else first
        while (token := self.token).is_symbol(*_COMPARISONS, *_UNEQUAL):
            self.take()
            right = self.operand()
            if self.token.is_symbol(*ARITHMETIC):
                raise self.unexpected()
            with self.at(right.start if isinstance(right, LiteralOperand | ConditionOperand) else left.start):
                if token.text in _UNEQUAL:
                    found = inverted(compared(Op.EQ, left, right, self.zone))
                else:
                    found = compared(_COMPARISONS[token.text], left, right, self.zone)
            left = ConditionOperand(found, left.start)
        negative = self.token.is_word("NOT")
        test = self.following if negative else self.token
        if not test.is_word("BETWEEN", "IN", "LIKE", "ILIKE", "IS", *SEARCHES, *REGEX_WORDS):
            return left
        self.index += negative
        predicate = self.test(left, self.take())
        return ConditionOperand(inverted(predicate) if negative else predicate, left.start)

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
                            compared(Op.GE, left, lower, self.zone),
                            compared(Op.LE, left, upper, self.zone),
                        )
                    )
                case "IN":
                    return among(left, self.operands("IN"), self.zone)
                case "LIKE" | "ILIKE":
                    return self.like(left, ignore_case=word == "ILIKE")
                case "IS":
                    return self.state(left)
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
            return joined(kind, [like(left, item, "\\", ignore_case=ignore_case) for item in items])
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
        """What follows IS."""
        negative = bool(self.accept_word("NOT"))
        word = self.accept_word("NULL", "TRUE", "FALSE", "UNKNOWN", "DISTINCT")
        if not word:
            raise self.error(
                "after IS comes NULL, TRUE, FALSE, UNKNOWN or DISTINCT FROM, perhaps with NOT before it"
            )
        match word.text.upper():
            case "NULL":
                found = null_test(left)
            case "UNKNOWN":
                condition_of(left)
                found = null_test(left)
            case "DISTINCT":
                if not self.accept_word("FROM"):
                    raise self.error("FROM is missing after DISTINCT")
                found = inverted(compared(Op.NULL_SAFE, left, self.operand(), self.zone))
            case truth:
                value = LiteralOperand(pa.scalar(truth == "TRUE"), word.start)
                found = compared(Op.NULL_SAFE, left, value, self.zone)
        return inverted(found) if negative else found
