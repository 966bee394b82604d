"""One use of every command through each interface, to be compared: SQL, the program, Python."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import indextables as it
from indextables.commands import COMMANDS, Command
from tests.maintenance_tables import appended, orphan

# What differs from run to run, or between interfaces: times, processes, paths of the table.
VOLATILE = frozenset(
    {
        "table_path",
        "source_path",
        "target_path",
        "duration_ms",
        "split_bytes_uploaded",
        "source_version",
        "set_timestamp",
        "timestamp",
        "created_at",
        "job_id",
        "executor_id",
        "log_file_path",
        "modification_time",
        "deletion_timestamp",
        "metadata_created_time",
        "metadata_id",
        "temp_directory_path",
        "engine",
        "merged_size_bytes",
        "usage_percent",
        "max_bytes",
        "cache_hits_before",
        "cache_misses_before",
        "hit_rate_before",
        "result",
        "property_value",
        "bytes_fetched",
        "requests",
        "cleared_entries",
        "message",
        "role",
    }
)

Call = Callable[[it.Table, Mapping[str, object]], Any]
Row = dict[str, Any]


@dataclass(frozen=True)
class Use:
    """A command as it is written in SQL and for the program (`{}` is the table), and called in Python.

    `gives` makes of what Python returns the values that the command's columns have.
    """

    sql: str
    shell: str
    python: Call
    gives: Callable[[Any], Sequence[Row]]
    # What must have happened to the table before.
    before: Callable[[Path, Mapping[str, object]], object] = lambda path, options: None


def _lost(path: Path, options: Mapping[str, object]) -> None:
    shutil.rmtree(path / "_transaction_log")


def _warming(path: Path, options: Mapping[str, object]) -> None:
    it.open(path, options=options).start_prewarm().finished.wait(60)


def _merged(path: Path, options: Mapping[str, object]) -> None:
    it.open(path, options=options).merge(where="day = 0")


def _cached(path: Path, options: Mapping[str, object]) -> None:
    it.flush_disk_cache(options=options)
    it.open(path, options=options).prewarm()


def _lake(path: Path, options: Mapping[str, object]) -> None:
    folder = path.with_name(f"{path.name}-lake")
    folder.mkdir()
    pq.write_table(pa.table({"id": [1, 2], "message": ["disk full", "all well"]}), folder / "a.parquet")
    shutil.rmtree(path)


def _companion(path: Path, options: Mapping[str, object]) -> None:
    _lake(path, options)
    it.companion(f"{path}-lake", at=path, roots={"eu": "/copies/eu"})


def _jobs(found: Any) -> list[Row]:
    return [
        {
            "status": job.status.value,
            "progress_pct": job.progress_pct,
            "error_message": job.error,
            "total_splits": job.total,
            "completed_splits": job.done,
            "splits_prewarmed": job.done,
            "total_groups": job.total,
            "completed_groups": job.done,
            "total_batches": job.total_batches,
            "completed_batches": job.done_batches,
        }
        for job in found
    ]


USES = {
    "MERGE SPLITS": Use(
        "MERGE SPLITS '{}' WHERE day < 3 TARGET SIZE 10M MAX DEST SPLITS 2 MAX SOURCE SPLITS PER MERGE 9",
        "merge {} --where day<3 --target-size 10M --max-dest-splits 2 --max-source-splits 9",
        lambda t, _: t.merge(where="day < 3", target_size=10 << 20, max_new_splits=2, max_sources=9),
        lambda r: [
            {
                "merged_files": r.merged_splits,
                "merge_groups": r.new_splits,
                "original_size_bytes": r.bytes_before,
            }
        ],
    ),
    "CONVERT INDEXTABLES": Use(
        "CONVERT INDEXTABLES '{}' WHERE day < 3",
        "convert {} --where day<3",
        lambda t, _: t.convert(where="day < 3"),
        lambda r: [
            {
                "splits_converted": r.converted,
                "splits_left": r.remainder,
                "rows_converted": r.rows,
                "original_size_bytes": r.bytes_before,
                "converted_size_bytes": r.bytes_after,
            }
        ],
    ),
    "PURGE INDEXTABLE": Use(
        "PURGE INDEXTABLE '{}' OLDER THAN 2 DAYS TRANSACTION LOG RETENTION 100 HOURS",
        "purge {} --older-than 2d --log-retention 100h",
        lambda t, _: t.purge(older_than=timedelta(days=2), log_retention=timedelta(hours=100)),
        lambda r: [
            {
                "status": r.status,
                "orphaned_files_found": r.orphans_found,
                "orphaned_files_deleted": r.orphans_deleted,
                "size_mb_deleted": r.bytes_deleted / 2**20,
                "retention_hours": r.retention_hours,
                "tx_log_files_deleted": r.log_files_deleted,
                "expired_states_found": r.states_found,
                "expired_states_deleted": r.states_deleted,
                "dry_run": r.dry_run,
            }
        ],
    ),
    "CHECKPOINT INDEXTABLES": Use(
        "CHECKPOINT INDEXTABLES '{}'",
        "checkpoint {}",
        lambda t, _: t.checkpoint(),
        lambda r: [{"checkpoint_version": r.version, "num_files": r.num_files}],
    ),
    "TRUNCATE INDEXTABLES TIME TRAVEL": Use(
        "TRUNCATE INDEXTABLES TIME TRAVEL '{}'",
        "truncate {}",
        lambda t, _: t.truncate(),
        lambda r: [
            {"checkpoint_version": r.version, "versions_deleted": r.versions, "checkpoints_deleted": r.states}
        ],
    ),
    "DROP INDEXTABLES PARTITIONS FROM": Use(
        "DROP INDEXTABLES PARTITIONS FROM '{}' WHERE day >= 2",
        "drop {} --where day>=2",
        lambda t, _: t.drop_partitions("day >= 2"),
        lambda r: [
            {"partitions_dropped": r.partitions, "splits_removed": r.splits, "total_size_bytes": r.bytes}
        ],
    ),
    "RESTORE INDEXTABLES": Use(
        "RESTORE INDEXTABLES '{}' TO VERSION AS OF 4",
        "restore {} --to-version 4",
        lambda t, _: t.restore(4),
        lambda r: [
            {
                "restored_version": r.restored_version,
                "version": r.version,
                "splits_restored": r.splits_restored,
                "splits_removed": r.splits_removed,
                "restored_size_bytes": r.bytes_restored,
                "removed_size_bytes": r.bytes_removed,
            }
        ],
    ),
    "REPAIR INDEXFILES TRANSACTION LOG": Use(
        "REPAIR INDEXFILES TRANSACTION LOG '{}'",
        "repair {}",
        lambda t, _: it.repair(t.url),
        lambda r: [
            {
                "source_version": r.source_version,
                "total_splits": r.total_splits,
                "valid_splits": r.valid_splits,
                "missing_splits": r.missing_splits,
            }
        ],
        _lost,
    ),
    "BUILD INDEXTABLES COMPANION FOR PARQUET": Use(
        "BUILD INDEXTABLES COMPANION FOR PARQUET '{0}-lake' INDEXING MODES ('message':'text') "
        "TABLE ROOTS ('eu'='/copies/eu') TARGET INPUT SIZE 10M WRITER HEAP SIZE 32M AT LOCATION '{0}'",
        "companion {0}-lake --modes message=text --roots eu=/copies/eu --target-size 10M --heap-size 32M "
        "--at {0}",
        lambda t, _: it.companion(
            f"{t.url}-lake",
            at=t.url,
            modes={"message": "text"},
            roots={"eu": "/copies/eu"},
            target_size=10 << 20,
            heap_size=32 << 20,
        ),
        lambda r: [
            {
                "status": r.status,
                "splits_created": r.splits_created,
                "splits_invalidated": r.splits_invalidated,
                "parquet_files_indexed": r.files_indexed,
                "parquet_bytes_downloaded": r.source_bytes,
            }
        ],
        _lake,
    ),
    "SET INDEXTABLES TABLE": Use(
        "SET INDEXTABLES TABLE ROOT 'us' = '/copies/us' AT '{}'",
        "root {} set --root us=/copies/us",
        lambda t, _: t.set_root("us", "/copies/us"),
        lambda r: [{"status": r}],
        _companion,
    ),
    "UNSET INDEXTABLES TABLE": Use(
        "UNSET INDEXTABLES TABLE ROOT 'eu' AT '{}'",
        "root {} unset --name eu",
        lambda t, _: t.unset_root("eu"),
        lambda r: [{"status": r}],
        _companion,
    ),
    "DESCRIBE INDEXTABLES TABLE ROOTS": Use(
        "DESCRIBE INDEXTABLES TABLE ROOTS AT '{}'",
        "root {}",
        lambda t, _: t.roots(),
        lambda r: [{"root_name": name, "root_path": root.path} for name, root in r.items()],
        _companion,
    ),
    "DESCRIBE INDEXTABLES STATE": Use(
        "DESCRIBE INDEXTABLES STATE '{}'",
        "describe {} state",
        lambda t, _: t.state(),
        lambda r: [
            {
                "format": r.format,
                "version": r.version,
                "num_files": r.num_files,
                "num_manifests": r.num_manifests,
                "num_tombstones": r.num_tombstones,
                "tombstone_ratio": r.tombstone_ratio,
                "total_bytes": r.total_bytes,
                "needs_compaction": r.needs_compaction,
                "min_reader_version": r.protocol.min_reader_version,
                "num_skipped_splits": r.skipped_splits,
            }
        ],
    ),
    "DESCRIBE INDEXTABLES HISTORY": Use(
        "DESCRIBE INDEXTABLES HISTORY '{}' LIMIT 3",
        "history {} --limit 3",
        lambda t, _: t.history(3).to_pylist(),
        lambda r: [{"version": row["version"], "operation": row["operation"]} for row in r],
    ),
    "DESCRIBE INDEXTABLES COMPONENT SIZES": Use(
        "DESCRIBE INDEXTABLES COMPONENT SIZES '{}' WHERE day = 3",
        "describe {} components --where day=3",
        lambda t, _: t.components("day = 3"),
        lambda r: [
            {
                "split_path": s.path,
                "size_bytes": part.size,
                "component_type": part.kind,
                "field_name": part.column,
            }
            for s in r
            for part in s.parts
        ],
    ),
    "DESCRIBE INDEXTABLES DATA SKIPPING STATS": Use(
        "DESCRIBE INDEXTABLES DATA SKIPPING STATS '{}'",
        "describe {} skipping",
        lambda t, _: t.data_skipping(),
        lambda r: [
            {
                "column_name": c.column,
                "data_type": c.data_type,
                "num_splits": c.splits,
                "splits_with_stats": c.with_bounds,
                "min_value": c.least,
                "max_value": c.greatest,
                "null_count": c.nulls,
            }
            for c in r
        ],
    ),
    "DESCRIBE INDEXTABLES TRANSACTION LOG": Use(
        "DESCRIBE INDEXTABLES TRANSACTION LOG '{}' INCLUDE ALL",
        "describe {} log --all",
        lambda t, _: t.log_actions(include_all=True),
        lambda r: [
            {
                "version": file.version,
                "is_checkpoint": file.is_checkpoint,
                "path": getattr(action, "path", None),
            }
            for file in r
            for action in file.actions
        ],
    ),
    "PREWARM INDEXTABLES CACHE": Use(
        "PREWARM INDEXTABLES CACHE '{}' FOR SEGMENTS (TERM, FASTFIELD) ON FIELDS (message) "
        "WITH PERWORKER PARALLELISM OF 3 WHERE day <> 1",
        "prewarm {} --segments TERM,FASTFIELD --fields message --parallelism 3 --where day<>1",
        lambda t, _: t.prewarm(
            segments=["TERM", "FASTFIELD"], fields=["message"], parallelism=3, where="day <> 1"
        ),
        lambda r: [{"host": r.host, "splits_prewarmed": r.splits, "retries": r.retries}],
    ),
    "WAIT FOR INDEXTABLES PREWARM JOBS": Use(
        "WAIT FOR INDEXTABLES PREWARM JOBS '{}' TIMEOUT 60",
        "wait {} --timeout 60",
        lambda t, o: it.wait_for_prewarm(t.url, timeout=60, options=o),
        _jobs,
        _warming,
    ),
    "DESCRIBE INDEXTABLES PREWARM JOBS": Use(
        "DESCRIBE INDEXTABLES PREWARM JOBS",
        "jobs prewarm",
        lambda t, o: it.prewarm_jobs(t.url, options=o),
        _jobs,
        _warming,
    ),
    "DESCRIBE INDEXTABLES MERGE JOBS": Use(
        "DESCRIBE INDEXTABLES MERGE JOBS",
        "jobs merge",
        lambda t, o: it.merge_jobs(t.url, options=o),
        _jobs,
        _merged,
    ),
    "DESCRIBE INDEXTABLES DISK CACHE": Use(
        "DESCRIBE INDEXTABLES DISK CACHE",
        "cache show",
        lambda _, o: it.disk_cache(options=o),
        lambda r: [
            {
                "enabled": r.enabled,
                "total_bytes": r.total_bytes,
                "splits_cached": r.splits,
                "components_cached": r.components,
            }
        ],
        _cached,
    ),
    "FLUSH INDEXTABLES DISK CACHE": Use(
        "FLUSH INDEXTABLES DISK CACHE",
        "cache flush",
        lambda _, o: it.flush_disk_cache(options=o),
        lambda r: [{"bytes_freed": r.bytes, "files_deleted": r.files}],
        _cached,
    ),
    "FLUSH INDEXTABLES SEARCHER CACHE": Use(
        "FLUSH INDEXTABLES SEARCHER CACHE", "cache close", lambda *_: it.flush_searchers(), lambda r: [{}]
    ),
    "INVALIDATE INDEXTABLES TRANSACTION LOG CACHE": Use(
        "INVALIDATE INDEXTABLES TRANSACTION LOG CACHE FOR '{}'",
        "cache invalidate {}",
        lambda t, o: it.invalidate_log_cache(t.url, options=o),
        lambda r: [{}],
    ),
    "DESCRIBE INDEXTABLES STORAGE STATS": Use(
        "DESCRIBE INDEXTABLES STORAGE STATS", "storage", lambda *_: it.storage_read(), lambda r: [{}]
    ),
    "DESCRIBE INDEXTABLES ENVIRONMENT": Use(
        "DESCRIBE INDEXTABLES ENVIRONMENT",
        "environment",
        lambda _, o: it.environment(options=o),
        lambda r: [{"property_type": p.kind, "property_name": p.name} for p in r],
    ),
}
# These tell of all of a machine, so that rows of other tables are left out.
OF_THE_MACHINE = ("DESCRIBE INDEXTABLES PREWARM JOBS", "DESCRIBE INDEXTABLES MERGE JOBS")


def command(opening: str) -> Command:
    return next(c for c in COMMANDS if opening in c.openings)


def worn(path: Path) -> Path:
    """A table of 8 splits in 4 partitions, with an orphan and without a state."""
    for _ in range(2):
        appended(path, 4, **{"checkpoint.enabled": False})
    orphan(path)
    return path


def prepared(template: Path, opening: str, path: Path, options: Mapping[str, object]) -> Path:
    """A copy of the table, ready for the use of a command."""
    shutil.copytree(template, path)
    USES[opening].before(path, options)
    return path


def comparable(rows: Sequence[Row], path: Path | str) -> list[Row]:
    """Rows of this table without what differs from run to run."""
    kept = [r for r in rows if str(r.get("table_path", path)).endswith(str(path))]
    return [_flat(r) for r in kept]


def _flat(row: Row) -> Row:
    """A row; what stands in its struct `metrics` stands beside the others."""
    inner = row.get("metrics")
    if isinstance(inner, dict) and "status" in inner:
        row = {**{k: v for k, v in row.items() if k != "metrics"}, **inner}
    return {k: v for k, v in row.items() if k not in VOLATILE}
