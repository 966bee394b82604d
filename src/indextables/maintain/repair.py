"""Repair: writes a new log, from one that can still be read, or from the splits alone.

The existing log is never changed. The new one has two versions: the table, and its splits.
"""

import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import msgspec
import pyarrow as pa

from indextables.data_files import add_action, open_log
from indextables.errors import IndexTablesError, LogError, OptionError, TableNotFoundError
from indextables.log.conflict import Draft, without_registry
from indextables.log.environment import local_time_ms
from indextables.log.format.actions import Add, Format, Metadata, check_writable
from indextables.log.format.files import to_adds
from indextables.log.format.names import LOG_FOLDER
from indextables.log.snapshot import Snapshot
from indextables.log.transaction_log import REPAIR, TransactionLog
from indextables.maintain.figures import SPLIT, TableListing, missing_paths
from indextables.maintain.metadata_changes import with_mappings
from indextables.options import Options
from indextables.options.log import CACHE_ENABLED, PROTOCOL_CHECK
from indextables.records import dataclass
from indextables.schema.spark import from_arrow
from indextables.schema.values import NULL_PARTITION, parse_partition_path
from indextables.source.companion import refuse_companion
from indextables.split.footer import Footer, read_footer
from indextables.split.quickwit import BundleMetadata, describe_bundle
from indextables.split.writer import SplitFile
from indextables.store import CredentialsProvider, ObjectInfo, Store, open_store
from indextables.table_properties import options_for_mapping


@dataclass(frozen=True, slots=True)
class RepairResult:
    """The result of a repair: the new log, its source version, and the numbers of splits before and after.

    `left_out` has the splits that are not in the new log, with the reasons. `source_version` is -1 if there
    was no readable log.
    """

    source: str
    target: str
    source_version: int
    total_splits: int
    valid_splits: int
    left_out: tuple[tuple[str, str], ...]

    @property
    def missing_splits(self) -> int:
        """How many splits are missing or unreadable; those that a merge has replaced are not counted."""
        return sum(reason != REPLACED for _, reason in self.left_out)


REPLACED = "its rows are in a merged split"


def repair(
    source: str,
    target: str | None,
    options: Options,
    *,
    engine: str,
    credentials: CredentialsProvider | None = None,
) -> RepairResult:
    """Write a new log.

    Args:
        source: the log folder of the table; without a target, also the table's folder.
        target: the log folder to write, absent or empty. None: rebuild a lost log from the splits, in its
            place.
        options: options of the stores of both.
        engine: recorded in the commits.
        credentials: a callable that returns credentials for both.
    """
    # Caches are disabled: the log on storage is repaired.
    options = Options({**options.values, CACHE_ENABLED.key.lower(): "false"})
    if target is None:
        return _from_splits(_table(source, options, credentials, strict=False), options, engine)
    return _from_log(
        _table(source, options, credentials, strict=True),
        _table(target, options, credentials, strict=True),
        options,
        engine,
    )


def _from_log(source: Store, target: Store, options: Options, engine: str) -> RepairResult:
    _check_empty(target)
    snapshot = _readable(open_log(source, options, engine=engine))
    if options.get(PROTOCOL_CHECK):
        # The new log would lose the requirement of features that this release lacks.
        check_writable(snapshot.protocol, snapshot.url)
    refuse_companion(snapshot, "a repair")
    adds = to_adds(snapshot.files())
    lost = set(missing_paths(source, [add.path for add in adds]))
    live = with_mappings([add for add in adds if add.path not in lost], snapshot)
    metadata = msgspec.structs.replace(
        snapshot.metadata, configuration=without_registry(snapshot.metadata.configuration)
    )
    draft = Draft(
        operation=REPAIR,
        adds=tuple(live),
        txns=tuple(snapshot.txns.values()),
        parameters={"source": source.url, "version": str(snapshot.version)},
        reuses_files=True,
    )
    _write(target, metadata, draft, options, engine)
    reasons = tuple((add.path, "the file is missing") for add in adds if add.path in lost)
    return RepairResult(_log_url(source), _log_url(target), snapshot.version, len(adds), len(live), reasons)


