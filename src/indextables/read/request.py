"""An aggregate as it was asked, checked against the table's columns."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from indextables.errors import PredicateError, SchemaError
from indextables.predicate import Predicate
from indextables.read.aggregates import Aggregate, Group, group_column, group_name, group_type, result_type


@dataclass(frozen=True, slots=True)
class Request:
    """Aggregates, groups and condition; `types` are those of the aggregates' columns (None for rows)."""

    aggregates: tuple[Aggregate, ...]
    groups: tuple[Group, ...]
    where: Predicate | None
    types: tuple[pa.DataType | None, ...]
    group_types: tuple[pa.DataType, ...]
    results: pa.Schema

    @property
    def columns(self) -> list[str]:
        """The columns that are read."""
        named = [a.column for a in self.aggregates if a.column is not None]
        return list(dict.fromkeys([*(group_column(g) for g in self.groups), *named]))


def request_for(
    schema: pa.Schema,
    aggregates: Sequence[Aggregate],
    groups: Sequence[Group],
    where: Predicate | None,
) -> Request:
    """Check what is asked: columns exist, functions fit their types, names of results differ."""
    fields = {field.name.lower(): field for field in schema}

    def field_of(name: str) -> pa.Field:
        if (found := fields.get(name.lower())) is None:
            raise SchemaError(f"no column '{name}'; the columns are: {', '.join(schema.names)}")
        return found

    own_groups = tuple(_spelt(group, field_of(group_column(group)).name) for group in groups)
    own = tuple(
        replace(a, name=a.label, column=None if a.column is None else field_of(a.column).name)
        for a in aggregates
    )
    types = tuple(None if a.column is None else field_of(a.column).type for a in own)
    group_types = tuple(group_type(g, field_of(group_column(g)).type) for g in own_groups)
    names = [*map(group_name, own_groups), *(a.label for a in own)]
    if len(set(names)) != len(names):
        raise PredicateError(f"two results have one name: {', '.join(names)}; name the aggregates apart")
    result_types = [*group_types, *(result_type(a, t) for a, t in zip(own, types, strict=True))]
    results = pa.schema(list(zip(names, result_types, strict=True)))
    return Request(own, own_groups, where, types, group_types, results)


def _spelt(group: Group, column: str) -> Group:
    return column if isinstance(group, str) else replace(group, column=column, name=group_name(group))
