"""Tables with every form of the log that was ever written are read as they were, and can be written to."""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indextables
from indextables.data_files import open_log
from indextables.log.format.actions import COMPANION_SPLITS
from indextables.log.snapshot import Snapshot
from indextables.read import table_context
from indextables.store import open_store
from indextables.table import Table
from tests.golden.write_tables import (
    BATCHES,
    CONDITIONS,
    FORMS,
    HERE,
    ROWS,
    SCHEMA,
    SKIPPED_UNTIL,
    STREAM,
    expected,
)

EXPECTED = json.loads((HERE / "expected.json").read_text("utf-8"))
LAST = len(BATCHES)


# A companion index has no rows of its own.
@pytest.fixture(params=[form for form in FORMS if form != "companion"])
def form(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A copy of a golden table: reading must not change the committed one, and writing may."""
    shutil.copytree(HERE / request.param, tmp_path / request.param)
    return request.param


@pytest.fixture
def path(form: Any, tmp_path: Path) -> str:
    return str(tmp_path / form)


@pytest.fixture
def options(tmp_path: Path) -> dict[Any, Any]:
    return {"cache.disk.path": str(tmp_path / "cache")}


def rows_of(table: Table) -> list[Any]:
    return sorted(table.scan().to_pylist(), key=lambda row: row["id"])


def test_there_is_a_golden_table_of_every_form() -> None:
    assert sorted(found.name for found in HERE.iterdir() if found.is_dir()) == sorted(FORMS)
    assert expected() == EXPECTED


def test_the_newest_version_is_found_with_all_rows(path: str, options: dict[Any, Any]) -> None:
    table = indextables.open(path, options=options)
    assert table.version == LAST
    assert table.schema.names == SCHEMA.names
    assert [table.schema.field(field.name).type for field in SCHEMA] == [field.type for field in SCHEMA]
    assert table.files().num_rows == len(BATCHES)
    assert rows_of(table) == ROWS


@pytest.mark.parametrize("version", range(1, LAST + 1))
def test_every_version_gives_the_answers_it_gave(path: str, options: dict[Any, Any], version: int) -> None:
    table = indextables.open(path, version=version, options=options)
    answers = EXPECTED[str(version)]
    assert [row["id"] for row in rows_of(table)] == answers["ids"]
    assert {text: table.count(where=text) for text in CONDITIONS} == answers["counts"]


def test_a_golden_table_takes_more_rows(path: str, options: dict[Any, Any]) -> None:
    more = [{"id": 7, "level": "warn", "message": "a late timeout", "cost": 1.0}]
    indextables.write(path, pa.Table.from_pylist(more, SCHEMA))
    table = indextables.open(path, options=options)
    assert table.version == LAST + 1
    assert rows_of(table) == ROWS + more
    assert table.count(where="id >= 3") == EXPECTED[str(LAST)]["counts"]["id >= 3"] + 1
    older = indextables.open(path, version=LAST, options=options)
    assert rows_of(older) == ROWS


def snapshot_of(path: Path) -> Snapshot:
    return open_log(open_store(str(path)), engine="test").snapshot()


def test_a_golden_state_names_filter_bundles_that_are_used(
    tmp_path: Path, options: dict[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_context, "_FEW_SPLITS", 1)
    shutil.copytree(HERE / "filter-bundles", tmp_path / "t")
    snapshot = snapshot_of(tmp_path / "t")
    (bundle,) = snapshot.header.filters
    assert (snapshot.base.version, bundle.splits) == (2, 2)
    table = indextables.open(tmp_path / "t", version=2, options=options)
    for split in (tmp_path / "t").glob("*.split"):
        split.unlink()
    # The bundle shows that no split has the word, so none is opened.
    assert table.count("message INDEXQUERY 'absent'") == 0
    assert table.scan(where="level = 'absent'").num_rows == 0
    with pytest.raises(indextables.IndexTablesError):
        table.count("message INDEXQUERY 'timeout AND 443'")


def test_a_golden_stream_continues_after_its_last_batch(tmp_path: Path) -> None:
    path = tmp_path / "streamed"
    shutil.copytree(HERE / "streamed", path)
    snapshot = snapshot_of(path)
    assert [txn.version for txn in snapshot.header.txns] == [1]
    assert snapshot.txns[STREAM].version == 2
    more = pa.Table.from_pylist([{"id": 7, "level": "warn", "message": "late", "cost": 1.0}], SCHEMA)
    for number, version in ((2, LAST), (3, LAST + 1), (3, LAST + 1)):
        indextables.write(path, more, options={"txn.appId": STREAM, "txn.version": str(number)})
        assert indextables.open(path).version == version


def test_a_merge_leaves_out_the_split_that_a_golden_table_says(tmp_path: Path) -> None:
    path = tmp_path / "streamed"
    shutil.copytree(HERE / "streamed", path)
    (skip,) = snapshot_of(path).header.mergeskips
    assert (skip.operation, skip.retry_after) == ("merge", SKIPPED_UNTIL)
    table = indextables.open(path)
    assert table.merge().merged_splits == LAST - 1
    table = table.refresh()
    assert skip.path in table.files()["path"].to_pylist()
    assert rows_of(table) == ROWS


@pytest.mark.parametrize("version", range(1, LAST + 1))
def test_a_golden_companion_index_answers_without_its_source(
    tmp_path: Path, options: dict[Any, Any], version: int
) -> None:
    shutil.copytree(HERE / "companion" / "index", tmp_path / "index")
    snapshot = snapshot_of(tmp_path / "index")
    assert COMPANION_SPLITS in snapshot.protocol.reader_features
    table = indextables.open(tmp_path / "index", version=version, options=options)
    assert table.files().num_rows == version
    assert table.files()["companionDeltaVersion"].to_pylist() == list(range(version))
    # The index has no values of `cost`.
    answers = {text: n for text, n in EXPECTED[str(version)]["counts"].items() if "cost" not in text}
    assert {text: table.count(where=text) for text in answers} == answers


def test_the_rows_of_a_golden_companion_index_are_those_of_its_source(
    tmp_path: Path, options: dict[Any, Any]
) -> None:
    shutil.copytree(HERE / "companion", tmp_path / "t")
    indextables.open(tmp_path / "t" / "index").set_root("copy", str(tmp_path / "t" / "source"))
    own = {**options, "companion.tableRootDesignator": "copy"}
    table = indextables.open(tmp_path / "t" / "index", options=own)
    assert rows_of(table) == ROWS
    assert {text: table.count(where=text) for text in CONDITIONS} == EXPECTED[str(LAST)]["counts"]
