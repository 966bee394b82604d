"""Jobs: long-running work whose progress and end are recorded; and tasks that executors run.

Every process of a machine can list the jobs of the others, and wait for them.
"""

import contextlib
import json
import logging
import os
import re
import secrets
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field, fields
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from indextables.errors import CommandError
from indextables.options import Options
from indextables.options import maintenance as opt
from indextables.records import dataclass
from indextables.store.local import NotPrivateError, make_private

Result = TypeVar("Result")
# Called with the number of finished tasks and the number of all tasks.
Progress = Callable[[int, int], None]

_SUFFIX = ".json"
_ID = re.compile(r"[0-9a-f]{12}")
# The file of a job, and one that is being written.
_NAME = re.compile(r"[0-9a-f]{12}\.(json|[0-9a-f]{8})")
_MOST_BYTES = 1 << 20
_MOST_PROCESSES = 1 << 31

_logger = logging.getLogger(__name__)


class JobRecord(msgspec.Struct, frozen=True):
    """The content of a job's file; fields of newer releases are ignored."""

    id: str
    kind: str
    table: str
    status: str
    host: str
    owner: int
    total: int = 0
    done: int = 0
    total_batches: int = 0
    done_batches: int = 0
    error: str | None = None
    started: float = 0.0
    ended: float | None = None
    owner_start: str = ""
    done_before: int = 0


def folder() -> Path | None:
    """The folder of the job files; None if this user cannot create it."""
    path = Path(tempfile.gettempdir()).absolute() / f"indextables-jobs-{os.geteuid()}"
    try:
        make_private(path)
    except (NotPrivateError, OSError) as error:
        _warn(str(path), str(error))
        return None
    return path


@lru_cache(maxsize=16)
def _warn(path: str, problem: str) -> None:
    """Log a warning, once for a folder: other processes cannot list the jobs of this one."""
    _logger.warning("jobs are listed in their own process only: %s cannot be used (%s)", path, problem)


def save(job_id: str, record: dict[str, Any]) -> None:
    """Write the record of a job atomically."""
    home = folder()
    if home is None or _ID.fullmatch(job_id) is None:
        return
    arriving = home / f"{job_id}.{secrets.token_hex(4)}"
    with contextlib.suppress(OSError):
        arriving.write_text(json.dumps(record))
        arriving.replace(home / (job_id + _SUFFIX))


def load(job_id: str) -> JobRecord | None:
    """The record of a job; None if there is none."""
    home = folder()
    if home is None or _ID.fullmatch(job_id) is None:
        return None
    return _read(home / (job_id + _SUFFIX))


def load_all() -> Iterator[JobRecord]:
    """The records of all jobs of this machine, in no order."""
    for path in _files():
        if path.suffix == _SUFFIX and (record := _read(path)) is not None:
            yield record


def remove_older(seconds: float) -> None:
    """Remove the files of finished jobs that were last written this many seconds ago."""
    for path in _files():
        with contextlib.suppress(OSError):
            if time.time() - path.lstat().st_mtime < seconds:
                continue
            record = _read(path)
            if record is None or record.ended is not None or not is_running(record.owner, record.owner_start):
                path.unlink()


def _files() -> Iterator[Path]:
    """The files of jobs; other files in the folder are ignored."""
    home = folder()
    if home is None:
        return
    try:
        names = [path for path in home.iterdir() if _NAME.fullmatch(path.name) is not None]
    except OSError:
        return
    for path in names:
        with contextlib.suppress(OSError):
            if stat.S_ISREG(path.lstat().st_mode):
                yield path


def start_time(process: int) -> str:
    """The start time of a process, in ticks of its system; empty if it is unknown."""
    try:
        # The name of a program, in parentheses, may hold blanks; the fields after it do not.
        fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return ""
    return fields[19]


