"""Cleaning up: what may go, what must stay, and that stopping half way harms nothing."""

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from indextables.errors import CorruptLogError, StoreError, VersionNotFoundError
from indextables.log import retention
from indextables.log.format import checkpoint_files
from indextables.log.retention import HOUR_MS, Retention, stream_retention
from indextables.log.snapshot_cache import invalidate
from indextables.log.transaction_log import TransactionLog
from indextables.options import Options
from indextables.store import open_store
from tests.log_tables import generations as made
from tests.log_tables.build import HOUR, Clock, a_log, a_table, append, overwrite, paths_of, remove
from tests.log_tables.watched import WatchedStore

NOW = 1_800_000_000_000
DAY = 24 * HOUR


@pytest.fixture(autouse=True)
def cold() -> None:
    invalidate()


def aged(path: Path, hours: float) -> None:
    moment = (NOW - hours * HOUR) / 1000
    os.utime(path, (moment, moment))


def cleaner(where: Any, options: dict[Any, Any] | None = None) -> TransactionLog:
    return a_log(where, options, clock=Clock(now=NOW, step=0))


class History:
    """Versions 0 to 12, states at 3, 6, 9 and 12; version n is (12 - n) * `hours` old."""

    def __init__(self, path: Path, *, compact: bool = False, last_state: int = 12, hours: float = 24) -> None:
        self.path = path
        self.folder = path / "_transaction_log"
        log = a_table(str(path))
        self.expected: dict[int, list[Any]] = {0: []}
        for version in range(1, 13):
            if version % 5 == 0:
                remove(log, f"{version - 1}-0.split")
            else:
                append(log, *(f"{version}-{n}.split" for n in range(6)))
            self.expected[version] = paths_of(log.snapshot())
            if version % 3 == 0 and version <= last_state:
                before = set(self.folder.glob("manifests/*"))
                log.checkpoint(compact=compact)
                for manifest in set(self.folder.glob("manifests/*")) - before:
                    aged(manifest, (12 - version) * hours + 2)
                aged(self.folder / f"state-v{version:020d}/_manifest.avro", (12 - version) * hours)
        for version in range(13):
            aged(self.folder / f"{version:020d}.json", (12 - version) * hours)

    @property
    def versions(self) -> list[int]:
        return sorted(int(p.name[:20]) for p in self.folder.glob("0*.json"))

    @property
    def states(self) -> list[int]:
        return sorted(int(p.parent.name[7:]) for p in self.folder.glob("state-v*/_manifest.avro"))

    def age(self, hours: float) -> None:
        """The newest version becomes so old, each one before it a minute older; states like their versions."""
        newest = self.versions[-1]
        for version in self.versions:
            aged(self.folder / f"{version:020d}.json", hours + (newest - version) / 60)
        for version in self.states:
            aged(self.folder / f"state-v{version:020d}/_manifest.avro", hours + (newest - version) / 60)

    def check(self, versions: range) -> None:
        """These versions read as before; cold."""
        invalidate()
        log = a_log(str(self.path))
        assert paths_of(log.snapshot()) == self.expected[12]
        for version in versions:
            assert paths_of(log.snapshot(version=version)) == self.expected[version], version


def test_versions_are_kept_as_long_as_promised_with_what_they_are_read_from(tmp_path: Path) -> None:
    history = History(tmp_path / "t")
    cleaner(str(tmp_path / "t"), {"purge.txLogRetentionHours": str(5 * 24)}).clean()
    # Five days promise versions 7 to 12, and 6, which was the newest five days ago; 6 has a state.
    history.check(range(6, 13))
    assert history.versions == [7, 8, 9, 10, 11, 12]
    with pytest.raises(VersionNotFoundError):
        a_log(str(tmp_path / "t")).snapshot(version=5)


def test_a_promised_version_between_states_keeps_the_state_before_it(tmp_path: Path) -> None:
    history = History(tmp_path / "t")
    cleaner(str(tmp_path / "t"), {"purge.txLogRetentionHours": str(3 * 24)}).clean()
    history.check(range(8, 13))
    assert history.versions == [7, 8, 9, 10, 11, 12], "8 is read from the state at 6"


