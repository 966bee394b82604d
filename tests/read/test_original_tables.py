"""Tables that the original wrote, release 0.5.3: every row, and as many rows as Spark finds for every condition."""

import base64
import datetime as dt
import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

import indextables as it
from indextables.errors import ProtocolError
from indextables.log.snapshot_cache import invalidate
from indextables.read import split_source

ORIGINAL = Path(__file__).parents[2] / "../shared/fixtures/original-0.5.3"
EXPECTED = json.loads((ORIGINAL / "expected.json").read_text()) if ORIGINAL.exists() else {}
CONDITIONS = json.loads((ORIGINAL / "conditions.json").read_text()) if ORIGINAL.exists() else {}

pytestmark = pytest.mark.skipif(not EXPECTED, reason="the original's tables are not here")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> dict[Any, Any]:
    return {"cache.disk.path": str(tmp_path_factory.mktemp("cache"))}


def plain(value: Any, kind: Any) -> Any:
    """A value as `expected.json` has it; JSON texts and doubles so that equal ones are equal."""
    match value:
        case dt.datetime():
            return value.replace(tzinfo=None).isoformat()
        case dt.date():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode()
        case float() if not math.isfinite(value):
            return str(value)
        case [*pairs] if isinstance(kind, dict) and kind["type"] == "map":
            return sorted([list(pair) for pair in pairs])
        case str() if value[:1] == "{":
            return json.dumps(json.loads(value), sort_keys=True)
        case _:
            return value


def rows_of(rows: Any, schema: Any) -> list[Any]:
    kinds = {field["name"]: field["type"] for field in schema["fields"]}
    return sorted(
        json.dumps({name: plain(row.get(name), kind) for name, kind in kinds.items()}, sort_keys=True)
        for row in rows
    )


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_every_row_is_read(name: Any, cache: dict[Any, Any]) -> None:
    said = EXPECTED[name]
    found = it.open(ORIGINAL / name, options=cache).scan().to_pylist()
    assert rows_of(found, said["schema"]) == rows_of(said["rows"], said["schema"])


@pytest.mark.parametrize("name", sorted(CONDITIONS))
def test_every_condition_finds_as_many_rows_as_spark(name: Any, cache: dict[Any, Any]) -> None:
    table = it.open(ORIGINAL / name, options=cache)
    counted = {where: table.count(where) for where in CONDITIONS[name]}
    assert counted == CONDITIONS[name]
    # Once more by the other way to the rows.
    scanned = {where: table.scan(where=where).num_rows for where in CONDITIONS[name]}
    assert scanned == CONDITIONS[name]


def test_all_conditions_are_there() -> None:
    assert sum(map(len, CONDITIONS.values())) == 793


@pytest.mark.parametrize("name", ["nested", "ip", "map", "odd-partitions", "partitioned", "odd-names"])
def test_rows_and_answers_stay_the_same_when_its_splits_become_ours(
    name: str, cache: dict[Any, Any], tmp_path: Path
) -> None:
    shutil.copytree(ORIGINAL / name, tmp_path / "t")
    invalidate()
    it.open(tmp_path / "t", options=cache).merge()
    table = it.open(tmp_path / "t", options=cache)
    said = EXPECTED[name]
    assert all(tags == ["parquet"] for tags in table.files()["splitTags"].to_pylist())
    assert rows_of(table.scan().to_pylist(), said["schema"]) == rows_of(said["rows"], said["schema"])
    assert {where: table.count(where) for where in CONDITIONS[name]} == CONDITIONS[name]


def test_json_comes_back_as_compact_text(cache: dict[Any, Any]) -> None:
    texts = it.open(ORIGINAL / "json", options=cache).scan(["payload"])["payload"].to_pylist()
    assert all(
        text == json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False) for text in texts
    )


def test_partition_values_are_those_of_the_rows(cache: dict[Any, Any]) -> None:
    table = it.open(ORIGINAL / "odd-partitions", options=cache)
    values = {dict(entry)["region"] for entry in table.files()["partitionValues"].to_pylist()}
    assert values == {"50%", "a/b", "eu west", "größe", "q'uote", "x=y"}


def test_the_rows_of_small_splits_count_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = it.open(ORIGINAL / "text", options={"cache.disk.path": str(tmp_path), "read.parallelism": "1"})
    rows = [split["numRecords"] for split in table.files().to_pylist()]
    assert len(rows) > 2
    monkeypatch.setattr(split_source, "_MANY_ROWS", max(rows) + 1)
    monkeypatch.setattr(split_source, "_progress", split_source._BuildProgress())
    split_source.close_splits()
    table.search("a OR b")
    assert sum("CONVERT INDEXTABLES" in record.getMessage() for record in caplog.records) == 1


def test_the_first_search_says_that_it_builds_an_index_and_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(split_source, "_MANY_ROWS", 1)
    monkeypatch.setattr(split_source, "_REPORT_SECONDS", 0.0)
    monkeypatch.setattr(split_source, "_progress", split_source._BuildProgress())
    table = it.open(ORIGINAL / "text", options={"cache.disk.path": str(tmp_path)})
    split_source.close_splits()
    table.search("a OR b")
    messages = [record.getMessage() for record in caplog.records]
    assert (
        sum("was written by IndexTables for Scala" in m and "CONVERT INDEXTABLES" in m for m in messages) == 1
    )
    assert any("rows are indexed so far" in message for message in messages)
    caplog.clear()
    table.search("a OR b")
    assert not caplog.records


def test_a_companion_table_is_refused() -> None:
    with pytest.raises(ProtocolError, match="companion table of IndexTables for Scala"):
        it.open(ORIGINAL / "companion")