def is_running(process: int, since: str) -> bool:
    """Whether a process runs that has this start time, so that a reused process id does not count."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return start_time(process) == since


def _read(path: Path) -> JobRecord | None:
    """The record in a file; None if it is no file, or no record of a job."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb") as file:  # noqa: PTH123 - it is open already
            data = file.read(_MOST_BYTES)
        record = msgspec.json.decode(data, type=JobRecord)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    ours = record.id + _SUFFIX == path.name and 0 < record.owner < _MOST_PROCESSES
    return record if ours else None


# The default timeout of waiting for jobs.
_LOOK_EVERY_S = 0.05
_SAVE_EVERY_S = 0.2


class JobKind(StrEnum):
    """The kind of a job."""

    MERGE = "merge"
    PREWARM = "prewarm"


class JobStatus(StrEnum):
    """The status of a job."""

    WAITING = "WAITING"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


@dataclass(slots=True)
class Job:
    """A job; `total` and `done` count splits (prewarm) or merged splits (merge).

    Times are in seconds since 1970. `owner` is the process that the job depends on.
    """

    id: str
    kind: JobKind
    table: str
    status: JobStatus = JobStatus.WAITING
    total: int = 0
    done: int = 0
    total_batches: int = 0
    done_batches: int = 0
    error: str | None = None
    started: float = field(default_factory=time.time)
    ended: float | None = None
    host: str = field(default_factory=socket.gethostname)
    owner: int = field(default_factory=os.getpid)
    owner_start: str = ""
    # How much was done in earlier passes.
    done_before: int = 0
    # Set when the job ends, in the process where it runs.
    finished: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)

    @property
    def duration_ms(self) -> int:
        """The duration until now, or until the end."""
        return int(((self.ended or time.time()) - self.started) * 1000)

    @property
    def progress_pct(self) -> float:
        """The share of its work that is done, in percent."""
        if self.status is JobStatus.COMPLETED:
            return 100.0
        return 100.0 * self.done / self.total if self.total else 0.0

    def advance(self, done: int, total: int) -> None:
        """Record the progress."""
        total_before, self.done, self.total = self.total, done, total
        _save(self, now=total != total_before)


_RECORDED_FIELDS = tuple(f.name for f in fields(Job) if f.name != "finished")
_jobs: dict[str, Job] = {}
_saved: dict[str, float] = {}
_lock = threading.Lock()
_running: dict[int, threading.Semaphore] = {}


def _after_fork() -> None:
    """Reset in a forked child: it has no threads of jobs, and a thread of the parent may hold the lock."""
    global _lock  # noqa: PLW0603 - the child's own
    _lock = threading.Lock()
    for of_parent in (_jobs, _saved, _running):
        of_parent.clear()


os.register_at_fork(after_in_child=_after_fork)


def start(kind: JobKind, table: str, options: Options, work: Callable[[Job], None]) -> Job:
    """Run work in the background."""
    record = begin(kind, table, options)
    run_in_background(record.id, options, lambda: work(record))
    return record


def run_in_background(job_id: str, options: Options, work: Callable[[], object]) -> None:
    """Run a job in a thread. At most `prewarm.async.maxConcurrent` jobs run at once; others wait."""
    most = options.get(opt.JOBS_AT_ONCE)
    with _lock:
        gate = _running.setdefault(most, threading.Semaphore(most))
        record = _jobs[job_id]

    def body() -> None:
        with gate, _record_outcome(record, swallow=True):
            work()

    # A daemon thread, so that the end of the process does not wait for it.
    threading.Thread(target=body, name=f"indextables-{record.kind}-{record.id}", daemon=True).start()


