"""Damage is named, never passed over, and does not spoil the next good read."""

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from indextables.errors import CorruptLogError
from indextables.log.snapshot_cache import invalidate
from tests.log_tables import generations as made
from tests.log_tables.build import a_log, a_table, append, paths_of
from tests.log_tables.generations import HandMade


@pytest.fixture(autouse=True)
def cold() -> None:
    invalidate()


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Two states and versions after them: 0..5, states at 2 and 4."""
    log = a_table(str(tmp_path / "t"))
    for version in range(1, 6):
        append(log, *(f"{version}-{n}.split" for n in range(8)))
        if version in (2, 4):
            log.checkpoint(compact=False)
    return tmp_path / "t/_transaction_log"


def read(table: Any) -> list[str]:
    invalidate()
    return paths_of(a_log(str(table.parent)).snapshot())


def without_older_files(table: Any) -> None:
    """Only the newest state and what follows it stays, so that nothing else can answer."""
    shutil.rmtree(table / f"state-v{2:020d}", ignore_errors=True)
    for version in range(5):
        (table / f"{version:020d}.json").unlink(missing_ok=True)


def refused(table: Any, path: Any, problem: str) -> None:
    """Reading fails, names the file, says what to do; with the file restored it succeeds."""
    with pytest.raises(CorruptLogError, match=problem) as error:
        read(table)
    assert str(path.relative_to(table)) in str(error.value)
    assert "restore the file" in str(error.value)


def survived(table: Any, path: Any, data: bytes | None) -> None:
    """While older files can answer, damage costs a warning, not the answer; a checkpoint mends it."""
    before, good = read(table), path.read_bytes()
    if data is None:
        path.unlink()
    else:
        path.write_bytes(data)
    assert read(table) == before
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(good)


def with_damage(table: Path, path: Any, data: bytes | None, problem: str) -> None:
    """Older files answer, if they are there; without them the damage is named."""
    survived(table, path, data)
    without_older_files(table)
    refused_damage(table, path, data, problem)


def refused_damage(table: Any, path: Any, data: bytes | None, problem: str) -> None:
    before, good = read(table), path.read_bytes()
    if data is None:
        path.unlink()
    else:
        path.write_bytes(data)
    refused(table, path, problem)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(good)
    # The warm process that saw the damage reads well again, too.
    assert paths_of(a_log(str(table.parent)).snapshot()) == before


def newest_state(table: Path) -> Any:
    return table / f"state-v{4:020d}/_manifest.avro"


def manifests(table: Path) -> list[Any]:
    return sorted((table / "manifests").iterdir())


@pytest.mark.parametrize("number", [0, 1])
def test_a_missing_manifest_is_named(table: Path, number: int) -> None:
    with_damage(table, manifests(table)[number], None, "the manifest is missing")


@pytest.mark.parametrize("keep", [0, 3, 100, 0.5, -1, -16])
def test_a_manifest_cut_anywhere_is_refused(table: Path, keep: float) -> None:
    path = manifests(table)[0]
    data = path.read_bytes()
    cut = int(len(data) * keep) if isinstance(keep, float) else keep
    with_damage(table, path, data[:cut], "cannot be read")


def test_a_manifest_with_a_flipped_bit_is_refused(table: Path) -> None:
    path = manifests(table)[0]
    data = bytearray(path.read_bytes())
    data[-40] ^= 1
    with_damage(table, path, bytes(data), "cannot be read")


def test_a_manifest_in_place_of_another_is_refused(table: Path) -> None:
    """Its entries are others than the state counts."""
    first, second = manifests(table)
    one = made.container(made.ENTRY_05, [made.entry("other.split")], "null")
    with_damage(table, first, one, "1 entries, and the state counts")
    refused_damage(table, second, b"PAR1" + b"\0" * 500, "cannot be read")


@pytest.mark.parametrize("keep", [0, 4, 200, 0.5, -1])
def test_a_state_cut_anywhere_is_refused(table: Path, keep: float) -> None:
    data = newest_state(table).read_bytes()
    cut = int(len(data) * keep) if isinstance(keep, float) else keep
    with_damage(table, newest_state(table), data[:cut], "state")


def test_a_state_of_another_version_is_refused(table: Path) -> None:
    other = (table / f"state-v{2:020d}/_manifest.avro").read_bytes()
    with_damage(table, newest_state(table), other, "state of version 2, not 4")


def test_a_missing_state_is_replaced_by_replay(table: Path) -> None:
    before = read(table)
    shutil.rmtree(newest_state(table).parent)
    assert read(table) == before


def test_a_missing_state_that_nothing_replaces_is_an_error_that_names_the_first_gap(table: Path) -> None:
    shutil.rmtree(newest_state(table).parent)
    (table / f"{3:020d}.json").unlink()
    with pytest.raises(CorruptLogError, match="version 3 is missing, so version 5 cannot be read") as error:
        read(table)
    assert f"{3:020d}.json" in str(error.value)


def test_a_missing_version_in_the_middle_is_an_error_not_a_shorter_table(table: Path) -> None:
    append(a_log(str(table.parent)), "6.split")
    refused_damage(table, table / f"{5:020d}.json", None, "version 5 is missing")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "empty"),
        (b"{", "not JSON"),
        (b'{"add":{"path":"x"', "not JSON"),
        (b'{"add":{"path":7,"size":1,"modificationTime":1}}\n', "not an action"),
        (b'{"remove":{}}\n', "not an action"),
        (gzip.compress(b'{"txn":{"appId":"a","version":1}}\n')[:-6], "cut short"),
        (b"\x1f\x8b\x08garbage garbage", "gzip"),
        (b"\xff\xfe\x00\x01", "not JSON"),
    ],
    ids=["empty", "brace", "cut", "type", "no path", "cut gzip", "bad gzip", "binary"],
)
def test_a_damaged_version_is_refused_with_its_name(table: Path, data: Any, problem: str) -> None:
    refused_damage(table, table / f"{5:020d}.json", data, problem)


def test_damage_below_the_newest_state_hurts_only_those_who_need_it(table: Path) -> None:
    before = read(table)
    (table / f"{1:020d}.json").write_bytes(b"{")
    assert read(table) == before
    with pytest.raises(CorruptLogError, match="line 1 is not JSON"):
        a_log(str(table.parent)).snapshot(version=1)
    assert len(paths_of(a_log(str(table.parent)).snapshot(version=2))) == 16


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"numFiles": 99}, "counts 99 files"),
        ({"numFiles": -1}, "numFiles is -1"),
        ({"totalBytes": -1}, "totalBytes is -1"),
        ({"formatVersion": 0}, "format version"),
        ({"metadata": "{nonsense"}, "cannot be read"),
        ({"metadata": '{"metaData":{"id":1}}'}, "cannot be read"),
    ],
)
@pytest.mark.parametrize("form", ["avro", "json"])
def test_impossible_numbers_in_a_state_are_refused(
    tmp_path: Path, changes: dict[str, Any], problem: str, form: str
) -> None:
    table = HandMade(tmp_path / "t")
    table.version(0, made.protocol(), made.metadata())
    table.state(
        1, [table.manifest("manifests/manifest-1.avro", [made.entry("a.split")])], form=form, **changes
    )
    with pytest.raises(CorruptLogError, match=problem):
        a_log(str(tmp_path / "t")).snapshot()


def test_a_manifest_outside_the_log_is_refused(tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    table.version(0, made.protocol(), made.metadata())
    info = table.manifest("manifests/manifest-1.avro", [made.entry("a.split")])
    table.state(1, [{**info, "path": "../../secret.avro"}])
    with pytest.raises(CorruptLogError, match="no valid path"):
        a_log(str(tmp_path / "t")).snapshot().files()


@pytest.mark.parametrize("part", [1, 2])
def test_a_missing_or_damaged_part_of_a_json_checkpoint_is_named(tmp_path: Path, part: int) -> None:
    table = made.generation_j(tmp_path / "t", parts=True)
    path = table.log / f"{10:020d}.checkpoint.abc123def456.{part:05d}.json"
    for version in range(10):
        (table.log / f"{version:020d}.json").unlink()
    refused_damage(table.log, path, None, "missing")
    refused_damage(table.log, path, path.read_bytes()[:-9], "cut short|gzip")


def test_a_json_checkpoint_that_lists_parts_of_another_version_is_refused(tmp_path: Path) -> None:
    table = made.generation_j(tmp_path / "t", parts=True)
    path = table.log / f"{10:020d}.checkpoint.json"
    listed = json.loads(path.read_text())
    survived(table.log, path, json.dumps({**listed, "version": 9}).encode())
    for version in range(10):
        (table.log / f"{version:020d}.json").unlink()
    refused_damage(table.log, path, json.dumps({**listed, "version": 9}).encode(), "parts of version 9")
    refused_damage(table.log, path, json.dumps({**listed, "parts": []}).encode(), "empty")


def test_a_damaged_header_entry_of_ours_is_refused(tmp_path: Path) -> None:
    log = a_table(str(tmp_path / "t"))
    append(log, "a.split")
    log.checkpoint()
    path = tmp_path / f"t/_transaction_log/state-v{1:020d}/_manifest.avro"
    data = path.read_bytes()
    place = data.index(b'"timestamp"')
    path.write_bytes(data[:place] + b"x" + data[place + 1 :])
    (tmp_path / f"t/_transaction_log/{0:020d}.json").unlink()
    invalidate()
    with pytest.raises(CorruptLogError, match="the header does not match its checksum") as error:
        a_log(str(tmp_path / "t")).snapshot()
    assert "_manifest.avro" in str(error.value)
