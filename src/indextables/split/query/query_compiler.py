"""Compiles a search query to Tantivy queries of one index.

A query is true or false for a row, never unknown. A literal that the tokenizer splits is a phrase. With
several default fields a term may match in any of them. `NOT x` alone matches every other row.
"""

from functools import lru_cache
from typing import assert_never

import pyarrow as pa
import tantivy
from tantivy import Query

from indextables.errors import IndexTablesError, QuerySyntaxError
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
    Wildcard,
)
from indextables.schema.type_info import TypeKind, child_fields, kind_of
from indextables.split.index.tokenizers import tokenize
from indextables.split.json_values import has_form_of_instant, json_number, parsed_as
from indextables.split.mapping import Field, Kind
from indextables.split.query.bound_query import BoundQuery, FieldRef, json_paths
from indextables.split.query.index_view import IndexView
from indextables.split.query.row_matcher import match_constant
from indextables.split.query.row_sets import (
    ALL_ROWS,
    FALSE,
    TRUE,
    UNDECIDED,
    IndexAnswer,
    RowSet,
    and_,
    intersect,
    not_,
    or_,
    score_alike,
    subtract,
    two_valued,
    union,
)
from indextables.split.query.text_queries import compile_text
from indextables.split.query.value_queries import compile_address, compile_value, hash_query


def compile_json(leaf: QueryLeaf, field: Field, paths: list[tuple[str, ...]], view: IndexView) -> IndexAnswer:
    """The answer of the index for a leaf on the values at any of the paths."""
    return or_(_at(leaf, field, path, view) for path in paths)


def _at(leaf: QueryLeaf, field: Field, path: tuple[str, ...], view: IndexView) -> IndexAnswer:
    partial = view.partial(field)
    name = _name(field, path, view)
    if name is None:
        return two_valued(ALL_ROWS, ALL_ROWS)
    present = Query.exists_query(name, json_subpaths=True) if field.fast else ALL_ROWS
    lookup = union((present, partial))
    match leaf:
        case Exists():
            if field.fast and field.analysis.splits:
                # The index has nothing of a text without tokens.
                return two_valued(ALL_ROWS, union((subtract(ALL_ROWS, present), partial)))
            return two_valued(lookup, partial if field.fast else ALL_ROWS)
        case Term(text=text):
            values: tuple[str, ...] = (text,)
        case Phrase(text=text, slop=0, prefix=False):
            values = (text,)
        case InSet(values=values):
            pass
        case Phrase() | Prefix() | Wildcard() | Regex() | Fuzzy() | Range() | AllDocs():
            return two_valued(lookup, lookup)
        case _:
            assert_never(leaf)
    if any(has_form_of_instant(text) for text in values):
        rows = Query.const_score_query(lookup, 1.0) if view.ranks else lookup
        return two_valued(rows, rows)
    parsed = [_value(text, field, name, view) for text in values]
    rows = union((*(query for query, _ in parsed), partial))
    return two_valued(rows, partial if all(certain for _, certain in parsed) else rows)


def _name(field: Field, path: tuple[str, ...], view: IndexView) -> str | None:
    """The path in Tantivy's syntax; None if it has none, and rows must be evaluated.

    Tantivy has no empty keys, ends paths by the character 0 and keys by the character 1, and matches the
    longest field name that a path begins with. Rows with these characters in keys are in `_partial`.
    Keys that are floats are in the index with other digits than they are written with.
    """
    column = view.column(field.column)
    if column is not None and _has_float_keys(column.type):
        return None
    if not all(path) or any("\0" in key or "\1" in key for key in path) or "\\" in field.name:
        return None
    if any(other.name.startswith(f"{field.name}.") for other in view.mapping.fields):
        return None
    return ".".join([field.name, *(key.replace("\\", r"\\").replace(".", r"\.") for key in path)])


def _value(text: str, field: Field, name: str, view: IndexView) -> tuple[tantivy.Query, bool]:
    """Rows with the text, or the number or boolean that it denotes; and whether that is exact."""
    tokens = tokenize(field, text)
    certain = len(tokens) < 2 or field.record == "position"
    if len(tokens) > 1 and field.record == "position":
        words: list[str | tuple[int, str]] = [(t.position - tokens[0].position, t.text) for t in tokens]
        view.need_positions(field)
        phrase = Query.phrase_query(view.schema, name, words)
        ways = [view.with_score(phrase, name, [token.text for token in tokens])]
    else:
        single = ((t.text, Query.term_query(view.schema, name, t.text, field.term_record)) for t in tokens)
        ways = [intersect(view.with_score(query, name, [word]) for word, query in single)] if tokens else []
    number = json_number(text)
    if number is not None:
        numbers = parsed_as(number, any_digits=_has_any_digits(view, field))
        certain = certain and len(numbers) == 1
        terms = union(Query.term_query(view.schema, name, n, field.term_record) for n in numbers)
        ways.append(Query.const_score_query(terms, 1.0))
    if text.lower() in ("true", "false"):
        truth = Query.term_query(view.schema, name, text.lower() == "true", field.term_record)
        ways.append(Query.const_score_query(truth, 1.0))
    return union(ways), certain


def _has_any_digits(view: IndexView, field: Field) -> bool:
    """Whether numbers of a field's documents have the digits of their source: JSON texts, and decimals."""
    column = view.column(field.column)
    return column is None or kind_of(column.type) is TypeKind.STRING or _has_decimals(column.type)


