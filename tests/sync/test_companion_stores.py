"""Companion indexes in object stores, with credentials of their own for the source."""

from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import indextables
from indextables.errors import StoreError
from indextables.options import Options
from indextables.store import open_store
from tests.servers.fixtures import StoreUrl


def upload(folder: Path, url: str, options: dict[str, Any]) -> None:
    store = open_store(url, Options.parse(options))
    for path in folder.rglob("*"):
        if path.is_file():
            store.upload(str(path.relative_to(folder)), path)


@pytest.mark.server
def test_source_and_index_lie_in_an_object_store(make_store_url: StoreUrl, tmp_path: Path) -> None:
    (source, options), (index, _) = make_store_url("s3"), make_store_url("s3")
    path = tmp_path / "t"
    rows = pa.table({"id": range(40), "message": [f"disk {number % 4}" for number in range(40)]})
    deltalake.write_deltalake(path, rows)
    upload(path, source, options)
    modes = {"message": "text"}
    indextables.companion(source, at=index, modes=modes, options=options)
    table = indextables.open(index, options=options)
    assert sorted(table.scan(["id"], "message INDEXQUERY '3'").column(0).to_pylist()) == list(range(3, 40, 4))
    deltalake.DeltaTable(path).delete("id < 20")
    upload(path, source, options)
    latest = indextables.open(index, options={**options, "companion.freshness": "latest"})
    assert latest.count("message INDEXQUERY '3'") == 5
    indextables.companion(source, at=index, options=options)
    assert indextables.open(index, options=options).scan().num_rows == 20

    # The index on the local disk, and the source with options of its own.
    own = {f"companion.parquet.{key}": value for key, value in options.items()}
    indextables.companion(source, at=tmp_path / "index", modes=modes, options=own)
    assert indextables.open(tmp_path / "index", options=own).scan(where="id = 25").num_rows == 1
    # An index in an object store does not lead to files of the local disk.
    with pytest.raises(StoreError, match="cannot refer to local files"):
        indextables.companion(path, at=f"{index}/other", options=options)