def begin(
    kind: JobKind,
    table: str,
    options: Options,
    *,
    total: int = 0,
    batches: int = 0,
    owner: int | None = None,
    status: JobStatus = JobStatus.WAITING,
) -> Job:
    """Create a waiting job; `end` ends it.

    `owner` is another process that the work depends on: then any process may record progress.
    """
    record = Job(secrets.token_hex(6), kind, table, status, total, total_batches=batches)
    record.owner = record.owner if owner is None else owner
    record.owner_start = start_time(record.owner)
    retention_ms = options.get(opt.JOB_RETENTION_MS)
    with _lock:
        now = time.time()
        for old in [
            j for j in _jobs.values() if j.ended is not None and (now - j.ended) * 1000 >= retention_ms
        ]:
            del _jobs[old.id]
        if owner is None:
            _jobs[record.id] = record
    remove_older(retention_ms / 1000)
    _save(record)
    return record


def begin_merge(
    table: str, options: Options, tasks: int, batches: int, *, job: str | None, owner: int | None
) -> str:
    """Create the running job of a merge, or add the tasks of a further pass to it; returns its id."""
    if job is None:
        running = JobStatus.RUNNING
        record = begin(
            JobKind.MERGE, table, options, total=tasks, batches=batches, owner=owner, status=running
        )
        return record.id
    add_work(job, tasks, batches)
    return job


def add_work(job_id: str, total: int, batches: int) -> None:
    """Add tasks and batches to a job."""

    def change(record: Job) -> None:
        record.done_before = record.done = record.total
        record.total, record.total_batches = record.total + total, record.total_batches + batches

    _change(job_id, change)


def progress(job_id: str, done: int, of: int) -> None:
    """Record how many tasks are done; the job is then running."""

    def change(record: Job) -> None:
        record.status = JobStatus.RUNNING
        record.done = record.done_before + (record.total - record.done_before) * done // max(of, 1)

    _change(job_id, change)


def batch_done(job_id: str) -> None:
    """Record that one more batch was committed."""

    def change(record: Job) -> None:
        record.done_batches += 1

    _change(job_id, change)


def end(job_id: str, error: str | None = None) -> None:
    """Record the end of a job; no effect if it has ended already, or is no longer listed."""

    def change(record: Job) -> None:
        record.status = JobStatus.COMPLETED if error is None else JobStatus.FAILED
        record.done = record.total if error is None else record.done
        record.error, record.ended = error, time.time()

    _change(job_id, change)


def jobs(kind: JobKind, table: str | None = None) -> list[Job]:
    """The jobs of this machine, oldest first."""
    with _lock:
        own = dict(_jobs)
    records = (_of(record) for record in load_all() if record.id not in own)
    others = (_with_status(each) for each in records if each is not None)
    matching = [j for j in (*own.values(), *others) if j.kind is kind and table in (None, j.table)]
    return sorted(matching, key=lambda j: j.started)


def to_fields(job: Job) -> dict[str, Any]:
    """What is recorded of a job, for another process; `Job(**fields)` is the job."""
    return {name: getattr(job, name) for name in _RECORDED_FIELDS}


def find_jobs(kind: JobKind, table: str | None = None, job_id: str | None = None) -> list[Job]:
    """The jobs of this machine, or the one with an id; CommandError if there is no such job."""
    records = [each for each in jobs(kind, table) if job_id in (None, each.id)]
    if job_id is not None and not records:
        raise CommandError(
            f"there is no {kind} job '{job_id}'; DESCRIBE INDEXTABLES {kind.upper()} JOBS lists them"
        )
    return records


def wait(records: Sequence[Job], seconds: float) -> list[Job]:
    """Wait until jobs have ended, or until the timeout; returns their current records."""
    end_at = time.monotonic() + seconds
    while True:
        now = current(records)
        rest = end_at - time.monotonic()
        if rest <= 0 or all(each.ended is not None for each in now):
            return now
        time.sleep(min(_LOOK_EVERY_S, rest))


def current(records: Iterable[Job]) -> list[Job]:
    """The jobs as they are now; one that is no longer listed as it was."""
    return [_now(each) for each in records]


def _now(each: Job) -> Job:
    with _lock:
        if each.id in _jobs:
            return _jobs[each.id]
    record = load(each.id)
    current = None if record is None else _of(record)
    return each if current is None else _with_status(current)


