"""Rows on their way into partitions, when the disk is full."""

import resource
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import indextables
from indextables.errors import StoreError
from indextables.ingest.splits import Spool


@pytest.fixture
def small_files() -> Iterator[None]:
    """No file of this process may grow beyond 300 kB, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def rows(count: int) -> pa.Table:
    values = np.random.default_rng(1).random(count)
    return pa.table({"k": ["a"] * count, "x": values})


def test_a_full_disk_is_named_and_leaves_no_spool_behind(tmp_path: Path, small_files: None) -> None:
    spool = tmp_path / "spool"
    spool.mkdir()
    options = {"indexWriter.tempDirectoryPath": str(spool)}
    with pytest.raises(StoreError, match=r"temporary folder .*spool.*File too large.*tempDirectoryPath"):
        indextables.write(tmp_path / "t", rows(100_000), partition_by=["k"], options=options)
    assert list(spool.iterdir()) == []
    with pytest.raises(indextables.IndexTablesError):
        indextables.open(tmp_path / "t").scan()


def test_a_disk_that_fills_up_while_files_are_closed_leaves_no_spool_behind(
    tmp_path: Path, small_files: None
) -> None:
    batch = rows(40_000).to_batches()[0]

    def write() -> None:
        with Spool(["k"], str(tmp_path)) as spool:
            for _ in range(2):
                spool.put(batch)
            list(spool.partitions())

    with pytest.raises(StoreError, match="make room there"):
        write()
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_the_caller_is_not_hidden_by_a_full_disk(tmp_path: Path, small_files: None) -> None:
    batch = rows(100_000).to_batches()[0]

    def write() -> None:
        with Spool(["k"], str(tmp_path)) as spool:
            with pytest.raises(StoreError):
                spool.put(batch)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write()
    assert list(tmp_path.iterdir()) == []


def test_a_temporary_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"none.*No such file"):
        Spool(["k"], str(tmp_path / "none"))
