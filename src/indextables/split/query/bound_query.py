"""Binds searches to the columns of a table: names are resolved, operators checked."""

import difflib
from collections.abc import Iterable, Sequence
from functools import cached_property

import pyarrow as pa

from indextables.errors import PredicateError, QuerySyntaxError, UnknownFieldError
from indextables.options import Options, reading
from indextables.predicate import Search, SearchKind
from indextables.predicate.query_language import parse_search
from indextables.predicate.traversal import fields_of
from indextables.predicate.tree import FieldPath, QueryNode
from indextables.records import dataclass
from indextables.schema.type_info import TypeKind, kind_of
from indextables.split.mapping import Field, Kind, Mapping

# The kinds of fields that a search uses, in order of preference.
SEARCH_ORDER = (Kind.TEXT, Kind.STRING, Kind.HASH, Kind.IP, Kind.JSON, Kind.I64, Kind.F64, Kind.BOOL)
EXACT_ORDER = (Kind.STRING, Kind.HASH, Kind.IP, Kind.I64, Kind.F64, Kind.BOOL, Kind.JSON, Kind.TEXT)
_TEXT_LIKE = (Kind.TEXT, Kind.STRING, Kind.HASH)


@dataclass(frozen=True, slots=True)
class FieldRef:
    """A column, or a path within a nested column; `exact` prefers its untokenized field."""

    column: str
    path: tuple[str, ...] = ()
    exact: bool = False

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of fields to use, in order of preference."""
        return EXACT_ORDER if self.exact else SEARCH_ORDER


@dataclass(frozen=True, slots=True)
class BoundQuery:
    """A search operator with its parsed query, and the default fields of unqualified terms."""

    query: QueryNode
    defaults: tuple[FieldRef, ...]
    fields: "SearchFields"


@dataclass(frozen=True)
class SearchFields:
    """The columns of a table and how its splits index them."""

    schema: pa.Schema
    mappings: tuple[Mapping, ...]
    partition_columns: tuple[str, ...] = ()

    @cached_property
    def _names(self) -> dict[str, str]:
        return {name.lower(): name for name in self.schema.names}

    @cached_property
    def _kinds(self) -> dict[str, set[Kind]]:
        kinds: dict[str, set[Kind]] = {}
        for mapping in self.mappings:
            for field in mapping.fields:
                kinds.setdefault(field.column.lower(), set()).add(field.kind)
        return kinds

    def searchable(self) -> list[str]:
        """The columns that a search can name."""
        partitions = {name.lower() for name in self.partition_columns}
        return [
            n
            for n in self.schema.names
            if n.lower() in partitions or not self.mappings or self._kinds.get(n.lower())
        ]

    def resolve(self, path: FieldPath, *, exact: bool = False) -> FieldRef:
        """The column and the path within it that a name in a query refers to.

        A dot separates a column from a field within it, or, if there is no such field, is part of the column
        name.

        Raises:
            UnknownFieldError: There is none, or it is not indexed.
        """
        refused: UnknownFieldError | None = None
        for end in range(1, len(path) + 1):
            column = self._names.get(".".join(path[:end]).lower())
            if column is None:
                continue
            try:
                return self._within(column, path[end:], exact=exact)
            except UnknownFieldError as error:
                refused = refused or error
        raise refused or _unknown(".".join(path), self.searchable())

    def _within(self, column: str, path: Sequence[str], *, exact: bool) -> FieldRef:
        if column not in self.searchable():
            raise UnknownFieldError(
                f"the column '{column}' is not indexed, so it cannot be searched; use a comparison or "
                f"LIKE, or index it (spark.indextables.indexing.*); searchable are: "
                f"{', '.join(self.searchable())}"
            )
        arrow = self.schema.field(column).type
        is_text = kind_of(arrow) is TypeKind.STRING
        if path and is_text and self.mappings and Kind.JSON not in self._kinds_of(column):
            raise UnknownFieldError(f"'{column}' has no fields within it: {'.'.join(path)}")
        return FieldRef(column, _inner(arrow, path, column), exact)

    def _kinds_of(self, column: str) -> set[Kind]:
        return self._kinds.get(column.lower(), set())

    def bind(self, search: Search, options: Options) -> BoundQuery:
        """Bind a search operator: parse its query and check every field that it names."""
        query = parse_search(search)
        use = fields_of(query)
        for path in use.fields:
            self.resolve(path)
        exact = search.kind is SearchKind.FIELDMATCH
        if search.column is not None:
            defaults = [self.resolve(search.column.path, exact=exact)]
        else:
            defaults = [FieldRef(name, exact=exact) for name in self._text_like()] if use.unqualified else []
            self._check_spread(defaults, options)
        self._check_kind(search.kind, defaults)
        return BoundQuery(query, tuple(defaults), self)

    def _text_like(self) -> list[str]:
        text_kinds = set(_TEXT_LIKE)
        names = [name for name in self.schema.names if self._kinds_of(name) & text_kinds]
        if not names and self.mappings:
            raise UnknownFieldError(
                "the table has no text or string column to search; name a column, or qualify the terms "
                f"(column:value); its columns are: {', '.join(self.schema.names)}"
            )
        return names

    def _check_spread(self, defaults: Sequence[FieldRef], options: Options) -> None:
        limit = options.get(reading.MAX_UNQUALIFIED_FIELDS)
        if limit and len(defaults) > limit:
            names = [ref.column for ref in defaults]
            raise PredicateError(
                f"a search over all fields would look for unqualified terms in {len(names)} fields "
                f"({', '.join(names[:20])}{', ..' if len(names) > 20 else ''}), more than the {limit} "
                "allowed; qualify the terms (column:term), search one column, or raise "
                "spark.indextables.indexquery.indexall.maxUnqualifiedFields (0 sets no limit)"
            )

    def _check_kind(self, kind: SearchKind, refs: Iterable[FieldRef]) -> None:
        if kind is SearchKind.INDEXQUERY or not self.mappings:
            return
        tokenized = kind is SearchKind.TEXTSEARCH
        for ref in refs:
            kinds = self._kinds_of(ref.column)
            fits = self._has_tokens(ref.column) if tokenized else bool(kinds - {Kind.TEXT}) or not kinds
            if fits:
                continue
            is_, other = ("not tokenized", "FIELDMATCH") if tokenized else ("tokenized text", "TEXTSEARCH")
            text_kinds = "text" if tokenized else "string"
            advice = (
                f", or write the column with spark.indextables.indexing.typemap.{ref.column}={text_kinds}"
            )
            is_string = kind_of(self.schema.field(ref.column).type) is TypeKind.STRING
            raise PredicateError(
                f"Cannot use {kind.upper()} on field '{ref.column}', which is {is_}; use {other} or "
                f"INDEXQUERY{advice if is_string else ''}"
            )

    def _has_tokens(self, column: str) -> bool:
        own = [field for mapping in self.mappings for field in mapping.fields_of(column)]
        return any(f.kind is Kind.TEXT or (f.kind is Kind.JSON and f.analysis.splits) for f in own)


def json_paths(field: Field, ref: FieldRef) -> list[tuple[str, ...]]:
    """The paths in the field's documents that can have the values of a field reference."""
    if field.root:
        rooted = (field.root, *ref.path)
        return [ref.path, rooted] if ref.path else [rooted]
    if not ref.path:
        raise QuerySyntaxError(
            f"'{ref.column}' is a nested column; name a field within it: {ref.column}.<field>:value"
        )
    return [ref.path]


