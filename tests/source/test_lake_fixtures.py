"""Every fixture table, at every version, is read as Spark reads it, or refused with the feature named."""

from typing import Any

import pytest

from indextables.errors import SourceNotFoundError, UnsupportedSourceError
from indextables.source import open_source
from indextables.source.snapshot import SourceSnapshot
from tests.source.lake import LAKE, check_answer, expected, tables

# Fixture tables that are refused, and what their error has to name.
REFUSED = {"orc_files": "a data file in ORC", "avro_files": "a data file in AVRO"}


def test_fixture_tables_have_not_become_fewer() -> None:
    if LAKE is None:
        pytest.skip("the fixtures of lake tables are absent")
    assert [len(expected(kind)["tables"]) for kind in ("delta", "iceberg", "parquet")] == [21, 19, 5]


@pytest.mark.parametrize("table", tables("delta"))
def test_delta_versions_are_read_as_spark_reads_them(table: Any) -> None:
    for version in table["versions"]:
        label = f"version {version['version']}"

        def opened(number: Any = version["version"]) -> SourceSnapshot:
            # Files of the shallow clone's source are recorded at the place where it was made.
            recorded = {"file:/tmp/delta-fixtures": str(LAKE / "delta")}
            return open_source(
                "delta", str(LAKE / "delta" / table["path"]), version=number, relocate=recorded
            )

        if not version["readable"]:
            with pytest.raises(SourceNotFoundError, match="were cleaned up"):
                opened()
            continue
        snapshot = opened()
        assert snapshot.version == version["version"], label
        assert list(snapshot.partition_columns) == table["partition_columns"], label
        check_answer(snapshot, version, label)
    newest = open_source(
        "delta",
        str(LAKE / "delta" / table["path"]),
        relocate={"file:/tmp/delta-fixtures": str(LAKE / "delta")},
    )
    assert newest.version == table["latest_version"]


@pytest.mark.parametrize("table", tables("iceberg"))
def test_iceberg_snapshots_are_read_as_spark_reads_them(table: Any) -> None:
    folder = LAKE / "iceberg" / table.get("folder", "warehouse") / table["path"]
    prefix = table.get("location_prefix") or expected("iceberg")["location_prefix"]
    recorded = {prefix: str(LAKE / "iceberg" / table.get("folder", "warehouse"))}
    answers = [(None, table["current"])]
    answers += [(snapshot["snapshot_id"], snapshot) for snapshot in table["snapshots"]]
    answers += [(reference["ref"], reference) for reference in table["refs"]]
    for version, answer in answers:
        label = f"version {version}"
        if table["name"] in REFUSED:
            with pytest.raises(UnsupportedSourceError, match=REFUSED[table["name"]]):
                open_source("iceberg", str(folder), version=version, relocate=recorded)
            continue
        if not answer["readable"]:
            with pytest.raises(
                UnsupportedSourceError, match="an equality delete on a column that was dropped"
            ):
                open_source("iceberg", str(folder), version=version, relocate=recorded)
            continue
        snapshot = open_source("iceberg", str(folder), version=version, relocate=recorded)
        assert version is not None or snapshot.version == table["current_snapshot_id"], label
        check_answer(snapshot, answer, label)


@pytest.mark.parametrize("table", tables("iceberg"))
def test_iceberg_metadata_file_is_accepted(table: Any) -> None:
    root = LAKE / "iceberg" / table.get("folder", "warehouse")
    prefix = table.get("location_prefix") or expected("iceberg")["location_prefix"]
    if table["name"] in REFUSED or not table["current"]["readable"]:
        pytest.skip("refused as a whole")
    snapshot = open_source("iceberg", str(root / table["metadata_file"]), relocate={prefix: str(root)})
    assert snapshot.version == table["current_snapshot_id"]


@pytest.mark.parametrize("table", tables("parquet"))
def test_parquet_folders_are_read_as_spark_reads_them(table: Any) -> None:
    merge = table["read_options"].get("mergeSchema") == "true"
    snapshot = open_source("parquet", str(LAKE / "parquet" / table["path"]), merge_schema=merge)
    check_answer(snapshot, table["current"], "current")
