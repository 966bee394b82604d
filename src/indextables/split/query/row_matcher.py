"""Evaluates a search query on rows: exact for every row, and slower than the index.

It is used for rows with incomplete values in the index, and for leaves that the index cannot answer exactly
(a phrase without positions, a range within JSON).
"""

import bisect
import decimal
import ipaddress
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import QuerySyntaxError
from indextables.options.writing import TokenBoundary
from indextables.predicate import Column, Compare, In, Op, patterns
from indextables.predicate.addresses import address_block, address_range, merge_blocks
from indextables.predicate.evaluate import evaluate
from indextables.predicate.traversal import fields_of
from indextables.predicate.tree import (
    AllDocs,
    AllOf,
    AnyOf,
    Boost,
    Exists,
    Fuzzy,
    InSet,
    Negation,
    Phrase,
    Prefix,
    QueryLeaf,
    QueryNode,
    Range,
    Regex,
    Term,
    Wild,
    Wildcard,
)
from indextables.records import dataclass
from indextables.schema.conversion import as_mask, convert_leaves
from indextables.schema.type_info import NESTED, TypeKind, kind_of
from indextables.split.index.encode import timestamp_text
from indextables.split.index.tokenizers import (
    Token,
    lower_case,
    tokenize,
    tokenize_prefix,
    tokenize_unstemmed,
)
from indextables.split.json_values import instant_of, json_number, number_of, parse_json, text_of, values_at
from indextables.split.mapping import Field, Kind, field_name, json_root, value_kind
from indextables.split.query.bound_query import BoundQuery, FieldRef, json_paths
from indextables.split.query.index_view import IndexView
from indextables.split.query.text_queries import matches_with_slop
from indextables.split.query.value_queries import parse_value, unsupported_leaf

Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]
# Classes of the ASCII characters between tokens, for tokenizers whose tokens are all other characters.
_SEPARATORS = {TokenBoundary.WORD: "[^0-9A-Za-z]", TokenBoundary.SPACE: r"[\t\n\f\r ]"}
# A phrase of more tokens is compared token by token: its expression would be large.
_MAX_EXPRESSION_TOKENS = 32
# So is that of a longer word, or pattern.
_MAX_EXPRESSION_LETTERS = 1000


@dataclass(frozen=True, slots=True)
class TokenTable:
    """The tokens of many texts in one array, each with the number of its text and its position there."""

    words: pa.Array
    owners: np.ndarray[Any, np.dtype[np.int64]]
    places: np.ndarray[Any, np.dtype[np.int64]]
    count: int

    @classmethod
    def of_values(cls, values: pa.Array) -> "TokenTable":
        """Texts that are one token each; null has none."""
        present = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
        return cls(values.drop_null(), present, np.zeros(len(present), np.int64), len(values))

    @classmethod
    def tokenize(cls, values: Sequence[str | None], field: Field) -> "TokenTable":
        """Texts split by the field's tokenizer."""
        words: list[str] = []
        owners: list[int] = []
        places: list[int] = []
        for owner, text in enumerate(values):
            for token in tokenize(field, text) if text is not None else ():
                words.append(token.text)
                owners.append(owner)
                places.append(token.position)
        return cls(
            pa.array(words, pa.string()), np.array(owners, np.int64), np.array(places, np.int64), len(values)
        )

    def having(self, words: Mask) -> Mask:
        """The texts with at least one of the marked tokens."""
        mask: Mask = np.bincount(self.owners[words], minlength=self.count) > 0
        return mask

    def equal(self, word: str) -> Mask:
        """Which tokens equal the word."""
        return as_mask(pc.equal(self.words, word))


def match_text(leaf: QueryLeaf, texts: TokenTable, field: Field) -> Mask:
    """Which texts the leaf matches."""
    finder = _Finder(texts, field)
    match leaf:
        case Term(text=text):
            return finder.words(text)
        case Phrase(text=text, slop=slop, prefix=prefix):
            return finder.beginning(text) if prefix else finder.words(text, slop)
        case Prefix(text=text):
            return finder.beginning(text)
        case Wildcard(parts=parts):
            pieces = [p if isinstance(p, Wild) else finder.fold_case(p) for p in parts]
            return texts.having(finder.matching_pattern(pieces))
        case Regex(pattern=pattern):
            return texts.having(finder.matching(patterns.to_re2(pattern)))
        case Fuzzy(text=text, distance=distance):
            return finder.fuzzy(text, distance)
        case Range(lower=lower, upper=upper):
            return finder.between(leaf, lower, upper)
        case InSet(values=values):
            mask: Mask = np.logical_or.reduce([finder.words(value) for value in values])
            return mask
        case Exists() | AllDocs():
            raise AssertionError(f"{type(leaf).__name__} is not a leaf of text")
        case _:
            assert_never(leaf)


