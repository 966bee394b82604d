"""The files of the newest version in an object store, where the pointer and a listing are read at once."""

from pathlib import Path
from typing import Any, cast

import pytest

import indextables
from indextables.log import segment
from indextables.log.format.names import POINTER
from indextables.log.segment import current_segment
from indextables.store import Store, open_store
from tests.log_tables.watched import WatchedStore


class RemoteLog(WatchedStore):
    """The log of a table as in an object store. The first listing may be older than the pointer."""

    def __init__(self, store: Store, *, before: set[str] | None = None) -> None:
        super().__init__(store)
        self.lists_in_pages = True
        self._before = before

    def list(self, prefix: str = "", *, after: str | None = None) -> Any:
        files: Any = super().list(prefix, after=after)
        if self._before is None:
            return files
        older, self._before = self._before, None
        return [info for info in files if info.path in older]


@pytest.fixture
def log(tmp_path: Path) -> Store:
    table = tmp_path / "t"
    for n in range(4):
        indextables.write(table, [{"n": n}], options={"mergeOnWrite.enabled": "false"})
    return open_store(table).at("_transaction_log")


def newest(log: object) -> segment.LogSegment:
    return current_segment(cast("Store", log))


def names(log: Store) -> set[str]:
    return {info.path for info in log.list()}


def test_one_listing_is_enough_without_a_pointer(log: Store) -> None:
    assert POINTER not in names(log)
    remote = RemoteLog(log)
    assert newest(remote) == newest(log)
    assert len(remote.watch.of("list")) == 1


def test_one_listing_is_enough_with_a_pointer(log: Store, tmp_path: Path) -> None:
    indextables.open(tmp_path / "t").checkpoint()
    indextables.write(tmp_path / "t", [{"n": 9}], options={"mergeOnWrite.enabled": "false"})
    assert POINTER in names(log)
    remote = RemoteLog(log)
    assert newest(remote) == newest(log)
    assert len(remote.watch.of("list")) == 1


def test_files_that_were_listed_before_the_pointer_moved_are_listed_again(log: Store, tmp_path: Path) -> None:
    before = names(log)
    indextables.write(tmp_path / "t", [{"n": 9}], options={"mergeOnWrite.enabled": "false"})
    indextables.open(tmp_path / "t").checkpoint()
    remote = RemoteLog(log, before=before)
    assert newest(remote) == newest(log)
    assert len(remote.watch.of("list")) == 2


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_long_log_is_listed_from_the_pointer_on(
    log: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkpoint: bool
) -> None:
    if checkpoint:
        indextables.open(tmp_path / "t").checkpoint()
    monkeypatch.setattr(segment, "_MAX_FIRST_FILES", 3)
    remote = RemoteLog(log)
    assert newest(remote) == newest(log)
    # From the pointer on, versions and states are listed without what lies between them.
    assert len(remote.watch.of("list")) == (3 if checkpoint else 2)


def test_versions_and_states_are_listed_without_manifests_and_earlier_states(
    log: Store, tmp_path: Path
) -> None:
    table = indextables.open(tmp_path / "t")
    first = table.checkpoint().version
    indextables.write(tmp_path / "t", [{"n": 10}], options={"mergeOnWrite.enabled": "false"})
    newest_version = indextables.open(tmp_path / "t").checkpoint().version
    assert newest_version > first
    listing = segment.listing_from(log, newest_version)
    assert set(listing.versions) == {newest_version}
    assert set(listing.states) == {newest_version}
    assert not listing.manifests
    assert set(segment.full_listing(log).states) >= {first, newest_version}


def test_an_error_of_the_listing_reaches_the_caller(log: Store) -> None:
    class Broken(RemoteLog):
        def list(self, prefix: str = "", *, after: str | None = None) -> None:
            raise indextables.errors.StoreError("no answer")

    with pytest.raises(indextables.errors.StoreError, match="no answer"):
        newest(Broken(log))