@lru_cache(maxsize=256)
def _has_float_keys(arrow: pa.DataType) -> bool:
    if kind_of(arrow) is TypeKind.MAP and kind_of(arrow.key_type) is TypeKind.FLOAT:
        return True
    return any(_has_float_keys(field.type) for field in child_fields(arrow))


@lru_cache(maxsize=256)
def _has_decimals(arrow: pa.DataType) -> bool:
    return kind_of(arrow) is TypeKind.DECIMAL or any(
        _has_decimals(field.type) for field in child_fields(arrow)
    )


def compile_query(bound: BoundQuery, view: IndexView) -> IndexAnswer:
    """The answer of an index for a search operator; what its queries need is fetched."""
    answer = compile_node(bound.query, bound, view)
    view.load(())
    return answer


def compile_node(node: QueryNode, bound: BoundQuery, view: IndexView) -> IndexAnswer:
    """The answer of an index for a part of a query; the caller has `view` fetch what it needs."""
    match node:
        case AllOf(parts):
            return and_(compile_node(part, bound, view) for part in parts)
        case AnyOf(parts):
            return or_(compile_node(part, bound, view) for part in parts)
        case Negation(part):
            other = not_(compile_node(part, bound, view))
            return IndexAnswer(score_alike(other.true, 0.0), other.false) if view.ranks else other
        case Boost(part, factor):
            inner = compile_node(part, bound, view)
            return IndexAnswer(
                RowSet(Query.boost_query(inner.true.rows, factor), inner.true.recheck), inner.false
            )
        case AllDocs():
            return TRUE
        case Term() | Phrase() | Prefix() | Wildcard() | Regex() | Fuzzy() | Range() | InSet() | Exists():
            return _leaf(node, bound, view)
        case _:
            assert_never(node)


def _leaf(leaf: QueryLeaf, bound: BoundQuery, view: IndexView) -> IndexAnswer:
    path = leaf.field if not isinstance(leaf, AllDocs) else None
    if path is not None:
        return compile_leaf(leaf, bound.fields.resolve(path), view)
    answers: list[IndexAnswer] = []
    refused: IndexTablesError | None = None
    for ref in bound.defaults:
        try:
            answers.append(compile_leaf(leaf, ref, view))
        except QuerySyntaxError as error:
            # Of several fields, those whose type excludes the value do not match.
            refused = error
    if refused is not None and not answers:
        raise refused
    return or_(answers)


def compile_leaf(leaf: QueryLeaf, ref: FieldRef, view: IndexView) -> IndexAnswer:
    """The answer of the index for a leaf on one column; only words and values in texts have a BM25 score."""
    answer = _on_column(leaf, ref, view)
    if not view.ranks:
        return answer
    match leaf:
        case Term() | Phrase(prefix=False) | InSet():
            field = view.mapping.find(ref.column, *ref.kinds)
            is_text = field is not None and field.kind in (Kind.TEXT, Kind.STRING, Kind.JSON)
            if is_text and view.constant(ref.column) is None:
                return answer
        case _:
            pass
    return IndexAnswer(score_alike(answer.true, 1.0), answer.false)


def _on_column(leaf: QueryLeaf, ref: FieldRef, view: IndexView) -> IndexAnswer:
    constant = view.constant(ref.column)
    if constant is not None:
        return TRUE if constant.is_valid and match_constant(leaf, ref.column, constant) else FALSE
    field = view.mapping.find(ref.column, *ref.kinds)
    if field is None:
        # A column that was added later is null here; one that is not indexed is evaluated on rows.
        return FALSE if view.column(ref.column) is None else UNDECIDED
    if field.kind is Kind.JSON:
        view.need(field.name)
        return compile_json(leaf, field, json_paths(field, ref), view)
    if ref.path:
        raise QuerySyntaxError(f"'{ref.column}' has no fields within it: {'.'.join(ref.path)}")
    if isinstance(leaf, Exists):
        present = view.present(ref.column)
        return two_valued(present.rows, present.recheck)
    return _compile_field(leaf, field, view)


def _compile_field(leaf: QueryLeaf, field: Field, view: IndexView) -> IndexAnswer:
    if field.kind in (Kind.TEXT, Kind.STRING):
        return compile_text(leaf, field, view)
    view.need(field.name)
    match field.kind:
        case Kind.HASH:
            return _compile_hash(leaf, field, view)
        case Kind.IP:
            return compile_address(leaf, field, view)
        case Kind.I64 | Kind.F64 | Kind.BOOL:
            return compile_value(leaf, field, view)
        case Kind.TEXT | Kind.STRING | Kind.JSON:
            raise AssertionError(f"{field.kind} has a compiler of its own")
        case _:
            assert_never(field.kind)


def _compile_hash(leaf: QueryLeaf, field: Field, view: IndexView) -> IndexAnswer:
    match leaf:
        case Term(text=text):
            rows = hash_query(view, field, [text])
        case Phrase(text=text, prefix=False):
            rows = hash_query(view, field, [text])
        case InSet(values=values):
            rows = hash_query(view, field, values)
        case Phrase() | Prefix() | Wildcard() | Regex() | Fuzzy() | Range() | Exists() | AllDocs():
            rows = view.present(field.column).rows
        case _:
            assert_never(leaf)
    return two_valued(rows, rows)