class TextColumn:
    """The texts of a column in some rows, and the tokens that a text field has of them.

    Words and phrases are searched in ASCII texts by a regular expression, where characters are tokens or
    separators independently of Unicode. Only the other texts are tokenized, unless the leaf needs tokens.
    """

    def __init__(self, values: pa.Array, field: Field) -> None:
        self._values = values
        self._field = field
        self._tokens: TokenTable | None = None
        # The rows with other characters, and their tokens.
        self._ascii: Mask | None = None
        self._other_rows: np.ndarray[Any, np.dtype[np.int64]] = np.empty(0, np.int64)
        self._other_tokens: TokenTable | None = None

    def match(self, leaf: QueryLeaf) -> Mask:
        """Which texts the leaf matches."""
        expression = _expression(leaf, self._field)
        if expression is None:
            if self._tokens is None:
                self._tokens = TokenTable.tokenize(self._values.to_pylist(), self._field)
            return match_text(leaf, self._tokens, self._field)
        if self._ascii is None:
            self._ascii = as_mask(pc.string_is_ascii(self._values))
            present = self._values.is_valid().to_numpy(zero_copy_only=False)
            self._other_rows = np.flatnonzero(present & ~self._ascii)
        mask = as_mask(pc.match_substring_regex(self._values, expression, ignore_case=True)) & self._ascii
        if len(self._other_rows):
            if self._other_tokens is None:
                texts = self._values.take(pa.array(self._other_rows)).to_pylist()
                self._other_tokens = TokenTable.tokenize(texts, self._field)
            mask[self._other_rows] = match_text(leaf, self._other_tokens, self._field)
        return mask


def _expression(leaf: QueryLeaf, field: Field) -> str | None:
    """A regular expression for the ASCII texts that a word or a phrase matches; None if there is none."""
    tokenizer = field.analysis
    separator = _SEPARATORS.get(tokenizer.boundary)
    if separator is None or tokenizer.stemmer is not None or not tokenizer.lower_case:
        return None
    match leaf:
        case Term(text=text) | Phrase(text=text, slop=0, prefix=False):
            tokens, end = tokenize(field, text), rf"(?:{separator}|\z)"
        case Prefix(text=text) | Phrase(text=text, slop=0, prefix=True):
            tokens, end = tokenize_prefix(field, text), ""
        case _:
            return None
    if not 0 < len(tokens) <= _MAX_EXPRESSION_TOKENS or not all(token.text.isascii() for token in tokens):
        return None
    if sum(len(token.text) for token in tokens) > _MAX_EXPRESSION_LETTERS:
        return None
    words = f"{separator}+".join(patterns.literal(token.text) for token in tokens)
    return rf"(?:\A|{separator}){words}{end}"


