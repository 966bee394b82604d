"""Without room for an index on the local disk, rows answer what they can."""

import errno
import logging
from pathlib import Path
from typing import Any

import pytest

import indextables
from indextables.errors import IndexCacheError
from indextables.read import split_reader as reader_module
from indextables.table import Table

ROWS = [{"id": i, "w": f"w{i % 7}", "t": f"some words {i}"} for i in range(200)]
CONDITIONS = {
    "w = 'w3'": [i for i in range(200) if i % 7 == 3],
    "id = 5": [5],
    "w LIKE 'w6%'": [i for i in range(200) if i % 7 == 6],
    "id IN (3, 4) OR NOT w <> 'w1'": [i for i in range(200) if i in {3, 4} or i % 7 == 1],
}


@pytest.fixture(params=["a folder that cannot be made", "a full disk"])
def table(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    reader_module._warn_of_cache.cache_clear()
    indextables.write(tmp_path / "t", ROWS, options={"indexing.typemap.t": "text"})
    if request.param == "a full disk":

        def full(*_: Any) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        for module in ("index.loader", "query.searcher"):
            monkeypatch.setattr(f"indextables.split.{module}.copy_pieces", full)
        return indextables.open(tmp_path / "t", options={"cache.disk.path": str(tmp_path / "cache")})
    (tmp_path / "file").write_text("not a folder")
    return indextables.open(tmp_path / "t", options={"cache.disk.path": str(tmp_path / "file" / "cache")})


def test_plain_conditions_are_answered_from_rows_with_one_warning(
    table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for condition, ids in CONDITIONS.items():
            assert table.scan(columns=["id"], where=condition)["id"].to_pylist() == ids
            assert table.scan(columns=["id"], where=condition, limit=1)["id"].to_pylist() == ids[:1]
            assert table.count(condition) == len(ids)
            total = table.aggregate({"total": "sum(id)"}, where=condition)
            assert total.column(0).to_pylist() == [sum(ids)]
    warnings = [record for record in caplog.records if "evaluated on rows" in record.message]
    assert len(warnings) == 1
    assert "cache.disk.path" in warnings[0].message


def test_a_search_says_what_it_lacks(table: Table) -> None:
    for act in (lambda: table.search("words", field="t"), lambda: table.count("t INDEXQUERY 'words'")):
        with pytest.raises(IndexCacheError, match=r"cache.*cache\.disk\.path"):
            act()
