"""What goes wrong while a split is read is an error of ours that names the file, and the column if it is one."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indextables as it
from indextables.errors import SplitError
from indextables.log.snapshot_cache import invalidate
from indextables.read import split_reader
from indextables.split.query import filter_pushdown


@pytest.fixture
def table(tmp_path: Path) -> Path:
    it.write(tmp_path / "t", [{"id": 1, "word": "no number"}, {"id": 2, "word": "2"}])
    return tmp_path / "t"


def split_of(table: Path) -> str:
    (path,) = it.open(table).files()["path"].to_pylist()
    result: str = re.escape(path)
    return result


def test_rows_that_do_not_fit_the_schema_name_file_and_column(table: Path) -> None:
    path = table / "_transaction_log/00000000000000000000.json"
    text = gzip.decompress(path.read_bytes()).decode()
    said = [json.loads(line) for line in text.splitlines()]
    schema = {}
    for line in said:
        if "metaData" in line:
            schema = json.loads(line["metaData"]["schemaString"])
            schema["fields"][1]["type"] = "integer"
            line["metaData"]["schemaString"] = json.dumps(schema)
    name = split_of(table)
    for version in sorted((table / "_transaction_log").glob("*.json")):
        lines = (
            said
            if version == path
            else [json.loads(x) for x in gzip.decompress(version.read_bytes()).splitlines()]
        )
        for line in lines:
            if "metaData" in line:
                line["metaData"]["schemaString"] = json.dumps(schema)
        version.write_text("".join(json.dumps(line) + "\n" for line in lines))
    invalidate()
    with pytest.raises(SplitError, match=rf"{name}: the column word has the type string, .*int32"):
        it.open(table).scan()


@pytest.mark.parametrize(
    "error", [pa.ArrowNotImplementedError("no kernel"), pa.ArrowInvalid("bad"), ValueError("tantivy says no")]
)
@pytest.mark.parametrize(
    "read", [lambda t: t.scan(where="id = 2"), lambda t: t.count("id = 2 OR word = 'x'")]
)
def test_no_error_of_another_library_reaches_the_caller(
    table: Path, monkeypatch: pytest.MonkeyPatch, error: Any, read: Any
) -> None:
    def broken(*args: object, **kwargs: object) -> object:
        raise error

    monkeypatch.setattr(split_reader, "evaluate", broken)
    monkeypatch.setattr(filter_pushdown, "plan_filter", broken)
    with pytest.raises(SplitError, match=split_of(table)) as caught:
        read(it.open(table))
    assert caught.value.__cause__ is error