def test_without_a_state_before_the_oldest_promised_version_nothing_goes(tmp_path: Path) -> None:
    """The only state is newer; the promised versions are replayed from the beginning."""
    history = History(tmp_path / "t", last_state=0)
    log = a_log(str(tmp_path / "t"))
    log.checkpoint()
    aged(history.folder / f"state-v{12:020d}/_manifest.avro", 0)
    found = cleaner(str(tmp_path / "t"), {"purge.txLogRetentionHours": str(5 * 24)}).clean()
    assert found.paths == ()
    history.check(range(13))


def test_without_any_state_nothing_goes(tmp_path: Path) -> None:
    history = History(tmp_path / "t", last_state=0)
    assert cleaner(str(tmp_path / "t"), {"purge.txLogRetentionHours": "0"}).clean().paths == ()
    history.check(range(13))


def test_with_everything_old_the_newest_version_and_its_state_stay(tmp_path: Path) -> None:
    history = History(tmp_path / "t")
    options = {
        "purge.txLogRetentionHours": "0",
        "state.retention.versions": "0",
        "state.retention.hours": "0",
    }
    log = a_log(str(tmp_path / "t"), options, clock=Clock(now=NOW + 100 * DAY, step=0))
    log.clean()
    assert (history.versions, history.states) == ([12], [12])
    history.check(range(12, 13))


@pytest.mark.parametrize("way", ["clean", "truncate"])
def test_objects_with_which_a_killed_process_tried_the_store_are_deleted_after_a_day(
    tmp_path: Path, way: str
) -> None:
    history = History(tmp_path / "t")
    names = {f"{kind}{n:032x}": age for kind in (".clock-", "_probe_") for n, age in enumerate((23, 25))}
    others = [".clock-of-somebody", "_probe_", f"_probe_{7:033x}", f".clock-{7:032x}.json"]
    for name, age in (names | dict.fromkeys(others, 1000)).items():
        (history.folder / name).write_bytes(b"clock")
        aged(history.folder / name, age)
    log = cleaner(str(tmp_path / "t"))
    log.clean() if way == "clean" else log.truncate()
    left = {path.name for path in history.folder.iterdir()}
    assert left & names.keys() == {name for name, age in names.items() if age == 23}
    assert left >= set(others)


def test_states_are_kept_by_number(tmp_path: Path) -> None:
    history = History(tmp_path / "t")
    base = {"purge.txLogRetentionHours": "1", "state.retention.hours": "0"}
    cleaner(str(tmp_path / "t"), {**base, "state.retention.versions": "2"}).clean()
    assert history.states == [6, 9, 12], "two before the current one"
    cleaner(str(tmp_path / "t"), {**base, "state.retention.versions": "1"}).clean()
    assert history.states == [9, 12]
    assert paths_of(a_log(str(tmp_path / "t")).snapshot(version=9)) == history.expected[9]


def test_states_are_kept_by_age(tmp_path: Path) -> None:
    history = History(tmp_path / "t")
    base = {"purge.txLogRetentionHours": "1", "state.retention.versions": "0"}
    cleaner(str(tmp_path / "t"), {**base, "state.retention.hours": str(7 * 24)}).clean()
    assert history.states == [6, 9, 12]
    cleaner(str(tmp_path / "t"), {**base, "state.retention.hours": str(4 * 24)}).clean()
    assert history.states == [9, 12]


# Of states half an hour apart, those at 3 and 6 are of one period of six hours, and those at 9 and 12.
DENSE = {
    "state.retention.versions": "0",
    "state.retention.hours": "0",
    "purge.txLogRetentionHours": "28",
}


def test_states_among_promised_versions_go_if_versions_tell_them(tmp_path: Path) -> None:
    history = History(tmp_path / "t", hours=0.5)
    a_log(str(tmp_path / "t"), DENSE, clock=Clock(now=NOW + 24 * HOUR, step=0)).clean()
    assert history.states == [3, 9, 12], "the anchor of version 4, the first of a period, the current one"
    history.check(range(3, 13))


def test_states_among_promised_versions_stay_while_they_are_young(tmp_path: Path) -> None:
    history = History(tmp_path / "t", hours=0.5)
    options = {**DENSE, "purge.txLogRetentionHours": "12"}
    a_log(str(tmp_path / "t"), options, clock=Clock(now=NOW + int(8.9 * HOUR), step=0)).clean()
    assert history.states == [3, 6, 9, 12]
    history.check(range(4, 13))


