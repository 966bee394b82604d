"""The query language: text to tree."""

from indextables.predicate.query_tree import QueryNode


def parse_query(text: str) -> QueryNode:
    """Parse a search query; see docs/query-language.md for the language.

    Raises:
        QuerySyntaxError: The query is empty or malformed; the message shows where.
    """
    raise NotImplementedError
