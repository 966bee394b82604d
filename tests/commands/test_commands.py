"""Every command, end to end: its columns, its figures, its errors."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indextables as it
from indextables.commands import COMMANDS, TableArgument
from indextables.commands.execute import CommandContext, execute, implementation_of
from indextables.errors import CommandError, IndexTablesError, OptionError, TableNotFoundError
from indextables.maintain.jobs import TaskSet
from indextables.options import Options
from tests.maintenance_tables import aged, appended, ids, log_of, orphan

FIXTURES = Path(__file__).parents[3] / "shared" / "fixtures" / "original-0.5.4"

NONE = Options()

# The documented columns, in order: s text, l long, i int, d double, b boolean, t timestamp.
DOCUMENTED = {
    "MERGE SPLITS": "table_path s, metrics {status s, merged_files l, merge_groups l, original_size_bytes l, merged_size_bytes l, message s}, temp_directory_path s, heap_size_bytes l",
    "PURGE INDEXTABLE": "table_path s, metrics {status s, orphaned_files_found l, orphaned_files_deleted l, size_mb_deleted d, retention_hours l, tx_log_files_deleted l, expired_states_found l, expired_states_deleted l, dry_run b, duration_ms l, message s}",
    "CHECKPOINT INDEXTABLES": "table_path s, status s, checkpoint_version l, num_actions l, num_files l, protocol_version l, is_multi_part b",
    "TRUNCATE INDEXTABLES TIME TRAVEL": "table_path s, status s, checkpoint_version l, versions_deleted l, checkpoints_deleted l, files_preserved l, message s",
    "DESCRIBE INDEXTABLES STATE": "table_path s, format s, version l, num_files l, num_manifests i, num_tombstones i, tombstone_ratio d, total_bytes l, needs_compaction b, status s, created_at t, min_reader_version i, min_writer_version i, reader_features s, writer_features s, num_skipped_splits l",
    "REPAIR INDEXFILES TRANSACTION LOG": "source_path s, target_path s, source_version l, total_splits i, valid_splits i, missing_splits i, status s",
    "BUILD INDEXTABLES COMPANION FOR DELTA": "table_path s, source_path s, status s, source_version l, splits_created i, splits_invalidated i, parquet_files_indexed i, parquet_bytes_downloaded l, split_bytes_uploaded l, duration_ms l, message s",
    "SET INDEXTABLES TABLE": "status s",
    "UNSET INDEXTABLES TABLE": "status s",
    "DESCRIBE INDEXTABLES TABLE ROOTS": "root_name s, root_path s, set_timestamp s",
    "PREWARM INDEXTABLES CACHE": "host s, assigned_host s, locality_hits i, locality_misses i, splits_prewarmed i, segments s, fields s, duration_ms l, status s, skipped_fields s, retries i, failed_splits_by_host s, job_id s, async_mode b",
    "DROP INDEXTABLES PARTITIONS FROM": "table_path s, status s, partitions_dropped l, splits_removed l, total_size_bytes l, message s",
    "FLUSH INDEXTABLES SEARCHER CACHE": "cache_type s, status s, cleared_entries l, message s",
    "FLUSH INDEXTABLES DISK CACHE": "executor_id s, cache_type s, status s, bytes_freed l, files_deleted l, message s",
    "INVALIDATE INDEXTABLES TRANSACTION LOG CACHE": "table_path s, result s, cache_hits_before l, cache_misses_before l, hit_rate_before s",
    "DESCRIBE INDEXTABLES DISK CACHE": "executor_id s, host s, enabled b, total_bytes l, max_bytes l, usage_percent d, splits_cached l, components_cached l",
    "DESCRIBE INDEXTABLES STORAGE STATS": "executor_id s, host s, bytes_fetched l, requests l",
    "DESCRIBE INDEXTABLES ENVIRONMENT": "host s, role s, property_type s, property_name s, property_value s",
    "DESCRIBE INDEXTABLES COMPONENT SIZES": "split_path s, partition_values s, component_key s, size_bytes l, component_type s, field_name s",
    "DESCRIBE INDEXTABLES PREWARM JOBS": "executor_id s, host s, job_id s, table_path s, status s, total_splits i, completed_splits i, progress_pct d, duration_ms l, error_message s",
    "DESCRIBE INDEXTABLES MERGE JOBS": "job_id s, table_path s, status s, total_groups i, completed_groups i, total_batches i, completed_batches i, progress_pct d, duration_ms l, error_message s",
    "WAIT FOR INDEXTABLES PREWARM JOBS": "executor_id s, host s, job_id s, table_path s, status s, total_splits i, splits_prewarmed i, duration_ms l, error_message s",
    "DESCRIBE INDEXTABLES TRANSACTION LOG": "version l, log_file_path s, action_type s, path s, partition_values s, size l, data_change b, tags s, modification_time t, stats s, min_values s, max_values s, num_records l, footer_start_offset l, footer_end_offset l, hotcache_start_offset l, hotcache_length l, has_footer_offsets b, time_range_start s, time_range_end s, split_tags s, delete_opstamp l, num_merge_ops i, doc_mapping_json s, doc_mapping_ref s, uncompressed_size_bytes l, deletion_timestamp t, extended_file_metadata b, skip_timestamp t, skip_reason s, skip_operation s, skip_retry_after t, skip_count i, protocol_min_reader_version i, protocol_min_writer_version i, protocol_reader_features s, protocol_writer_features s, metadata_id s, metadata_name s, metadata_description s, metadata_format_provider s, metadata_format_options s, metadata_schema_string s, metadata_partition_columns s, metadata_configuration s, metadata_created_time t, is_checkpoint b",
}
LETTERS = {
    pa.string(): "s",
    pa.int64(): "l",
    pa.int32(): "i",
    pa.float64(): "d",
    pa.bool_(): "b",
    pa.timestamp("us", tz="UTC"): "t",
}


def spelled(fields: Any) -> str:
    return ", ".join(
        f"{f.name} {{{spelled(f.type)}}}" if pa.types.is_struct(f.type) else f"{f.name} {LETTERS[f.type]}"
        for f in fields
    )


@pytest.mark.parametrize("opening", DOCUMENTED)
def test_columns_are_the_documented_ones(opening: str) -> None:
    command = next(c for c in COMMANDS if opening in c.openings)
    assert spelled(implementation_of(command).result) == DOCUMENTED[opening]


@pytest.fixture
def own(tmp_path: Path) -> Options:
    return Options.parse({"cache.disk.path": str(tmp_path / "cache")})


def only(text: str, options: Options = NONE) -> dict[str, Any]:
    found = execute(text, options).to_pylist()
    assert len(found) == 1, found
    result: dict[str, Any] = found[0]
    return result


def test_merge_reports_what_it_did(tmp_path: Path) -> None:
    table = appended(tmp_path, 6, partition_by=())
    before = sum(table.files()["size"].to_pylist())
    rows, seen = ids(tmp_path), []
    row = execute(
        f"MERGE SPLITS '{tmp_path}' TARGET SIZE 10M", progress=lambda *step: seen.append(step)
    ).to_pylist()[0]
    figures = row["metrics"]
    assert (figures["status"], figures["merged_files"], figures["merge_groups"]) == ("success", 6, 1)
    assert figures["original_size_bytes"] == before
    assert figures["merged_size_bytes"] == it.open(tmp_path).files()["size"][0].as_py()
    assert row["heap_size_bytes"] > 0
    assert seen == [(1, 1)]
    assert ids(tmp_path) == rows
    assert only(f"MERGE SPLITS '{tmp_path}'")["metrics"]["message"] == "already optimal"
    jobs = [
        job
        for job in execute("DESCRIBE INDEXTABLES MERGE JOBS").to_pylist()
        if job["table_path"].endswith(str(tmp_path))
    ]
    assert [(job["status"], job["progress_pct"]) for job in jobs] == [("COMPLETED", 100.0)] * len(jobs)
    assert jobs


def test_merge_keeps_partitions_apart_and_to_its_condition(tmp_path: Path) -> None:
    for _ in range(2):
        appended(tmp_path, 3)
    figures = only(f"MERGE SPLITS '{tmp_path}' WHERE day >= 1")["metrics"]
    assert (figures["merged_files"], figures["merge_groups"]) == (4, 2)
    with pytest.raises(CommandError, match=r"id is not decided by a partition.*at character"):
        execute(f"MERGE SPLITS '{tmp_path}' WHERE id = 1")


@pytest.mark.parametrize(
    ("given", "merged", "groups", "versions"),
    [
        ({}, 8, 1, 1),
        ({"merge.maxSourceSplitsPerMerge": 2}, 8 + 4 + 2, 7, 3),
        ({"merge.maxSourceSplitsPerMerge": 2, "merge.maxPasses": 1}, 8, 4, 1),
        ({"merge.maxSourceSplitsPerMerge": 2, "merge.maxPasses": 2}, 8 + 4, 6, 2),
        ({"merge.maxSourceSplitsPerMerge": 2, "merge.maxPasses": 1, "merge.batchSize": 1}, 8, 4, 4),
        ({"merge.skipSplitThreshold": 0.0}, 0, 0, 0),
        ({"merge.targetSize": "1M", "merge.skipSplitThreshold": 0.0005}, 0, 0, 0),
        ({"merge.targetSize": "1G", "merge.skipSplitThreshold": 0.0005}, 8, 1, 1),
    ],
)
def test_every_option_of_a_merge_has_its_effect(
    tmp_path: Path, given: Any, merged: int, groups: int, versions: int
) -> None:
    """Through the command and through the method, which go different ways."""
    appended(tmp_path / "t", 8, partition_by=())
    shutil.copytree(tmp_path / "t", tmp_path / "u")
    figures = only(f"MERGE SPLITS '{tmp_path}/t'", Options.parse(given))["metrics"]
    assert (figures["merged_files"], figures["merge_groups"]) == (merged, groups)
    assert it.open(tmp_path / "t").version == 8 + versions
    done = it.open(tmp_path / "u", options=given).merge()
    assert (done.merged_splits, done.new_splits, len(done.versions)) == (merged, groups, versions)


def test_a_broken_split_makes_a_merge_a_partial_success(tmp_path: Path) -> None:
    table = appended(tmp_path, 4, partition_by=())
    (tmp_path / table.files()["path"][1].as_py()).write_bytes(b"broken")
    figures = only(f"MERGE SPLITS '{tmp_path}'")["metrics"]
    assert (figures["status"], figures["merged_files"]) == ("partial_success", 3)
    assert "1 could not be read" in figures["message"]
    actions = execute(f"DESCRIBE INDEXTABLES TRANSACTION LOG '{tmp_path}'").to_pylist()
    skip = next(row for row in actions if row["action_type"] == "skip")
    assert (skip["skip_count"], skip["skip_operation"]) == (1, "merge")
    assert skip["skip_retry_after"] > skip["skip_timestamp"]


def test_an_empty_table_has_nothing_to_merge(tmp_path: Path) -> None:
    appended(tmp_path, 1)
    execute(f"DROP INDEXTABLES PARTITIONS FROM '{tmp_path}' WHERE day = 0")
    assert only(f"MERGE SPLITS '{tmp_path}'")["metrics"]["message"] == "table is empty"


def test_purge_reports_what_it_did(tmp_path: Path) -> None:
    appended(tmp_path, 2)
    lost = orphan(tmp_path)
    dry = only(f"PURGE INDEXTABLE '{tmp_path}' OLDER THAN 2 DAYS DRY RUN")["metrics"]
    assert (dry["status"], dry["dry_run"], dry["orphaned_files_found"], dry["orphaned_files_deleted"]) == (
        "DRY_RUN",
        True,
        1,
        0,
    )
    assert lost.exists()
    done = only(f"PURGE INDEXTABLE '{tmp_path}' OLDER THAN 48 HOURS")["metrics"]
    assert (done["status"], done["orphaned_files_deleted"], done["retention_hours"]) == ("SUCCESS", 1, 48)
    assert done["size_mb_deleted"] == pytest.approx(100 / 2**20)
    assert not lost.exists()
    with pytest.raises(OptionError, match="below the minimum of 24"):
        execute(f"PURGE INDEXTABLE '{tmp_path}' OLDER THAN 1 HOURS")


def test_checkpoint_state_and_truncate_agree(tmp_path: Path) -> None:
    appended(tmp_path, 5, **{"checkpoint.enabled": False})
    state = only(f"DESCRIBE INDEXTABLES STATE '{tmp_path}'")
    assert (state["format"], state["version"], state["status"], state["num_files"]) == (
        "none",
        None,
        "No checkpoint found",
        5,
    )
    made = only(f"CHECKPOINT INDEXTABLES '{tmp_path}'")
    assert (made["status"], made["checkpoint_version"], made["num_files"], made["protocol_version"]) == (
        "SUCCESS",
        5,
        5,
        5,
    )
    state = only(f"DESCRIBE INDEXTABLES STATE '{tmp_path}'")
    assert (state["format"], state["version"], state["num_manifests"], state["needs_compaction"]) == (
        "avro-state",
        5,
        1,
        False,
    )
    assert state["total_bytes"] == sum(it.open(tmp_path).files()["size"].to_pylist())
    before = sorted((tmp_path / "_transaction_log").iterdir())
    dry = only(f"TRUNCATE INDEXTABLES TIME TRAVEL '{tmp_path}' DRY RUN")
    assert sorted((tmp_path / "_transaction_log").iterdir()) == before
    done = only(f"TRUNCATE INDEXTABLES TIME TRAVEL '{tmp_path}'")
    assert (dry["status"], done["status"]) == ("DRY_RUN", "SUCCESS")
    for column in ("checkpoint_version", "versions_deleted", "checkpoints_deleted", "files_preserved"):
        assert dry[column] == done[column]
    assert done["versions_deleted"] == 5
    assert len(ids(tmp_path)) == 15


def test_tombstones_show_and_go(tmp_path: Path) -> None:
    appended(tmp_path, 8, **{"checkpoint.enabled": False})
    execute(f"COMPACT INDEXTABLES '{tmp_path}'")
    execute(f"DROP INDEXTABLES PARTITIONS FROM '{tmp_path}' WHERE day < 4")
    log_of(tmp_path, **{"state.compaction.tombstoneThreshold": 10.0}).checkpoint(compact=False)
    state = only(f"DESCRIBE INDEXTABLES STATE '{tmp_path}'")
    assert (state["num_tombstones"], state["tombstone_ratio"], state["needs_compaction"]) == (4, 1.0, True)
    execute(f"COMPACT INDEXTABLES '{tmp_path}'")
    state = only(f"DESCRIBE INDEXTABLES STATE '{tmp_path}'")
    assert (state["num_tombstones"], state["tombstone_ratio"], state["needs_compaction"]) == (0, 0.0, False)


@pytest.mark.skipif(not FIXTURES.exists(), reason="the original's tables are not at hand")
def test_a_table_of_the_original_is_upgraded(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "07_two_writes_no_checkpoint", tmp_path / "t")
    assert only(f"CHECKPOINT INDEXTABLES '{tmp_path}/t'")["protocol_version"] == 4
    assert only(f"DESCRIBE INDEXTABLES STATE '{tmp_path}/t'")["format"] == "avro-state"
    sizes = execute(f"DESCRIBE INDEXTABLES COMPONENT SIZES '{tmp_path}/t'").to_pylist()
    assert {row["component_type"] for row in sizes} >= {"term", "postings", "store", "fastfield"}


def test_drop_restore_and_history(tmp_path: Path) -> None:
    appended(tmp_path, 12)
    dropped = only(f"DROP INDEXTABLES PARTITIONS FROM '{tmp_path}' WHERE day > 9")
    assert (dropped["status"], dropped["partitions_dropped"], dropped["splits_removed"]) == ("success", 2, 2)
    assert only(f"DROP INDEXTABLES PARTITIONS FROM '{tmp_path}' WHERE day > 9")["status"] == "no_action"
    back = only(f"RESTORE INDEXTABLES '{tmp_path}' TO VERSION 12")
    assert (back["status"], back["version"], back["splits_restored"], back["splits_removed"]) == (
        "success",
        14,
        2,
        0,
    )
    assert only(f"RESTORE INDEXTABLES '{tmp_path}' TO VERSION 14")["status"] == "no_action"
    history = execute(f"DESCRIBE INDEXTABLES HISTORY '{tmp_path}' LIMIT 2").to_pylist()
    assert [(h["version"], h["operation"]) for h in history] == [(14, "RESTORE"), (13, "DROP PARTITIONS")]
    assert dict(history[1]["metrics"])["numRemovedFiles"] == 2


def test_repair_both_ways(tmp_path: Path) -> None:
    appended(tmp_path / "t", 3)
    (tmp_path / "t" / it.open(tmp_path / "t").files()["path"][0].as_py()).unlink()
    row = only(
        f"REPAIR INDEXFILES TRANSACTION LOG '{tmp_path}/t/_transaction_log' AT LOCATION '{tmp_path}/new/_transaction_log'"
    )
    assert (
        row["source_version"],
        row["total_splits"],
        row["valid_splits"],
        row["missing_splits"],
        row["status"],
    ) == (3, 3, 2, 1, "SUCCESS")
    shutil.rmtree(tmp_path / "t" / "_transaction_log")
    row = only(f"REPAIR INDEXFILES TRANSACTION LOG '{tmp_path}/t'")
    assert (row["source_version"], row["valid_splits"]) == (-1, 2)
    assert len(ids(tmp_path / "t")) == 6


def test_the_log_is_told_action_by_action(tmp_path: Path) -> None:
    appended(tmp_path, 4, **{"checkpoint.interval": 2})
    execute(f"DROP INDEXTABLES PARTITIONS FROM '{tmp_path}' WHERE day = 0")
    newest = execute(f"DESCRIBE INDEXTABLES TRANSACTION LOG '{tmp_path}'").to_pylist()
    first = [row for row in newest if row["is_checkpoint"]]
    assert {row["version"] for row in first} == {4}
    assert [row["action_type"] for row in first] == ["protocol", "metadata", "add", "add", "add", "add"]
    remove = next(row for row in newest if row["action_type"] == "remove")
    assert (remove["version"], json.loads(remove["partition_values"])) == (5, {"day": "0"})
    everything = execute(f"DESCRIBE INDEXTABLES TRANSACTION LOG '{tmp_path}' INCLUDE ALL").to_pylist()
    assert not any(row["is_checkpoint"] for row in everything)
    assert sum(row["action_type"] == "add" for row in everything) == 4
    add = next(row for row in everything if row["action_type"] == "add")
    assert json.loads(add["min_values"])["id"] == "0"
    assert add["num_records"] == 3
    assert add["log_file_path"].endswith(f"{1:020d}.json")


def test_component_sizes_and_skipping_come_from_the_splits(tmp_path: Path) -> None:
    appended(tmp_path, 12)
    sizes = execute(f"DESCRIBE INDEXTABLES COMPONENT SIZES '{tmp_path}' WHERE day > 9").to_pylist()
    assert {json.loads(row["partition_values"])["day"] for row in sizes} == {"10", "11"}
    assert any(row["component_key"] == "message.term" and row["size_bytes"] > 0 for row in sizes)
    skipping = {
        row["column_name"]: row
        for row in execute(f"DESCRIBE INDEXTABLES DATA SKIPPING STATS '{tmp_path}'").to_pylist()
    }
    assert (skipping["id"]["min_value"], skipping["id"]["max_value"], skipping["id"]["null_count"]) == (
        "0",
        "35",
        0,
    )
    assert (skipping["day"]["min_value"], skipping["day"]["max_value"], skipping["day"]["coverage"]) == (
        "0",
        "11",
        1.0,
    )


def test_prewarm_fills_the_cache_and_flush_empties_it(tmp_path: Path, own: Options) -> None:
    appended(tmp_path / "t", 3)
    row = only(f"PREWARM INDEXTABLES CACHE '{tmp_path}/t' ON FIELDS (message)", own)
    assert (row["status"], row["splits_prewarmed"], row["segments"], row["fields"]) == (
        "success",
        3,
        "TERM,POSTINGS",
        "message",
    )
    cache = only("DESCRIBE INDEXTABLES DISK CACHE", own)
    assert (cache["enabled"], cache["splits_cached"]) == (True, 3)
    assert cache["total_bytes"] > 0 < cache["usage_percent"]
    assert cache["components_cached"] > 3
    assert only("FLUSH INDEXTABLES SEARCHER CACHE", own)["status"] == "success"
    flushed = only("FLUSH INDEXTABLES DISK CACHE", own)
    assert (flushed["status"], flushed["bytes_freed"]) == ("success", cache["total_bytes"])
    assert only("DESCRIBE INDEXTABLES DISK CACHE", own)["splits_cached"] == 0
    off = Options.parse({"cache.disk.enabled": False})
    assert only("DESCRIBE INDEXTABLES DISK CACHE", off)["total_bytes"] is None
    assert only("FLUSH INDEXTABLES DISK CACHE", off)["status"] == "skipped"


def test_prewarm_in_the_background_is_waited_for(tmp_path: Path, own: Options) -> None:
    appended(tmp_path / "t", 3)
    started = only(f"PREWARM INDEXTABLES CACHE '{tmp_path}/t' ASYNC MODE", own)
    assert (started["status"], started["async_mode"]) == ("started", True)
    done = only(f"WAIT FOR INDEXTABLES PREWARM JOBS '{tmp_path}/t' JOB '{started['job_id']}' TIMEOUT 60", own)
    assert (done["status"], done["total_splits"], done["splits_prewarmed"]) == ("COMPLETED", 3, 3)
    listed = execute("DESCRIBE INDEXTABLES PREWARM JOBS", own).to_pylist()
    assert started["job_id"] in {job["job_id"] for job in listed}
    with pytest.raises(CommandError, match="no prewarm job 'nobody'"):
        execute("WAIT FOR INDEXTABLES PREWARM JOBS JOB 'nobody'", own)


def test_prewarm_goes_where_splits_are_read_and_tells_how_often_it_did(tmp_path: Path, own: Options) -> None:
    """Executors have caches of their own: what another one warms does not help the one that reads."""
    table = appended(tmp_path / "t", 4)
    first = table.files()["path"].to_pylist()[:3]
    log = log_of(tmp_path / "t", **own.values)
    context = CommandContext(
        own, log, executor_of=lambda path: "executor_h1_7" if path in first else "executor_h2_8"
    )
    command = next(c for c in COMMANDS if c.openings == ("PREWARM INDEXTABLES CACHE",))
    prewarm = implementation_of(command)
    work = prewarm.plan(context, {"parallelism": 2})
    assert isinstance(work, TaskSet)
    assert sorted(work.preferred_executors) == ["executor_h1_7", "executor_h1_7", "executor_h2_8"]
    results = [work.run(task, log.store) for task in work.tasks]
    ran = replace(context, executors=tuple(n[-1] for n in work.preferred_executors))
    there = prewarm.finish(ran, {}, work.state, results)
    assert isinstance(there, pa.Table)
    assert [(r["locality_hits"], r["locality_misses"]) for r in there.to_pylist()] == [(4, 0)]
    all_by_one = prewarm.finish(replace(context, executors=("7",) * 3), {}, work.state, results)
    assert isinstance(all_by_one, pa.Table)
    found = {r["assigned_host"]: (r["locality_hits"], r["locality_misses"]) for r in all_by_one.to_pylist()}
    assert found == {results[0].host: (3, 0), "h2": (0, 1)}


def test_prewarm_without_splits_says_so(tmp_path: Path, own: Options) -> None:
    appended(tmp_path / "t", 1)
    assert only(f"PREWARM INDEXTABLES CACHE '{tmp_path}/t' WHERE day = 5", own)["status"] == "no_splits"


def test_the_cache_of_the_log_tells_its_hits_and_forgets(tmp_path: Path) -> None:
    appended(tmp_path, 2)
    it.open(tmp_path).files()
    it.open(tmp_path).files()
    row = only(f"INVALIDATE INDEXTABLES TRANSACTION LOG CACHE FOR '{tmp_path}'")
    assert row["cache_hits_before"] > 0
    assert row["hit_rate_before"].endswith("%")
    assert row["table_path"].endswith(str(tmp_path))
    assert (
        only(f"INVALIDATE INDEXTABLES TRANSACTION LOG CACHE FOR '{tmp_path}'")["result"]
        == "0 values were dropped"
    )
    assert only("INVALIDATE INDEXTABLES TRANSACTION LOG CACHE")["table_path"] == "GLOBAL"


def test_what_is_read_from_storage_is_counted(tmp_path: Path) -> None:
    before = only("DESCRIBE INDEXTABLES STORAGE STATS")
    appended(tmp_path, 1)
    it.open(tmp_path).scan()
    after = only("DESCRIBE INDEXTABLES STORAGE STATS")
    assert after["bytes_fetched"] > before["bytes_fetched"]
    assert after["requests"] > before["requests"]


def test_secrets_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush-environment")
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    options = Options.parse(
        {"aws.secretKey": "hush-option", "aws.accessKey": "hush-access", "aws.region": "eu-west-1"}
    )
    found = execute("DESCRIBE INDEXTABLES ENVIRONMENT", options)
    said = {(row["property_type"], row["property_name"]): row["property_value"] for row in found.to_pylist()}
    assert "hush" not in str(found.to_pylist())
    assert said["spark", "spark.indextables.aws.region"] == "eu-west-1"
    assert said["environment", "AWS_REGION"] == "eu-central-1"
    assert said["environment", "AWS_SECRET_ACCESS_KEY"] == "***"
    assert said["library", "pyarrow"] == pa.__version__


@pytest.mark.parametrize(
    "command", [c for c in COMMANDS if c.table is TableArgument.REQUIRED], ids=lambda c: c.openings[0]
)
def test_no_table_is_an_error_and_not_a_row(tmp_path: Path, command: Any) -> None:
    verb = command.openings[0].split()[0]
    rest = {"DROP": "WHERE a = 1", "RESTORE": "TO VERSION 1"}.get(verb, "")
    first = {"SET": "ROOT 'a' = 'b'", "UNSET": "ROOT 'a'"}.get(verb, "")
    first += f" {command.before_table}"
    with pytest.raises(TableNotFoundError):
        execute(f"{command.openings[0]} {first} '{tmp_path}/nothing' {rest}")
    assert not (tmp_path / "nothing").exists()


def test_a_failed_command_raises_our_errors(tmp_path: Path) -> None:
    appended(tmp_path, 1)
    aged(tmp_path, 1)
    with pytest.raises(IndexTablesError, match="versions 0 to 1"):
        execute(f"RESTORE INDEXTABLES '{tmp_path}' TO VERSION 9")