def _from_splits(store: Store, options: Options, engine: str) -> RepairResult:
    log = open_log(store, options, engine=engine)
    if next(store.at(LOG_FOLDER).list(), None) is not None:
        try:
            unfinished = log.is_unfinished_repair()
        except TableNotFoundError:
            advice = "remove what is left of it"
        except LogError as error:
            advice = (
                f"it cannot be read ({error}); move it away, or read an earlier version of it AT LOCATION"
            )
        else:
            advice = "" if unfinished else "it can be read; to write a new one elsewhere, give AT LOCATION"
        if advice:
            raise OptionError(f"there is a log at {_log_url(store)}, and {advice}")
    rebuilt_table = rebuild(store)
    draft = Draft(
        operation=REPAIR, adds=rebuilt_table.adds, parameters={"source": "splits"}, reuses_files=True
    )
    _write(store, rebuilt_table.metadata, draft, options, engine)
    total = len(rebuilt_table.adds) + len(rebuilt_table.left_out) + len(rebuilt_table.replaced)
    reasons = (*rebuilt_table.left_out, *((path, REPLACED) for path in rebuilt_table.replaced))
    return RepairResult(_log_url(store), _log_url(store), -1, total, len(rebuilt_table.adds), reasons)


def _write(store: Store, metadata: Metadata, draft: Draft, options: Options, engine: str) -> None:
    log = open_log(store, options, engine=engine)
    snapshot = log.create(metadata, operation=REPAIR)
    if snapshot is None and log.is_unfinished_repair():
        snapshot = log.snapshot()
        draft = replace(draft, metadata=msgspec.structs.replace(metadata, id=snapshot.metadata.id))
    if snapshot is None:
        raise OptionError(f"another process has just written a log at {_log_url(store)}; check it first")
    # Also without splits: version 0 alone is that of a repair which was interrupted.
    log.commit(draft, snapshot)


def _readable(log: TransactionLog) -> Snapshot:
    """The newest readable version; in a damaged log, it may be an earlier one."""
    try:
        return log.snapshot()
    except TableNotFoundError:
        raise
    except LogError as error:
        damage = error
    for version in reversed(log.reachable()):
        try:
            snapshot = log.snapshot(version=version)
            snapshot.files()
        except LogError:
            continue
        return snapshot
    raise damage


def _check_empty(target: Store) -> None:
    first_file = next(target.at(LOG_FOLDER).list(), None)
    if first_file is not None:
        raise OptionError(
            f"there is {first_file.path} at {_log_url(target)} already; give a folder that is absent or empty"
        )


def _table(path: str, options: Options, credentials: CredentialsProvider | None, *, strict: bool) -> Store:
    """The store of the table whose log folder is at a path."""
    plain = path.rstrip("/")
    root, _, last = plain.rpartition("/")
    if last == LOG_FOLDER:
        return open_store(root or "/", options, credentials=credentials)
    if strict:
        raise OptionError(f"'{path}' does not end in {LOG_FOLDER}; name the log folder of the table")
    return open_store(plain, options, credentials=credentials)


def _log_url(table: Store) -> str:
    return f"{table.url}/{LOG_FOLDER}"


_AT_ONCE = 16
_SHARED = "some of its rows, but not all, are in another split"
_OTHER_COLUMNS = "its columns are not those of the newest split"


@dataclass(frozen=True, slots=True)
class RebuiltTable:
    """A table that was rebuilt from splits; unusable splits, and splits that a merge has replaced."""

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


