"""What a condition means, row by row in plain Python: True, False or None for unknown."""

import datetime as dt
import decimal
import ipaddress
import itertools
import json
import math
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from indextables.predicate import (
    Always,
    And,
    Compare,
    In,
    IsNull,
    Like,
    Not,
    Op,
    Or,
    Search,
    TextMatch,
    TextMatchKind,
)
from indextables.predicate import tree as q
from indextables.predicate.query_language import parse_query
from indextables.predicate.tree import Column, Range

TEXT = {"t", "both", "brief", "loose"}
UNQUALIFIED = ["s", "t", "both", "brief", "loose", "h"]


def tokens(text: str) -> list[str]:
    found, word = [], ""
    for c in text + " ":
        if c.isalnum():
            word += c
        elif word:
            found.append("".join(x.lower() for x in word))
            word = ""
    return found


# --- conditions -------------------------------------------------------------------------------------


def holds(predicate: Any, row: Any) -> Any:
    match predicate:
        case And(parts):
            answers = [holds(p, row) for p in parts]
            return False if False in answers else None if None in answers else True
        case Or(parts):
            answers = [holds(p, row) for p in parts]
            return True if True in answers else None if None in answers else False
        case Not(part):
            answer = holds(part, row)
            return None if answer is None else not answer
        case Always(value):
            return value
        case Search(column=column, query=text):
            return matches(parse_query(text), row, None if column is None else column.path)
        case IsNull(column):
            return value_of(row, column) is None
        case Compare(op, column, literal):
            return compared(op, value_of(row, column), literal.as_py())
        case In(column, values):
            answers = [compared(Op.EQ, value_of(row, column), v.as_py()) for v in values]
            return True if True in answers else None if None in answers else False
        case TextMatch(kind, column, text):
            value = value_of(row, column)
            if value is None:
                return None
            return {
                TextMatchKind.STARTS: value.startswith,
                TextMatchKind.ENDS: value.endswith,
                TextMatchKind.CONTAINS: value.__contains__,
            }[kind](text)
        case Like(column, pattern, escape, _):
            value = value_of(row, column)
            return None if value is None else like(value, pattern, escape)
        case _:
            pass
    raise AssertionError(predicate)


def value_of(row: Any, column: Column) -> Any:
    value = row[column.path[0]]
    for name in column.path[1:]:
        value = None if value is None else value[name]
    return value


def order_key(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float):
        if math.isnan(value):
            return (2, 0)
        if math.isinf(value):
            return (1, 0) if value > 0 else (-1, 0)
        return (0, Fraction(value))
    if isinstance(value, (int, decimal.Decimal)):
        return (0, Fraction(value))
    return value


def compared(op: Op, value: Any, literal: Any) -> Any:
    if op is Op.NULL_SAFE:
        if value is None or literal is None:
            return value is None and literal is None
        op = Op.EQ
    if value is None or literal is None:
        return None
    a, b = order_key(value), order_key(literal)
    return {Op.EQ: a == b, Op.LT: a < b, Op.LE: a <= b, Op.GT: a > b, Op.GE: a >= b}[op]


def like(value: Any, pattern: str, escape: str) -> bool:
    out, chars = "", iter(pattern)
    for c in chars:
        if c == escape:
            out += re.escape(next(chars))
        else:
            out += ".*" if c == "%" else "." if c == "_" else re.escape(c)
    return re.fullmatch(out, value, re.DOTALL) is not None


# --- queries ----------------------------------------------------------------------------------------


def matches(node: Any, row: Any, default: tuple[str, ...]) -> Any:
    match node:
        case q.AllOf(parts):
            return all(matches(p, row, default) for p in parts)
        case q.AnyOf(parts):
            return any(matches(p, row, default) for p in parts)
        case q.Negation(part):
            return not matches(part, row, default)
        case q.Boost(part):
            return matches(part, row, default)
        case q.AllDocs():
            return True
        case _:
            pass
    if node.field is not None:
        return leaf(node, row, node.field)
    if default is not None:
        return leaf(node, row, default)
    return any(leaf(node, row, (name,)) for name in UNQUALIFIED)


