"""Companion indexes of tables that an Iceberg catalog knows, found by their names in it."""

import json
import traceback
from contextlib import nullcontext
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import indextables
from indextables.cli.main import main
from indextables.commands import companion
from indextables.data_files import open_log
from indextables.errors import CommandError, OptionError, SourceError, SourceNotFoundError
from indextables.log.format.actions import Add
from indextables.options import Options
from indextables.store import open_store
from indextables.sync import run
from indextables.sync.build import build_split
from indextables.version import ENGINE

LATEST = {"companion.freshness": "latest"}
SCHEMA = pa.schema({"id": pa.int64(), "message": pa.string()})


def rows(*numbers: int) -> pa.Table:
    return pa.table({"id": numbers, "message": [f"disk {number}" for number in numbers]}, schema=SCHEMA)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/catalog.db"


@pytest.fixture
def table(tmp_path: Path, uri: str) -> Table:
    """A table of a catalog in SQLite, with two rows."""
    catalog = SqlCatalog("prod", uri=uri, warehouse=f"file://{tmp_path}/warehouse")
    catalog.create_namespace("db")
    created = catalog.create_table("db.events", SCHEMA)
    created.append(rows(1, 2))
    return created


def matching_ids(index: Path, **options: str) -> list[int]:
    opened = indextables.open(index, options=options)
    return sorted(opened.scan(["id"], where="message INDEXQUERY 'disk'").column(0).to_pylist())


def test_a_column_that_gets_its_former_name_again_keeps_its_values(table: Table, tmp_path: Path) -> None:
    index = tmp_path / "index"
    for old, new in ((None, "message"), ("message", "text"), ("text", "message")):
        if old is not None:
            with table.update_schema() as schema:
                schema.rename_column(old, new)
        indextables.companion(table.metadata_location, at=index)
        opened = indextables.open(index)
        assert opened.scan().sort_by("id").to_pylist() == [{"id": i, new: f"disk {i}"} for i in (1, 2)]
        assert opened.count(f"{new} = 'disk 2'") == 1


def test_an_index_of_a_table_of_a_catalog_follows_its_name(table: Table, uri: str, tmp_path: Path) -> None:
    index = tmp_path / "index"
    place = {"iceberg.uri": uri, "iceberg.token": "never recorded"}
    catalog: dict[str, Any] = {"catalog": "prod", "catalog_type": "sql", "options": place}
    result = indextables.companion("db.events", at=index, **catalog, modes={"message": "text"})
    assert (result.status, result.files_indexed) == ("success", 1)
    assert result.source_path == table.location()
    configuration = open_log(open_store(index), Options(), engine=ENGINE).snapshot().metadata.configuration
    assert json.loads(configuration["companion.catalog"]) == {"name": "prod", "type": "sql"}
    assert not any("never recorded" in text or uri in text for text in configuration.values())
    table.append(rows(3))
    assert matching_ids(index) == [1, 2]
    assert matching_ids(index, **LATEST, **place) == [1, 2, 3]
    # The name of the catalog is as in the last sync.
    again = indextables.companion("db.events", at=index, options=place)
    assert (again.status, again.files_indexed) == ("success", 1)
    table.delete("id = 1")
    assert matching_ids(index, **LATEST, **place) == [2, 3]
    assert indextables.companion("db.events", at=index, options=place).status == "success"
    assert matching_ids(index) == [2, 3]
    with pytest.raises(SourceNotFoundError, match=r"the Iceberg catalog 'prod' has no table 'db\.nothing'"):
        indextables.companion("db.nothing", at=tmp_path / "other", **catalog)
    with pytest.raises(SourceError, match=r"did not return the table 'db\.events'.*iceberg\.uri"):
        indextables.companion("db.events", at=index)
    with pytest.raises(OptionError, match="a type and a warehouse describe a catalog"):
        indextables.companion("db.events", at=index, warehouse="w")
    with pytest.raises(OptionError, match="a catalog is for sources of the format iceberg only"):
        indextables.companion(tmp_path, at=tmp_path / "other", format="delta", **catalog)


@pytest.mark.parametrize(
    "where", ["mysql://reader:open-sesame@127.0.0.1/db", "sqlite:///reader:open-sesame@/db"]
)
def test_an_error_of_a_catalog_does_not_show_the_password_of_its_address(tmp_path: Path, where: str) -> None:
    options = {"iceberg.uri": where}
    with pytest.raises(SourceError, match="the Iceberg catalog 'prod' did not return the table") as caught:
        indextables.companion("db.events", at=tmp_path / "index", catalog="prod", options=options)
    shown = "".join(traceback.format_exception(caught.value))
    assert "open-sesame" not in shown


