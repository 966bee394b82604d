"""Prewarming brings indexes to the local disk, of the splits and columns that were asked for."""

from pathlib import Path

import pytest

import indextables as it
from indextables.errors import CommandError, PredicateError
from indextables.maintain import jobs
from indextables.maintain.figures import components
from indextables.maintain.prewarm import plan_prewarm, prewarm
from indextables.options import Options
from indextables.split.footer import read_footer
from indextables.split.index.cache import index_cache
from indextables.split.query.searcher import close_indexes
from tests.maintenance_tables import appended, log_of, running_job


@pytest.fixture
def options(tmp_path: Path) -> Options:
    return Options.parse({"cache.disk.path": str(tmp_path / "cache")})


def test_every_split_is_in_the_cache_after_it(tmp_path: Path, options: Options) -> None:
    appended(tmp_path / "t", 3)
    log = log_of(tmp_path / "t")
    steps = []
    plan = plan_prewarm(log.snapshot(), options)
    warmed = prewarm(plan, log.store, options, lambda done, total: steps.append((done, total)))
    assert (warmed.splits, warmed.failed) == (3, ())
    assert warmed.bytes > 0
    assert index_cache(options).stats().entries == 3
    assert steps[-1] == (3, 3)
    assert plan.parts == ("TERM", "POSTINGS")


def test_only_the_columns_asked_for_are_read(tmp_path: Path, options: Options) -> None:
    appended(tmp_path / "t", 1, rows=500)
    log = log_of(tmp_path / "t")
    snapshot = log.snapshot()
    whole = prewarm(plan_prewarm(snapshot, options, segments=["term", "posting_lists"]), log.store, options)
    part = prewarm(plan_prewarm(snapshot, options, fields=["Message"]), log.store, options)
    footer = read_footer(log.store, snapshot.files()["path"][0].as_py())
    sizes = {(c.kind, c.column): c.size for c in components(log.store, footer)}
    assert part.bytes == sizes["term", "message"] + sizes["postings", "message"]
    assert part.bytes < whole.bytes


def test_a_condition_chooses_partitions(tmp_path: Path, options: Options) -> None:
    appended(tmp_path / "t", 12)
    plan = plan_prewarm(log_of(tmp_path / "t").snapshot(), options, where="day >= 9", parallelism=2)
    assert plan.splits == 3
    assert [len(task.splits) for task in plan.tasks] == [2, 1]
    with pytest.raises(PredicateError, match="partition columns only"):
        plan_prewarm(log_of(tmp_path / "t").snapshot(), options, where="id = 1")


def test_the_newest_splits_come_first(tmp_path: Path, options: Options) -> None:
    table = appended(tmp_path / "t", 4)
    plan = plan_prewarm(log_of(tmp_path / "t").snapshot(), options)
    assert [path for task in plan.tasks for path, _ in task.splits] == table.files()["path"].to_pylist()[::-1]


def test_wrong_wishes_are_refused(tmp_path: Path, options: Options) -> None:
    appended(tmp_path / "t", 1)
    snapshot = log_of(tmp_path / "t").snapshot()
    with pytest.raises(CommandError, match=r"no segment POSTNGS; did you mean POSTINGS\?"):
        plan_prewarm(snapshot, options, segments=["POSTNGS"])
    with pytest.raises(CommandError, match=r"no column mesage; did you mean message\?"):
        plan_prewarm(snapshot, options, fields=["mesage"])
    with pytest.raises(CommandError, match="parallelism of 0"):
        plan_prewarm(snapshot, options, parallelism=0)
    with pytest.raises(CommandError, match=r"the column day of the table at .* has no index to warm"):
        plan_prewarm(snapshot, options, fields=["message", "day"])
    lenient = Options.parse({"prewarm.failOnMissingField": False})
    found = plan_prewarm(snapshot, lenient, fields=["mesage", "DAY", "message"])
    assert (found.columns, found.left_out, found.splits) == (("message",), ("mesage", "DAY"), 1)


