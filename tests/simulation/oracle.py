"""What must be true at every moment, checked against the order in which versions really appeared.

The simulated store reports every object at the moment it appears or goes. The first object that appears at a
version is that version: what came later under the same name stands behind a truncation and must never be
acknowledged. Replaying these objects with the standard library gives the only right answer at each version.
"""

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from indextables.log.environment import CLOCK_SKEW_MS
from indextables.log.format.state_manifest import decode_header, decode_state, resolve_manifest_path
from indextables.log.snapshot import Snapshot
from tests.log_tables.model import lines_of
from tests.simulation.schedule import Process
from tests.simulation.splits import SplitRecord, real_splits, types_of
from tests.simulation.storage import LOG, TABLE, Storage, Watcher

if TYPE_CHECKING:
    from tests.simulation.operations import Operation

_VERSION = re.compile(re.escape(LOG) + r"(\d{20})\.json")
_STATE = re.compile(re.escape(LOG) + r"state-v(\d{20})/_manifest\.avro")
_CHECKPOINT = re.compile(re.escape(LOG) + r"(\d{20})\.checkpoint\.json")
_TYPEMAP = "indexing.typemap."
# A table of somebody else inside ours: nothing of it may be touched.
NESTED = f"{TABLE}/tenant=acme/"
# What this release can write; tables that ask for more are left alone.
_NEWEST_WRITER = 50


@dataclass
class VersionRecord:
    """One version as it appeared: who made it, and the table after it."""

    version: int
    operation: "Operation | None"
    name: str
    mode: str
    live: dict[str, dict[str, Any]]
    metadata: dict[str, Any]
    batches: dict[str, int]
    added: list[str]
    removed: list[str]
    # Whether the table asks for a newer release from this version on.
    closed: bool = False

    @property
    def partition_columns(self) -> list[str]:
        """The table's partition columns."""
        return list(self.metadata.get("partitionColumns") or [])

    @property
    def schema(self) -> dict[str, str]:
        """The table's columns and types."""
        return types_of(self.metadata["schemaString"])

    @property
    def text_columns(self) -> set[str]:
        """The columns that are indexed as words."""
        settings = self.metadata.get("configuration") or {}
        return {
            key.removeprefix("spark.indextables.").removeprefix(_TYPEMAP)
            for key, value in settings.items()
            if _TYPEMAP in key and value == "text"
        }