def test_manifests_that_no_state_needs_go_when_they_are_old_enough(tmp_path: Path) -> None:
    history = History(tmp_path / "t", compact=True)
    old = {"purge.txLogRetentionHours": "1", "state.retention.versions": "0", "state.retention.hours": "0"}
    log = cleaner(str(tmp_path / "t"), {**old, "state.gc.minManifestAgeHours": "100000"})
    assert log.expired_files().manifests == ()
    found = cleaner(str(tmp_path / "t"), old).clean()
    assert len(found.manifests) == 2, "those of the states at 3 and 6; 9 is the anchor of version 11"
    history.check(range(11, 13))
    assert len(list((history.folder / "manifests").iterdir())) == 2


def test_a_young_manifest_stays_though_nobody_refers_to_it(tmp_path: Path) -> None:
    """A running checkpoint may be about to."""
    history = History(tmp_path / "t")
    stray = history.folder / "manifests/manifest-0123.avro"
    stray.write_bytes(b"being written")
    aged(stray, 0.9)
    cleaner(str(tmp_path / "t")).clean()
    assert stray.exists()
    aged(stray, 1.1)
    cleaner(str(tmp_path / "t")).clean()
    assert not stray.exists()


def test_manifests_shared_with_the_current_state_stay(tmp_path: Path) -> None:
    history = History(tmp_path / "t")
    options = {
        "purge.txLogRetentionHours": "0",
        "state.retention.versions": "0",
        "state.retention.hours": "0",
    }
    cleaner(str(tmp_path / "t"), options).clean()
    history.check(range(12, 13))


def test_a_state_that_cannot_be_read_keeps_all_manifests(tmp_path: Path) -> None:
    history = History(tmp_path / "t", compact=True)
    damaged = history.folder / f"state-v{9:020d}/_manifest.avro"
    damaged.write_bytes(b"damaged")
    aged(damaged, 72)
    options = {"purge.txLogRetentionHours": "0", "state.retention.hours": "0"}
    assert cleaner(str(tmp_path / "t"), options).clean().manifests == ()
    history.check(range(12, 13))


def test_the_state_that_the_pointer_names_stays(tmp_path: Path) -> None:
    """Other engines trust the pointer."""
    history = History(tmp_path / "t")
    pointer = history.folder / "_last_checkpoint"
    pointer.write_text(pointer.read_text().replace('"version":12', '"version":3').replace('12"', '03"'))
    options = {
        "purge.txLogRetentionHours": "0",
        "state.retention.versions": "0",
        "state.retention.hours": "0",
    }
    a_log(str(tmp_path / "t"), options, clock=Clock(now=NOW + DAY, step=0)).clean()
    assert history.states == [3, 12]


def test_a_dry_run_writes_and_deletes_nothing(tmp_path: Path) -> None:
    History(tmp_path / "t", last_state=9)
    store = WatchedStore(open_store(str(tmp_path / "t")))
    log = cleaner(store, {"purge.txLogRetentionHours": "0"})
    assert log.expired_files().paths
    version, found = log.truncate(dry_run=True)
    assert version == 12
    assert found.versions == tuple(range(12))
    assert store.watch.of("create", "put", "delete") == []


def test_a_dry_run_of_truncation_names_what_the_real_run_deletes(tmp_path: Path) -> None:
    history = History(tmp_path / "t", last_state=9)
    log = cleaner(str(tmp_path / "t"))
    _, planned = log.truncate(dry_run=True)
    before = {str(p.relative_to(history.folder)) for p in history.folder.rglob("*") if p.is_file()}
    _, deleted = log.truncate()
    after = {str(p.relative_to(history.folder)) for p in history.folder.rglob("*") if p.is_file()}
    assert set(planned.paths) == set(deleted.paths) == before - after
    history.check(range(12, 13))


def test_truncation_writes_a_state_if_there_is_none_and_keeps_the_newest_version(tmp_path: Path) -> None:
    history = History(tmp_path / "t", last_state=0)
    version, found = cleaner(str(tmp_path / "t")).truncate()
    assert version == 12
    assert found.versions == tuple(range(12))
    assert (history.versions, history.states) == ([12], [12])
    history.check(range(12, 13))


def test_truncation_never_touches_splits(tmp_path: Path) -> None:
    History(tmp_path / "t")
    (tmp_path / "t/1-0.split").write_bytes(b"rows")
    cleaner(str(tmp_path / "t")).truncate()
    assert (tmp_path / "t/1-0.split").exists()


