"""Diagnostics of this process and this machine: caches, storage traffic, environment, background jobs.

These are the commands that need no table, as functions. All of them are exported by `indextables`.
"""

import os
import platform
import re
import resource
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

import pyarrow as pa

from indextables import metrics
from indextables.log.format.names import LOG_FOLDER
from indextables.log.snapshot_cache import cache_statistics, invalidate
from indextables.maintain import jobs
from indextables.maintain.jobs import Job
from indextables.options import PREFIX, Options, Where, reading
from indextables.options.declare import HADOOP_PREFIX, MASK, is_secret
from indextables.options.maintenance import MAX_WAIT_SECONDS
from indextables.read.split_source import close_splits
from indextables.read.table_context import drop_cached_bundles
from indextables.records import dataclass
from indextables.split.index.cache import index_cache
from indextables.store import open_store
from indextables.version import VERSION

OptionValues = Mapping[str, object] | Options | None
Path = str | os.PathLike[str]

_LIBRARIES = ("pyarrow", "datafusion", "tantivy", "obstore", "numpy", "pyspark")
_ENVIRONMENT = ("AWS_", "AZURE_", "GOOGLE_", "SPARK_", "PYSPARK_", "INDEXTABLES_")
_PUBLIC_WORDS = ("REGION", "ENDPOINT", "PROFILE", "HOME", "PYTHON", "VERSION", "MASTER", "LOCAL_IP")
_SECRET_SETTING = re.compile(
    r"secret|passw|passphrase|token(?!izer)|credential|(access|account|storage|encryption|private|api)[._-]?key|"
    r"connection[._-]?(string|url)|[._-]sas",
    re.IGNORECASE,
)
_SECRET_VALUE = re.compile(r"://[^/\s]*@|passw\w*=|[?&;]sig=|accountkey=", re.IGNORECASE)
_VARIABLES = ("spark.executorenv.", "spark.yarn.appmasterenv.")
_SECRET_WORDS = ("KEY", "SECRET", "TOKEN", "PASSWORD", "CREDENTIAL")


@dataclass(frozen=True, slots=True)
class DiskCache:
    """Usage of the index cache, by all processes that share its folder. All values are None if it is off."""

    enabled: bool
    folder: str = ""
    total_bytes: int | None = None
    max_bytes: int | None = None
    splits: int | None = None
    components: int | None = None

    @property
    def usage_percent(self) -> float | None:
        """Used bytes as a percentage of the maximum."""
        if self.total_bytes is None or self.max_bytes is None:
            return None
        return 100.0 * self.total_bytes / self.max_bytes if self.max_bytes else 0.0


@dataclass(frozen=True, slots=True)
class StorageRead:
    """Bytes and requests that this process has read from storage since it started."""

    bytes_fetched: int
    requests: int


@dataclass(frozen=True, slots=True)
class Property:
    """One setting: an option, an environment variable, or a library version. Secrets are masked."""

    kind: str
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class FlushResult:
    """The result of flushing the disk cache: freed bytes, and entries that remain because they are in use."""

    enabled: bool
    folder: str = ""
    bytes: int = 0
    files: int = 0
    in_use: int = 0


@dataclass(frozen=True, slots=True)
class InvalidationResult:
    """How many cached log values were dropped, and the cache's hits and misses before that."""

    values: int
    hits_before: int
    misses_before: int

    @property
    def hit_rate_before(self) -> float | None:
        """Share of lookups that the cache answered; None if there were no lookups."""
        lookups = self.hits_before + self.misses_before
        return self.hits_before / lookups if lookups else None


def disk_cache(*, options: OptionValues = None) -> DiskCache:
    """Return the usage of the index cache, by all processes that share its folder."""
    checked = _command_options(options)
    if not checked.get(reading.DISK_CACHE):
        return DiskCache(enabled=False)
    cache = index_cache(checked)
    stats = cache.stats()
    return DiskCache(True, stats.folder, stats.bytes, stats.limit, stats.entries, cache.files())


def flush_disk_cache(*, options: OptionValues = None) -> FlushResult:
    """Delete cached indexes that no process uses now."""
    checked = _command_options(options)
    if not checked.get(reading.DISK_CACHE):
        return FlushResult(enabled=False)
    close_splits()
    cache = index_cache(checked)
    removed = cache.flush()
    return FlushResult(True, str(cache.folder), removed.bytes, removed.files, cache.stats().entries)


def flush_searchers() -> int:
    """Close the open splits and indexes of this process, and return the number of splits."""
    drop_cached_bundles()
    return close_splits()


