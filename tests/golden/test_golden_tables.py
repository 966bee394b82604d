"""Tables with every form of the log that was ever written are read as they were, and can be written to."""

import json
import shutil

import pyarrow as pa
import pytest

import indextables
from tests.golden.write_tables import BATCHES, CONDITIONS, FORMS, HERE, ROWS, SCHEMA, expected

EXPECTED = json.loads((HERE / "expected.json").read_text("utf-8"))
LAST = len(BATCHES)


@pytest.fixture(params=FORMS)
def form(request, tmp_path):
    """A copy of a golden table: reading must not change the committed one, and writing may."""
    shutil.copytree(HERE / request.param, tmp_path / request.param)
    return request.param


@pytest.fixture
def path(form, tmp_path):
    return str(tmp_path / form)


@pytest.fixture
def options(tmp_path):
    return {"cache.disk.path": str(tmp_path / "cache")}


def rows_of(table):
    return sorted(table.scan().to_pylist(), key=lambda row: row["id"])


def test_there_is_a_golden_table_of_every_form():
    assert sorted(found.name for found in HERE.iterdir() if found.is_dir()) == sorted(FORMS)
    assert expected() == EXPECTED


def test_the_newest_version_is_found_with_all_rows(path, options):
    table = indextables.open(path, options=options)
    assert table.version == LAST
    assert table.schema.names == SCHEMA.names
    assert [table.schema.field(field.name).type for field in SCHEMA] == [field.type for field in SCHEMA]
    assert table.files().num_rows == len(BATCHES)
    assert rows_of(table) == ROWS


@pytest.mark.parametrize("version", range(1, LAST + 1))
def test_every_version_gives_the_answers_it_gave(path, options, version):
    table = indextables.open(path, version=version, options=options)
    answers = EXPECTED[str(version)]
    assert [row["id"] for row in rows_of(table)] == answers["ids"]
    assert {text: table.count(where=text) for text in CONDITIONS} == answers["counts"]


def test_a_golden_table_takes_more_rows(path, options):
    more = [{"id": 7, "level": "warn", "message": "a late timeout", "cost": 1.0}]
    indextables.write(path, pa.Table.from_pylist(more, SCHEMA))
    table = indextables.open(path, options=options)
    assert table.version == LAST + 1
    assert rows_of(table) == ROWS + more
    assert table.count(where="id >= 3") == EXPECTED[str(LAST)]["counts"]["id >= 3"] + 1
    older = indextables.open(path, version=LAST, options=options)
    assert rows_of(older) == ROWS