class _Finder:
    def __init__(self, texts: TokenTable, field: Field) -> None:
        self.texts = texts
        self.field = field
        self.tokenized = field.kind in (Kind.TEXT, Kind.JSON) and field.analysis.splits

    def fold_case(self, text: str) -> str:
        return lower_case(text) if self.tokenized else text

    def words(self, text: str, slop: int = 0) -> Mask:
        tokens = tokenize(self.field, text) if self.tokenized else [Token(0, text)]
        if not tokens:
            return np.zeros(self.texts.count, np.bool_)
        if len(tokens) == 1:
            return self.texts.having(self.texts.equal(tokens[0].text))
        masks = {token.text: self.texts.equal(token.text) for token in tokens}
        together: Mask = np.logical_and.reduce([self.texts.having(mask) for mask in masks.values()])
        if len({token.position for token in tokens}) == 1:
            return together
        if slop:
            return self._with_slop(together, masks, tokens, slop)
        every = [masks[token.text] for token in tokens]
        return self._in_order(together, every, [token.position for token in tokens])

    def beginning(self, text: str) -> Mask:
        tokens = tokenize_prefix(self.field, text) if self.tokenized else []
        if len(tokens) > 1 and len({token.position for token in tokens}) == 1:
            return self.words(text)
        if len(tokens) < 2:
            start = tokens[0].text if tokens else self.fold_case(text)
            return self.texts.having(as_mask(pc.starts_with(self.texts.words, start)))
        masks = [self.texts.equal(token.text) for token in tokens[:-1]]
        masks.append(as_mask(pc.starts_with(self.texts.words, tokens[-1].text)))
        together: Mask = np.logical_and.reduce([self.texts.having(mask) for mask in masks])
        return self._in_order(together, masks, [token.position for token in tokens])

    def matching_pattern(self, parts: Sequence[str | Wild]) -> Mask:
        letters = patterns.least_letters(parts)
        if letters <= _MAX_EXPRESSION_LETTERS:
            return self.matching(patterns.wildcard(parts))
        lengths = pc.utf8_length(self.texts.words).to_numpy(zero_copy_only=False)
        mask: Mask = np.zeros(len(self.texts.words), np.bool_)
        for place in np.flatnonzero(lengths >= letters).tolist():
            mask[place] = patterns.matches(self.texts.words[place].as_py(), parts)
        return mask

    def matching(self, expression: str) -> Mask:
        try:
            return as_mask(pc.match_substring_regex(self.texts.words, rf"\A(?:{expression})\z"))
        except pa.ArrowInvalid as error:
            raise QuerySyntaxError(f"the regular expression /{expression}/ cannot be used: {error}") from None

    def fuzzy(self, text: str, distance: int) -> Mask:
        tokens = tokenize_unstemmed(self.field, text) if self.tokenized else [Token(0, text)]
        if len(tokens) != 1:
            return np.zeros(self.texts.count, np.bool_)
        near = [within_edit_distance(tokens[0].text, word, distance) for word in self.texts.words.to_pylist()]
        return self.texts.having(np.array(near, np.bool_))

    def between(self, leaf: Range, lower: str | None, upper: str | None) -> Mask:
        inside: Mask = np.ones(len(self.texts.words), np.bool_)
        if lower is not None:
            above = pc.greater_equal if leaf.lower_inclusive else pc.greater
            inside &= as_mask(above(self.texts.words, self.fold_case(lower)))
        if upper is not None:
            below = pc.less_equal if leaf.upper_inclusive else pc.less
            inside &= as_mask(below(self.texts.words, self.fold_case(upper)))
        return self.texts.having(inside)

    def _in_order(self, candidates: Mask, masks: list[Mask], steps: list[int]) -> Mask:
        """The texts, among the candidates, whose tokens have exactly the distances of the phrase."""
        places = [
            {owner: {place - step for place in own} for owner, own in self._positions(mask).items()}
            for mask, step in zip(masks, steps, strict=True)
        ]
        result: Mask = np.zeros(self.texts.count, np.bool_)
        for owner in np.flatnonzero(candidates).tolist():
            result[owner] = bool(set.intersection(*(by_text[owner] for by_text in places)))
        return result

    def _with_slop(
        self, candidates: Mask, masks: Mapping[str, Mask], phrase: Sequence[Token], slop: int
    ) -> Mask:
        """The texts, among the candidates, that match the phrase with some slop."""
        places = {word: self._positions(mask) for word, mask in masks.items()}
        result: Mask = np.zeros(self.texts.count, np.bool_)
        for owner in np.flatnonzero(candidates).tolist():
            own = {word: by_text[owner] for word, by_text in places.items()}
            result[owner] = matches_with_slop(phrase, own, slop)
        return result

    def _positions(self, words: Mask) -> dict[int, list[int]]:
        """The positions of the words marked in each text, ascending."""
        by_text: dict[int, list[int]] = defaultdict(list)
        for owner, place in zip(
            self.texts.owners[words].tolist(), self.texts.places[words].tolist(), strict=True
        ):
            by_text[owner].append(place)
        return by_text


