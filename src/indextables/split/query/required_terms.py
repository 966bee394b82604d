"""The terms that a row needs for a condition to be true: without them, a split has no such row.

Term filters are tested for these terms before an index is opened. Ranges, patterns, negations, and fields
without terms require no term.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Mapping as Dictionary
from decimal import Decimal
from math import isfinite
from typing import TypeAlias

import pyarrow as pa

from indextables.errors import SplitError
from indextables.options.writing import TokenBoundary
from indextables.predicate import And, Column, Compare, In, Op, Or, Predicate, Search
from indextables.predicate.tree import (
    AllOf,
    AnyOf,
    Boost,
    InSet,
    Phrase,
    Prefix,
    QueryLeaf,
    QueryNode,
    Term,
)
from indextables.records import dataclass
from indextables.schema.type_info import NUMERIC, TypeKind, kind_of
from indextables.split.footer import Footer, is_tail_cached, read_ranges
from indextables.split.index.loader import StoredTerms
from indextables.split.index.term_filter import FILTER_KINDS, TermFilter, TermProbe, integer_probes, probes
from indextables.split.index.tokenizers import tokenize, tokenize_prefix
from indextables.split.mapping import Field, Kind, Mapping
from indextables.split.query.bound_query import BoundQuery, FieldRef
from indextables.split.query.index_view import FieldTerm
from indextables.store import Store

# Longer lists are not tested: most splits have one of the values.
_MAX_VALUES = 256
# An equality uses the first of these fields that the column has, as the filter plan does.
_EQUALITY = (Kind.STRING, Kind.HASH, Kind.TEXT, Kind.I64)
# From this number on, a float equals several integers.
_EXACT = {pa.float16(): 1 << 11, pa.float32(): 1 << 24, pa.float64(): 1 << 53}
_LIMIT = 1 << 63

Bind = Callable[[Search], BoundQuery]


@dataclass(frozen=True, slots=True)
class AnyTerm:
    """At least one of the terms is in the field.

    `texts` are the terms as they are in the field's term dictionary; empty if it has none (hashes, integers).
    """

    field: str
    terms: tuple[TermProbe, ...]
    texts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Conjunction:
    """Every part is required."""

    parts: tuple["Requirement", ...]


@dataclass(frozen=True, slots=True)
class Disjunction:
    """At least one part is required."""

    parts: tuple["Requirement", ...]


Requirement: TypeAlias = AnyTerm | Conjunction | Disjunction
Test: TypeAlias = Callable[[AnyTerm], bool]


def may_hold(requirement: Requirement, test: Test) -> bool:
    """Whether a split can have a row that meets the requirement; `test` returns True without a filter."""
    match requirement:
        case AnyTerm():
            return test(requirement)
        case Conjunction(parts):
            return all(may_hold(part, test) for part in parts)
        case Disjunction(parts):
            return any(may_hold(part, test) for part in parts)


def required_terms(predicate: Predicate, mapping: Mapping, bind: Bind) -> Requirement | None:
    """The terms that a split with this mapping needs for a row for which the condition is true.

    None if no term is required.
    """
    match predicate:
        case And(parts):
            return _all(required_terms(part, mapping, bind) for part in parts)
        case Or(parts):
            return _any(required_terms(part, mapping, bind) for part in parts)
        case Search():
            bound = bind(predicate)
            return _node(bound.query, bound, mapping)
        case Compare(op=Op.EQ | Op.NULL_SAFE, value=value) if value.is_valid:
            return _equal(predicate.column, pa.array([value], value.type), mapping)
        case In(array=array) if array is not None and len(array) <= _MAX_VALUES:
            return _equal(predicate.column, array.drop_null(), mapping)
        case _:
            return None


def scored_words(search: Search, mapping: Mapping, bind: Bind) -> tuple[FieldTerm, ...] | None:
    """The words of a search in the fields of a split; None if only its index shows them.

    A split without any of them adds nothing to the document frequencies of the search.
    """
    bound = bind(search)
    words: dict[FieldTerm, None] = {}
    for leaf in _leaves(bound.query):
        match leaf:
            case Term(text=text) | Phrase(text=text, prefix=False):
                texts: Sequence[str] = (text,)
            case InSet(values=texts):
                pass
            case _:
                return None
        refs = bound.defaults if leaf.field is None else (bound.fields.resolve(leaf.field),)
        for ref in refs:
            field = mapping.find(ref.column, *ref.kinds)
            if field is None or ref.path or field.kind not in (Kind.TEXT, Kind.STRING):
                return None
            is_text = field.kind is Kind.TEXT
            for text in texts:
                own = [token.text for token in tokenize(field, text)] if is_text else [text]
                words.update(((field.name, word), None) for word in own)
    return tuple(words)


def any_word(words: Sequence[FieldTerm]) -> Requirement | None:
    """The requirement of at least one of the words; None if there are none, or too many."""
    if not words or len(words) > _MAX_VALUES:
        return None
    by_field: dict[str, list[str]] = {}
    for field, word in words:
        by_field.setdefault(field, []).append(word)
    return _any(AnyTerm(field, probes(own), tuple(own)) for field, own in by_field.items())


def _leaves(node: QueryNode) -> Iterable[QueryNode]:
    match node:
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                yield from _leaves(part)
        case Boost(part):
            yield from _leaves(part)
        case _:
            yield node


def _all(parts: Iterable[Requirement | None]) -> Requirement | None:
    present = tuple(part for part in parts if part is not None)
    return present[0] if len(present) == 1 else Conjunction(present) if present else None


def _any(parts: Iterable[Requirement | None]) -> Requirement | None:
    requirements = tuple(parts)
    present = tuple(part for part in requirements if part is not None)
    if not present or len(present) < len(requirements):
        return None
    return present[0] if len(present) == 1 else Disjunction(present)


def _equal(column: Column, values: pa.Array, mapping: Mapping) -> Requirement | None:
    """The terms of rows whose value equals one of the values."""
    field = mapping.find(column.path[0], *_EQUALITY)
    if len(column.path) > 1 or field is None or not len(values):
        return None
    if field.kind is Kind.I64:
        # Timestamps are fields of integers, too, but have no filter, and Python no objects for all of them.
        return _integers(field, values) if kind_of(values.type) in NUMERIC else None
    if kind_of(values.type) is not TypeKind.STRING:
        return None
    texts = values.to_pylist()
    return _any(_words(field, text) for text in texts) if field.kind is Kind.TEXT else _values(field, texts)


def _node(node: QueryNode, bound: BoundQuery, mapping: Mapping) -> Requirement | None:
    match node:
        case AllOf(parts):
            return _all(_node(part, bound, mapping) for part in parts)
        case AnyOf(parts):
            return _any(_node(part, bound, mapping) for part in parts)
        case Boost(part):
            return _node(part, bound, mapping)
        case _:
            return _leaf(node, bound, mapping)


def _leaf(leaf: QueryNode, bound: BoundQuery, mapping: Mapping) -> Requirement | None:
    match leaf:
        case Term() | Phrase() | Prefix() | InSet():
            refs = bound.defaults if leaf.field is None else (bound.fields.resolve(leaf.field),)
            return _any(_in_field(leaf, ref, mapping) for ref in refs)
        case _:
            return None


def _in_field(leaf: QueryLeaf, ref: FieldRef, mapping: Mapping) -> Requirement | None:
    field = mapping.find(ref.column, *ref.kinds)
    if field is None or ref.path or field.kind not in FILTER_KINDS:
        return None
    is_text = field.kind is Kind.TEXT
    match leaf:
        case Term(text=text) | Phrase(text=text, prefix=False):
            return _words(field, text) if is_text else _values(field, [text])
        case InSet(values=values) if len(values) <= _MAX_VALUES:
            return _any(_words(field, text) for text in values) if is_text else _values(field, values)
        case Phrase(text=text) | Prefix(text=text) if is_text:
            # The last word is a prefix.
            return _terms(field, [token.text for token in tokenize_prefix(field, text)[:-1]])
        case _:
            return None


def _words(field: Field, text: str) -> Requirement | None:
    """The requirement of every word of the text."""
    return _terms(field, [token.text for token in tokenize(field, text)])


def _terms(field: Field, words: Sequence[str]) -> Requirement | None:
    """The requirement of every word; None for n-grams, which depend on where a word begins."""
    if field.analysis.boundary is TokenBoundary.GRAM or not words:
        return None
    distinct = list(dict.fromkeys(words))
    return _all(
        AnyTerm(field.name, (probe,), (word,)) for word, probe in zip(distinct, probes(distinct), strict=True)
    )


def _values(field: Field, texts: Sequence[str]) -> Requirement:
    distinct = list(dict.fromkeys(texts))
    return AnyTerm(field.name, probes(distinct), tuple(distinct) if field.kind is Kind.STRING else ())


def _integers(field: Field, values: pa.Array) -> Requirement | None:
    """One of the integers is in the field; None unless each value equals exactly one integer."""
    integers: list[int] = []
    for value in values.unique().to_pylist():
        if not isinstance(value, int | float | Decimal):
            return None
        if not isfinite(value) or value != int(value) or not -_LIMIT <= value < _LIMIT:
            return None
        if isinstance(value, float) and abs(value) >= _EXACT[values.type]:
            return None
        integers.append(int(value))
    return AnyTerm(field.name, integer_probes(integers))


def required_leaves(requirement: Requirement) -> Iterator[AnyTerm]:
    """The single terms of a requirement."""
    match requirement:
        case AnyTerm():
            yield requirement
        case Conjunction(parts) | Disjunction(parts):
            for part in parts:
                yield from required_leaves(part)


def required_fields(requirement: Requirement) -> set[str]:
    """The fields whose terms a requirement names."""
    return {leaf.field for leaf in required_leaves(requirement)}


class TermFilters:
    """The term filters of a split, read through a store."""

    def __init__(self, store: Store, footer: Footer, filters: Dictionary[str, TermFilter]) -> None:
        self._store = store
        self._footer = footer
        self._filters = filters

    @property
    def mapping(self) -> Mapping:
        """The fields of the split."""
        return self._footer.mapping

    def may_hold(self, requirement: Requirement) -> bool:
        """Whether the split can have a row with the required terms."""
        return may_hold(requirement, self._test)

    def has_dictionaries(self, requirement: Requirement) -> bool:
        """Whether dictionaries with required terms were read with the footer."""
        if self._store.is_local or not any(leaf.texts for leaf in required_leaves(requirement)):
            return False
        return StoredTerms(self._store, self._footer).are_at_hand

    def dictionaries_may_hold(self, requirement: Requirement) -> bool:
        """Whether the split can have a row with the required terms, by dictionaries read with the footer."""
        terms = StoredTerms(self._store, self._footer)

        def test(required: AnyTerm) -> bool:
            # A field without a filter may lack terms of some rows.
            if not required.texts or required.field not in self._filters:
                return True
            return terms.has_any(required.field, required.texts) is not False

        return may_hold(requirement, test)

    def are_cheap(self, requirement: Requirement) -> bool:
        """Whether testing takes no request: the pages are in memory, or the split is on the local disk."""
        if self._store.is_local:
            return True
        leaves = [leaf for leaf in required_leaves(requirement) if leaf.field in self._filters]
        if all(self._filters[leaf.field].has_pages(leaf.terms) for leaf in leaves):
            return True
        start = min(self._filters[leaf.field].start for leaf in leaves)
        return is_tail_cached(self._store, self._footer.path, self._footer.size, start)

    def saved_bytes(self, requirement: Requirement) -> int:
        """The bytes of the index that a search for the required terms would read of the split."""
        fields = {None, *required_fields(requirement)}
        return sum(piece.length for field in fields for piece in self._footer.pieces.get(field, ()))

    def _test(self, required: AnyTerm) -> bool:
        filter_ = self._filters.get(required.field)
        if filter_ is None:
            return True
        try:
            return filter_.may_contain_any(required.terms, self._read)
        except SplitError as error:
            raise SplitError(f"{self._store.url}/{self._footer.path}: {error}") from error

    def _read(self, ranges: Sequence[tuple[int, int]]) -> Sequence[bytes | memoryview]:
        return read_ranges(self._store, self._footer.path, self._footer.size, ranges)
