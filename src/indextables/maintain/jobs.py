"""Long work of this process, under a name: how far it is, how it ended, and waiting for it."""

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum

from indextables.options import Options
from indextables.options import maintenance as opt


class JobKind(StrEnum):
    """What a job does."""

    MERGE = "merge"
    PREWARM = "prewarm"


class JobStatus(StrEnum):
    """How far a job is."""

    WAITING = "WAITING"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


@dataclass(slots=True)
class Job:
    """One piece of long work; `total` and `done` count splits (prewarm) or merged splits (merge)."""

    id: str
    kind: JobKind
    table: str
    status: JobStatus = JobStatus.WAITING
    total: int = 0
    done: int = 0
    total_batches: int = 0
    done_batches: int = 0
    error: str | None = None
    started: float = field(default_factory=time.monotonic)
    ended: float | None = None
    elsewhere: bool = False
    finished: threading.Event = field(default_factory=threading.Event, repr=False)

    @property
    def duration_ms(self) -> int:
        """For how long it runs, or ran."""
        return int(((self.ended or time.monotonic()) - self.started) * 1000)

    @property
    def progress_pct(self) -> float:
        """How much of it is done."""
        if self.status is JobStatus.COMPLETED:
            return 100.0
        return 100.0 * self.done / self.total if self.total else 0.0

    def advance(self, done: int, total: int) -> None:
        """Say how far it is."""
        self.done, self.total = done, total


_jobs: dict[str, Job] = {}
_lock = threading.Lock()
_running: dict[int, threading.Semaphore] = {}


@contextmanager
def job(kind: JobKind, table: str, options: Options) -> Iterator[Job]:
    """A job for as long as the body takes, and listed for a while after that."""
    made = _new(kind, table, options)
    with _recorded(made):
        yield made


def start(kind: JobKind, table: str, options: Options, work: Callable[[Job], None]) -> Job:
    """Run work in the background. At most `prewarm.async.maxConcurrent` jobs run at once; others wait."""
    made = _new(kind, table, options)
    most = options.get(opt.JOBS_AT_ONCE)
    with _lock:
        gate = _running.setdefault(most, threading.Semaphore(most))

    def body() -> None:
        with gate, _recorded(made, swallow=True):
            work(made)

    # A daemon: a process that ends does not wait for warming a cache.
    threading.Thread(target=body, name=f"indextables-{kind}-{made.id}", daemon=True).start()
    return made


def begin(kind: JobKind, table: str, options: Options) -> Job:
    """A job whose work is done elsewhere; `end` says that it came back.

    One of the same kind and table that never came back is taken for failed now.
    """
    for left in jobs(kind, table):
        if left.ended is None and left.elsewhere:
            end(left.id, "its work did not come back")
    made = _new(kind, table, options)
    made.status, made.elsewhere = JobStatus.RUNNING, True
    return made


def end(job_id: str, error: str | None = None) -> None:
    """Say how a job that was done elsewhere ended; nothing happens if it is forgotten already."""
    with _lock:
        found = _jobs.get(job_id)
    if found is not None:
        found.status = JobStatus.COMPLETED if error is None else JobStatus.FAILED
        found.error, found.ended = error, time.monotonic()
        found.finished.set()


def jobs(kind: JobKind, table: str | None = None) -> list[Job]:
    """The jobs of this process, oldest first."""
    with _lock:
        return [job for job in _jobs.values() if job.kind is kind and table in (None, job.table)]


def _new(kind: JobKind, table: str, options: Options) -> Job:
    kept = options.get(opt.JOB_RETENTION_MS)
    made = Job(secrets.token_hex(6), kind, table)
    with _lock:
        now = time.monotonic()
        for old in [j for j in _jobs.values() if j.ended is not None and (now - j.ended) * 1000 >= kept]:
            del _jobs[old.id]
        _jobs[made.id] = made
    return made


@contextmanager
def _recorded(made: Job, *, swallow: bool = False) -> Iterator[None]:
    made.status, made.started = JobStatus.RUNNING, time.monotonic()
    try:
        yield
    except BaseException as error:
        made.status, made.error = JobStatus.FAILED, str(error)
        if not swallow:
            raise
    else:
        made.status = JobStatus.COMPLETED
    finally:
        made.ended = time.monotonic()
        made.finished.set()