def leaf(node: Any, row: Any, path: tuple[str, ...]) -> Any:
    name, *inner = path
    value = row[name]
    if name in ("st", "l", "j"):
        return any(
            json_leaf(node, item) for item in json_items(name, value, inner, isinstance(node, q.Exists))
        )
    if value is None:
        return False
    if isinstance(node, q.Exists):
        return True
    if name == "ip":
        return ip_leaf(node, value)
    if name in TEXT:
        return text_leaf(node, tokens(value), tokenized=True)
    if isinstance(value, str):
        return text_leaf(node, [value], tokenized=False)
    return value_leaf(node, value)


def text_leaf(node: Any, words: list[Any], *, tokenized: bool) -> bool:  # noqa: C901 - one case for each kind of leaf
    def cut(text: str) -> list[str] | list[Any]:
        return tokens(text) if tokenized else [text]

    def fold(text: str) -> str:
        return "".join(c.lower() for c in text) if tokenized else text

    def phrase(wanted: Any, *, last_begun: bool = False) -> bool:
        if not wanted:
            return False
        for start in range(len(words) - len(wanted) + 1):
            window = words[start : start + len(wanted)]
            if last_begun:
                if window[:-1] == wanted[:-1] and window[-1].startswith(wanted[-1]):
                    return True
            elif window == wanted:
                return True
        return False

    match node:
        case q.Term(text=text) | q.Phrase(text=text, slop=0, prefix=False):
            return phrase(cut(text))
        case q.Phrase(text=text, slop=slop, prefix=False):
            wanted = cut(text)
            if len(wanted) < 2:
                return phrase(wanted)
            return sloppy(wanted, words, slop)
        case q.Phrase(text=text, prefix=True) | q.Prefix(text=text):
            wanted = cut(text)
            if len(wanted) < 2:
                start = wanted[0] if wanted else fold(text)
                return any(w.startswith(start) for w in words)
            return phrase(wanted, last_begun=True)
        case q.Wildcard(parts=parts):
            pattern = "".join(
                ".*" if p is q.Wild.MANY else "." if p is q.Wild.ONE else re.escape(fold(p)) for p in parts
            )
            return any(re.fullmatch(pattern, w, re.DOTALL) for w in words)
        case q.Regex(pattern=pattern):
            return any(re.fullmatch(pattern, w) for w in words)
        case q.Fuzzy(text=text, distance=distance):
            return any(edits(fold(text), w) <= distance for w in words)
        case q.Range():
            return any(inside(w.encode(), node, lambda b: fold(b).encode()) for w in words)
        case q.InSet(values=values):
            return any(phrase(cut(v)) for v in values)
        case _:
            pass
    raise AssertionError(node)


def sloppy(wanted: list[str], words: list[Any], slop: int) -> bool:
    """Every assignment of the wanted words to places of the text is tried."""
    places = [[i for i, w in enumerate(words) if w == one] for one in wanted]
    for way in itertools.product(*places):
        moves = [place - offset for offset, place in enumerate(way)]
        if len(set(way)) == len(way) and max(moves) - min(moves) <= slop:
            return True
    return False


def inside(value: Any, node: Range, read: Callable[..., Any]) -> bool:
    if node.lower is not None:
        low = read(node.lower)
        if value < low or (value == low and not node.lower_inclusive):
            return False
    if node.upper is not None:
        high = read(node.upper)
        if value > high or (value == high and not node.upper_inclusive):
            return False
    return True


def edits(a: str, b: Any) -> int:
    if abs(len(a) - len(b)) > 2:
        return 3  # more than any query allows
    table = {(i, 0): i for i in range(len(a) + 1)} | {(0, j): j for j in range(len(b) + 1)}
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            best = min(table[i - 1, j] + 1, table[i, j - 1] + 1, table[i - 1, j - 1] + (a[i - 1] != b[j - 1]))
            if i > 1 and j > 1 and a[i - 1] == b[j - 2] and a[i - 2] == b[j - 1]:
                best = min(best, table[i - 2, j - 2] + 1)
            table[i, j] = best
    return table[len(a), len(b)]