def within_edit_distance(one: str, other: str, distance: int) -> bool:
    """Whether this many edits (insert, delete, replace, transpose) turn one text into the other.

    >>> within_edit_distance("tiemout", "timeout", 1), within_edit_distance("abc", "xyz", 2)
    (True, False)
    """
    if abs(len(one) - len(other)) > distance:
        return False
    # Only characters this near to each other are compared: all others are more edits away.
    far = distance + 1
    before: dict[int, int] = {}
    last = {j: j for j in range(min(distance, len(other)) + 1)}
    for i, a in enumerate(one, 1):
        row: dict[int, int] = {0: i} if i <= distance else {}
        for j in range(max(1, i - distance), min(len(other), i + distance) + 1):
            b = other[j - 1]
            cost = min(last.get(j, far) + 1, row.get(j - 1, far) + 1, last.get(j - 1, far) + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and one[i - 2] == b:
                cost = min(cost, before.get(j - 2, far) + 1)
            row[j] = cost
        if min(row.values(), default=far) > distance:
            return False
        before, last = last, row
    return last.get(len(other), far) <= distance


def match_values(leaf: QueryLeaf, values: pa.Array, column: str) -> Mask:
    """Which values the leaf matches; null matches nothing."""
    rows = pa.table({"v": values})
    own = Column(("v",))

    def read(text: str) -> pa.Scalar:
        return parse_value(text, values.type, column)

    match leaf:
        case Term(text=text):
            parts = [Compare(Op.EQ, own, read(text))]
        case Phrase(text=text, slop=0, prefix=False):
            parts = [Compare(Op.EQ, own, read(text))]
        case InSet(values=texts):
            return as_mask(evaluate(In(own, tuple(read(text) for text in texts)), rows))
        case Range(lower=lower, upper=upper):
            parts = []
            if lower is not None:
                parts.append(Compare(Op.GE if leaf.lower_inclusive else Op.GT, own, read(lower)))
            if upper is not None:
                parts.append(Compare(Op.LE if leaf.upper_inclusive else Op.LT, own, read(upper)))
        case Phrase() | Prefix() | Wildcard() | Regex() | Fuzzy() | Exists() | AllDocs():
            raise unsupported_leaf(leaf, column, str(values.type))
        case _:
            assert_never(leaf)
    mask: Mask = np.logical_and.reduce([as_mask(evaluate(part, rows)) for part in parts])
    return mask


def match_addresses(leaf: QueryLeaf, values: pa.Array, column: str) -> Mask:
    """Which texts are addresses that the leaf matches."""
    match leaf:
        case Term(text=text):
            blocks = [address_block(text)]
        case Phrase(text=text, slop=0, prefix=False):
            blocks = [address_block(text)]
        case InSet(values=addresses):
            blocks = [address_block(text) for text in addresses]
        case Prefix(text=text):
            blocks = [address_block(text + "*")]
        case Wildcard(parts=parts):
            blocks = [address_block("".join(p.value if isinstance(p, Wild) else p for p in parts))]
        case Range():
            blocks = [address_range(leaf)]
        case Phrase() | Regex() | Fuzzy() | Exists() | AllDocs():
            raise unsupported_leaf(leaf, column, "address")
        case _:
            assert_never(leaf)
    coded = values.dictionary_encode()
    disjoint = merge_blocks(blocks)
    starts = [low for low, _ in disjoint]
    texts = coded.dictionary.to_pylist()
    matching = np.array([_in_blocks(text, disjoint, starts) for text in texts], np.bool_)
    if not len(matching):
        return np.zeros(len(values), np.bool_)
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    mask: Mask = valid & matching[coded.indices.fill_null(0).to_numpy(zero_copy_only=False)]
    return mask


def _in_blocks(text: str, blocks: Sequence[tuple[int, int]], starts: Sequence[int]) -> bool:
    number = _address(text)
    if number is None:
        return False
    place = bisect.bisect_right(starts, number) - 1
    return place >= 0 and number <= blocks[place][1]


def match_constant(leaf: QueryLeaf, column: str, value: pa.Scalar) -> bool:
    """Whether a column with one value in all rows matches."""
    if isinstance(leaf, Exists):
        return bool(value.is_valid)
    values = pa.array([value], value.type)
    if value_kind(value.type) is not None:
        return bool(match_values(leaf, values, column)[0])
    if kind_of(value.type) is not TypeKind.STRING:
        raise unsupported_leaf(leaf, column, str(value.type))
    plain = Field(column, field_name(Kind.STRING, column), Kind.STRING)
    return bool(match_text(leaf, TokenTable.of_values(values), plain)[0])


def _address(text: str | None) -> int | None:
    try:
        return None if text is None or "%" in text else address_block(str(ipaddress.ip_address(text)))[0]
    except ValueError:
        return None


def match_json(leaf: QueryLeaf, values: pa.Array, field: Field, paths: list[tuple[str, ...]]) -> Mask:
    """Which rows have a value that the leaf matches at one of the paths."""
    owners: list[int] = []
    documents: list[Any] = []
    for row, document in enumerate(_documents(values, field)):
        for path in paths:
            for value in values_at(document, path, deep=isinstance(leaf, Exists)):
                owners.append(row)
                documents.append(value)
    hits = _matches(leaf, documents, field)
    rows: Mask = np.bincount(np.array(owners, np.int64)[hits], minlength=len(values)) > 0
    return rows


def _documents(values: pa.Array, field: Field) -> Iterator[Any]:
    text = kind_of(values.type) is TypeKind.STRING
    plain = values if text else convert_leaves(values, _texts_of_times)
    for value in plain.to_pylist(maps_as_pydicts="lossy"):
        document = _document(value) if text else value
        if document is None:
            yield {}
        elif field.root and not isinstance(document, dict):
            yield {field.root: document}
        else:
            yield document


def _texts_of_times(values: pa.Array) -> pa.Array:
    """Dates and times as the texts that the index has of them: Python has no objects for all of them."""
    match kind_of(values.type):
        case TypeKind.DATE | TypeKind.TIME:
            return values.cast(pa.string())
        case TypeKind.TIMESTAMP | TypeKind.TIMESTAMP_NTZ:
            return timestamp_text(values)
        case TypeKind.INTERVAL:  # has no text
            return values.cast(pa.duration("us")).view(pa.int64()).cast(pa.string()).cast(pa.binary())
        case _:
            return values


def _document(text: str | None) -> Any:  # noqa: ANN401 - JSON
    try:
        return None if text is None else parse_json(text)
    except ValueError:
        return None


def _matches(leaf: QueryLeaf, values: list[Any], field: Field) -> Mask:
    if isinstance(leaf, Exists):
        return np.ones(len(values), np.bool_)
    texts = [text_of(value) for value in values]
    tokens = (
        TokenTable.tokenize(texts, field)
        if field.analysis.splits
        else TokenTable.of_values(pa.array(texts, pa.string()))
    )
    match leaf:
        case Term(text=text):
            return match_text(leaf, tokens, field) | _equal_values(values, text)
        case Phrase(text=text, slop=0, prefix=False):
            return match_text(leaf, tokens, field) | _equal_values(values, text)
        case InSet(values=alternatives):
            same: Mask = np.logical_or.reduce([_equal_values(values, text) for text in alternatives])
            return match_text(leaf, tokens, field) | same
        case Range():
            return match_text(leaf, tokens, field) | np.array([_inside(v, leaf) for v in values], np.bool_)
        case Phrase() | Prefix() | Wildcard() | Regex() | Fuzzy() | AllDocs():
            return match_text(leaf, tokens, field)
        case _:
            assert_never(leaf)


def _equal_values(values: list[Any], text: str) -> Mask:
    number, instant = json_number(text), instant_of(text)
    truth = {"true": True, "false": False}.get(text.lower())

    def same(value: Any) -> bool:  # noqa: ANN401 - JSON
        if isinstance(value, bool):
            return value is truth
        if isinstance(value, (int, float, decimal.Decimal)):
            return number is not None and number_of(value) == number
        return instant is not None and instant_of(value) == instant

    return np.array([same(value) for value in values], np.bool_)


def _inside(value: Any, leaf: Range) -> bool:  # noqa: ANN401 - JSON
    """Whether a number or a timestamp is between bounds of its kind."""
    if isinstance(value, bool):
        return False
    is_number = isinstance(value, (int, float, decimal.Decimal))
    own: Any = number_of(value) if is_number else instant_of(value)
    if own is None:
        return False
    for bound, inclusive, sign in (
        (leaf.lower, leaf.lower_inclusive, 1),
        (leaf.upper, leaf.upper_inclusive, -1),
    ):
        if bound is None:
            continue
        limit: Any = json_number(bound) if is_number else instant_of(bound)
        if limit is None:
            return False
        order = (own > limit) - (own < limit)
        if order * sign < 0 or (order == 0 and not inclusive) or own != own:  # noqa: PLR0124 - NaN
            return False
    return True


def required_columns(bound: BoundQuery) -> list[str]:
    """The columns that `match_rows` needs."""
    refs = [bound.fields.resolve(path) for path in fields_of(bound.query).fields]
    return list(dict.fromkeys(ref.column for ref in (*bound.defaults, *refs)))


def match_rows(bound: BoundQuery, rows: pa.Table | pa.RecordBatch, view: IndexView) -> Mask:
    """Which rows the search operator matches."""
    return _Matcher(bound, rows, view).node(bound.query)


class _Matcher:
    def __init__(self, bound: BoundQuery, rows: pa.Table | pa.RecordBatch, view: IndexView) -> None:
        self.bound = bound
        self.rows = rows
        self.view = view
        self.columns = {name.lower(): name for name in rows.schema.names}
        self.texts: dict[str, TextColumn] = {}

    def node(self, node: QueryNode) -> Mask:
        match node:
            case AllOf(parts):
                both: Mask = np.logical_and.reduce([self.node(part) for part in parts])
                return both
            case AnyOf(parts):
                any_: Mask = np.logical_or.reduce([self.node(part) for part in parts])
                return any_
            case Negation(part):
                other: Mask = ~self.node(part)
                return other
            case Boost(part):
                return self.node(part)
            case AllDocs():
                return np.ones(self.rows.num_rows, np.bool_)
            case Term() | Phrase() | Prefix() | Wildcard() | Regex() | Fuzzy() | Range() | InSet() | Exists():
                return self.leaf(node)
            case _:
                assert_never(node)

    def leaf(self, leaf: QueryLeaf) -> Mask:
        mask: Mask = np.zeros(self.rows.num_rows, np.bool_)
        path = None if isinstance(leaf, AllDocs) else leaf.field
        if path is not None:
            return self.on(leaf, self.bound.fields.resolve(path))
        refused: QuerySyntaxError | None = None
        for ref in self.bound.defaults:
            try:
                mask |= self.on(leaf, ref)
            except QuerySyntaxError as error:
                refused = error
                if len(self.bound.defaults) == 1:
                    raise
        if refused is not None and not self.bound.defaults:
            raise refused
        return mask

    def on(self, leaf: QueryLeaf, ref: FieldRef) -> Mask:
        constant = self.view.constants.get(ref.column.lower())
        if constant is not None:
            same = constant.is_valid and match_constant(leaf, ref.column, constant)
            return np.full(self.rows.num_rows, same, np.bool_)
        name = self.columns.get(ref.column.lower())
        if name is None:
            return np.zeros(self.rows.num_rows, np.bool_)
        values = _one_array(self.rows[name])
        field = self.view.mapping.find(ref.column, *ref.kinds) or _plain_field(ref.column, values.type)
        if field.kind is Kind.JSON:
            return match_json(leaf, values, field, json_paths(field, ref))
        if isinstance(leaf, Exists):
            present: Mask = values.is_valid().to_numpy(zero_copy_only=False)
            return present
        match field.kind:
            case Kind.TEXT:
                if field.name not in self.texts:
                    self.texts[field.name] = TextColumn(values, field)
                return self.texts[field.name].match(leaf)
            case Kind.STRING | Kind.HASH:
                return match_text(leaf, TokenTable.of_values(values), field)
            case Kind.IP:
                return match_addresses(leaf, values, ref.column)
            case Kind.I64 | Kind.F64 | Kind.BOOL:
                return match_values(leaf, values, ref.column)
            case _:
                assert_never(field.kind)


def _one_array(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        return values.combine_chunks() if values.num_chunks != 1 else values.chunk(0)
    return values


def _plain_field(column: str, arrow: pa.DataType) -> Field:
    """The field of a column that the split does not index: its whole value."""
    if kind_of(arrow) in NESTED:
        return Field(column, field_name(Kind.JSON, column), Kind.JSON, root=json_root(column, arrow))
    kind = value_kind(arrow) or Kind.STRING
    return Field(column, field_name(kind, column), kind)