def test_the_clauses_of_a_catalog_are_those_of_the_statement(
    table: Table, uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index, options = tmp_path / "index", {"iceberg.uri": uri}
    build = f"FOR ICEBERG 'db.events' CATALOG 'prod' TYPE 'sql' AT LOCATION '{index}'"
    (result,) = indextables.sql(f"BUILD INDEXTABLES COMPANION {build}", options=options).to_pylist()
    assert (result["status"], result["source_path"]) == ("success", table.location())
    table.append(rows(3))
    program = ["companion", "db.events", "--at", str(index), "-o", f"iceberg.uri={uri}", "--json"]
    assert main(program) == 0
    assert json.loads(capsys.readouterr().out)["parquet_files_indexed"] == 1
    for text, says in (
        (f"FOR DELTA '{tmp_path}' CATALOG 'prod'", "CATALOG is for sources of the format iceberg only"),
        (f"FOR PARQUET '{tmp_path}' WAREHOUSE 'w'", "WAREHOUSE is for sources of the format iceberg only"),
        (
            f"FOR DELTA '{tmp_path}' FROM SNAPSHOT 1",
            "FROM SNAPSHOT is for sources of the format iceberg only",
        ),
        ("FOR ICEBERG 'db.events' TYPE 'sql'", "a type and a warehouse describe a catalog"),
        ("FOR ICEBERG 'db.events' FROM VERSION 1 FROM SNAPSHOT 2", "exclude each other"),
    ):
        with pytest.raises((CommandError, OptionError), match=says):
            indextables.sql(f"BUILD INDEXTABLES COMPANION {text} AT LOCATION '{index}x'")


def test_a_fixed_metadata_file_is_not_followed_and_read_as_it_is_named(table: Table, tmp_path: Path) -> None:
    index = tmp_path / "index"
    first = table.metadata_location
    indextables.companion(first, at=index, modes={"message": "text"})
    with pytest.raises(OptionError, match="the metadata file of one version of an Iceberg table"):
        indextables.companion(first, at=index, every=1, stop=Event())
    table.append(rows(3))
    with pytest.raises(SourceError, match=r"set companion\.sourceMetadataFile"):
        matching_ids(index, **LATEST)
    newest = {"companion.sourceMetadataFile": table.metadata_location}
    assert matching_ids(index, **LATEST, **newest) == [1, 2, 3]
    assert matching_ids(index, **newest) == [1, 2]


def test_a_follower_sets_roots_and_reports_what_changed(
    table: Table, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, stop, steps, roots = tmp_path / "index", Event(), [], []
    catalog: dict[str, Any] = {"catalog": "prod", "catalog_type": "sql", "options": {"iceberg.uri": uri}}

    def wait(_seconds: float) -> None:
        roots.append(sorted(indextables.open(index).roots()))
        if len(roots) == 1:
            table.append(rows(3))
        elif len(roots) == 3:
            stop.set()

    monkeypatch.setattr(stop, "wait", wait)
    last = indextables.companion(
        "db.events",
        at=index,
        **catalog,
        every=30,
        stop=stop,
        roots={"copy": str(tmp_path)},
        progress=lambda done, total: steps.append((done, total)),
    )
    assert last.status == "no_action"
    assert roots == [["copy"]] * 3
    assert steps == [(1, 1), (1, 1)]


def test_the_program_writes_a_line_for_each_sync_that_changed_something(
    table: Table,
    uri: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stop, waits = Event(), []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            table.append(rows(3))
        if len(waits) == 3:
            stop.set()

    monkeypatch.setattr(stop, "wait", wait)
    monkeypatch.setattr(companion, "_stop_on_signals", lambda: nullcontext(stop))
    program = ["companion", "db.events", "--at", str(tmp_path / "index"), "--every", "30s"]
    place = ["--catalog", "prod", "--catalog-type", "sql", "-o", f"iceberg.uri={uri}"]
    assert main([*program, *place, "--json"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(";")[0] for line in lines] == [
        "version 1: 1 files indexed, 1 splits created, 0 splits left the index",
        "version 2: 1 files indexed, 1 splits created, 0 splits left the index",
    ]
    assert waits == [30, 30, 30]


def test_a_follower_survives_what_a_library_raises(
    table: Table, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, stop = build_split, Event()
    calls: list[Any] = []

    def build(*arguments: Any) -> Add:
        calls.append(None)
        if len(calls) == 1:
            raise ZeroDivisionError("a defect of a library")
        stop.set()
        return real(*arguments)

    monkeypatch.setattr(run, "build_split", build)
    monkeypatch.setattr(stop, "wait", lambda seconds: None)
    catalog: dict[str, Any] = {"catalog": "prod", "catalog_type": "sql", "options": {"iceberg.uri": uri}}
    last = indextables.companion("db.events", at=tmp_path / "index", **catalog, every=1, stop=stop)
    assert (last.status, len(calls)) == ("success", 2)