def test_a_truncated_table_is_truncated_again_and_goes_on(tmp_path: Path) -> None:
    history = History(tmp_path / "t")
    log = cleaner(str(tmp_path / "t"))
    for _ in range(2):
        assert log.truncate()[0] == 12
    append(log, "more.split")
    assert log.truncate()[0] == 13
    invalidate()
    assert paths_of(a_log(str(tmp_path / "t")).snapshot()) == sorted([*history.expected[12], "more.split"])


class CutError(Exception):
    """The process died."""


@pytest.mark.parametrize("how", ["clean", "truncate"])
def test_an_interruption_after_any_single_delete_leaves_a_table_that_reads(tmp_path: Path, how: str) -> None:
    options = {
        "purge.txLogRetentionHours": "100",
        "state.retention.versions": "0",
        "state.retention.hours": "0",
    }
    History(tmp_path / "whole", compact=True)
    shutil.copytree(tmp_path / "whole", tmp_path / "t")
    total = len(_deleted(tmp_path / "t", options, how))
    assert total > 5
    for stop in range(total):
        shutil.rmtree(tmp_path / "t")
        shutil.copytree(tmp_path / "whole", tmp_path / "t")
        history = History.__new__(History)
        history.path, history.folder = tmp_path / "t", tmp_path / "t/_transaction_log"
        history.expected = _expected(tmp_path / "whole")
        store = WatchedStore(open_store(str(tmp_path / "t")))
        left = [stop]

        def before(operation: str, path: str, left: Any = left) -> None:
            if operation == "delete":
                if not left[0]:
                    raise CutError
                left[0] -= 1

        store.watch.before = before
        with pytest.raises(CutError):
            getattr(cleaner(store, options), how)()
        history.check(range(12, 13) if how == "truncate" else range(8, 13))
        # What is left of older versions reads as it was, or is refused as gone; never anything else.
        for version in range(12):
            with contextlib.suppress(VersionNotFoundError):
                assert (
                    paths_of(a_log(str(tmp_path / "t")).snapshot(version=version))
                    == history.expected[version]
                )
        # The next run finishes.
        getattr(cleaner(str(tmp_path / "t"), options), how)()
        history.check(range(12, 13) if how == "truncate" else range(8, 13))


def _deleted(table: Path, options: dict[str, str], how: str) -> list[str]:
    store = WatchedStore(open_store(str(table)))
    getattr(cleaner(store, options), how)()
    return store.watch.of("delete")


_known: dict[str, dict[int, list[str]]] = {}


def _expected(table: Path) -> dict[int, list[str]]:
    if str(table) not in _known:
        log = a_log(str(table))
        _known[str(table)] = {v: paths_of(log.snapshot(version=v)) for v in range(13)}
    return _known[str(table)]


def test_a_state_written_while_cleaning_keeps_its_manifests(tmp_path: Path) -> None:
    """It was not there when the decision was made; what it refers to must not go."""
    history = History(tmp_path / "t", last_state=9)
    store = WatchedStore(open_store(str(tmp_path / "t")))
    options = {
        "purge.txLogRetentionHours": "0",
        "state.retention.versions": "0",
        "state.retention.hours": "0",
    }
    other = a_log(str(tmp_path / "t"), {"state.compaction.tombstoneThreshold": "10"})
    done: list[Any] = []

    def before(operation: str, path: str) -> None:
        if operation == "delete" and not done:
            done.append(1)
            # It extends the state at 9, which is about to be the newest no more.
            assert not other.checkpoint(compact=False).compacted

    store.watch.before = before
    cleaner(store, options).clean()
    assert done
    history.check(range(12, 13))


