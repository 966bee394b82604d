"""What this process is, keeps and has read: figures of its caches, and emptying them."""

import os
import platform
import resource
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import pyarrow as pa

from indextables import metrics
from indextables.log.format.names import LOG_FOLDER
from indextables.log.known import cache_statistics, invalidate
from indextables.options import PREFIX, Options, reading
from indextables.options.declare import MASK, is_secret
from indextables.read.sources import close_sources
from indextables.split.index.cache import index_cache
from indextables.version import VERSION

_LIBRARIES = ("pyarrow", "datafusion", "tantivy", "obstore", "numpy", "pyspark")
_ENVIRONMENT = ("AWS_", "AZURE_", "GOOGLE_", "SPARK_", "PYSPARK_", "INDEXTABLES_")
_OPEN = ("REGION", "ENDPOINT", "PROFILE", "HOME", "PYTHON", "VERSION", "MASTER", "LOCAL_IP")
_SECRET = ("KEY", "SECRET", "TOKEN", "PASSWORD", "CREDENTIAL")


@dataclass(frozen=True, slots=True)
class DiskCache:
    """How full the cache of indexes is, of all processes that share its folder; none if it is off."""

    enabled: bool
    folder: str = ""
    total_bytes: int | None = None
    max_bytes: int | None = None
    splits: int | None = None
    components: int | None = None

    @property
    def usage_percent(self) -> float | None:
        """How much of what it may hold it holds."""
        if self.total_bytes is None or self.max_bytes is None:
            return None
        return 100.0 * self.total_bytes / self.max_bytes if self.max_bytes else 0.0


@dataclass(frozen=True, slots=True)
class StorageRead:
    """What this process has read from storage since it started."""

    bytes_fetched: int
    requests: int


@dataclass(frozen=True, slots=True)
class Property:
    """Something that is set: an option, a variable, a library's version; secrets are masked."""

    kind: str
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Flushed:
    """What flushing the disk cache freed, and how many splits stay because they are in use."""

    enabled: bool
    folder: str = ""
    bytes: int = 0
    files: int = 0
    in_use: int = 0


@dataclass(frozen=True, slots=True)
class Forgotten:
    """How many values read of logs were forgotten, and how often the cache had helped before."""

    values: int
    hits_before: int
    misses_before: int

    @property
    def hit_rate_before(self) -> float | None:
        """Which share of questions the cache answered; none if there were none."""
        asked = self.hits_before + self.misses_before
        return self.hits_before / asked if asked else None


def disk_cache(options: Options) -> DiskCache:
    """The cache of indexes that the options name."""
    if not options.get(reading.DISK_CACHE):
        return DiskCache(enabled=False)
    cache = index_cache(options)
    stats = cache.stats()
    return DiskCache(True, stats.folder, stats.bytes, stats.limit, stats.entries, cache.files())


def storage_read() -> StorageRead:
    """What was read from storage."""
    read = metrics.figures().get("indextables.store.fetched_bytes")
    return StorageRead(int(read.total), read.count) if read else StorageRead(0, 0)


def environment(options: Options) -> list[Property]:
    """Options, variables of clouds and Spark, libraries, and the process itself."""
    said = [
        Property("spark", f"{PREFIX}{key}", MASK if is_secret(key) else value)
        for key, value in sorted(options.values.items())
    ]
    said += [
        Property("environment", name, value if _is_open(name) and "@" not in value else MASK)
        for name, value in sorted(os.environ.items())
        if name.startswith(_ENVIRONMENT)
    ]
    return [
        *said,
        Property("process", "python", platform.python_version()),
        Property("process", "platform", platform.platform()),
        Property("process", "processors", str(os.cpu_count())),
        Property("process", "pid", str(os.getpid())),
        Property("library", "indextables", VERSION),
        *(Property("library", name, found) for name in _LIBRARIES if (found := _version(name)) is not None),
        Property("native_memory", "arrow_bytes", str(pa.total_allocated_bytes())),
        Property(
            "native_memory",
            "peak_rss_bytes",
            str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024),
        ),
    ]


def flush_searchers() -> int:
    """Close the splits and indexes that this process keeps open; how many there were."""
    return close_sources()


def flush_disk_cache(options: Options) -> Flushed:
    """Delete cached indexes that nobody uses now."""
    if not options.get(reading.DISK_CACHE):
        return Flushed(enabled=False)
    close_sources()
    cache = index_cache(options)
    removed = cache.flush()
    return Flushed(True, str(cache.folder), removed.bytes, removed.files, cache.stats().entries)


def forget_logs(url: str | None = None) -> Forgotten:
    """Forget what this process has read of the log of a table (its url), or of all."""
    before = cache_statistics().values()
    gone = invalidate(None if url is None else f"{url}/{LOG_FOLDER}")
    return Forgotten(gone, sum(s.hits for s in before), sum(s.misses for s in before))


def _is_open(name: str) -> bool:
    """Whether an environment variable is surely no secret."""
    return any(word in name for word in _OPEN) and not any(word in name for word in _SECRET)


def _version(library: str) -> str | None:
    try:
        return version(library)
    except PackageNotFoundError:
        return None
