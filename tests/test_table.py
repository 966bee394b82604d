"""Maintenance of a table from plain Python: typed results."""

import re
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

import indextables as it
from indextables import DateHistogram, Histogram
from indextables.errors import IndexTablesError
from tests.maintenance_tables import aged, appended, ids, orphan


def test_a_table_is_kept_in_shape_by_its_methods(tmp_path: Path) -> None:
    table = appended(tmp_path / "t", 12)
    options = {"cache.disk.path": str(tmp_path / "cache"), "state.retention.versions": 0}
    table = it.open(tmp_path / "t", options=options)
    rows = ids(tmp_path / "t")
    assert table.text_columns == ("message",)
    assert table.prewarm(where="day > 9").splits == 2
    assert table.drop_partitions("day > 9").splits == 2
    assert table.restore(version=12).splits_restored == 2
    again = appended(tmp_path / "t", 12)
    steps: list[tuple[int, int]] = []
    merged = again.merge(where="day < 3", progress=lambda *step: steps.append(step))
    assert (merged.merged_splits, merged.new_splits, steps[-1]) == (6, 3, (3, 3))
    assert again.merge(max_new_splits=2, target_size=5 << 20).new_splits == 2
    assert table.checkpoint().num_files == 24 - 6 + 3 - 4 + 2
    state = table.refresh().state()
    assert (state.format, state.num_tombstones, state.needs_compaction) == ("avro-state", 0, False)
    told, done = table.truncate(dry_run=True), table.truncate()
    assert (told.versions, told.states, told.dry_run) == (done.versions, done.states, True)
    orphan(tmp_path / "t")
    aged(tmp_path / "t", 1000)
    purged = table.purge(older_than=timedelta(days=2), log_retention=timedelta(days=2))
    assert purged.orphans_deleted == 1 + 6 + 4
    assert ids(tmp_path / "t") == sorted([*rows, *rows])


def test_a_json_checkpoint_is_described_by_the_process_that_wrote_it(tmp_path: Path) -> None:
    table = it.write(tmp_path, [{"n": 1}], options={"state.format": "json", "checkpoint.interval": "0"})
    assert table.state().format == "none"
    written = table.checkpoint()
    state = table.refresh().state()
    assert (state.format, state.version) == ("json", written.version)
    assert state.created_ms


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda table: table.search(None), "a query is a text"),
        (lambda table: table.search("a", field="m", limit="5"), "limit is '5'"),
        (lambda table: table.search("a", field="m", limit=-1), "limit is -1"),
        (lambda table: table.scan(limit=-1), "limit is -1"),
        (lambda table: table.scan(limit=1.5), "limit is 1.5"),
        (lambda table: table.purge(older_than=7), "timedelta(days=7), not 7"),
        (lambda table: table.purge(log_retention="7d"), "not '7d'"),
        (lambda table: table.merge(target_size="1G"), "1073741824 for 1G, not '1G'"),
        (
            lambda table: table.aggregate({"n": "count(*)"}, group_by=[DateHistogram("at", cast(Any, "1h"))]),
            "an hour), not '1h'",
        ),
        (
            lambda table: table.aggregate({"n": "count(*)"}, group_by=[Histogram("id", cast(Any, "10"))]),
            "numbers, not '10'",
        ),
    ],
)
def test_arguments_of_another_type_are_named_in_an_error(
    tmp_path: Path, call: Callable[[Any], object], message: str
) -> None:
    table = it.write(tmp_path / "t", [{"id": 1, "m": "a b"}], options={"indexing.typemap.m": "text"})
    with pytest.raises(IndexTablesError, match=re.escape(message)):
        call(table)
    assert table.search("a", field="m", limit=0).num_rows == 0
    assert table.scan(limit=1).num_rows == table.search("a", field="m", limit=None).num_rows == 1


def test_a_lost_log_is_repaired(tmp_path: Path) -> None:
    appended(tmp_path, 2)
    shutil.rmtree(tmp_path / "_transaction_log")
    assert it.repair(str(tmp_path)).valid_splits == 2
    assert len(ids(tmp_path)) == 6


def test_sql_runs_without_spark(tmp_path: Path) -> None:
    appended(tmp_path, 2)
    assert it.sql(f"CHECKPOINT INDEXTABLES '{tmp_path}'")["num_files"].to_pylist() == [2]
    with pytest.raises(it.IndexTablesError, match="below the minimum"):
        it.sql(f"PURGE INDEXTABLE '{tmp_path}' OLDER THAN 1 HOURS")
    assert (
        it.sql(
            f"PURGE INDEXTABLE '{tmp_path}' OLDER THAN 1 HOURS",
            options={"purge.retentionCheckEnabled": False},
        ).num_rows
        == 1
    )


UUID = "550e8400-e29b-41d4-a716-446655440000"


@pytest.mark.parametrize(
    "compact",
    [
        "text_uuid_exactonly",
        "text_uuid_strip",
        "text_custom_exactonly:order-[0-9]+",
        "text_custom_strip:order-[0-9]+",
    ],
)
def test_compact_types_of_the_original_find_what_text_finds(tmp_path: Path, compact: str) -> None:
    rows = [
        {"id": 1, "m": f"request {UUID} failed for order-77"},
        {"id": 2, "m": "request 550e8400-e29b-41d4-a716-446655440001 passed for order-78"},
        {"id": 3, "m": "nothing"},
    ]
    text = it.write(tmp_path / "text", rows, options={"indexing.typemap.m": "text"})
    table = it.write(tmp_path / "compact", rows, options={"indexing.typemap.m": compact})
    for query, expected in (
        (f'm:"{UUID}"', [1]),
        ("m:request", [1, 2]),
        ('m:"order-78"', [2]),
        ('m:"failed for"', [1]),
        ("NOT m:passed", [1, 3]),
    ):
        assert sorted(row["id"] for row in table.search(query).to_pylist()) == expected
        assert sorted(row["id"] for row in text.search(query).to_pylist()) == expected
    assert table.count(f"m = 'request {UUID} failed for order-77'") == 1


def test_words_of_fields_within_a_column_are_found_and_conditions_stay_exact(tmp_path: Path) -> None:
    rows = [
        {"id": 1, "user": {"name": "Alice the Great", "city": "New York"}},
        {"id": 2, "user": {"name": "Bob", "city": "York"}},
        {"id": 3, "user": {"name": "great Bob", "city": "new york city"}},
    ]
    it.write(tmp_path, rows[:1], options={"indexing.typemap.user.name": "text"})
    table = it.write(tmp_path, rows[1:])  # as the table's properties say

    def search(query: str) -> list[int]:
        return sorted(row["id"] for row in table.search(query).to_pylist())

    assert search("user.name:great") == [1, 3]
    assert search('user.name:"the great"') == [1]
    for condition, expected in (
        ("user.city = 'York'", [2]),
        ("user.city IN ('New York', 'york')", [1]),
        ("user.name LIKE '%Bob'", [2, 3]),
        ("user.city > 'O'", [2, 3]),
        ("user.city <> 'York'", [1, 3]),
    ):
        assert sorted(table.scan(["id"], where=condition)["id"].to_pylist()) == expected