def _change(job_id: str, change: Callable[[Job], None]) -> None:
    with _lock:
        current = _jobs.get(job_id)
    if current is None:
        record = load(job_id)
        current = None if record is None else _of(record)
    if current is not None and current.ended is None:
        change(current)
        _save(current)
        if current.status in (JobStatus.COMPLETED, JobStatus.FAILED):
            current.finished.set()


def _of(record: JobRecord) -> Job | None:
    """The job of a record; None if it is of a kind, or in a state, that only a newer release has."""
    try:
        kind, status = JobKind(record.kind), JobStatus(record.status)
    except ValueError:
        return None
    return Job(**{**msgspec.structs.asdict(record), "kind": kind, "status": status})


def _with_status(record: Job) -> Job:
    """Set the status of a job whose process has ended to failed."""
    here = record.host == socket.gethostname()
    if record.ended is None and here and not is_running(record.owner, record.owner_start):
        record.status, record.ended = JobStatus.FAILED, time.time()
        record.error = "its process has ended"
    return record


def _save(record: Job, *, now: bool = True) -> None:
    with _lock:
        if not now and time.monotonic() - _saved.get(record.id, 0.0) < _SAVE_EVERY_S:
            return
        if record.ended is None:
            _saved[record.id] = time.monotonic()
        else:
            _saved.pop(record.id, None)
    save(record.id, to_fields(record))


@contextmanager
def _record_outcome(record: Job, *, swallow: bool = False) -> Iterator[None]:
    record.status, record.started = JobStatus.RUNNING, time.time()
    _save(record)
    try:
        yield
    except BaseException as error:
        end(record.id, str(error) or type(error).__name__)
        if not swallow:
            raise
    else:
        end(record.id)


# --- tasks -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TaskSet:
    """Tasks of a command that may run on executors, and the state for finishing the command.

    Attributes:
        run: a function of a module, called with a task and the table's store (None without a table).
        tasks: its first arguments.
        state: passed to the finish step.
        other_processes: the tasks collect information from other processes; that of this process is in the
            state.
        job: the id of the job whose progress the tasks are.
        immediate_result: returned immediately, while the tasks run in the background.
        preferred_executors: for each task the executor that should run it.
        pause: the seconds to wait before the finish step, outside of it: a planner process that waited could
            do nothing else.
    """

    run: Callable[[Any, Any], Any]
    tasks: Sequence[Any]
    state: Any = None
    other_processes: bool = False
    job: str | None = None
    immediate_result: Any = None
    preferred_executors: Sequence[str | None] = ()
    pause: float = 0


def run_tasks(
    tasks: TaskSet | Result,
    finish: Callable[[Any, Iterable[Any]], TaskSet | Result],
    store: object,
    progress: Progress | None = None,
) -> Result:
    """Run the tasks of a command in this process, and return its result; Spark runs them on executors.

    Args:
        tasks: the tasks, or the result if there are none.
        finish: called with the state and the results of the tasks; returns the result, or further tasks. Each
            task runs when its result is taken.
        store: the table's store; None without a table.
        progress: called with the number of finished tasks and the number of all tasks.
    """
    job = None
    remaining = tasks
    try:
        while isinstance(remaining, TaskSet):
            job = remaining.job
            time.sleep(remaining.pause)
            remaining = finish(remaining.state, _results(remaining, store, progress))
    except BaseException as error:
        if job is not None:
            end(job, str(error) or type(error).__name__)
        raise
    if job is not None:
        end(job)
    return remaining


def _results(tasks: TaskSet, store: object, notify: Progress | None) -> Iterator[Any]:
    for number, task in enumerate(() if tasks.other_processes else tasks.tasks, 1):
        yield tasks.run(task, store)
        if tasks.job is not None:
            progress(tasks.job, number, len(tasks.tasks))
        if notify is not None:
            notify(number, len(tasks.tasks))
