"""A search query over one index: every leaf asked of its field, combined as the query says.

A row either matches a query or does not; there is no unknown. A literal that the tokenizer splits is a
phrase; with several default fields it may match in any of them; `NOT x` alone is every other row.
"""

from tantivy import Query

from indextables.errors import IndexTablesError, QuerySyntaxError
from indextables.predicate.query_tree import (
    AllDocs,
    AllOf,
    AnyOf,
    Boost,
    Exists,
    InSet,
    Negation,
    Phrase,
    QueryLeaf,
    QueryNode,
    Term,
)
from indextables.split.mapping import Field, Kind
from indextables.split.query.fields import FieldRef, Question
from indextables.split.query.json_leaf import json_leaf
from indextables.split.query.match_value import constant_matches
from indextables.split.query.text_leaf import text_leaf
from indextables.split.query.value_leaf import hashed, ip_leaf, value_leaf
from indextables.split.query.verdict import (
    ANYTHING,
    FALSE,
    TRUE,
    Side,
    Verdict,
    all_of,
    any_of,
    negate,
    plain,
)
from indextables.split.query.view import IndexView


def ask(question: Question, view: IndexView) -> Verdict:
    """What an index says about a search operator."""
    return _node(question.query, question, view)


def _node(node: QueryNode, question: Question, view: IndexView) -> Verdict:
    match node:
        case AllOf(parts):
            return all_of(_node(part, question, view) for part in parts)
        case AnyOf(parts):
            return any_of(_node(part, question, view) for part in parts)
        case Negation(part):
            return negate(_node(part, question, view))
        case Boost(part, factor):
            inner = _node(part, question, view)
            return Verdict(Side(Query.boost_query(inner.true.rows, factor), inner.true.doubt), inner.false)
        case AllDocs():
            return TRUE
        case _:
            return _leaf(node, question, view)


def _leaf(leaf: QueryLeaf, question: Question, view: IndexView) -> Verdict:
    path = leaf.field if not isinstance(leaf, AllDocs) else None
    if path is not None:
        return leaf_on(leaf, question.fields.resolve(path), view)
    answers: list[Verdict] = []
    refused: IndexTablesError | None = None
    for ref in question.defaults:
        try:
            answers.append(leaf_on(leaf, ref, view))
        except QuerySyntaxError as error:
            # Among several fields, those that cannot hold such a value do not match.
            refused = error
    if refused is not None and not answers:
        raise refused
    return any_of(answers)


def leaf_on(leaf: QueryLeaf, ref: FieldRef, view: IndexView) -> Verdict:
    """What the index says about a leaf on one column."""
    constant = view.constants.get(ref.column.lower())
    if constant is not None:
        return TRUE if constant.is_valid and constant_matches(leaf, ref.column, constant) else FALSE
    field = view.find(ref.column, *ref.kinds)
    if field is None:
        # A column that came later is null here; one that is there but not indexed is looked at.
        return FALSE if view.column(ref.column) is None else ANYTHING
    if field.kind is Kind.JSON:
        return json_leaf(leaf, field, json_paths(field, ref), view)
    if ref.path:
        raise QuerySyntaxError(f"'{ref.column}' has no fields within it: {'.'.join(ref.path)}")
    if isinstance(leaf, Exists):
        present = view.present(ref.column)
        return plain(present.rows, present.doubt)
    return _on_field(leaf, field, view)


def _on_field(leaf: QueryLeaf, field: Field, view: IndexView) -> Verdict:
    match field.kind:
        case Kind.TEXT | Kind.STRING:
            return text_leaf(leaf, field, view)
        case Kind.HASH:
            return _hash_leaf(leaf, field, view)
        case Kind.IP:
            return ip_leaf(leaf, field, view)
        case _:
            return value_leaf(leaf, field, view)


def _hash_leaf(leaf: QueryLeaf, field: Field, view: IndexView) -> Verdict:
    match leaf:
        case Term(text=text) | Phrase(text=text, prefix=False):
            rows = hashed(view, field, [text])
        case InSet(values=values):
            rows = hashed(view, field, values)
        case _:
            rows = view.present(field.column).rows
    return plain(rows, rows)


def json_paths(field: Field, ref: FieldRef) -> list[tuple[str, ...]]:
    """Where in the field's documents the values of a path can stand."""
    if field.root:
        rooted = (field.root, *ref.path)
        return [ref.path, rooted] if ref.path else [rooted]
    if not ref.path:
        raise QuerySyntaxError(
            f"'{ref.column}' is a nested column; name the field within it that is meant: "
            f"{ref.column}.<field>:value"
        )
    return [ref.path]
