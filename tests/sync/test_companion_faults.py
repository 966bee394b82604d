"""A sync that is killed leaves the index as it was or as it should be, and a repeated sync completes it."""

import subprocess
import sys
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import indextables
from indextables.errors import OptionError, SourceError
from indextables.split.writer import IndexBuilder
from indextables.sync import run
from indextables.sync.run import SyncResult

# What a process does that is killed before or after the nth call of a function of a sync.
KILLED = """
import os, signal, sys
import indextables
from indextables.log.transaction_log import TransactionLog
from indextables.split.writer import IndexBuilder
from indextables.sync import run

place, moment, number, source, index = sys.argv[1:]
owner, name = {"build": (run, "build_split"), "create": (TransactionLog, "create"),
               "commit": (TransactionLog, "commit")}[place]
original, calls = getattr(owner, name), []

def killed(*arguments, **more):
    calls.append(None)
    end = len(calls) == int(number)
    if end and moment == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    result = original(*arguments, **more)
    if end and moment == "after":
        os.kill(os.getpid(), signal.SIGKILL)
    return result

setattr(owner, name, killed)
indextables.companion(source, at=index, target_size=1)
raise SystemExit("the process was not killed")
"""


def folder(path: Path, *numbers: int) -> Path:
    path.mkdir(exist_ok=True)
    for number in numbers:
        rows = pa.table({"id": [number, number + 100], "message": [f"disk {number}", "all well"]})
        pq.write_table(rows, path / f"part-{number}.parquet")
    return path


@pytest.mark.parametrize(
    ("place", "moment", "number"),
    [("build", "after", 2), ("create", "after", 1), ("commit", "before", 1), ("commit", "after", 1)],
)
def test_a_killed_sync_is_repeated(place: str, moment: str, number: int, tmp_path: Path) -> None:
    source, index = folder(tmp_path / "source", 1, 2, 3), tmp_path / "index"
    done = subprocess.run(
        [sys.executable, "-c", KILLED, place, moment, str(number), str(source), str(index)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == -9, done.stderr
    if place == "commit" and moment == "after":
        assert indextables.open(index).count() == 6
    result = indextables.companion(source, at=index, target_size=1)
    assert result.status == ("no_action" if (place, moment) == ("commit", "after") else "success")
    table = indextables.open(index)
    assert sorted(table.scan(["id"]).column(0).to_pylist()) == [1, 2, 3, 101, 102, 103]
    assert table.files().num_rows == 3


def test_a_follower_syncs_until_it_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, index, stop = folder(tmp_path / "source", 1), tmp_path / "index", Event()
    results: list[SyncResult] = []
    pauses: list[Any] = []
    real = run.sync

    def sync(*arguments: Any, **more: Any) -> SyncResult:
        results.append(real(*arguments, **more))
        folder(source, len(results) + 1)
        if len(results) == 3:
            stop.set()
        return results[-1]

    monkeypatch.setattr(run, "sync", sync)
    monkeypatch.setattr(stop, "wait", pauses.append)
    last = indextables.companion(source, at=index, every=30, stop=stop)
    assert [result.files_indexed for result in results] == [1, 1, 1]
    assert (last, pauses) == (results[-1], [30, 30, 30])
    with pytest.raises(OptionError, match="every needs a number of seconds above 0"):
        indextables.companion(source, at=index, every=30)
    with pytest.raises(OptionError, match="no fixed version and no dry run"):
        indextables.companion(source, at=index, every=30, stop=Event(), dry_run=True)


def test_a_follower_waits_longer_after_errors_and_gives_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, stop = folder(tmp_path / "source", 1), Event()
    pauses: list[Any] = []

    def sync(*arguments: Any, **more: Any) -> None:
        raise SourceError("the source is away")

    monkeypatch.setattr(run, "sync", sync)
    monkeypatch.setattr(stop, "wait", pauses.append)
    options = {"companion.stream.maxConsecutiveErrors": 4}
    with pytest.raises(SourceError, match="away"):
        indextables.companion(source, at=tmp_path / "index", every=30, stop=stop, options=options)
    assert pauses == [60, 120, 240]


def test_table_roots_are_other_places_of_the_source(tmp_path: Path) -> None:
    source, index = folder(tmp_path / "source", 1, 2), tmp_path / "index"
    indextables.companion(source, at=index, roots={"copy": str(tmp_path / "copy")})
    table = indextables.open(index)
    assert list(table.roots()) == ["copy"]
    source.rename(tmp_path / "copy")
    read = indextables.open(index, options={"companion.tableRootDesignator": "copy"})
    assert sorted(read.scan(["id"]).column(0).to_pylist()) == [1, 2, 101, 102]
    with pytest.raises(OptionError, match="there is no table root 'other'; the roots are: copy"):
        indextables.open(index, options={"companion.tableRootDesignator": "other"}).scan()
    assert table.unset_root("copy") == "the table root 'copy' was removed"
    assert table.unset_root("copy") == "there is no table root 'copy'"
    with pytest.raises(OptionError, match="is not the name of a table root"):
        table.set_root("a b", "/copies")
    indextables.write(tmp_path / "table", [{"id": 1}])
    with pytest.raises(SourceError, match="is not a companion index, so it has no table roots"):
        indextables.open(tmp_path / "table").roots()


def test_an_error_of_a_build_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = folder(tmp_path / "source", 1)

    def add(*_: Any) -> None:
        raise ZeroDivisionError("a defect of a library")

    monkeypatch.setattr(IndexBuilder, "add", add)
    with pytest.raises(SourceError, match=r"part-1\.parquet cannot be indexed \(ZeroDivisionError"):
        indextables.companion(source, at=tmp_path / "index")
    assert not list((tmp_path / "index").rglob("*.split"))
