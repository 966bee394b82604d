"""Conditions and search queries: their trees, their texts, and their evaluation over rows."""

from indextables.predicate.compare import compare, membership
from indextables.predicate.evaluate import evaluate
from indextables.predicate.query_language import parse_query
from indextables.predicate.sql import parse_condition
from indextables.predicate.sql_text import to_sql
from indextables.predicate.traversal import (
    columns_of,
    conjunction,
    conjuncts,
    fold_constants,
    has_search,
    searches_of,
)
from indextables.predicate.tree import (
    Always,
    And,
    Column,
    Compare,
    In,
    IsNull,
    Like,
    NestedCondition,
    Not,
    Op,
    Or,
    Predicate,
    Search,
    SearchKind,
    TextMatch,
    TextMatchKind,
    Values,
)

__all__ = [
    "Always",
    "And",
    "Column",
    "Compare",
    "NestedCondition",
    "In",
    "IsNull",
    "Like",
    "Not",
    "Op",
    "Or",
    "Predicate",
    "Search",
    "SearchKind",
    "TextMatch",
    "TextMatchKind",
    "Values",
    "columns_of",
    "compare",
    "conjunction",
    "conjuncts",
    "evaluate",
    "fold_constants",
    "has_search",
    "membership",
    "parse_condition",
    "parse_query",
    "searches_of",
    "to_sql",
]
