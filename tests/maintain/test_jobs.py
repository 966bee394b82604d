"""Jobs: the processes of a machine know of each other's."""

import json
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import indextables as it
from indextables.errors import CommandError
from indextables.maintain import jobs
from indextables.maintain.jobs import JobKind, JobStatus
from indextables.options import Options
from tests.maintenance_tables import running_job

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
    from tests.maintenance_tables import running_job
    with running_job(jobs.JobKind.PREWARM, "file:///t", Options()) as job:
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
    assert (ended.status, ended.error) == (JobStatus.FAILED, "its process has ended")


def test_a_process_that_has_got_the_number_of_a_dead_one_is_another() -> None:
    made = jobs.begin(JobKind.MERGE, "file:///t", NONE, owner=1)
    assert jobs.jobs(JobKind.MERGE)[0].status is JobStatus.WAITING
    record = jobs.load(made.id)
    assert record is not None
    jobs.save(made.id, {**msgspec.structs.asdict(record), "owner_start": "0"})
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
    jobs.add_work(made.id, 2, 1)
    jobs.progress(made.id, 1, 2)
    (found,) = jobs.jobs(JobKind.MERGE)
    assert (found.total, found.done, found.total_batches, found.done_batches) == (6, 5, 2, 1)


def test_where_no_file_can_be_written_a_process_knows_its_own_jobs(own_folder: Path) -> None:
    (own_folder / "no-folder").write_text("")
    tempfile.tempdir = str(own_folder / "no-folder")
    assert jobs.folder() is None
    with running_job(JobKind.MERGE, "file:///own", NONE) as job:
        assert job in jobs.jobs(JobKind.MERGE, "file:///own")
    assert jobs.wait([job], 10)[0].status is JobStatus.COMPLETED


def test_what_ended_long_ago_is_forgotten_and_what_is_no_job_is_not_read(own_folder: Path) -> None:
    home = jobs.folder()
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
        jobs.find_jobs(JobKind.MERGE, None, "x")


def test_a_link_in_place_of_the_folder_of_jobs_is_not_followed(
    own_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    victim = own_folder / "home"
    victim.mkdir()
    for name in ("thesis.tex", "0123456789ab.json"):
        (victim / name).write_text("x")
        os.utime(victim / name, (1, 1))
    (own_folder / f"indextables-jobs-{os.geteuid()}").symlink_to(victim)
    for _ in range(2):
        with running_job(JobKind.MERGE, "file:///t", NONE) as job:
            assert job in jobs.jobs(JobKind.MERGE)
    assert sorted(path.name for path in victim.iterdir()) == ["0123456789ab.json", "thesis.tex"]
    (warning,) = (record.message for record in caplog.records)
    assert warning.startswith("jobs are listed in their own process only: ")
    assert warning.endswith("is a symbolic link)")


def test_a_folder_of_jobs_that_another_user_made_is_not_used(
    own_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = os.geteuid() + 1
    (own_folder / f"indextables-jobs-{other}").mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: other)
    assert jobs.folder() is None


def test_a_folder_of_jobs_that_was_open_to_others_is_closed(own_folder: Path) -> None:
    home = own_folder / f"indextables-jobs-{os.geteuid()}"
    home.mkdir(mode=0o777)
    home.chmod(0o777)
    assert jobs.folder() == home
    assert home.stat().st_mode & 0o777 == 0o700


ODD = {
    "0123456789a0.json": '{"owner_start": "1"}',
    "0123456789a1.json": "[]",
    "0123456789a2.json": '{"id": "another", "kind": "merge", "table": "t", "status": "RUNNING", "host": "h", "owner": 1}',
    "0123456789a3.json": '{"id": "0123456789a3", "kind": "merge", "table": "t", "status": "RUNNING", "host": "h", "owner": "me"}',
    "0123456789a4.json": '{"id": "0123456789a4", "kind": "dance", "table": "t", "status": "RUNNING", "host": "h", "owner": 1}',
    "0123456789a5.json": '{"id": "0123456789a5", "kind": "merge", "table": "t", "status": "ASLEEP", "host": "h", "owner": 1}',
    "0123456789a6.json": '{"id": "0123456789a6", "kind": "merge", "table": "t", "status": "RUNNING", "host": "h", "owner": 99999999999999999999}',
    "0123456789a7.json": "[" * 100_000,
    "0123456789a8.json": "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
}


@pytest.mark.parametrize("age", [0, 7200])
def test_odd_files_among_the_jobs_never_fail_a_merge(own_folder: Path, age: int) -> None:
    home = jobs.folder()
    assert home is not None
    (home / "0123456789b0.json").mkdir()
    os.mkfifo(home / "0123456789b1.json")
    (home / "0123456789b2.json").symlink_to("/etc/passwd")
    for name, text in ODD.items():
        (home / name).write_text(text, encoding="latin-1")
    for name in ("thesis.tex", "x.json", "0123456789ab.json.bak"):
        (home / name).write_text('{"owner_start": "1"}')
    for path in home.iterdir():
        if not path.is_symlink():
            then = path.stat().st_mtime - age
            os.utime(path, (then, then))
    with running_job(JobKind.MERGE, "file:///t", NONE) as job:
        assert [each.id for each in jobs.jobs(JobKind.MERGE)] == [job.id]
    left = {path.name for path in home.iterdir()} - {f"{job.id}.json"}
    # What is no job's file stays, however old.
    assert {"thesis.tex", "x.json", "0123456789ab.json.bak", "0123456789b0.json"} <= left
    assert bool(left & ODD.keys()) == (age == 0)


def test_a_field_of_a_newer_release_is_passed_over() -> None:
    home = jobs.folder()
    assert home is not None
    newer = {
        "id": "0123456789ab",
        "kind": "merge",
        "table": "t",
        "status": "RUNNING",
        "host": "another-machine",
        "owner": 1,
        "priority": {"high": True},
    }
    (home / "0123456789ab.json").write_text(json.dumps(newer))
    (job,) = jobs.jobs(JobKind.MERGE)
    assert (job.id, job.table, job.total) == ("0123456789ab", "t", 0)
