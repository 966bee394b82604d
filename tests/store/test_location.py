"""URLs: every spelling of a place, and what is no place."""

import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indextables.errors import StoreError
from indextables.options import Options
from indextables.store import location, open_store
from indextables.store.location import locate
from indextables.store.remote import cut_ranges, merge_ranges


@pytest.mark.parametrize(
    ("given_url", "normal"),
    [
        ("s3://b/t", "s3://b/t"),
        ("s3a://b/t/", "s3://b/t"),
        ("s3n://b", "s3://b"),
        ("S3://b/T%20x/é y", "s3://b/T%20x/é y"),
        ("gs://b/t", "gs://b/t"),
        ("gcs://b/t", "gs://b/t"),
        ("az://c/t", "az://c/t"),
        ("abfs://c/t", "abfss://c/t"),
        ("abfss://c@a.dfs.core.windows.net/t", "abfss://c@a.dfs.core.windows.net/t"),
        ("wasb://c@a.blob.core.windows.net/t", "abfss://c@a.dfs.core.windows.net/t"),
        ("wasbs://c@A.blob.core.chinacloudapi.cn", "abfss://c@a.dfs.core.chinacloudapi.cn"),
        ("memory://m/t", "memory://m/t"),
        ("file:///tmp/x/", "file:///tmp/x"),
        ("file:/tmp/x", "file:///tmp/x"),
        ("file://localhost/tmp/x", "file:///tmp/x"),
        ("/tmp//x/../y%20 z", "file:///tmp/y%20 z"),
        (Path("/tmp/p"), "file:///tmp/p"),
        ("relative/x", f"file://{Path.cwd()}/relative/x"),
        ("a:b", f"file://{Path.cwd()}/a:b"),
    ],
)
def test_every_spelling_has_one_normal_form_that_reads_back(given_url: Any, normal: str) -> None:
    assert locate(given_url).url == normal
    assert locate(normal).url == normal
    assert locate(locate(given_url).url) == locate(normal)


@pytest.mark.parametrize(
    "url",
    ["", "viewfs://h/x", "http://h/x", "dbfs:/x", "s3://", "s3:///x", "s3:/b/x", "s3://b//x", "s3://b/../x", "file://host/x", "s3://b b/x",
     "abfss://c@account/x", "az://c@a@b.c.d/x", "abfss://c@evil.example#.core.windows.net/x", "abfss://c@1#.core.windows.net/x"],
)  # fmt: skip
def test_what_is_no_place_is_refused(url: str) -> None:
    with pytest.raises(StoreError):
        locate(url)


@pytest.mark.parametrize(
    "url",
    ["s3n://KEY:SECRET@bucket/x", "hdfs://KEY:SECRET@h/x", "wasbs://c:SECRET@a.b.c/x", "gs://u:SECRET@b/x"],
)
def test_credentials_in_a_url_are_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(StoreError) as caught:
        locate(url)
    assert "SECRET" not in str(caught.value)


def test_the_working_directory_is_taken_when_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    here = locate("x")
    monkeypatch.chdir(os.sep)
    assert here.url == f"file://{tmp_path}/x"


ranges = st.lists(
    st.tuples(st.integers(0, 5_000_000), st.integers(1, 2_000_000)).map(lambda p: (p[0], p[0] + p[1])),
    min_size=1,
)


@given(ranges)
def test_merged_ranges_cover_all_and_lie_apart(wanted: Any) -> None:
    whole = merge_ranges(wanted)
    assert all(any(first <= start and end <= last for first, last in whole) for start, end in wanted)
    gap = 64 << 10 if len(whole) <= 16 else 1 << 20
    assert all(after[0] - before[1] > gap for before, after in pairwise(whole))


@given(
    st.lists(st.tuples(st.integers(0, 80), st.integers(1, 60)).map(lambda p: (p[0], p[0] + p[1])), min_size=1)
)
def test_what_is_cut_out_is_what_was_asked_for_as_far_as_the_object_goes(wanted: Any) -> None:
    data = bytes(range(100))
    whole = merge_ranges(wanted)
    parts = [memoryview(data[start:end]) for start, end in whole]
    assert cut_ranges(wanted, whole, parts) == [data[start:end] for start, end in wanted]


# --- paths of Databricks ---------------------------------------------------------------------------


@pytest.fixture
def mounts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Folders in place of Databricks' mounts; they do not exist yet."""
    monkeypatch.setattr(location, "DBFS", str(tmp_path / "dbfs"))
    monkeypatch.setattr(location, "VOLUMES", str(tmp_path / "Volumes"))
    return tmp_path


def test_paths_of_databricks_lead_to_its_mounts(mounts: Path) -> None:
    volumes = f"{mounts}/Volumes"
    (mounts / "dbfs").mkdir()
    (mounts / "Volumes").mkdir()
    assert locate("dbfs:/tables/t").url == f"file://{mounts}/dbfs/tables/t"
    assert locate("dbfs:///tables/t").url == f"file://{mounts}/dbfs/tables/t"
    assert locate(f"dbfs:{volumes}/main/logs/v/t").url == f"file://{volumes}/main/logs/v/t"
    assert locate(f"{volumes}/main/logs/v/t").url == f"file://{volumes}/main/logs/v/t"
    store = open_store(f"dbfs:{volumes}/main/logs/v/t")
    assert store.create("x", b"1")
    assert (mounts / "Volumes/main/logs/v/t/x").read_bytes() == b"1"


def test_paths_of_databricks_are_refused_elsewhere(mounts: Path) -> None:
    for path in ("dbfs:/tables/t", f"dbfs:{mounts}/Volumes/a/b/c", f"{mounts}/Volumes/a/b/c"):
        with pytest.raises(StoreError, match=r"is not mounted here; use the URL of the cloud store"):
            open_store(path)
    assert not (mounts / "Volumes").exists()
    with pytest.raises(StoreError, match="write dbfs:/path"):
        locate("dbfs://host/tables/t")


def test_the_default_file_system_of_databricks(mounts: Path) -> None:
    (mounts / "dbfs").mkdir()
    options = Options.parse({"fs.defaultFS": "dbfs:///"})
    assert open_store("/tables/t", options).url == f"file://{mounts}/dbfs/tables/t"
