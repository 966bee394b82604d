"""Tables of many splits are searched by processes that may open few files."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from indextables.limits import is_resource_exhausted, max_open_files
from tests import ROOT
from tests.read.many_splits import BETA, many_splits


def answers(folder: Path, count: int, limit: int) -> Any:
    many_splits(folder / "t", count)
    command = [
        sys.executable,
        "-m",
        "tests.read.queries_with_few_files",
        str(folder / "t"),
        str(folder / "cache"),
        str(limit),
    ]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["splits"] == count
    assert said["files"] < limit * 3 / 4
    return said["answers"]


def expected(count: int) -> dict[Any, Any]:
    return {
        "search": BETA * count,
        "not": BETA * count,
        "rows": count,
        "best": 10,
        "sum": 14,
        "again": BETA * count,
    }


def check(found: Any, count: int) -> None:
    without_files = found.pop("with none left")
    # Files that were kept open for later are closed for it; if that is not enough, it is an error of ours.
    assert without_files == 3 * count or "Too many open files" in str(without_files)
    assert found.pop("after that") == BETA * count
    assert found == expected(count)


def test_many_splits_are_searched_with_few_files_and_the_process_recovers(tmp_path: Path) -> None:
    check(answers(tmp_path, 100, 96), 100)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_5000_splits_are_searched_with_256_files(tmp_path: Path) -> None:
    check(answers(tmp_path, 5000, 256), 5000)


def test_limits_follow_those_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (256, 4096))
    assert max_open_files(1000) == 64
    monkeypatch.setattr("resource.getrlimit", lambda _: (8, 4096))
    assert max_open_files(1000) == 4
    monkeypatch.setattr("resource.getrlimit", lambda _: (1 << 20, 1 << 20))
    assert max_open_files(1000) == 1000


def test_exhaustion_is_told_from_other_errors() -> None:
    assert is_resource_exhausted(OSError(24, "Too many open files"))
    assert not is_resource_exhausted(OSError(2, "No such file"))
    wrapped = ValueError("cannot open")
    wrapped.__cause__ = OSError(24, "Too many open files")
    assert is_resource_exhausted(wrapped)
