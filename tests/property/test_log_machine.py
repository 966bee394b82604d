"""Any sequence of commits, states and cleanings: every reachable version equals a simple model, cold and warm."""

import os
import secrets
import shutil
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from indextables.errors import CommitConflictError, VersionNotFoundError
from indextables.log.conflict import Draft
from indextables.log.format.actions import Add, Txn
from indextables.log.segment import full_listing, reachable
from indextables.log.snapshot_cache import invalidate
from tests.log_tables.build import HOUR, WHEN, Clock, a_log, a_table, gone, merge, overwrite, split

OPTIONS = {
    "state.entriesPerManifest": "4",
    "state.compaction.tombstoneThreshold": "0.5",
    "state.compaction.maxManifests": "4",
    "state.schema.renormalizeThreshold": "1",
    "state.retention.versions": "1",
    "state.retention.hours": "5",
    "state.gc.minManifestAgeHours": "1",
    "purge.txLogRetentionHours": "10",
}


class LogMachine(RuleBasedStateMachine):
    """The engine, and beside it what the table must hold at each version."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="indextables-machine-"))
        self.path = self.folder / secrets.token_hex(4)
        self.clock = Clock(now=WHEN, step=1)
        self.expected: dict[int, dict[str, int]] = {}
        self.settings: dict[int, dict[str, str]] = {}
        self.batches: dict[int, dict[str, int]] = {}
        self.written_at: dict[int, int] = {}
        self.promised_from = 0
        self.names = 0

    def teardown(self) -> None:
        invalidate()
        shutil.rmtree(self.folder)

    # --- the table -------------------------------------------------------------------------------

    @initialize(partitioned=st.booleans())
    def make(self, partitioned: bool) -> None:
        self.partitioned = partitioned
        columns = {"id": "long", "text": "string", "day": "date"}
        self.log = a_table(
            str(self.path),
            OPTIONS,
            columns=columns,
            partition_by=["day"] if partitioned else [],
            clock=self.clock,
        )
        self.current: dict[str, int] = {}
        self.note(0)

    def note(self, version: int) -> None:
        """A version is committed: its file gets the machine's time, not the disk's."""
        self.expected[version] = dict(self.current)
        snapshot = self.log.snapshot()
        self.settings[version] = {
            k: v for k, v in snapshot.metadata.configuration.items() if "Schema." not in k
        }
        self.batches[version] = {k: t.version for k, t in snapshot.txns.items()}
        self.stamp()

    def stamp(self) -> None:
        """Files that are new get the time of the machine's clock."""
        for path in (self.path / "_transaction_log").rglob("*"):
            if path.is_file() and path.stat().st_mtime > WHEN / 1000 + 10**8:
                os.utime(path, (self.clock.now / 1000, self.clock.now / 1000))
        for version in self.expected:
            self.written_at.setdefault(version, self.clock.now)

    def name(self) -> str:
        self.names += 1
        return f"{self.names}.split"

    def a_split(self, path: str, size: int) -> Add:
        values = {"day": f"2024-01-{size % 28 + 1:02d}" if size % 5 else None} if self.partitioned else {}
        mapping = f'[{{"name":"f{size % 3}","type":"i64"}}]'
        return split(path, size=size, partition_values=values, doc_mapping_json=mapping)

    # --- commits ---------------------------------------------------------------------------------

    @rule(sizes=st.lists(st.integers(1, 99), min_size=1, max_size=5))
    def append(self, sizes: list[int]) -> None:
        adds = tuple(self.a_split(self.name(), size) for size in sizes)
        after = self.log.commit(Draft(operation="WRITE", adds=adds), self.log.snapshot())
        self.current |= {add.path: add.size for add in adds}
        self.note(after.version)

    @rule(size=st.integers(1, 99), app=st.sampled_from(["clicks", "views"]))
    def append_batch(self, size: int, app: str) -> None:
        base = self.log.snapshot()
        batch = base.txns[app].version + 1 if app in base.txns else 0
        add = self.a_split(self.name(), size)
        draft = Draft(operation="WRITE", adds=(add,), txns=(Txn(app_id=app, version=batch),))
        after = self.log.commit(draft, base)
        with pytest.raises(CommitConflictError):
            self.log.commit(draft, after)
        self.current[add.path] = add.size
        self.note(after.version)

    @rule()
    def overwrite(self) -> None:
        path = self.name()
        after = overwrite(self.log, path)
        self.current = {path: 10}
        self.note(after.version)

    @precondition(lambda self: self.current)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        paths = data.draw(
            st.lists(st.sampled_from(sorted(self.current)), min_size=1, max_size=4, unique=True)
        )
        draft = Draft(operation="DROP PARTITIONS", removes=tuple(gone(p, self.current[p]) for p in paths))
        after = self.log.commit(draft, self.log.snapshot())
        for path in paths:
            del self.current[path]
        self.note(after.version)

    @precondition(lambda self: len(self.current) > 1)
    @rule(data=st.data())
    def merge(self, data: st.DataObject) -> None:
        paths = data.draw(
            st.lists(st.sampled_from(sorted(self.current)), min_size=2, max_size=3, unique=True)
        )
        target = self.name()
        after = merge(self.log, paths, target)
        for path in paths:
            del self.current[path]
        self.current[target] = 10
        self.note(after.version)

    @precondition(lambda self: any(self.expected[v].keys() - self.current.keys() for v in self.expected))
    @rule(data=st.data())
    def bring_back(self, data: st.DataObject) -> None:
        """A path that was removed once is added again."""
        old = {p for v in self.expected for p in self.expected[v]} - self.current.keys()
        path = data.draw(st.sampled_from(sorted(old)))
        after = self.log.commit(Draft(operation="WRITE", adds=(self.a_split(path, 77),)), self.log.snapshot())
        self.current[path] = 77
        self.note(after.version)

    @rule(value=st.text("ab", max_size=2))
    def change_metadata(self, value: str) -> None:
        base = self.log.snapshot()
        changed = msgspec.structs.replace(base.metadata, configuration={"setting": value})
        after = self.log.commit(Draft(operation="SET", metadata=changed), base)
        assert after.registry.items() >= base.registry.items()
        self.note(after.version)

    @precondition(lambda self: self.current)
    @rule(data=st.data(), sizes=st.lists(st.integers(1, 99), min_size=1, max_size=3))
    def race(self, data: st.DataObject, sizes: list[int]) -> None:
        """Another process appends and merges while a drop is under way."""
        base = self.log.snapshot()
        path = data.draw(st.sampled_from(sorted(self.current)))
        other = a_log(str(self.path), {**OPTIONS, "transaction.cache.enabled": "false"}, clock=self.clock)
        adds = tuple(self.a_split(self.name(), size) for size in sizes)
        theirs = other.commit(Draft(operation="WRITE", adds=adds), other.snapshot())
        self.current |= {add.path: add.size for add in adds}
        self.expected[theirs.version] = dict(self.current)
        self.settings[theirs.version] = self.settings[theirs.version - 1]
        self.batches[theirs.version] = self.batches[theirs.version - 1]
        draft = Draft(operation="DROP PARTITIONS", removes=(gone(path, self.current[path]),))
        after = self.log.commit(draft, base)
        del self.current[path]
        self.note(after.version)

    # --- states and cleaning ---------------------------------------------------------------------

    @rule(compact=st.booleans())
    def checkpoint(self, compact: bool) -> None:
        written = self.log.checkpoint(compact=compact)
        assert written.num_files == len(self.current)
        if written.version not in self.expected:
            self.note(written.version)
        self.stamp()

    @rule()
    def checkpoint_as_json(self) -> None:
        log = a_log(str(self.path), {**OPTIONS, "state.format": "json"}, clock=self.clock)
        assert log.checkpoint().num_files == len(self.current)
        self.stamp()

    @rule(hours=st.integers(1, 8))
    def wait(self, hours: int) -> None:
        self.clock.now += hours * HOUR

    @rule()
    def clean(self) -> None:
        planned = self.log.expired_files()
        assert self.log.clean() == planned
        cutoff = self.clock.now - 10 * HOUR
        old = [v for v, moment in self.written_at.items() if moment < cutoff]
        self.promised_from = max(self.promised_from, max(old, default=0))

    @rule()
    def truncate(self) -> None:
        version, planned = self.log.truncate(dry_run=True)
        assert self.log.truncate()[0] == version
        assert not set(planned.versions) & set(full_listing(self.log._loader.log).versions)
        if version not in self.expected:  # the state that was there was not confirmed by a pointer
            self.note(version)
        self.stamp()
        self.promised_from = version

    @rule()
    def restart(self) -> None:
        """Another process: nothing is known."""
        invalidate()

    @rule()
    def lose_the_pointer(self) -> None:
        (self.path / "_transaction_log/_last_checkpoint").unlink(missing_ok=True)

    # --- what always holds -----------------------------------------------------------------------

    @invariant()
    def the_newest_version_is_right_warm_and_cold(self) -> None:
        newest = max(self.expected)
        cold = a_log(str(self.path), {**OPTIONS, "transaction.cache.enabled": "false"})
        for log in (self.log, cold):
            self.check(log.snapshot(), newest)

    def check(self, snapshot: Any, version: int) -> None:
        assert snapshot.version == version
        listed = snapshot.files()
        assert listed.num_rows == len(self.expected[version])
        found = dict(zip(listed["path"].to_pylist(), listed["size"].to_pylist(), strict=True))
        assert found == self.expected[version]
        assert {ref in snapshot.registry for ref in listed["docMappingRef"].to_pylist()} <= {True}
        configuration = snapshot.metadata.configuration
        assert {k: v for k, v in configuration.items() if "Schema." not in k} == self.settings[version]
        assert {k: t.version for k, t in snapshot.txns.items()} == self.batches[version]

    @rule(warm=st.booleans())
    def look_back(self, warm: bool) -> None:
        """Every version that can be read reads right; every promised one can be read."""
        if not warm:
            invalidate()
        newest = max(self.expected)
        can_be_read = set(reachable(full_listing(self.log._loader.log)))
        assert set(range(self.promised_from, newest + 1)) <= can_be_read
        for version in range(newest + 1):
            if version in can_be_read:
                self.check(self.log.snapshot(version=version), version)
            else:
                with pytest.raises(VersionNotFoundError):
                    self.log.snapshot(version=version)

    @rule(data=st.data())
    def changes(self, data: st.DataObject) -> None:
        newest = max(self.expected)
        since = data.draw(st.integers(self.promised_from, newest))
        changes = self.log.changes(since=since)
        then, now = self.expected[since].keys(), self.expected[newest].keys()
        assert set(changes.added["path"].to_pylist()) == now - then
        assert set(changes.removed.to_pylist()) == then - now


LogMachine.TestCase.settings = settings(
    max_examples=40,
    stateful_step_count=18,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


class TestLog(LogMachine.TestCase):  # type: ignore[valid-type]
    """Fixed sequences, so that a failure is one for everybody."""


class Longer(LogMachine):
    """The same, at length and with new dice each time."""


Longer.TestCase.settings = settings(
    LogMachine.TestCase.settings, max_examples=300, stateful_step_count=40, derandomize=False
)


@pytest.mark.soak
@pytest.mark.timeout(3600)
class TestLogAtLength(Longer.TestCase):  # type: ignore[valid-type]
    """Far more and longer sequences."""