def test_a_json_checkpoint_written_while_cleaning_keeps_its_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its writer was slow, so that the parts are old, and no checkpoint named them."""
    monkeypatch.setattr(checkpoint_files, "ACTIONS_PER_PART", 3)
    log = a_table(str(tmp_path / "t"), {"state.format": "json"})
    append(log, "a.split", "b.split")
    log.checkpoint()
    folder = tmp_path / "t/_transaction_log"
    named = folder / f"{1:020d}.checkpoint.json"
    data = named.read_bytes()
    named.unlink()
    (folder / "_last_checkpoint").unlink()
    parts = sorted(folder.glob("*.checkpoint.*.*.json"))
    for part in parts:
        aged(part, 2)
    cleaning = cleaner(str(tmp_path / "t"), {"state.format": "json"})
    expired = cleaning.expired_files()
    assert {part.name for part in parts} <= set(expired.led_to)
    named.write_bytes(data)
    retention.delete(cleaning._loader, expired)
    assert sorted(folder.glob("*.checkpoint.*.*.json")) == parts
    invalidate()
    for version in (0, 1):
        (folder / f"{version:020d}.json").unlink()
    assert paths_of(a_log(str(tmp_path / "t")).snapshot()) == ["a.split", "b.split"]


def test_two_cleaners_at_once_do_no_harm(tmp_path: Path) -> None:
    history = History(tmp_path / "t")
    options = {
        "purge.txLogRetentionHours": "1",
        "state.retention.versions": "0",
        "state.retention.hours": "0",
    }
    store = WatchedStore(open_store(str(tmp_path / "t")))
    other = cleaner(str(tmp_path / "t"), options)
    done: list[Any] = []

    def before(operation: str, path: str) -> None:
        if operation == "delete" and not done:
            done.append(1)
            other.clean()

    store.watch.before = before
    cleaner(store, options).clean()
    history.check(range(11, 13))


def test_a_slow_cleaner_does_not_delete_the_state_on_which_a_faster_one_relies(tmp_path: Path) -> None:
    """For the slow one, versions after an earlier state tell the same; the faster one deletes those."""
    history = History(tmp_path / "t", hours=0.5)
    store = WatchedStore(open_store(str(tmp_path / "t")))
    done: list[Any] = []

    def before(operation: str, _: str) -> None:
        if operation == "delete" and not done:
            done.append(1)
            a_log(str(tmp_path / "t"), DENSE, clock=Clock(now=NOW + int(27.5 * HOUR), step=0)).clean()

    store.watch.before = before
    a_log(store, DENSE, clock=Clock(now=NOW + 24 * HOUR, step=0)).clean()
    assert (history.versions, history.states) == ([10, 11, 12], [9, 12])
    history.check(range(9, 13))


def test_cleaning_a_state_only_table_keeps_what_is_promised(tmp_path: Path) -> None:
    table = made.generation_a(tmp_path / "t", 6)
    for version in range(1, 7):
        aged(table.log / f"state-v{version:020d}/_manifest.avro", (6 - version) * 24)
    aged(table.log / f"{0:020d}.json", 24 * 7)
    options = {
        "purge.txLogRetentionHours": "50",
        "state.retention.versions": "0",
        "state.retention.hours": "0",
    }
    cleaner(str(tmp_path / "t"), options).clean()
    invalidate()
    log = a_log(str(tmp_path / "t"))
    for version in (3, 4, 5, 6):
        assert log.snapshot(version=version).num_files == 2 * version
    with pytest.raises(VersionNotFoundError, match="versions 3 to 6"):
        log.snapshot(version=2)
    assert log.snapshot(version=3).schema.names == ["id", "text"]


def test_cleaning_a_json_table_takes_parts_with_their_checkpoint(tmp_path: Path) -> None:
    table = made.generation_j(tmp_path / "t", 12, checkpoint_at=5, parts=True)
    abandoned = table.log / f"{7:020d}.checkpoint.feedfeedfeed.00001.json"
    abandoned.write_bytes(b"")
    for path in table.log.rglob("*"):
        aged(path, 1000)
    log = cleaner(str(tmp_path / "t"), {"state.format": "json"})
    log.checkpoint()
    log.clean()
    left = {p.name.split(".")[0] for p in table.log.glob("0*checkpoint*")}
    assert left == {f"{12:020d}"}
    invalidate()
    assert len(paths_of(a_log(str(tmp_path / "t")).snapshot())) == 12


def test_metadata_is_not_cleaned_away(tmp_path: Path) -> None:
    """States of older writers leave it out; only version 0 has it."""
    table = made.generation_a(tmp_path / "t", 4)
    for path in table.log.rglob("*"):
        aged(path, 10_000)
    options = {
        "purge.txLogRetentionHours": "0",
        "state.retention.versions": "0",
        "state.retention.hours": "0",
    }
    cleaner(str(tmp_path / "t"), options).clean()
    invalidate()
    snapshot = a_log(str(tmp_path / "t")).snapshot()
    assert (snapshot.version, snapshot.num_files, snapshot.schema.names) == (4, 8, ["id", "text"])


@pytest.mark.parametrize("form", ["avro", "json"])
def test_truncating_a_state_only_table_keeps_its_metadata(tmp_path: Path, form: str) -> None:
    made.generation_a(tmp_path / "t", 4)
    log = cleaner(str(tmp_path / "t"), {"state.format": form})
    version, planned = log.truncate(dry_run=True)
    assert log.truncate() == (version, planned)
    invalidate()
    snapshot = a_log(str(tmp_path / "t")).snapshot()
    assert (snapshot.num_files, snapshot.schema.names) == (8, ["id", "text"])


def test_a_reader_that_is_overtaken_by_a_truncation_reads_the_newest(tmp_path: Path) -> None:
    history = History(tmp_path / "t", last_state=0)
    store = WatchedStore(open_store(str(tmp_path / "t")))
    reader = a_log(store)
    done: list[Any] = []

    def before(operation: str, path: str) -> None:
        if operation == "get" and path.endswith("7.json") and not done:
            done.append(1)
            cleaner(str(tmp_path / "t")).truncate()

    store.watch.before = before
    assert paths_of(reader.snapshot()) == history.expected[12]
    assert done


def test_a_warm_reader_that_is_overtaken_reads_the_newest_too(tmp_path: Path) -> None:
    log = a_table(str(tmp_path / "t"), {"transaction.cache.enabled": "false"})
    store = WatchedStore(open_store(str(tmp_path / "t")))
    reader = a_log(store)
    reader.snapshot()
    for n in range(5):
        append(log, f"{n}.split")
    done: list[Any] = []

    def before(operation: str, path: str) -> None:
        if operation == "get" and path.endswith("3.json") and not done:
            done.append(1)
            log.truncate()

    store.watch.before = before
    assert len(paths_of(reader.snapshot())) == 5
    assert done


def test_history_and_time_travel_are_overtaken_without_harm(tmp_path: Path) -> None:
    log = a_table(str(tmp_path / "t"))
    for n in range(5):
        append(log, f"{n}.split")
    for question, expected in (
        (lambda r: [e.version for e in r.history()], [5]),
        (lambda r: r.snapshot(version=2), VersionNotFoundError),
    ):
        invalidate()
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        shutil.copytree(tmp_path / "t", tmp_path / "copy")
        store = WatchedStore(open_store(str(tmp_path / "copy")))
        done: list[Any] = []

        def before(operation: str, path: str, done: Any = done) -> None:
            if operation == "get" and path.endswith("0.json") and not done:
                done.append(1)
                a_log(str(tmp_path / "copy")).truncate()

        store.watch.before = before
        if isinstance(expected, list):
            assert question(a_log(store)) == expected
        else:
            with pytest.raises(expected):
                question(a_log(store))
        assert done


def test_a_failed_delete_is_reported(tmp_path: Path) -> None:
    History(tmp_path / "t")
    store = WatchedStore(open_store(str(tmp_path / "t")))

    def before(operation: str, path: str) -> None:
        if operation == "delete":
            raise StoreError("no permission to delete")

    store.watch.before = before
    with pytest.raises(StoreError, match="no permission"):
        cleaner(store, {"purge.txLogRetentionHours": "0"}).clean()


def test_hours_can_be_given_for_one_run(tmp_path: Path) -> None:
    history = History(tmp_path / "t")
    assert cleaner(str(tmp_path / "t")).expired_files().versions == ()
    assert cleaner(str(tmp_path / "t")).expired_files(log_hours=50).versions == tuple(range(10))
    assert history.versions == list(range(13))


def test_an_overwritten_table_loses_its_old_manifests(tmp_path: Path) -> None:
    log = a_table(str(tmp_path / "t"))
    append(log, *(f"{n}.split" for n in range(5)))
    log.checkpoint()
    overwrite(log, "new.split")
    log.checkpoint()
    late = a_log(str(tmp_path / "t"), clock=Clock(now=NOW * 2, step=0))
    late.truncate()
    assert len(list((tmp_path / "t/_transaction_log/manifests").iterdir())) == 1
    invalidate()
    assert paths_of(a_log(str(tmp_path / "t")).snapshot()) == ["new.split"]
    with pytest.raises((VersionNotFoundError, CorruptLogError)):
        late.snapshot(version=1)


@pytest.mark.parametrize("enabled", [True, False])
def test_a_checkpoint_after_a_commit_deletes_expired_versions(tmp_path: Path, enabled: bool) -> None:
    history = History(tmp_path / "t")
    options = {
        "purge.txLogRetentionHours": "120",
        "checkpoint.enabled": True,
        "checkpoint.interval": "1",
        "cleanup.enabled": enabled,
    }
    append(cleaner(str(tmp_path / "t"), options), "13.split")
    assert history.versions == ([7, 8, 9, 10, 11, 12, 13] if enabled else list(range(14)))


_CHECKPOINTS = {"checkpoint.enabled": True, "checkpoint.interval": "1"}


def test_versions_beyond_the_maximum_number_are_deleted_before_their_retention(tmp_path: Path) -> None:
    history = History(tmp_path / "t")
    append(cleaner(str(tmp_path / "t"), {**_CHECKPOINTS, "cleanup.maxVersions": "5"}), "13.split")
    # 9 to 13 are five versions; 8 was the newest when 9 came, and the state at 6 is what it is read from.
    assert history.versions == [7, 8, 9, 10, 11, 12, 13]
    assert history.states[0] == 6
    invalidate()
    log = a_log(str(tmp_path / "t"))
    for version in range(7, 13):
        assert paths_of(log.snapshot(version=version)) == history.expected[version]
    with pytest.raises((VersionNotFoundError, CorruptLogError)):
        log.snapshot(version=5)


def test_a_maximum_number_of_versions_spares_those_of_the_last_hour(tmp_path: Path) -> None:
    history = History(tmp_path / "t")
    options = {**_CHECKPOINTS, "cleanup.maxVersions": "2"}
    history.age(0.5)
    append(cleaner(str(tmp_path / "t"), options), "13.split")
    assert history.versions == list(range(14))
    history.age(1.1)
    append(cleaner(str(tmp_path / "t"), options), "14.split")
    assert history.versions == [13, 14]


@pytest.mark.parametrize(
    ("options", "versions", "hours"),
    [
        ({}, 10_000, 720),
        ({"purge.txLogRetentionHours": 720}, 0, 720),
        ({"logRetention.duration": 48 * 3_600_000}, 0, 48),
        ({"purgeOnWrite.txLogRetentionHours": 720}, 0, 720),
        ({"cleanup.maxVersions": 7}, 7, 720),
        ({"cleanup.maxVersions": 0}, 0, 720),
        ({"cleanup.maxVersions": 7, "purge.txLogRetentionHours": 24}, 7, 24),
    ],
)
def test_a_stream_limits_versions_unless_options_say_what_is_retained(
    options: Any, versions: int, hours: int
) -> None:
    retention = Retention.of(stream_retention(Options.parse(options)))
    assert (retention.max_versions, retention.log_ms) == (versions, hours * HOUR_MS)


def test_a_few_expired_versions_among_many_wait(tmp_path: Path) -> None:
    history = History(tmp_path / "t")
    options = {**_CHECKPOINTS, "purge.txLogRetentionHours": str(24 * 12 - 1)}
    append(cleaner(str(tmp_path / "t"), options), "13.split")
    assert history.versions == list(range(14))  # one of 14 has expired: less than a tenth


def test_a_commit_is_in_the_table_if_expired_files_cannot_be_deleted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    History(tmp_path / "t")
    options = {
        "purge.txLogRetentionHours": "120",
        "checkpoint.enabled": True,
        "checkpoint.interval": "1",
        "state.gc.minManifestAgeHours": "0",
    }
    append(cleaner(str(tmp_path / "t"), options), "13.split")
    invalidate()
    assert "13.split" in paths_of(a_log(str(tmp_path / "t")).snapshot())
    assert any("were not deleted: state.gc.minManifestAgeHours" in r.getMessage() for r in caplog.records)


def test_without_expired_versions_a_checkpoint_deletes_nothing_and_asks_no_clock(tmp_path: Path) -> None:
    history = History(tmp_path / "t")
    store = WatchedStore(open_store(str(tmp_path / "t")))
    log = a_log(store, {"checkpoint.enabled": True, "checkpoint.interval": "1"}, clock=Clock(now=NOW, step=0))
    append(log, "13.split")
    assert history.versions == list(range(14))
    assert not any(".clock-" in path for path in store.watch.of("put"))