def test_no_column_is_not_every_column(tmp_path: Path, options: Options) -> None:
    appended(tmp_path / "t", 1)
    lenient = Options.parse({"prewarm.failOnMissingField": False})
    plan = plan_prewarm(log_of(tmp_path / "t").snapshot(), lenient, fields=["mesage"])
    assert (plan.tasks, plan.left_out) == ((), ("mesage",))
    row = it.sql(
        f"PREWARM INDEXTABLES CACHE '{tmp_path}/t' ON FIELDS (mesage)",
        options={"prewarm.failOnMissingField": False},
    ).to_pylist()[0]
    assert (row["status"], row["splits_prewarmed"], row["skipped_fields"]) == ("no_splits", 0, "mesage")


@pytest.mark.parametrize("key", ["prewarm.segments", "prewarm.fields", "prewarm.splitsPerTask"])
def test_options_speak_where_the_command_does_not(tmp_path: Path, key: str) -> None:
    appended(tmp_path / "t", 4)
    snapshot = log_of(tmp_path / "t").snapshot()
    value = {"prewarm.segments": "POSITIONS", "prewarm.fields": "id", "prewarm.splitsPerTask": "3"}[key]
    plan = plan_prewarm(snapshot, Options.parse({key: value}))
    said = (plan.parts, plan.columns, [len(task.splits) for task in plan.tasks])
    expected = {
        "prewarm.segments": (("POSITIONS",), (), [2, 2]),
        "prewarm.fields": (("TERM", "POSTINGS"), ("id",), [2, 2]),
        "prewarm.splitsPerTask": (("TERM", "POSTINGS"), (), [3, 1]),
    }
    assert said == expected[key]


def test_a_split_that_is_gone_is_reported_and_the_others_are_warmed(tmp_path: Path, options: Options) -> None:
    table = appended(tmp_path / "t", 2)
    (tmp_path / "t" / table.files()["path"][0].as_py()).unlink()
    log = log_of(tmp_path / "t")
    quick = Options.parse({**options.values, "prewarm.maxRetries": 1})
    close_indexes()
    warmed = prewarm(plan_prewarm(log.snapshot(), quick), log.store, quick)
    assert (warmed.splits, warmed.retries, len(warmed.failed)) == (1, 1, 1)


def test_a_job_in_the_background_can_be_waited_for() -> None:
    def work(job: jobs.Job) -> None:
        job.advance(2, 4)

    made = jobs.start(jobs.JobKind.PREWARM, "file:///t", Options(), work)
    assert made.finished.wait(10)
    assert made.status is jobs.JobStatus.COMPLETED
    assert made.progress_pct == 100.0
    assert made in jobs.jobs(jobs.JobKind.PREWARM, "file:///t")
    assert made not in jobs.jobs(jobs.JobKind.MERGE)


def test_a_job_that_fails_says_why_and_is_forgotten_in_time() -> None:
    def work(job: jobs.Job) -> None:
        raise ValueError("no room")

    made = jobs.start(jobs.JobKind.PREWARM, "file:///u", Options(), work)
    assert made.finished.wait(10)
    assert (made.status, made.error) == (jobs.JobStatus.FAILED, "no room")
    at_once = Options.parse({"prewarm.async.completedJobRetentionMs": 0})
    with running_job(jobs.JobKind.MERGE, "file:///u", at_once):
        assert made not in jobs.jobs(jobs.JobKind.PREWARM)


def test_components_add_up_to_the_files_of_the_index(tmp_path: Path) -> None:
    table = appended(tmp_path, 1, rows=200)
    log = log_of(tmp_path)
    footer = read_footer(log.store, table.files()["path"][0].as_py())
    found = components(log.store, footer)
    columns = {c.column for c in found if c.kind == "term"}
    assert "message" in columns
    for kind, suffix in (
        ("term", ".term"),
        ("postings", ".idx"),
        ("positions", ".pos"),
        ("fastfield", ".fast"),
    ):
        file = next(f for f in footer.index_files if f.name.endswith(suffix))
        parts = sum(c.size for c in found if c.kind == kind)
        assert 0 < parts < file.size
        assert file.size - parts < 500, "what is left is the directory and the footer"
    rows = next(c for c in found if c.kind == "store")
    assert (rows.column, rows.size > 0) == (None, True)