def value_leaf(node: Any, value: Any) -> Any:
    def read(text: str) -> Any:
        if isinstance(value, bool):
            return text == "true"
        if isinstance(value, dt.datetime):
            found = dt.datetime.fromisoformat(text)
            return found if found.tzinfo else found.replace(tzinfo=dt.UTC)
        if isinstance(value, dt.date):
            return dt.date.fromisoformat(text)
        if isinstance(value, float):
            return order_key(float(text))
        return order_key(decimal.Decimal(text))

    own = value if isinstance(value, (bool, dt.date)) else order_key(value)
    match node:
        case q.Term(text=text) | q.Phrase(text=text):
            return own == read(text)
        case q.InSet(values=values):
            return any(own == read(text) for text in values)
        case q.Range():
            return inside(own, node, read)
        case _:
            pass
    raise AssertionError(node)


def ip_leaf(node: Any, value: Any) -> Any:
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        return False

    def number(one: Any) -> int:
        return int(one) + (0xFFFF << 32 if one.version == 4 else 0)

    def block(text: str) -> Any:
        if "*" in text:
            head = [part for part in text.split(".") if part != "*"]
            low, high = [".".join(head + [fill] * (4 - len(head))) for fill in ("0", "255")]
            return number(ipaddress.ip_address(low)), number(ipaddress.ip_address(high))
        net = ipaddress.ip_network(text, strict=False)
        return number(net[0]), number(net[-1])

    own = number(address)
    match node:
        case q.Term(text=text) | q.Phrase(text=text):
            return block(text)[0] <= own <= block(text)[1]
        case q.InSet(values=values):
            return any(block(v)[0] <= own <= block(v)[1] for v in values)
        case q.Prefix(text=text):
            return block(text + "*")[0] <= own <= block(text + "*")[1]
        case q.Range():
            return inside(own, node, lambda t: number(ipaddress.ip_address(t)))
        case _:
            pass
    raise AssertionError(node)


def json_items(name: str, value: Any, path: Any | tuple[Any], deep: bool) -> list[Any]:
    if name == "j" and value is not None:
        try:
            value = json.loads(value)
        except ValueError:
            value = None
    if value is None:
        return []
    paths = [tuple(path)]
    if name in ("l", "j"):
        if not isinstance(value, dict):
            value = {name: value}
        paths = [tuple(path), (name, *path)] if path else [(name,)]
    return [item for p in paths for item in walk(value, p, deep)]


def walk(value: Any, path: Any, deep: bool) -> Any:
    if isinstance(value, list):
        return [found for item in value for found in walk(item, path, deep)]
    if isinstance(value, dict):
        if path:
            return walk(value[path[0]], path[1:], deep) if path[0] in value else []
        return [found for item in value.values() for found in walk(item, (), deep)] if deep else []
    return [] if value is None or path else [value]


def json_leaf(node: Any, value: Any) -> Any:
    if isinstance(node, q.Exists):
        return True
    if isinstance(node, q.InSet):
        return any(json_leaf(q.Term(v), value) for v in node.values)
    if isinstance(value, bool):
        return isinstance(node, (q.Term, q.Phrase)) and node.text.lower() == str(value).lower()
    if isinstance(value, (int, float)):

        def read(text: Any) -> Fraction | None:
            try:
                return Fraction(text)
            except ValueError:
                return None

        if isinstance(node, (q.Term, q.Phrase)):
            return read(node.text) == Fraction(value)
        if isinstance(node, q.Range):
            if any(b is not None and read(b) is None for b in (node.lower, node.upper)):
                return False
            return inside(Fraction(value), node, read)
        return False
    if re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", value):
        return isinstance(node, (q.Term, q.Phrase)) and node.text == value
    return text_leaf(node, [value], tokenized=False)