def storage_read() -> StorageRead:
    """Return the bytes and requests that this process has read from storage since it started."""
    read = metrics.figures().get("indextables.store.fetched_bytes")
    return StorageRead(int(read.total), read.count) if read else StorageRead(0, 0)


def environment(*, options: OptionValues = None) -> list[Property]:
    """Return options, variables, library versions, memory and metrics of this process; secrets are masked."""
    checked = options if isinstance(options, Options) else Options.parse(options)
    settings = [
        Property("spark", _with_prefix(key), MASK if is_secret(key) else value)
        for key, value in sorted(checked.values.items())
    ]
    settings += [
        Property("environment", name, value if _is_public(name) and "@" not in value else MASK)
        for name, value in sorted(os.environ.items())
        if name.startswith(_ENVIRONMENT)
    ]
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return [
        *settings,
        Property("process", "python", platform.python_version()),
        Property("process", "platform", platform.platform()),
        Property("process", "processors", str(os.cpu_count())),
        Property("process", "pid", str(os.getpid())),
        Property("library", "indextables", VERSION),
        *(Property("library", name, number) for name in _LIBRARIES if (number := _version(name)) is not None),
        Property("native_memory", "arrow_bytes", str(pa.total_allocated_bytes())),
        Property("native_memory", "peak_rss_bytes", str(peak_bytes)),
        *(
            Property("metric", name, f"last={figure.last:g} total={figure.total:g} count={figure.count}")
            for name, figure in metrics.figures().items()
        ),
    ]


def masked_setting(name: str, value: str) -> str:
    """Return the value of a setting of Spark or Hadoop, or a mask if it may hold a secret.

    >>> masked_setting("spark.executor.memory", "4g"), masked_setting("fs.s3a.secret.key", "x")
    ('4g', '***')
    >>> masked_setting("spark.executorEnv.AZURE_STORAGE_KEY", "x"), masked_setting("spark.jars", "https://h/j?sig=x")
    ('***', '***')
    """
    variable = next((name[len(each) :] for each in _VARIABLES if name.lower().startswith(each)), None)
    if variable is not None and not _is_public(variable):
        return MASK
    secret = is_secret(name) or _SECRET_SETTING.search(name) or _SECRET_VALUE.search(value)
    return MASK if secret else value


def invalidate_log_cache(path: Path | None = None, *, options: OptionValues = None) -> InvalidationResult:
    """Drop the cached transaction logs of this process.

    It is not needed for correct results: a cached log is always compared with the newest version first.

    Args:
        path: a folder or URL; only the log of this table. By default the logs of all tables.
        options: `spark.indextables.*` options, with or without the prefix.
    """
    url = _url(path, options)
    before = cache_statistics().values()
    values = invalidate(None if url is None else f"{url}/{LOG_FOLDER}")
    return InvalidationResult(values, sum(s.hits for s in before), sum(s.misses for s in before))


def prewarm_jobs(path: Path | None = None, *, options: OptionValues = None) -> list[Job]:
    """Return the prewarm jobs of this machine, running and recently ended, of one table or of all."""
    return jobs.jobs(jobs.JobKind.PREWARM, _url(path, options))


def merge_jobs(path: Path | None = None, *, options: OptionValues = None) -> list[Job]:
    """Return the merge jobs of this machine, running and recently ended, of one table or of all."""
    return jobs.jobs(jobs.JobKind.MERGE, _url(path, options))


def wait_for_prewarm(
    path: Path | None = None,
    *,
    job: str | None = None,
    timeout: float = MAX_WAIT_SECONDS,
    options: OptionValues = None,
) -> list[Job]:
    """Wait until prewarm jobs of this machine have ended, and return them.

    Args:
        path: only those of this table.
        job: only the one with this id.
        timeout: the maximum number of seconds to wait; a job that is still running then has no `ended`.
        options: `spark.indextables.*` options, with or without the prefix.
    """
    return jobs.wait(jobs.find_jobs(jobs.JobKind.PREWARM, _url(path, options), job), timeout)


def _command_options(options: OptionValues) -> Options:
    return options if isinstance(options, Options) else Options.parse(options, {Where.COMMAND})


def _url(path: Path | None, options: OptionValues) -> str | None:
    return None if path is None else open_store(path, _command_options(options)).url


def _with_prefix(key: str) -> str:
    return f"{HADOOP_PREFIX if key.startswith(('fs.', 'dfs.')) else PREFIX}{key}"


def _is_public(name: str) -> bool:
    """Whether an environment variable certainly has no secret."""
    return any(word in name for word in _PUBLIC_WORDS) and not any(word in name for word in _SECRET_WORDS)


def _version(library: str) -> str | None:
    try:
        return version(library)
    except PackageNotFoundError:
        return None