def _inner(arrow: pa.DataType, path: Sequence[str], column: str) -> tuple[str, ...]:
    """The path within a column, struct fields in the schema's spelling."""
    if not path:
        return ()
    while kind_of(arrow) is TypeKind.LIST:
        arrow = arrow.value_type
    if kind_of(arrow) is TypeKind.MAP:
        return (path[0], *_inner(arrow.item_type, path[1:], column))
    if kind_of(arrow) is TypeKind.STRUCT:
        field = next((f for f in arrow if f.name.lower() == path[0].lower()), None)
        if field is None:
            raise _unknown(".".join([column, *path]), [f"{column}.{f.name}" for f in arrow])
        return (field.name, *_inner(field.type, path[1:], column))
    if kind_of(arrow) is TypeKind.STRING:
        return tuple(path)  # JSON text has whatever fields it has
    raise UnknownFieldError(f"'{'.'.join([column, *path])}' goes too deep: '{column}' has no fields there")


def _unknown(name: str, available: Sequence[str]) -> UnknownFieldError:
    close = difflib.get_close_matches(name.lower(), [k.lower() for k in available], n=1, cutoff=0.6)
    hint = next((f"did you mean '{k}'? " for k in available if close and k.lower() == close[0]), "")
    return UnknownFieldError(f"no field '{name}'; {hint}available fields: {', '.join(available)}")
