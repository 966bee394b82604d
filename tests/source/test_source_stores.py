"""Sources on object stores, with credentials of their own."""

import pickle
import random
from pathlib import Path
from typing import Any

import deltalake
import pytest

from indextables.errors import MissingExtraError, SourceError, SourceNotFoundError, StoreError
from indextables.options import Options
from indextables.source import SourceReader, open_source
from indextables.store import open_store
from tests.servers.fixtures import StoreUrl
from tests.source.test_source_differential import canonical, iceberg_history, read, rows

COLUMNS = {"text": "text", "at": "at", "client": "client", "part": "int"}
KINDS = [pytest.param(kind, marks=pytest.mark.server) for kind in ("s3", "azure")]


def upload(folder: Path, url: str, options: Options) -> None:
    store = open_store(url, options)
    for path in folder.rglob("*"):
        if path.is_file():
            store.upload(str(path.relative_to(folder)), path)


@pytest.mark.parametrize("kind", KINDS)
def test_delta_and_folders_on_object_stores(make_store_url: StoreUrl, tmp_path: Path, kind: Any) -> None:
    url, given = make_store_url(kind)
    options = Options.parse(given)
    draw = random.Random(3)
    path = str(tmp_path / "t")
    for _ in range(2):
        deltalake.write_deltalake(path, rows(draw, COLUMNS, 40), mode="append", partition_by=["part"])
    deltalake.DeltaTable(path).create_checkpoint()
    deltalake.DeltaTable(path).delete("id < 5")
    upload(tmp_path / "t", url, options)
    for version in (0, 1, 2, None):
        local = read(open_source("delta", path, version=version))
        assert canonical(read(open_source("delta", url, options, version=version))) == canonical(local)
    folder = open_source("parquet", url, options)
    assert "part" in folder.partition_columns
    assert canonical(read(folder)) == canonical(read(open_source("parquet", path)))


@pytest.mark.server
def test_iceberg_on_an_object_store_under_another_prefix(make_store_url: StoreUrl, tmp_path: Path) -> None:
    url, given = make_store_url("s3")
    options = Options.parse(given)
    table = iceberg_history(tmp_path, 1)
    upload(tmp_path / "w", url, options)
    recorded = f"file://{tmp_path}/w"
    metadata = url + table.metadata_location.removeprefix(recorded)
    snapshot = open_source("iceberg", metadata, options, relocate={recorded: url})
    assert canonical(read(snapshot)) == canonical(table.scan().to_arrow())
    with pytest.raises(SourceError, match="lies in another store; allow that location"):
        open_source("iceberg", metadata, options)
    with pytest.raises(SourceNotFoundError, match="belongs to a catalog, which has the path"):
        open_source("iceberg", metadata.rpartition("/metadata/")[0], options)


@pytest.mark.server
def test_wrong_credentials_are_refused_and_secrets_do_not_travel(
    make_store_url: StoreUrl, tmp_path: Path
) -> None:
    url, given = make_store_url("seaweed")
    path = tmp_path / "t"
    deltalake.write_deltalake(str(path), rows(random.Random(1), COLUMNS, 5))
    upload(path, url, Options.parse(given))
    snapshot = open_source("delta", url, Options.parse(given))
    assert read(snapshot).num_rows == 5
    secret = (
        given["spark.indextables.aws.secretKey"]
        if "spark.indextables.aws.secretKey" in given
        else given["aws.secretKey"]
    )
    assert secret.encode() not in pickle.dumps(snapshot)
    wrong = {key: "wrong" if key.endswith("secretKey") else value for key, value in given.items()}
    with pytest.raises(StoreError):
        open_source("delta", url, Options.parse(wrong))


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def absent(name: Any) -> None:
        raise ModuleNotFoundError("No module named 'pyiceberg'", name="pyiceberg")

    monkeypatch.setattr("indextables.source.reader.importlib.import_module", absent)
    with pytest.raises(MissingExtraError, match=r"pip install 'indextables\[iceberg\]'"):
        open_source("iceberg", str(tmp_path))


def test_a_reader_is_shared_by_the_files_of_a_snapshot(tmp_path: Path) -> None:
    deltalake.write_deltalake(str(tmp_path), rows(random.Random(1), COLUMNS, 30), partition_by=["part"])
    snapshot = open_source("delta", str(tmp_path))
    reader = SourceReader(snapshot)
    assert len(snapshot.files) > 1
    assert all(reader.open(file) is reader.open(file) for file in snapshot.files)
