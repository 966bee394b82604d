"""The query language: text to tree, and back.

The language is described, with examples, in docs/query-language.md. It is parsed in one pass by recursive
descent. An ambiguous text is an error with the unambiguous forms.
"""

import math
import re
from collections.abc import Sequence
from typing import NoReturn

from indextables.errors import QuerySyntaxError
from indextables.predicate.sql_text import lone_surrogate, point_at
from indextables.predicate.tree import (
    AllDocs,
    AllOf,
    AnyOf,
    Boost,
    Exists,
    FieldPath,
    Fuzzy,
    InSet,
    Negation,
    Phrase,
    Prefix,
    QueryLeaf,
    QueryNode,
    Range,
    Regex,
    Search,
    Term,
    Wild,
    Wildcard,
)
from indextables.records import dataclass

AND_WORDS = frozenset({"AND", "&&"})
OR_WORDS = frozenset({"OR", "||"})
RESERVED = AND_WORDS | OR_WORDS | {"NOT"}
# Characters that end a word, and those with a meaning inside or at the start of a word.
ENDING = frozenset('"()[]{}')
MARKS = frozenset("\\:^*?~")
LEADING = frozenset("+-/<>")

_EDITS = re.compile(r"~([0-9]*)(?=[\s)\]}^]|$)")
MAX_DEPTH = 100
_FACTOR = re.compile(r"[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_NUMBER = re.compile(r"[0-9]+")
_OPERATOR = re.compile(r"(?:AND|OR|NOT|&&|\|\|)(?=[\s()\"]|$)")
_TO = re.compile(r"TO(?=\s)")


class WordError(Exception):
    """A word is malformed at a position."""

    def __init__(self, problem: str, position: int) -> None:
        super().__init__(problem)
        self.problem = problem
        self.position = position


@dataclass(frozen=True, slots=True)
class Word:
    """A run of characters: literal texts and placeholders, escapes resolved, and its position in the query.

    `edits` is the text after a closing `~`, which may be empty; None without a `~`.
    """

    parts: tuple[str | Wild, ...]
    start: int
    end: int
    raw: str
    edits: str | None = None

    @property
    def text(self) -> str | None:
        """The word without placeholders, or None if it has any."""
        if len(self.parts) == 1 and not isinstance(self.parts[0], Wild):
            return self.parts[0]
        return None


def read_word(text: str, start: int, *, value: bool) -> Word:
    """The word that starts here; it may be empty.

    As a value (after a field's colon, in a range or a set) it may contain colons. Elsewhere an unescaped
    colon ends it, unless it is the one of `://`, which makes the rest of the word an address.
    """
    parts: list[str | Wild] = []
    literal: list[str] = []
    edits: str | None = None
    at = start

    def flush() -> None:
        if literal:
            parts.append("".join(literal))
            literal.clear()

    while at < len(text):
        char = text[at]
        if char.isspace() or char in ENDING or char == "^":
            break
        if char == "\\":
            at += 1
            if at == len(text):
                raise WordError("a backslash ends the query; write \\\\ to search for one", at - 1)
            literal.append(text[at])
        elif char in {"*", "?"}:
            flush()
            if char == "?" or not parts or parts[-1] is not Wild.MANY:
                parts.append(Wild(char))
        elif char == ":" and not value:
            if not text.startswith("://", at) or at == start:
                break
            value = True
            literal.append(char)
        elif char == "~" and at > start and (match := _EDITS.match(text, at)):
            edits = match[1]
            at = match.end()
            break
        else:
            literal.append(char)
        at += 1
    flush()
    return Word(tuple(parts), start, at, text[start:at], edits)


def split_path(raw: str) -> FieldPath:
    """A field name as written, split at its unescaped dots, escapes resolved."""
    path = [""]
    escaped = False
    for char in raw:
        if escaped:
            path[-1] += char
            escaped = False
        elif char == "\\":
            escaped = True
        elif char == ".":
            path.append("")
        else:
            path[-1] += char
    return tuple(path)


def parse_query(text: str) -> QueryNode:
    """Parse a search query; see docs/query-language.md for the language.

    Raises:
        QuerySyntaxError: The query is empty or malformed; the message shows where.

    >>> parse_query("timeout -debug")
    AllOf(parts=(Term(text='timeout', field=None, position=0), Negation(part=Term(text='debug', \
field=None, position=9), position=8)), position=0)
    """
    if not isinstance(text, str):
        raise QuerySyntaxError(f"a query is a text, not a value of type {type(text).__name__}")
    return _Parser(text).query()


def parse_search(search: Search) -> QueryNode:
    """Parse the query of a search operator; an error names the field that is searched."""
    try:
        return parse_query(search.query)
    except QuerySyntaxError as error:
        where = "all fields" if search.column is None else f"'{search.column.name}'"
        raise QuerySyntaxError(f"the query of {where}: {error}", position=error.position) from None


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.depth = 0
        self.group_field: FieldPath | None = None

    # --- the text -----------------------------------------------------------------------------------

    def fail(self, problem: str, position: int | None = None) -> NoReturn:
        place = self.at if position is None else position
        raise QuerySyntaxError(point_at(self.text, place, problem), position=place)

    def skip_blanks(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def peek(self) -> str:
        return self.text[self.at] if self.at < len(self.text) else ""

    def at_boundary(self) -> bool:
        return self.peek() in {"", ")"} or self.peek().isspace()

    def word(self, *, value: bool = False) -> Word:
        """The next word; in a value, a colon or a circumflex is an ordinary character."""
        try:
            word = read_word(self.text, self.at, value=value)
        except WordError as error:
            self.fail(error.problem, error.position)
        self.at = word.end
        return word

    def upcoming(self) -> str:
        """The operator at the current position (`AND`, `OR`, `NOT`, `&&`, `||`); empty if there is none."""
        match = _OPERATOR.match(self.text, self.at)
        return match[0] if match else ""

    # --- operators ---------------------------------------------------------------------------------

    def query(self) -> QueryNode:
        broken = lone_surrogate(self.text)
        if broken is not None:
            self.fail("this is a lone surrogate", broken)
        self.skip_blanks()
        if not self.peek():
            self.fail("the query is empty; write * to match every row")
        node = self.any_of()
        if self.peek():
            self.fail("there is no '(' for this ')'")
        return node

    def any_of(self) -> QueryNode:
        parts: list[QueryNode] = []
        pluses: list[int | None] = []
        while True:
            part, plus = self.all_of()
            parts.append(part)
            pluses.append(plus)
            if self.upcoming() not in OR_WORDS:
                break
            self.at += 2
            self.skip_blanks()
        required = next((plus for plus in pluses if plus is not None), None)
        if len(parts) > 1 and required is not None:
            self.fail("'+' (required) contradicts OR; leave it out, or group with parentheses", required)
        return combine(AnyOf, parts)

    def all_of(self) -> tuple[QueryNode, int | None]:
        """Parts joined by AND or a blank, and the position of the '+' of a single part."""
        parts: list[QueryNode] = []
        plus: int | None = None
        while True:
            if self.peek() == "+":
                plus = self.at
                self.at += 1
                self.sign_must_touch("+", plus)
            parts.append(self.negation())
            self.skip_blanks()
            operator = self.upcoming()
            if operator in AND_WORDS:
                self.at += len(operator)
                self.skip_blanks()
            elif operator in OR_WORDS or self.peek() in {"", ")"}:
                return combine(AllOf, parts), plus if len(parts) == 1 else None

    def sign_must_touch(self, sign: str, start: int) -> None:
        if self.at_boundary():
            self.fail(
                f"a lone '{sign}'; put it right before a term, or write \\{sign} to search for it", start
            )

    def negation(self) -> QueryNode:
        start = self.at
        operator = self.upcoming()
        if operator == "NOT":
            self.at += 3
            self.skip_blanks()
        elif self.peek() == "-":
            self.at += 1
            self.sign_must_touch("-", start)
        else:
            if not self.peek() or self.peek() == ")" or operator:
                self.missing_operand(operator)
            return self.boost(self.operand())
        self.deeper()
        node = Negation(self.negation(), position=start)
        self.depth -= 1
        return node

    def missing_operand(self, operator: str) -> NoReturn:
        if operator:
            self.fail(f'a term is missing before {operator}; to search for the word, write "{operator}"')
        before = self.text[: self.at].rstrip()
        if before.endswith("("):
            self.fail("the parentheses are empty")
        self.fail("a term is missing here" if before else "there is no '(' for this ')'")

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail(f"the query is nested more than {MAX_DEPTH} deep")

    def boost(self, node: QueryNode) -> QueryNode:
        if self.peek() == "^":
            start = self.at
            match = _FACTOR.match(self.text, self.at + 1)
            factor = float(match[0]) if match else 0.0
            if not match or not 0 < factor < math.inf:
                self.fail("'^' takes a positive number, as in ^2 or ^1.5; to search for it, write \\^", start)
            self.at = match.end()
            node = Boost(node, factor, position=node.position)
        if not self.at_boundary():
            self.fail(
                f"a blank or an operator is missing before {self.peek()!r}; quote a text that contains it"
            )
        return node

    # --- operands ----------------------------------------------------------------------------------

    def operand(self) -> QueryNode:
        start = self.at
        if self.peek() == "(":
            return self.group(None)
        if self.peek() in '"[{<>/':
            return self.leaf(self.group_field, start)
        word = self.word()
        if self.peek() != ":":
            return self.plain(word, self.group_field, start)
        field = self.field(word)
        self.at += 1
        touching = not self.peek().isspace()
        self.skip_blanks()
        if self.peek() in {"", ")"} or (not touching and self.upcoming()):
            self.fail(f"a value is missing after {self.text[start : word.end]}:")
        return self.group(field) if self.peek() == "(" else self.leaf(field, start)

    def field(self, word: Word) -> FieldPath:
        if any(isinstance(part, Wild) for part in word.parts):
            self.fail("a field name has no wildcards; write \\* or \\? if it contains one", word.start)
        path = split_path(self.text[word.start : word.end])
        if not all(path):
            self.fail("a field name is missing before ':' (or write \\: to search for it)", word.start)
        return path

    def group(self, field: FieldPath | None) -> QueryNode:
        start = self.at
        outer, self.group_field = self.group_field, field or self.group_field
        self.deeper()
        self.at += 1
        self.skip_blanks()
        node = self.any_of()
        if self.peek() != ")":
            self.fail("this '(' is never closed", start)
        self.at += 1
        self.depth -= 1
        self.group_field = outer
        return node

    def leaf(self, field: FieldPath | None, start: int) -> QueryNode:
        head = self.peek()
        if head == '"':
            return self.phrase(field, start)
        if head in "[{":
            return self.range(field, start)
        if head in "<>":
            return self.comparison(field, start)
        if head == "/":
            return self.regex(field, start)
        return self.plain(self.word(value=True), field, start)

    def plain(self, word: Word, field: FieldPath | None, start: int) -> QueryNode:
        """The leaf of a word: term, prefix, wildcard, fuzzy term or all rows."""
        if word.raw == "IN":
            after = len(self.text) - len(self.text[self.at :].lstrip())
            if self.text[after : after + 1] == "[":
                self.at = after
                return self.in_set(field, start)
        if not word.parts:
            self.fail(f"{self.peek()!r} is not expected here; quote a text that contains it")
        if word.edits is not None:
            text = word.text
            if text is None or word.edits not in {"1", "2"}:
                self.fail("a fuzzy term is a word without wildcards and ends in ~1 or ~2", start)
            return Fuzzy(text, int(word.edits), field, position=start)
        if word.text is not None:
            return Term(word.text, field, position=start)
        if word.parts == (Wild.MANY,):
            return AllDocs(position=start) if field is None else Exists(field, position=start)
        if len(word.parts) == 2 and not isinstance(word.parts[0], Wild) and word.parts[1] is Wild.MANY:
            return Prefix(word.parts[0], field, position=start)
        return Wildcard(word.parts, field, position=start)

    def quotation(self) -> str:
        start = self.at
        chars: list[str] = []
        self.at += 1
        while self.peek() != '"':
            if self.peek() == "\\":
                self.at += 1
            if not self.peek():
                self.fail('this quote is never closed; write \\" to search for a quote', start)
            chars.append(self.peek())
            self.at += 1
        self.at += 1
        return "".join(chars)

    def phrase(self, field: FieldPath | None, start: int) -> QueryNode:
        text = self.quotation()
        slop, prefix = 0, False
        if self.peek() == "~":
            match = _NUMBER.match(self.text, self.at + 1)
            if not match or len(match[0]) > 9:
                self.fail('the slop of a phrase is a number, as in "a b"~2')
            slop, self.at = int(match[0]), match.end()
        if self.peek() == "*":
            if slop or not text.strip():
                self.fail("a phrase with '*' after it has words and no slop")
            prefix = True
            self.at += 1
        if self.peek() == ":":
            self.fail("a field name is not quoted; write a blank in it as '\\ '", start)
        return Phrase(text, slop, prefix, field, position=start)

    def bound(self, what: str) -> str | None:
        """A bound or an element: a quoted text or a word; None for a bare `*`."""
        start = self.at
        if self.peek() == '"':
            return self.quotation()
        word = self.word(value=True)
        if word.raw == "*":
            return None
        if not word.parts:
            self.fail(f"{what} is missing here")
        if word.edits is not None:
            return f"{word.text}~{word.edits}" if word.text is not None else self.fail_wildcard(what, start)
        return word.text if word.text is not None else self.fail_wildcard(what, start)

    def fail_wildcard(self, what: str, start: int) -> NoReturn:
        self.fail(f"{what} has no wildcards; quote it if it contains * or ?", start)

    def range(self, field: FieldPath | None, start: int) -> QueryNode:
        opening = self.at
        lower_inclusive = self.peek() == "["
        self.at += 1
        self.skip_blanks()
        lower = self.bound("the lower bound")
        self.skip_blanks()
        match = _TO.match(self.text, self.at)
        if not match:
            self.fail("a range is written [a TO b] or {a TO b}; quote a text that contains brackets", opening)
        self.at = match.end()
        self.skip_blanks()
        upper = self.bound("the upper bound")
        self.skip_blanks()
        if self.peek() not in {"]", "}"}:
            self.fail("this range is never closed; it ends with ] (inclusive) or } (exclusive)", opening)
        upper_inclusive = self.peek() == "]"
        self.at += 1
        if lower is None and upper is None:
            return AllDocs(position=start) if field is None else Exists(field, position=start)
        return Range(
            lower,
            upper,
            lower_inclusive or lower is None,
            upper_inclusive or upper is None,
            field,
            position=start,
        )

    def comparison(self, field: FieldPath | None, start: int) -> QueryNode:
        greater = self.peek() == ">"
        self.at += 1
        inclusive = self.peek() == "="
        self.at += inclusive
        self.skip_blanks()
        value_at = self.at
        value = self.bound("the value of the comparison")
        if value is None:
            self.fail_wildcard("the value of the comparison", value_at)
        if greater:
            return Range(value, None, inclusive, True, field, position=start)
        return Range(None, value, True, inclusive, field, position=start)

    def in_set(self, field: FieldPath | None, start: int) -> QueryNode:
        opening = self.at
        self.at += 1
        values: list[str] = []
        while True:
            self.skip_blanks()
            if self.peek() == "]":
                break
            if not self.peek():
                self.fail("this set is never closed; it is written IN [a b c]", opening)
            value_at = self.at
            value = self.bound("a value of the set")
            if value is None:
                self.fail_wildcard("a value of the set", value_at)
            comma = self.text.find(",", value_at, self.at)
            if self.text[value_at] != '"' and comma >= 0:
                self.fail("values of a set are separated by blanks; quote one that contains a comma", comma)
            values.append(value)
        if not values:
            self.fail("the set is empty; it is written IN [a b c]", opening)
        self.at += 1
        return InSet(tuple(values), field, position=start)

    def regex(self, field: FieldPath | None, start: int) -> QueryNode:
        opening = self.at
        chars: list[str] = []
        self.at += 1
        while self.peek() != "/":
            if self.peek() == "\\":
                chars.append("\\")
                self.at += 1
                if self.peek() == "/":
                    chars.pop()
            if not self.peek():
                self.fail(
                    "this regular expression is never closed; quote a text that begins with '/'", opening
                )
            chars.append(self.peek())
            self.at += 1
        self.at += 1
        if not chars or not (self.at_boundary() or self.peek() == "^"):
            self.fail(
                "a regular expression is written /.../ with \\/ for a slash in it; "
                "quote a text that begins with '/'",
                opening,
            )
        return Regex("".join(chars), field, position=start)


def combine(kind: type[AllOf] | type[AnyOf], parts: Sequence[QueryNode]) -> QueryNode:
    """The parts under one node; nested ones of the same kind are flattened, a single part is returned."""
    if len(parts) == 1:
        return parts[0]
    flat: list[QueryNode] = []
    for part in parts:
        flat.extend(part.parts if isinstance(part, kind) else (part,))
    return kind(tuple(flat), position=parts[0].position)


def to_text(query: QueryNode) -> str:
    r"""The query as text, every operator spelled out.

    >>> to_text(AllOf((Term("a b"), Negation(Prefix("time", field=("log", "line"))))))
    'a\\ b AND NOT log.line:time*'
    """
    match query:
        case AnyOf(parts):
            return " OR ".join(_within(part, AnyOf) for part in parts)
        case AllOf(parts):
            return " AND ".join(_within(part, AnyOf, AllOf) for part in parts)
        case Negation(part):
            return f"NOT {_within(part, AnyOf, AllOf)}"
        case Boost(part, factor):
            return f"{_within(part, AnyOf, AllOf, Negation, Boost)}^{factor!r}"
        case _:
            return _leaf(query)


def needs_parentheses(part: QueryNode, within: type[AllOf] | type[AnyOf]) -> bool:
    """Whether a part of a combination is written in parentheses; one of the same kind becomes part of it."""
    return within is AllOf and isinstance(part, AnyOf)


def depth_of(query: QueryNode) -> int:
    """How deep the text of a query is nested, in parentheses and NOT."""
    match query:
        case AnyOf(parts) | AllOf(parts):
            return max(depth_of(part) + needs_parentheses(part, type(query)) for part in parts)
        case Negation(part):
            return depth_of(part) + 1 + isinstance(part, AnyOf | AllOf)
        case Boost(part):
            return depth_of(part) + isinstance(part, AnyOf | AllOf | Negation | Boost)
        case _:
            return 0


def _within(part: QueryNode, *looser: type[QueryNode]) -> str:
    """The part, in parentheses if its operator has no higher precedence."""
    text = to_text(part)
    return f"({text})" if isinstance(part, looser) else text


def _leaf(leaf: QueryLeaf) -> str:
    match leaf:
        case AllDocs():
            return "*"
        case Exists(field):
            return f"{_field(field)}*"
        case Term(text, field):
            return _field(field) + _word(text)
        case Prefix(text, field):
            return f"{_field(field)}{_word(text)}*"
        case Fuzzy(text, distance, field):
            return f"{_field(field)}{_word(text)}~{distance}"
        case Wildcard(parts, field):
            return _field(field) + "".join(
                part.value if isinstance(part, Wild) else _escape(part, first=index == 0)
                for index, part in enumerate(parts)
            )
        case Phrase(text, slop, prefix, field):
            return _field(field) + _quote(text) + (f"~{slop}" if slop else "") + ("*" if prefix else "")
        case Regex(pattern, field):
            return f"{_field(field)}/{_escape_slashes(pattern)}/"
        case Range():
            return _field(leaf.field) + _range(leaf)
        case InSet(values, field):
            return f"{_field(field)}IN [{' '.join(map(_quote, values))}]"


def _range(leaf: Range) -> str:
    lower = "*" if leaf.lower is None else _quote(leaf.lower)
    upper = "*" if leaf.upper is None else _quote(leaf.upper)
    return f"{'[' if leaf.lower_inclusive else '{'}{lower} TO {upper}{']' if leaf.upper_inclusive else '}'}"


def _field(path: FieldPath | None) -> str:
    if path is None:
        return ""
    return ".".join(_escape(name, first=True).replace(".", "\\.") for name in path) + ":"


def _word(text: str) -> str:
    """A word, escaped if it is an operator."""
    if text in RESERVED or text == "IN":
        return "\\" + text
    return _escape(text, first=True)


def _escape(text: str, *, first: bool) -> str:
    return "".join(
        "\\" + char
        if char in MARKS or char in ENDING or char.isspace() or (first and index == 0 and char in LEADING)
        else char
        for index, char in enumerate(text)
    )


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _escape_slashes(pattern: str) -> str:
    """The pattern with unescaped slashes escaped."""
    out: list[str] = []
    escaped = False
    for char in pattern:
        if char == "/" and not escaped:
            out.append("\\")
        out.append(char)
        escaped = char == "\\" and not escaped
    return "".join(out)
