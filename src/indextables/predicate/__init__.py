"""The condition tree shared by pruning and searching."""

from indextables.predicate.tree import (
    Always,
    And,
    Column,
    Compare,
    In,
    IsNull,
    Like,
    Not,
    Op,
    Or,
    Predicate,
    Search,
    SearchKind,
    TextMatch,
    TextMatchKind,
    columns_of,
)

__all__ = [
    "Always",
    "And",
    "Column",
    "Compare",
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
    "columns_of",
]
