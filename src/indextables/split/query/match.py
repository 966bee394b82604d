"""A search query answered by looking at rows: exact for every row, and slower than the index.

It is asked about rows that the index does not hold completely, and about leaves that the index can only
narrow (a phrase without positions, a range within JSON).
"""

import numpy as np
import pyarrow as pa

from indextables.errors import QuerySyntaxError
from indextables.predicate.query_tree import (
    AllDocs,
    AllOf,
    AnyOf,
    Boost,
    Exists,
    Negation,
    QueryLeaf,
    QueryNode,
    fields_of,
)
from indextables.split.mapping import Field, Kind, field_name, value_kind
from indextables.split.query.fields import FieldRef, Question
from indextables.split.query.match_json import json_matches
from indextables.split.query.match_text import Mask, Texts, text_matches
from indextables.split.query.match_value import address_matches, constant_matches, value_matches
from indextables.split.query.query import json_paths
from indextables.split.query.view import IndexView


def columns_needed(question: Question) -> list[str]:
    """The columns that have to be read to look at rows."""
    named = [question.fields.resolve(path) for path in fields_of(question.query).fields]
    return list(dict.fromkeys(ref.column for ref in (*question.defaults, *named)))


def rows_matching(question: Question, rows: pa.Table | pa.RecordBatch, view: IndexView) -> Mask:
    """Which rows the search operator matches."""
    return _Matcher(question, rows, view).node(question.query)


class _Matcher:
    def __init__(self, question: Question, rows: pa.Table | pa.RecordBatch, view: IndexView) -> None:
        self.question = question
        self.rows = rows
        self.view = view
        self.columns = {name.lower(): name for name in rows.schema.names}
        self.cut: dict[str, Texts] = {}

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
            case _:
                return self.leaf(node)

    def leaf(self, leaf: QueryLeaf) -> Mask:
        found: Mask = np.zeros(self.rows.num_rows, np.bool_)
        path = None if isinstance(leaf, AllDocs) else leaf.field
        if path is not None:
            return self.on(leaf, self.question.fields.resolve(path))
        refused: QuerySyntaxError | None = None
        for ref in self.question.defaults:
            try:
                found |= self.on(leaf, ref)
            except QuerySyntaxError as error:
                refused = error
                if len(self.question.defaults) == 1:
                    raise
        if refused is not None and not self.question.defaults:
            raise refused
        return found

    def on(self, leaf: QueryLeaf, ref: FieldRef) -> Mask:
        constant = self.view.constants.get(ref.column.lower())
        if constant is not None:
            same = constant.is_valid and constant_matches(leaf, ref.column, constant)
            return np.full(self.rows.num_rows, same, np.bool_)
        name = self.columns.get(ref.column.lower())
        if name is None:
            return np.zeros(self.rows.num_rows, np.bool_)
        values = _one_array(self.rows[name])
        field = self.view.mapping.find(ref.column, *ref.kinds) or _plain_field(ref.column, values.type)
        if field.kind is Kind.JSON:
            return json_matches(leaf, values, field, json_paths(field, ref))
        if isinstance(leaf, Exists):
            present: Mask = values.is_valid().to_numpy(zero_copy_only=False)
            return present
        match field.kind:
            case Kind.TEXT:
                if field.name not in self.cut:
                    self.cut[field.name] = Texts.cut(values.to_pylist(), field)
                return text_matches(leaf, self.cut[field.name], field)
            case Kind.STRING | Kind.HASH:
                return text_matches(leaf, Texts.whole(values), field)
            case Kind.IP:
                return address_matches(leaf, values, ref.column)
            case _:
                return value_matches(leaf, values, ref.column)


def _one_array(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        return values.combine_chunks() if values.num_chunks != 1 else values.chunk(0)
    return values


def _plain_field(column: str, arrow: pa.DataType) -> Field:
    """How a column is searched in a split that does not index it: as the whole value."""
    if pa.types.is_nested(arrow):
        root = "" if pa.types.is_struct(arrow) or pa.types.is_map(arrow) else column
        return Field(column, field_name(Kind.JSON, column), Kind.JSON, root=root)
    kind = value_kind(arrow) or Kind.STRING
    return Field(column, field_name(kind, column), kind)