@dataclass
class Oracle(Watcher):
    """The table as it should be."""

    fail: Callable[[str], None]
    storage: Storage | None = None
    truth: list[VersionRecord] = field(default_factory=list)
    splits: dict[str, SplitRecord] = field(default_factory=dict)
    # Which operation wrote a row.
    writers: dict[int, "Operation"] = field(default_factory=dict)
    epoch: int = 0
    # How many versions the table had when it took the place of another one.
    first_versions: int = 0
    # An old writer's version appeared in a new table before it could have looked again: all bets are off.
    excused: bool = False
    looked_since: set[str] = field(default_factory=set)
    # Versions whose file was cleaned up, and those of them that got a state after that.
    forgotten: set[int] = field(default_factory=set)
    revived: set[int] = field(default_factory=set)
    # The states that a checkpoint was told of, with their tags.
    confirmed: dict[str, str] = field(default_factory=dict)
    # Which operation wrote a state.
    state_writers: dict[str, "Operation | None"] = field(default_factory=dict)

    # --- what the store reports ----------------------------------------------------------------------

    def written(self, key: str, data: bytes, process: Process | None) -> None:
        """Note new splits; check new versions."""
        if key.endswith(".split"):
            if process is not None and process.operation is not None:
                process.operation.planned = True  # type: ignore[attr-defined]
            self.splits[key.removeprefix(f"{TABLE}/")] = real_splits.get(key) or SplitRecord.decode(data)
            return
        self._check_epoch(key, process, created=True)
        if state := _STATE.fullmatch(key) or _CHECKPOINT.fullmatch(key):
            self.revived |= {int(state[1])} & self.forgotten
        if state or ".checkpoint." in key:
            self.state_writers[key] = process.operation if process else None  # type: ignore[assignment]
        if match := _VERSION.fullmatch(key):
            self._version(int(match[1]), lines_of(data), process)

    def deleted(self, key: str, process: Process | None) -> None:
        """A live split must not go."""
        self._check_epoch(key, process, created=False)
        if self.excused:
            return
        if match := _VERSION.fullmatch(key):
            self.forgotten.add(int(match[1]))
        who = f"{process.name}, {process.operation}" if process else "nobody"
        if process is not None and abs(process.skew_ms) > CLOCK_SKEW_MS and self._is_cleaning(key, process):
            self.fail(f"{who} deletes {key}, and its clock is off by {process.skew_ms} ms")
        if "/manifest-" in key or "/filters-" in key or ".checkpoint." in key:
            self._check_manifest(key, who)
        if key.startswith(NESTED):
            self.fail(f"{who} deletes {key} of a table inside the table")
        operation: Operation | None = process.operation if process else None  # type: ignore[assignment]
        if (
            operation is not None
            and not operation.planned
            and any(r.closed for r in self.truth[: operation.seen])
        ):
            self.fail(f"{who} deletes {key}, though the table asks for a newer release")
        if not key.endswith(".split") or not self.truth or self.excused:
            return
        path = key.removeprefix(f"{TABLE}/")
        if path in self.truth[-1].live:
            self.fail(f"{who} deletes {path}, which is live at version {self.truth[-1].version}")

    def deleted_all(self, process: Process | None) -> None:
        """The newest version can still be read: from a base, or from nothing."""
        if not self.truth or self.excused:
            return
        assert self.storage is not None
        objects, version = self.storage.objects, self.truth[-1].version
        while version >= 0:
            state = f"{LOG}state-v{version:020d}/_manifest.avro"
            if state in objects or f"{LOG}{version:020d}.checkpoint.json" in objects:
                return
            if f"{LOG}{version:020d}.json" not in objects:
                who = f"{process.name}, {process.operation}" if process else "nobody"
                self.fail(
                    f"{who} deletes files without which version {self.truth[-1].version} cannot be read"
                )
                return
            version -= 1

    def _is_cleaning(self, key: str, process: Process) -> bool:
        """Whether a deletion depends on the age of the file.

        That of the object that tells the time does not. Nor does that of a state by the operation that wrote it:
        it takes the state back because its version is gone, whatever the clocks say (PROTOCOL.md, "Retention").
        """
        if "/.clock-" in key or self.state_writers.get(key, process) is process.operation:
            return False
        return bool(getattr(process.operation, "cleans", False))

    def state_confirmed(self, version: int, *, in_json: bool = False) -> None:
        """A checkpoint was told that its state is there: from now on others may rely on it.

        `in_json` is whether it is a JSON checkpoint.
        """
        assert self.storage is not None
        json_form = f"{LOG}{version:020d}.checkpoint.json"
        key = json_form if in_json else f"{LOG}state-v{version:020d}/_manifest.avro"
        state = self.storage.objects.get(key)
        if state is None:
            return  # Cleaned up since.
        self.confirmed[key] = state.etag
        for manifest in self._manifests_of(key):
            if manifest not in self.storage.objects:
                self.fail(f"a checkpoint wrote the state at version {version}, and its {manifest} is gone")

    def _check_manifest(self, key: str, who: str) -> None:
        """No manifest, filter bundle or part of a checkpoint goes that a state needs on which others rely."""
        assert self.storage is not None
        for state, etag in self.confirmed.items():
            found = self.storage.objects.get(state)
            if found is not None and found.etag == etag and key in self._manifests_of(state):
                self.fail(f"{who} deletes {key}, which {state} refers to")

    def _manifests_of(self, key: str) -> set[str]:
        assert self.storage is not None
        if _CHECKPOINT.fullmatch(key):
            data = self.storage.objects[key].data
            return {f"{LOG}{part}" for part in json.loads(data)["parts"]} if data[:1] == b"{" else set()
        state = decode_state(self.storage.objects[key].data, key)
        folder = key.removeprefix(LOG).rpartition("/")[0]
        manifests = {f"{LOG}{resolve_manifest_path(manifest.path, folder)}" for manifest in state.manifests}
        header = decode_header(state.extra, key)
        return manifests | ({f"{LOG}{bundle.path}" for bundle in header.filters} if header else set())

    def looked(self, process: Process) -> None:
        """A process has listed objects since the table was replaced."""
        self.looked_since.add(process.name)
        self._adopt(process)

    def was_read(self, key: str, process: Process | None) -> None:
        """Until it writes its first split, a write belongs to the table that it reads.

        If it listed the table before that one, it may begin with an earlier version than the newest. That is
        allowed: the versions since are like those of writers at the same time, and are checked for conflicts.
        """
        operation: Operation | None = process.operation if process else None  # type: ignore[assignment]
        if process is None or operation is None or not hasattr(operation, "rows"):
            return
        before = operation.epoch
        self._adopt(process)
        match = _STATE.fullmatch(key) or _VERSION.fullmatch(key)
        if operation.epoch != before and process.name not in self.looked_since and match:
            operation.seen = min(operation.seen, int(match[1]) + 1)

    def _adopt(self, process: Process) -> None:
        operation: Operation | None = process.operation  # type: ignore[assignment]
        if operation is not None and operation.epoch != self.epoch and not operation.planned:
            # It may have listed the versions of the table that was there before, and read these in this one.
            listed = min(operation.seen or self.first_versions, self.first_versions)
            operation.epoch, operation.seen = self.epoch, listed

    def replaced(self, truth: list[VersionRecord]) -> None:
        """The table was deleted, and another one is there."""
        self.epoch += 1
        self.truth = list(truth)
        self.first_versions = len(truth)
        self.looked_since.clear()
        self.confirmed.clear()

    # --- what processes report -----------------------------------------------------------------------

    def acknowledged(self, operation: "Operation", version: int) -> None:
        """An operation was told that it made a version."""
        if self.excused or operation.epoch != self.epoch:
            return
        if version >= len(self.truth) or self.truth[version].operation is not operation:
            self.fail(f"{operation} was acknowledged as version {version}, which holds something else")

    def failed(self, operation: "Operation") -> None:
        """An operation was told that it did not happen: no version may hold its rows."""
        if self.excused or operation.epoch != self.epoch:
            return
        for record in self.truth if operation.all_or_nothing else ():
            if record.operation is operation and (record.added or record.removed):
                self.fail(f"{operation} was told that it failed, but it is version {record.version}")

    def check_read(self, snapshot: Snapshot, floor: int) -> None:
        """A snapshot is one version, the newest when the read began or a later one."""
        version = snapshot.version
        if version < floor:
            self.fail(f"version {version} was read, after version {floor} was there")
        elif version >= len(self.truth):
            self.fail(f"version {version} was read, but only {len(self.truth)} versions ever appeared")
        else:
            self.check_content(snapshot)

    def check_content(self, snapshot: Snapshot) -> None:
        """A snapshot equals the replay of its version."""
        record = self.truth[snapshot.version]
        listed = snapshot.files()
        found = Counter(listed["path"].to_pylist())
        if found != Counter(dict.fromkeys(record.live, 1)):
            extra, lost = found - Counter(record.live.keys()), Counter(record.live.keys()) - found
            self.fail(
                f"version {snapshot.version} read from base {snapshot.base.version} differs from the replay of "
                f"its versions: it has {sorted(extra.elements())} and lacks {sorted(lost.elements())}"
            )
        if types_of(snapshot.metadata.schema_string) != record.schema:
            self.fail(f"version {snapshot.version} was read with the schema of another version")
        if list(snapshot.partition_columns) != record.partition_columns:
            self.fail(f"version {snapshot.version} was read with the partition columns of another version")
        if {app: txn.version for app, txn in snapshot.txns.items()} != record.batches:
            self.fail(f"version {snapshot.version} was read with the batches of another version")

    # --- within --------------------------------------------------------------------------------------

    def _check_epoch(self, key: str, process: Process | None, *, created: bool) -> None:
        """An operation that has looked since must know that the table is another one.

        Without a look in between nothing can be known, nor when a request was sent before that and arrives
        late: then all bets are off, and nothing more is checked.
        """
        operation: Operation | None = process.operation if process else None  # type: ignore[assignment]
        if operation is None or operation.epoch == self.epoch or self.excused:
            return
        assert process is not None
        match = _VERSION.fullmatch(key)
        if operation.seen == 0:
            operation.epoch = self.epoch  # There was no table when it began, so it belongs to none.
        elif process.name not in self.looked_since or self._was_sent_before(self.epoch):
            self.excused = True
        elif operation.begins_again:
            # Its empty version carries a state, and follows the version of this table that it has just read,
            # as PROTOCOL.md, "Lineage", wants it. It relies on no row of the other table.
            operation.epoch, operation.seen = self.epoch, self.first_versions
        elif created and match and operation.all_or_nothing:
            self.fail(f"{operation} made {key} of another table than the one it read")

    def _was_sent_before(self, epoch: int) -> bool:
        """Whether a late request takes effect that was sent to an earlier table."""
        sent = self.storage.arriving_from if self.storage else None
        return sent is not None and sent < epoch

    def _version(self, version: int, actions: list[dict[str, Any]], process: Process | None) -> None:
        operation: Operation | None = process.operation if process else None  # type: ignore[assignment]
        if self.excused or version < len(self.truth):
            return
        if version > len(self.truth):
            self.fail(f"version {version} appeared, and version {len(self.truth)} never did")
            return
        if operation is not None:
            operation.planned = True
        record = self._replay(version, operation, actions)
        self.truth.append(record)
        self._check_version(record)

    def _replay(
        self, version: int, operation: "Operation | None", actions: list[dict[str, Any]]
    ) -> VersionRecord:
        before = self.truth[-1] if self.truth else None
        info: dict[str, Any] = next((a["commitInfo"] for a in actions if "commitInfo" in a), {})
        record = VersionRecord(
            version,
            operation,
            info.get("operation", ""),
            (info.get("operationParameters") or {}).get("mode", ""),
            dict(before.live) if before else {},
            before.metadata if before else {},
            dict(before.batches) if before else {},
            [],
            [],
            closed=before.closed if before else False,
        )
        if record.closed:
            self.fail(f"version {version} ({operation}) appeared, though the table asks for a newer release")
        for action in actions:
            self._apply(record, action)
        return record

    def _apply(self, record: VersionRecord, action: dict[str, Any]) -> None:
        where = f"version {record.version} ({record.operation})"
        if "remove" in action:
            path = action["remove"]["path"]
            if path not in record.live:
                self.fail(f"{where} removes {path}, which is not live")
            record.live.pop(path, None)
            record.removed.append(path)
        elif "add" in action:
            self._add(record, action["add"], where)
        elif "metaData" in action:
            record.metadata = action["metaData"]
        elif "protocol" in action:
            record.closed = action["protocol"]["minWriterVersion"] > _NEWEST_WRITER
        elif "mergeskip" in action:
            self._check_rest(record.version, action["mergeskip"])
        elif "txn" in action:
            app, batch = action["txn"]["appId"], action["txn"]["version"]
            if record.batches.get(app, -1) >= batch:
                self.fail(f"{where} brings batch {batch} of {app} once more")
            record.batches[app] = batch

    def _add(self, record: VersionRecord, add: dict[str, Any], where: str) -> None:
        path = add["path"]
        again = record.operation is not None and record.operation.kind == "add again"
        if path in record.live and not again:
            self.fail(f"{where} adds {path}, which is live")
        record.live[path] = add
        record.added.append(path)
        assert self.storage is not None
        if f"{TABLE}/{path}" not in self.storage.objects:
            self.fail(f"{where} appeared, and its split {path} is gone")

    def _check_rest(self, version: int, skip: dict[str, Any]) -> None:
        """A split that is there and whole may rest for minutes, not for hours."""
        assert self.storage is not None
        there = f"{TABLE}/{skip['path']}" in self.storage.objects
        if there and skip["retryAfter"] - skip["skipTimestamp"] > 3_600_000:
            self.fail(f"version {version} lets the healthy split {skip['path']} rest for hours")

    def rows(self, record: VersionRecord) -> Counter[int]:
        """The rows of a version."""
        return Counter(row for path in record.live for row in self.splits[path].rows)

    def version_with(self, row: int) -> int:
        """The first version with a row."""
        return next(record.version for record in self.truth if row in self.rows(record))

    def partition(self, row: int) -> str:
        """The partition that a row was written to."""
        rows: dict[int, str] = getattr(self.writers[row], "rows", {})
        return rows[row]

    def _check_version(self, record: VersionRecord) -> None:
        operation = record.operation
        rows = self.rows(record)
        twice = [row for row, times in rows.items() if times > 1]
        if twice:
            self.fail(f"version {record.version} ({operation}) has rows {twice} twice")
        self._check_form(record)
        if operation is None:
            return
        before = self.rows(self.truth[-2]) if len(self.truth) > 1 else Counter()
        came, went = set(rows - before), set(before - rows)
        problem = operation.problem(self, record, came, went, set(rows))
        if problem is not None:
            self.fail(f"version {record.version} ({operation}): {problem}")

    def _check_form(self, record: VersionRecord) -> None:
        """Every live split was written for the schema, the partitions and the indexes that the table has."""
        changed = len(self.truth) < 2 or record.metadata is not self.truth[-2].metadata
        columns, schema, text = set(record.partition_columns), record.schema, record.text_columns
        for path in record.live if changed else record.added:
            split = self.splits[path]
            if set(split.partition_values) != columns:
                self.fail(
                    f"version {record.version}: {path} is partitioned by {set(split.partition_values)}, not {columns}"
                )
            elif any(schema.get(name) != kind for name, kind in split.schema.items()):
                self.fail(f"version {record.version}: {path} has the columns {split.schema}, not {schema}")
            elif set(split.text_columns) != {name for name in text if name in split.schema}:
                self.fail(
                    f"version {record.version}: {path} has the text columns {split.text_columns}, not {text}"
                )