def rebuild(store: Store) -> RebuiltTable:
    """Read the footer of every split below a table's folder; an error if there is none that can be read."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        read = list(pool.map(lambda info: _read(store, info), _splits(store)))
    bad = [(each.info.path, each.problem) for each in read if each.problem]
    ours = [each for each in read if each.ours]
    originals = [each for each in read if each.original]
    if not ours and not originals:
        if bad:
            raise IndexTablesError(
                f"none of {len(bad)} splits at {store.url} can be read ({bad[0][0]}: {bad[0][1]}); nothing "
                "was written; restore them from a backup"
            )
        raise TableNotFoundError(store.url)
    live, replaced, others = _live([each.ours for each in ours if each.ours])
    bad += [(footer.path, _SHARED) for footer in others]
    merged_files = {name for footer in live for name in footer.replaced.files}
    replaced += [each.info.path for each in originals if _name(each.info.path) in merged_files]
    originals = [each for each in originals if _name(each.info.path) not in merged_files]
    schema, partitions, options = _columns(live, originals)
    adds: list[Add] = []
    for footer in reversed(live):
        if _fits(footer, schema, partitions):
            adds.append(_add_of_footer(footer))
        else:
            bad.append((footer.path, _OTHER_COLUMNS))
    adds += [_add_of_bundle(each.info, each.original) for each in originals if each.original]
    metadata = Metadata(
        id=str(uuid.uuid4()),
        schema_string=from_arrow(schema),
        partition_columns=list(partitions),
        format=Format(),
        configuration=options,
        created_time=min(each.info.modified_ms for each in read),
    )
    return RebuiltTable(metadata, tuple(adds), tuple(bad), tuple(replaced))


def _splits(store: Store) -> Iterator[ObjectInfo]:
    return (info for info in TableListing(store).files() if info.path.endswith(SPLIT))


def _read(store: Store, info: ObjectInfo) -> _Read:
    try:
        footer = read_footer(store, info.path, info.size)
    except IndexTablesError as error:
        problem = str(error)
    else:
        if footer.source_files is not None:
            return _Read(info, problem="a split of a companion index, which is built again from its source")
        return _Read(info, ours=footer)
    try:
        return _Read(info, original=describe_bundle(store, info.path, info.size))
    except IndexTablesError:
        return _Read(info, problem=problem)


def _live(footers: Sequence[Footer]) -> tuple[list[Footer], list[str], list[Footer]]:
    """Splits that together have each row once, the newest first; paths of splits that they replace; others.

    The others share some rows with the first.
    """
    live: list[Footer] = []
    replaced: list[str] = []
    others: list[Footer] = []
    merged: set[tuple[int, int]] = set()
    # A merge counts more merges than its sources, whatever the clocks of their writers said.
    for footer in sorted(footers, key=lambda each: (each.num_merge_ops, each.created_ms), reverse=True):
        ranges = {(each.source, each.rows) for each in footer.row_id_ranges}
        if merged.isdisjoint(ranges):
            live.append(footer)
            # Two splits of writes never share rows: their numbers may be equal by chance.
            if footer.num_merge_ops:
                merged |= ranges | set(footer.replaced.chunks)
        elif ranges <= merged:
            replaced.append(footer.path)
        else:
            others.append(footer)
    return sorted(live, key=lambda each: each.created_ms, reverse=True), replaced, others


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _columns(
    live: Sequence[Footer], originals: Sequence[_Read]
) -> tuple[pa.Schema, tuple[str, ...], dict[str, str]]:
    """The columns: those of the newest split, then those that only older splits have."""
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


def _add_of_footer(footer: Footer) -> Add:
    built = SplitFile.of(footer, footer.size, footer.footer_start)
    return add_action(footer.path, built, data_change=True, started_ms=local_time_ms())


def _add_of_bundle(info: ObjectInfo, bundle: BundleMetadata) -> Add:
    return Add(
        path=info.path,
        partition_values=folder_values(info.path),
        size=info.size,
        modification_time=info.modified_ms,
        data_change=True,
        num_records=bundle.num_records,
        doc_mapping_json=bundle.mapping_json,
    )


def folder_values(path: str) -> dict[str, str | None]:
    """The partition values in the names of a path's folders."""
    values = parse_partition_path(path.rpartition("/")[0])
    return {name: None if value == NULL_PARTITION else value for name, value in values}
