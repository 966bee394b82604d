"""A table from its splits alone: their footers carry what the log said of them.

Which splits were live is not in them. Those whose rows are all in a merged split are told by the row ids
that merging keeps; splits that were deleted, overwritten or dropped and are still there come back.
"""

import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa

from indextables.data_files import add_action
from indextables.errors import IndexTablesError, TableNotFoundError
from indextables.log.clock import local_time_ms
from indextables.log.format.actions import Add, Format, Metadata
from indextables.maintain.folder import SPLIT, OwnFolder
from indextables.schema.spark import from_arrow
from indextables.schema.values import NULL_PARTITION, parse_partition_path
from indextables.split.footer import Footer, read_footer
from indextables.split.quickwit import BundleMetadata, describe_bundle
from indextables.split.writer import SplitFile
from indextables.store import ObjectInfo, Store
from indextables.table_properties import options_for_mapping

_AT_ONCE = 16
_SHARED = "some of its rows, but not all, are in another split"
_OTHER_COLUMNS = "its columns are not those of the newest split"


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The table that splits make up; what could not be used, and what a merge has replaced."""

    metadata: Metadata
    adds: tuple[Add, ...]
    left_out: tuple[tuple[str, str], ...]
    replaced: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Read:
    info: ObjectInfo
    ours: Footer | None = None
    original: BundleMetadata | None = None
    problem: str = ""


def rebuilt(store: Store) -> Rebuilt:
    """Read the footer of every split below a table's folder; an error if there is none that can be read."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        read = list(pool.map(lambda info: _read(store, info), _splits(store)))
    bad = [(each.info.path, each.problem) for each in read if each.problem]
    ours = sorted(
        (each for each in read if each.ours), key=lambda e: e.ours.created_ms if e.ours else 0, reverse=True
    )
    originals = [each for each in read if each.original]
    if not ours and not originals:
        if bad:
            raise IndexTablesError(
                f"none of {len(bad)} splits at {store.url} can be read ({bad[0][0]}: {bad[0][1]}); nothing "
                "was written; restore them from a backup"
            )
        raise TableNotFoundError(store.url)
    live, others = _live([each.ours for each in ours if each.ours])
    held = {source for footer in live for source in _sources(footer)}
    replaced = [footer.path for footer in others if _sources(footer) <= held]
    bad += [(footer.path, _SHARED) for footer in others if not _sources(footer) <= held]
    schema, partitions, options = _table(live, originals)
    adds: list[Add] = []
    for footer in reversed(live):
        if _fits(footer, schema, partitions):
            adds.append(_our_add(footer))
        else:
            bad.append((footer.path, _OTHER_COLUMNS))
    adds += [_original_add(each.info, each.original) for each in originals if each.original]
    metadata = Metadata(
        id=str(uuid.uuid4()),
        schema_string=from_arrow(schema),
        partition_columns=list(partitions),
        format=Format(),
        configuration=options,
        created_time=min(each.info.modified_ms for each in read),
    )
    return Rebuilt(metadata, tuple(adds), tuple(bad), tuple(replaced))


def _splits(store: Store) -> Iterator[ObjectInfo]:
    return (info for info in OwnFolder(store).files() if info.path.endswith(SPLIT))


def _read(store: Store, info: ObjectInfo) -> _Read:
    try:
        return _Read(info, ours=read_footer(store, info.path, info.size))
    except IndexTablesError as error:
        problem = str(error)
    try:
        return _Read(info, original=describe_bundle(store, info.path, info.size))
    except IndexTablesError:
        return _Read(info, problem=problem)


def _live(newest_first: Sequence[Footer]) -> tuple[list[Footer], list[Footer]]:
    """Splits that hold each row once, the newest first; and the others, which share rows with them."""
    live: list[Footer] = []
    others: list[Footer] = []
    held: set[int] = set()
    for footer in newest_first:
        if held.isdisjoint(_sources(footer)):
            held |= _sources(footer)
            live.append(footer)
        else:
            others.append(footer)
    return live, others


def _sources(footer: Footer) -> set[int]:
    """The numbers that tell the rows of a split from those of all others, merged or not."""
    return {chunk.source for chunk in footer.row_id_ranges}


def _table(
    live: Sequence[Footer], originals: Sequence[_Read]
) -> tuple[pa.Schema, tuple[str, ...], dict[str, str]]:
    """The columns: the newest split's, then those that only older ones have."""
    if not live:
        fields = {field.name: field for each in originals if each.original for field in each.original.schema}
        partitions = tuple(folder_values(originals[0].info.path))
        for name in partitions:
            fields.setdefault(name, pa.field(name, pa.string()))
        return pa.schema(list(fields.values())), partitions, {}
    newest = live[0]
    columns = {field.name: field for field in newest.schema}
    for footer in live[1:]:
        for field in footer.schema:
            columns.setdefault(field.name, field)
    schema = pa.schema(list(columns.values()))
    return schema, tuple(newest.partition_values), options_for_mapping(newest.mapping, schema)


def _fits(footer: Footer, schema: pa.Schema, partitions: Sequence[str]) -> bool:
    return tuple(footer.partition_values) == tuple(partitions) and all(
        schema.field(field.name).type == field.type for field in footer.schema
    )


def _our_add(footer: Footer) -> Add:
    built = SplitFile.of(footer, footer.size, footer.footer_start)
    return add_action(footer.path, built, data_change=True, started_ms=local_time_ms())


def _original_add(info: ObjectInfo, facts: BundleMetadata) -> Add:
    return Add(
        path=info.path,
        partition_values=folder_values(info.path),
        size=info.size,
        modification_time=info.modified_ms,
        data_change=True,
        num_records=facts.num_records,
        doc_mapping_json=facts.mapping_json,
    )


def folder_values(path: str) -> dict[str, str | None]:
    """The partition values that the folders of a path name."""
    named = parse_partition_path(path.rpartition("/")[0])
    return {name: None if value == NULL_PARTITION else value for name, value in named}
