"""Caches and jobs of this machine, from plain Python: the commands that need no table."""

import os
from collections.abc import Mapping

from indextables import process
from indextables.maintain import jobs
from indextables.maintain.jobs import Job
from indextables.options import Options, Where
from indextables.process import DiskCache, Flushed, Forgotten, Property, StorageRead
from indextables.store import open_store

Given = Mapping[str, object] | None
Path = str | os.PathLike[str]


def disk_cache(*, options: Given = None) -> DiskCache:
    """How full the cache of indexes is, of all processes that share its folder."""
    return process.disk_cache(Options.parse(options, {Where.COMMAND}))


def flush_disk_cache(*, options: Given = None) -> Flushed:
    """Delete cached indexes that nobody uses now."""
    return process.flush_disk_cache(Options.parse(options, {Where.COMMAND}))


def flush_searchers() -> int:
    """Close the splits and indexes that this process keeps open; how many splits there were."""
    return process.flush_searchers()


def storage_read() -> StorageRead:
    """What this process has read from storage since it started."""
    return process.storage_read()


def environment(*, options: Given = None) -> list[Property]:
    """Options, variables of clouds and Spark, libraries, and this process; secrets are masked."""
    return process.environment(Options.parse(options))


def forget_logs(path: Path | None = None, *, options: Given = None) -> Forgotten:
    """Forget what this process has read of logs, of one table or of all; never needed for right answers."""
    return process.forget_logs(_url(path, options))


def prewarm_jobs(path: Path | None = None, *, options: Given = None) -> list[Job]:
    """The prewarm jobs of this machine, running and recently ended; of one table or of all."""
    return jobs.jobs(jobs.JobKind.PREWARM, _url(path, options))


def merge_jobs(path: Path | None = None, *, options: Given = None) -> list[Job]:
    """The merges of this machine, running and recently ended; of one table or of all."""
    return jobs.jobs(jobs.JobKind.MERGE, _url(path, options))


def wait_for_prewarm(
    path: Path | None = None, *, job: str | None = None, timeout: float = jobs.WAIT_S, options: Given = None
) -> list[Job]:
    """Wait until prewarm jobs of this machine have ended; what became of them.

    Args:
        path: only those of this table.
        job: only the one with this id.
        timeout: wait at most so many seconds; a job that did not end by then has no `ended`.
        options: `spark.indextables.*` options, with or without the prefix.
    """
    return jobs.wait(jobs.found(jobs.JobKind.PREWARM, _url(path, options), job), timeout)


def _url(path: Path | None, options: Given) -> str | None:
    return None if path is None else open_store(path, Options.parse(options, {Where.COMMAND})).url
