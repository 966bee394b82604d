"""Jobs: the processes of a machine know of each other's."""

import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

import indextables as it
from indextables.errors import CommandError
from indextables.maintain import job_files, jobs
from indextables.maintain.jobs import JobKind, JobStatus
from indextables.options import Options

NONE = Options()


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of jobs that no other test knows, in a process that has none yet."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(jobs, "_jobs", {})
    yield tmp_path
    tempfile.tempdir = None


def elsewhere(body: str) -> subprocess.Popen[str]:
    """A process that has a job on `t`, says its id, and does what it is told to."""
    program = """
    import sys, time
    from indextables.maintain import jobs
    from indextables.options import Options
    with jobs.job(jobs.JobKind.PREWARM, "file:///t", Options()) as job:
        job.advance(1, 4)
        print(job.id, flush=True)
        sys.stdin.readline()
    """
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program) + textwrap.indent(body, "    ")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def begun(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_job_of_another_process_is_listed_and_waited_for() -> None:
    with elsewhere("job.advance(4, 4)") as process:
        name = begun(process)
        (job,) = it.prewarm_jobs()
        assert (job.id, job.status, job.total, job.owner) == (name, JobStatus.RUNNING, 4, process.pid)
        assert it.wait_for_prewarm(job=name, timeout=0.01)[0].ended is None
        process.communicate("go on\n", timeout=60)
    (ended,) = it.wait_for_prewarm(job=name, timeout=60)
    assert (ended.status, ended.done, ended.progress_pct) == (JobStatus.COMPLETED, 4, 100.0)
    assert it.merge_jobs() == []


def test_a_job_that_fails_elsewhere_says_why() -> None:
    with elsewhere("raise ValueError('no room')") as process:
        name = begun(process)
        process.communicate("go on\n", timeout=60)
    (ended,) = it.wait_for_prewarm(job=name, timeout=60)
    assert (ended.status, ended.error) == (JobStatus.FAILED, "no room")


def test_a_job_whose_process_died_has_failed() -> None:
    with elsewhere("pass") as process:
        name = begun(process)
        process.kill()
        process.wait(60)
    (ended,) = it.wait_for_prewarm(job=name, timeout=60)
    assert (ended.status, ended.error) == (JobStatus.FAILED, "the process that it ran in is gone")


def test_a_process_that_has_got_the_number_of_a_dead_one_is_another() -> None:
    made = jobs.begin(JobKind.MERGE, "file:///t", NONE, owner=1)
    assert jobs.jobs(JobKind.MERGE)[0].status is JobStatus.WAITING
    job_files.save(made.id, {**(job_files.load(made.id) or {}), "born": "0"})
    assert jobs.jobs(JobKind.MERGE)[0].status is JobStatus.FAILED


def test_what_is_said_after_the_end_is_not_heard() -> None:
    made = jobs.begin(JobKind.MERGE, "file:///t", NONE, total=4, owner=1)
    jobs.progress(made.id, 1, 2)
    assert (jobs.jobs(JobKind.MERGE)[0].done, jobs.jobs(JobKind.MERGE)[0].progress_pct) == (2, 50.0)
    jobs.end(made.id, "stopped")
    jobs.progress(made.id, 2, 2)
    jobs.end(made.id)
    (ended,) = jobs.jobs(JobKind.MERGE)
    assert (ended.status, ended.error, ended.done) == (JobStatus.FAILED, "stopped", 2)


def test_work_that_is_found_later_counts_too() -> None:
    made = jobs.begin(JobKind.MERGE, "file:///t", NONE, total=4, batches=1, owner=1)
    jobs.progress(made.id, 4, 4)
    jobs.batch_done(made.id)
    jobs.more(made.id, 2, 1)
    jobs.progress(made.id, 1, 2)
    (found,) = jobs.jobs(JobKind.MERGE)
    assert (found.total, found.done, found.total_batches, found.done_batches) == (6, 5, 2, 1)


def test_where_no_file_can_be_written_a_process_knows_its_own_jobs(own_folder: Path) -> None:
    (own_folder / "no-folder").write_text("")
    tempfile.tempdir = str(own_folder / "no-folder")
    assert job_files.folder() is None
    with jobs.job(JobKind.MERGE, "file:///own", NONE) as job:
        assert job in jobs.jobs(JobKind.MERGE, "file:///own")
    assert jobs.wait([job], 10)[0].status is JobStatus.COMPLETED


def test_what_ended_long_ago_is_forgotten_and_what_is_no_job_is_not_read(own_folder: Path) -> None:
    home = job_files.folder()
    assert home is not None
    assert home.stat().st_mode & 0o777 == 0o700
    (home / "broken.json").write_text("{")
    made = jobs.begin(JobKind.MERGE, "file:///t", NONE, owner=1)
    jobs.end(made.id)
    jobs.begin(
        JobKind.MERGE, "file:///u", Options.parse({"prewarm.async.completedJobRetentionMs": 0}), owner=1
    )
    assert [job.table for job in jobs.jobs(JobKind.MERGE)] == ["file:///u"]
    with pytest.raises(CommandError, match="there is no merge job 'x'; DESCRIBE INDEXTABLES MERGE JOBS"):
        jobs.found(JobKind.MERGE, None, "x")
