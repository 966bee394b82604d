"""Real tables of the original's release 0.5.4, as its own writers left them."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import indextables
from indextables.log.snapshot_cache import invalidate
from tests.log_tables.build import a_log, append, paths_of, split

ORIGINAL = Path(__file__).parents[2] / "../shared/fixtures/original-0.5.4"
EXPECTED = json.loads((ORIGINAL / "expected.json").read_text()) if ORIGINAL.exists() else {}

pytestmark = pytest.mark.skipif(not EXPECTED, reason="the original's tables are not here")

ARROW = {"int32": "integer", "string": "string", "double": "double", "int64": "long"}


@pytest.fixture(params=sorted(EXPECTED))
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A copy of one table, and what a correct reader finds there."""
    invalidate()
    shutil.copytree(ORIGINAL / request.param, tmp_path / "t")
    return tmp_path / "t", EXPECTED[request.param]


def check(path: Path, expected: dict[str, Any]) -> None:
    invalidate()
    found = indextables.open(path)
    assert found.version == expected["version"]
    files = found.files()
    assert sorted(files["path"].to_pylist()) == sorted(expected["live_files"])
    assert sum(files["numRecords"].to_pylist()) == expected["num_records"]
    assert [f"{field.name}:{ARROW[str(field.type)]}" for field in found.schema] == expected["schema"]
    assert list(found.partition_columns) == expected["partition_columns"]


def test_version_files_schema_and_counts_are_as_expected(table: Any) -> None:
    check(*table)


def test_one_more_append_of_ours_adds_one_split(table: Any) -> None:
    path, expected = table
    log = a_log(str(path))
    values = dict.fromkeys(expected["partition_columns"], "2030-01-01")
    append(log, split("new.split", partition_values=values, num_records=7))
    grown = {
        **expected,
        "version": expected["version"] + 1,
        "live_files": [*expected["live_files"], "new.split"],
        "num_records": expected["num_records"] + 7,
    }
    check(path, grown)
    log.checkpoint(compact=False)
    check(path, grown)
    log.truncate()
    check(path, grown)


@pytest.mark.parametrize(
    "pointer",
    [None, b"", b"garbage", b'{"version":1,"si', b'{"version":"1","size":[]}', b"[]", b'{"version":-3,"size":1}',
     b'{"version":99999999999999999999999,"size":1}', b'{"a":' * 5000, b"\xff\xfe\x00"],
    ids=["absent", "empty", "garbage", "cut", "types", "list", "negative", "huge", "deep", "binary"],
)  # fmt: skip
def test_a_missing_or_damaged_pointer_changes_nothing(table: Any, pointer: bytes | None) -> None:
    path, expected = table
    target = path / "_transaction_log/_last_checkpoint"
    target.unlink()
    if pointer is not None:
        target.write_bytes(pointer)
    check(path, expected)


def test_a_stale_pointer_changes_nothing(table: Any) -> None:
    path, expected = table
    target = path / "_transaction_log/_last_checkpoint"
    facts = json.loads(target.read_text())
    for version in [*range(expected["version"] + 1), expected["version"] + 5]:
        stale = {**facts, "version": version, "stateDir": f"state-v{version:020d}"}
        target.write_text(json.dumps(stale))
        check(path, expected)
        target.write_text(json.dumps({**stale, "format": None, "stateDir": None}))
        check(path, expected)


def test_every_earlier_version_is_a_prefix_of_the_history(table: Any) -> None:
    path, expected = table
    log = a_log(str(path))
    assert log.snapshot(version=0).num_files == 0
    before: set[str] = set()
    for version in range(1, expected["version"] + 1):
        found = set(paths_of(log.snapshot(version=version)))
        assert before < found  # these tables were only ever appended to
        before = found
    assert before == set(expected["live_files"])


def test_changes_from_nothing_are_all_files(table: Any) -> None:
    path, expected = table
    changes = a_log(str(path)).changes(since=0)
    assert sorted(changes.added["path"].to_pylist()) == sorted(expected["live_files"])
    assert len(changes.removed) == 0
