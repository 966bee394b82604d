"""A search query over one index: every leaf asked of its field, combined as the query says.

A row either matches a query or does not; there is no unknown. A literal that the tokenizer splits is a
phrase; with several default fields it may match in any of them; `NOT x` alone is every other row.
"""

import tantivy
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
from indextables.split.index.tokenizers import cut
from indextables.split.mapping import Field, Kind
from indextables.split.query.bound_query import FieldRef, Question, json_paths
from indextables.split.query.index_view import IndexView
from indextables.split.query.row_matcher import constant_matches, is_moment, json_number
from indextables.split.query.row_sets import (
    ALL,
    ANYTHING,
    FALSE,
    TRUE,
    Side,
    Verdict,
    all_of,
    any_of,
    either,
    every,
    negate,
    plain,
)
from indextables.split.query.text_queries import text_leaf
from indextables.split.query.value_queries import hashed, ip_leaf, value_leaf


def json_leaf(leaf: QueryLeaf, field: Field, paths: list[tuple[str, ...]], view: IndexView) -> Verdict:
    """What the index says about one leaf on the values at any of the paths."""
    return any_of(_at(leaf, field, path, view) for path in paths)


def _at(leaf: QueryLeaf, field: Field, path: tuple[str, ...], view: IndexView) -> Verdict:
    partial = view.partial(field)
    name = _name(field, path, view)
    if name is None:
        return plain(ALL, ALL)
    present = Query.exists_query(name, json_subpaths=True) if field.fast else ALL
    lookup = either((present, partial))
    match leaf:
        case Exists():
            return plain(lookup, partial if field.fast else ALL)
        case Term(text=text) | Phrase(text=text, slop=0, prefix=False):
            values: tuple[str, ...] = (text,)
        case InSet(values=values):
            pass
        case _:
            return plain(lookup, lookup)
    if any(is_moment(text) for text in values):
        return plain(lookup, lookup)
    found = [_value(text, field, name, view) for text in values]
    rows = either((*(query for query, _ in found), partial))
    return plain(rows, partial if all(sure for _, sure in found) else rows)


def _name(field: Field, path: tuple[str, ...], view: IndexView) -> str | None:
    """The path as Tantivy writes it; None if it cannot write it, and rows have to be looked at.

    It has no empty keys, ends paths by the character 0 and their keys by the character 1, and takes the
    longest name of a field that a path begins with. Rows with these characters in keys are in `_partial`.
    """
    if not all(path) or any("\0" in key or "\1" in key for key in path) or "\\" in field.name:
        return None
    if any(other.name.startswith(f"{field.name}.") for other in view.mapping.fields):
        return None
    return ".".join([field.name, *(key.replace("\\", r"\\").replace(".", r"\.") for key in path)])


def _value(text: str, field: Field, name: str, view: IndexView) -> tuple[tantivy.Query, bool]:
    """Rows with the text, or the number or truth value it stands for; and whether that is certain."""
    tokens = cut(field, text)
    sure = len(tokens) < 2 or field.record == "position"
    if len(tokens) > 1 and field.record == "position":
        words: list[str | tuple[int, str]] = [(t.position - tokens[0].position, t.text) for t in tokens]
        view.load_positions(field)
        phrase = Query.phrase_query(view.schema, name, words)
        ways = [view.scored(phrase, name, [token.text for token in tokens])]
    else:
        terms = ((t.text, Query.term_query(view.schema, name, t.text, field.term_record)) for t in tokens)
        ways = [every(view.scored(query, name, [word]) for word, query in terms)] if tokens else []
    number = json_number(text)
    if number is not None:
        ways.append(_value_query(view, field, name, number))
    if text.lower() in ("true", "false"):
        ways.append(_value_query(view, field, name, text.lower() == "true"))
    return either(ways), sure


def _value_query(view: IndexView, field: Field, name: str, value: float | bool) -> tantivy.Query:  # noqa: FBT001 - the value itself
    """Rows with a number or a truth value, which counts 1."""
    return Query.const_score_query(Query.term_query(view.schema, name, value, field.term_record), 1.0)


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
