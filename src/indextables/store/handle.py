"""The handle of a store: rooted at a URL, shared by threads, unusable in a forked child."""

import os
import secrets
import stat
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, assert_never

from indextables import metrics
from indextables.cache import Cache
from indextables.errors import (
    CredentialsError,
    ForkedStoreError,
    ObjectMissingError,
    OutcomeUnknownError,
    StoreError,
    UnsafeStoreError,
)
from indextables.options import Options, cloud
from indextables.options.maintenance import SOURCE_STORE
from indextables.store.backend import AmbiguousCreateError, Backend, Backoff, ObjectInfo, Sink
from indextables.store.credentials import (
    CacheScope,
    CredentialsProvider,
    Identity,
    reader_digest,
    with_provider,
)
from indextables.store.hadoop import default_path, with_hadoop_keys
from indextables.store.local import LocalBackend
from indextables.store.location import (
    Kind,
    Location,
    check,
    check_folder,
    is_whole_url,
    join,
    locate,
    relative_to,
)

if TYPE_CHECKING:
    from indextables.store.clients import Clients, MemoryClients

# inside the class `list` is a method, so these types are defined here
_Parts = list[bytes]
_Infos = list[ObjectInfo]
_Names = list[str]

# Metrics of reads through handles of this process: bytes, and number of calls.
FETCHED = "indextables.store.fetched_bytes"

_DELETE_BATCH = 1000
_BACKOFF = Backoff(base_ms=50, max_ms=5000)


def open_store(
    url: str | os.PathLike[str],
    options: Options = Options(),  # noqa: B008 - immutable
    *,
    credentials: CredentialsProvider | None = None,
) -> "Store":
    """Open the store at a URL or local path; nothing is read or created yet.

    Credentials come from the options, else from the environment, else from the provider's default chain.
    `credentials` may be a callable that returns them (see docs/operations/storage.md); it takes precedence.
    Keys of Hadoop's file systems among the options are used if there is no option of our own.
    """
    location = locate(default_path(url, options))
    return Store(location, _identity(location, options, credentials))


class Store:
    """Objects below a URL. Paths are relative to it and joined by "/"; a whole URL below it is one, too.

    Every write is atomic: readers see an object whole or not at all. A handle may be shared by threads. It
    does not work in a forked child (open a new one there), and its pickle has no secrets; that of
    `with_credentials()` does.
    """

    __slots__ = ("_backend", "_identity", "_location", "_pid", "_reader", "url")

    def __init__(self, location: Location, identity: Identity, reader: str | None = None) -> None:
        self._location = location
        self._identity = identity
        self._reader = reader_digest(location.kind, identity) if reader is None else reader
        self._pid = os.getpid()
        self._backend = connect(location, identity, self._reader)
        self.url = location.url

    @property
    def cache_scope(self) -> CacheScope:
        """The key under which values that were read through this handle are cached in this process.

        Handles have the same scope only if they have the same credentials, so a cached value is returned only
        to readers with the same credentials.
        """
        return CacheScope(self.url, self._reader)

    # --- reading -------------------------------------------------------------------------------------

    def get(self, path: str) -> bytes:
        """The whole object; ObjectMissingError if there is none."""
        data = self._use().get(self._key(path))
        metrics.record(FETCHED, len(data))
        return data

    def get_range(self, path: str, start: int, end: int) -> bytes:
        """The bytes from `start` up to, not including, `end`; both must lie within the object."""
        return self.get_ranges(path, [(start, end)])[0]

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> _Parts:
        """Several ranges of an object in one call; on object stores near ones share a request."""
        backend, key = self._use(), self._key(path)
        for start, end in ranges:
            if not 0 <= start <= end:
                raise StoreError(f"{self._url(path)}: ({start}, {end}) is not a range of bytes")
        non_empty = [(start, end) for start, end in ranges if start < end]
        read = backend.get_ranges(key, non_empty) if non_empty else []
        if read:
            metrics.record(FETCHED, sum(map(len, read)))
        parts = iter(read)
        results = [next(parts) if start < end else b"" for start, end in ranges]
        for (start, end), part in zip(ranges, results, strict=True):
            if len(part) != end - start:
                raise StoreError(
                    f"{self._url(path)} has no bytes {start} to {end}: it ends before that; "
                    "the file was cut or replaced: restore it, or read the table again"
                )
        return results

    def head(self, path: str) -> ObjectInfo:
        """Size and time of an object; ObjectMissingError if there is none."""
        return self._relative(self._use().head(self._key(path)))

    def exists(self, path: str) -> bool:
        """Whether there is an object at the path (a folder is not an object)."""
        try:
            self.head(path)
        except ObjectMissingError:
            return False
        return True

    def list(self, prefix: str = "", *, after: str | None = None) -> Iterator[ObjectInfo]:
        """Every object below the folder `prefix`, sorted by path; with `after`, only paths greater than it.

        Object stores return pages, so a caller that stops early causes fewer requests.
        """
        backend = self._use()
        folder = join(self._location.root, check_folder(prefix))
        start = join(self._location.root, after) if after else ""
        for info in backend.walk(folder, start):
            if info.path > start:
                yield self._relative(info)

    def list_folder(self, prefix: str = "") -> tuple[_Infos, _Names]:
        """The objects directly in a folder, and the names of its sub-folders; both sorted."""
        folder = join(self._location.root, check_folder(prefix))
        objects, folders = self._use().list_folder(folder)
        return (
            sorted((self._relative(info) for info in objects), key=lambda info: info.path),
            sorted(name.rpartition("/")[2] for name in folders),
        )

    @property
    def is_local(self) -> bool:
        """Whether objects are files of the local file system."""
        return self._location.kind is Kind.LOCAL

    @property
    def lists_in_pages(self) -> bool:
        """Whether listings come from a server page by page, in order, so that they can be stopped early."""
        remote = self._location.kind not in (Kind.LOCAL, Kind.MEMORY)
        return remote and not self._location.hierarchical

    def local_path(self, path: str) -> str | None:
        """The path of the object in the local file system; None if the store is not local."""
        return "/" + self._key(path) if self._location.kind is Kind.LOCAL else None

    def is_link(self, path: str) -> bool:
        """Whether there is a symbolic link of the local disk at the path."""
        local = self.local_path(path)
        if local is None:
            return False
        try:
            return stat.S_ISLNK(os.lstat(local).st_mode)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise StoreError(f"{self._url(path)}: {error.strerror}; check the disk, and repeat") from error

    # --- writing -------------------------------------------------------------------------------------

    def put(self, path: str, data: bytes) -> None:
        """Write an object, replacing one that is there."""
        self._use().put(self._key(path), data)

    def create(self, path: str, data: bytes) -> bool:
        """Write an object only if there is none. True: it has our bytes. False: it has another writer's.

        A store may answer "exists" for our own write (a lost answer and a retry) or without an object (a
        conflict), so every such answer is checked by reading the object. Each caller must write unique bytes
        (with a token): equal bytes count as ours.

        The meaning of the outcomes:

        - True: the object has our bytes, and survives a power cut.
        - False: another writer's object exists; ours was not and will not be created.
        - A `StoreError` other than `OutcomeUnknownError`: nothing was created, and nothing will appear later.
          The store refused the request (no permission, no bucket, another region, a full or read-only disk,
          no hard links), or no request was sent (an invalid path, a handle of a parent process), and no
          earlier attempt of this call has an unknown outcome.
        - `OutcomeUnknownError`: the object may exist or appear later. Its subclass `NotDurableError`: the
          object exists, but the disk did not confirm it, so reading it back proves nothing.
        - Any other exception (an interrupt, a lack of memory): the outcome is unknown.
        """
        backend, key = self._use(), self._key(path)
        cause = ""  # why the object may exist, after an attempt whose outcome is unknown
        attempts = self._identity.options.get(cloud.MAX_RETRIES) + 1
        for attempt in range(attempts):
            if attempt:
                _BACKOFF.sleep(attempt)
            try:
                backend.create(key, data)
            except AmbiguousCreateError as maybe:
                cause = maybe.cause or "no answer came"
            except OutcomeUnknownError:
                raise
            except Exception as error:
                if not cause:
                    raise
                raise OutcomeUnknownError(self._url(path), f"{cause}; then: {error}") from None
            else:
                return True
            try:
                return backend.get(key) == data
            except ObjectMissingError:
                continue
            except StoreError as error:
                cause = str(error)
        raise OutcomeUnknownError(self._url(path), cause)

    def upload(self, path: str, local_file: str | os.PathLike[str]) -> int:
        """Write an object from a local file of any size, replacing an existing one; returns its size."""
        source = os.fspath(local_file)
        if not os.path.isfile(source):  # noqa: PTH113 - a string is what the backends take
            raise StoreError(f"cannot upload '{source}' to {self._url(path)}: there is no such local file")
        return self._use().upload(self._key(path), source)

    def open_upload(self, path: str) -> Sink:
        """A binary file to write an object piece by piece; the object appears when it is closed.

        After `abort()`, an exception in a `with` block, or garbage collection of the file there is no object.
        """
        return self._use().open_upload(self._key(path))

    def delete(self, paths: Iterable[str]) -> int:
        """Delete objects in bulk; missing ones are no error.

        Returns the number; object stores count missing ones too.
        """
        backend = self._use()
        keys = (self._key(path) for path in paths)
        deleted = 0
        while batch := list(islice(keys, _DELETE_BATCH)):
            deleted += backend.delete(batch, self._location.root)
        return deleted

    def remove_abandoned(self, *, before_ms: int, other_tables: str = "") -> int:
        """Delete temporary files of killed uploads on the local disk; returns their number.

        `before_ms` is a time by the clock that stamps the store's files, as a purge compares all ages with.
        Folders below this one that have an entry named `other_tables` are skipped. On object stores,
        unfinished uploads are not visible; a lifecycle rule of the bucket removes them.
        """
        return self._use().remove_abandoned(self._location.root, before_ms, other_tables)

    def check_create_if_absent(self) -> None:
        """Make sure that two writers cannot both create an object; UnsafeStoreError if they can.

        Creates an object of a unique name twice with different bytes: the second must lose.
        """
        path = f"_probe_{secrets.token_hex(16)}"
        try:
            first = self.create(path, b"first")
            second = self.create(path, b"second")
            content = self.get(path)
        finally:
            with suppress(StoreError):  # the first error is the one to raise
                self.delete([path])
        if not first or second or content != b"first":
            raise UnsafeStoreError(
                f"{self.url} does not support create-if-absent (the If-None-Match header): both writers "
                "would win, and commits would be lost; use a store that does, such as AWS S3, Azure Blob "
                "Storage, Google Cloud Storage or SeaweedFS"
            )

    # --- the handle itself ---------------------------------------------------------------------------

    def at(self, prefix: str) -> "Store":
        """A handle of the same store, rooted at a folder."""
        self._use()
        return Store(self._location.at(prefix), self._identity, self._reader)

    def check_host(self) -> None:
        """Refuse a location that somebody else chose, if its host would get the credentials of the reader.

        Raises:
            CredentialsError: it names a host that is none of Azure's, and no option names an endpoint.
        """
        _check_host(self._location, self._identity)

    def source_store(self, url: str) -> "Store":
        """The store of a companion index's source, opened with the source's own credentials.

        These are the options `companion.parquet.*`; if none is set, the credentials of this store. The index
        names the source, and may be malicious: credentials go to hosts of the cloud, to the index's own host
        and to endpoints that options name, and to no other host.
        """
        location = locate(url)
        if location.kind is Kind.LOCAL and self._location.kind is not Kind.LOCAL:
            raise StoreError(
                f"the index at {self.url} refers to {location.url} on the local disk; an index in an object "
                "store cannot refer to local files: build the index on the same disk"
            )
        identity = _source_identity(self._identity, location)
        if location.host != self._location.host:
            _check_host(location, identity)
        return Store(location, identity)

    def with_credentials(self) -> "StoreWithCredentials":
        """This store with its secrets, to send to the tasks of a job; it must not be stored."""
        return StoreWithCredentials(self.url, self._identity)

    def __reduce__(self) -> tuple[Any, ...]:
        owner = os.getpid() if self._location.kind is Kind.MEMORY else 0
        return _open_without_secrets, (self.url, self._identity.without_secrets(), owner)

    def __repr__(self) -> str:
        return f"Store({self.url!r})"

    def _use(self) -> Backend:
        if os.getpid() != self._pid:
            raise ForkedStoreError(
                f"the handle of {self.url} was opened in process {self._pid} and is used in its forked child "
                f"{os.getpid()}; open the store in the child, or start children with the 'spawn' method"
            )
        return self._backend

    def _key(self, path: str) -> str:
        if is_whole_url(path):
            path = relative_to(path, self._location)
        return join(self._location.root, check(path))

    def _url(self, path: str) -> str:
        return join(self.url, path)

    def _relative(self, info: ObjectInfo) -> ObjectInfo:
        root = self._location.root
        return replace(info, path=info.path[len(root) + 1 :]) if root else info


def _identity(
    location: Location,
    options: Options,
    credentials: CredentialsProvider | None,
    left_behind: Sequence[str] = (),
) -> Identity:
    own = options if credentials else with_provider(options, location.kind)
    own = with_hadoop_keys(own, location, credentials=credentials is None)
    return Identity(own, credentials, tuple(left_behind), location.url, options)


def _check_host(location: Location, identity: Identity) -> None:
    options = identity.options
    if location.is_of_cloud or options.is_set(cloud.AZURE_ENDPOINT):
        return
    if options.get(cloud.PROVIDER) == "anonymous" and identity.provider is None:
        return
    raise CredentialsError(
        f"{location.url} names the host {location.host}, which is none of Azure's and would get your "
        f"credentials; if you trust it, set {cloud.AZURE_ENDPOINT.key}=https://{location.host} "
        f"({SOURCE_STORE.key}.{cloud.AZURE_ENDPOINT.key} for the source of a companion index)"
    )


def _source_identity(identity: Identity, location: Location) -> Identity:
    """The options and credentials of a companion index's source."""
    options = identity.original_options if identity.original_options.values else identity.options
    provider = identity.provider
    if own := options.family(SOURCE_STORE):
        clouds = {key.partition(".")[0] for key in own}
        others = {key: text for key, text in options.values.items() if key.partition(".")[0] not in clouds}
        options, provider = Options({**others, **own}), None
    return _identity(location, options, provider, identity.left_behind)


class StoreWithCredentials:
    """A store's URL with its secrets, for shipping to the tasks of a running job.

    Its pickle contains the secrets, so it may be sent to workers only: not written to a file, a log, a plan
    that is shown, or a table. Its `repr` shows no secrets.
    """

    __slots__ = ("_identity", "url")

    def __init__(self, url: str, identity: Identity) -> None:
        self.url = url
        self._identity = identity

    def open(self) -> Store:
        """Open the store in the process that received these credentials."""
        return Store(locate(self.url), self._identity)

    def __reduce__(self) -> tuple[Any, ...]:
        return StoreWithCredentials, (self.url, self._identity)

    def __repr__(self) -> str:
        return f"StoreWithCredentials({self.url!r})"


def _open_without_secrets(url: str, identity: Identity, owner: int) -> Store:
    """Open a store whose handle was sent here without its secrets."""
    if owner not in (0, os.getpid()):
        raise StoreError(f"{url} is the memory of process {owner} and cannot be reached from {os.getpid()}")
    return Store(locate(url), identity)


_MAX_CLIENTS = 64
_BEHAVIOUR = ("cloud.", "s3.")

_lock = threading.Lock()
_remotes: "Cache[tuple[Any, ...], Clients]" = Cache(_MAX_CLIENTS, retain_in_child=True)
_memories: "dict[str, MemoryClients]" = {}
_of_parents: list[object] = []


def connect(location: Location, identity: Identity, reader: str) -> Backend:
    """The backend for a location; connections to the same store are reused.

    `reader` is the digest of the identity: handles share connections only if they have the same credentials.
    """
    match location.kind:
        case Kind.LOCAL:
            return LocalBackend()
        # Libraries of clients take a tenth of a second to import, and a local table needs none.
        case Kind.HDFS:
            from indextables.store.hdfs import HdfsBackend  # noqa: PLC0415

            return HdfsBackend(location, identity, reader)
        case Kind.MEMORY | Kind.S3 | Kind.AZURE | Kind.GCS:
            from indextables.store.remote import RemoteBackend  # noqa: PLC0415

            return RemoteBackend(location, identity, _clients(location, identity, reader))
        case kind:
            assert_never(kind)


def _clients(location: Location, identity: Identity, reader: str) -> "Clients":
    from indextables.store.clients import MemoryClients, RemoteClients  # noqa: PLC0415

    with _lock:
        if location.kind is Kind.MEMORY:
            return _memories.setdefault(location.bucket, MemoryClients())
        behaviour = frozenset(
            item for item in identity.options.values.items() if item[0].startswith(_BEHAVIOUR)
        )
        key = (location.kind, location.bucket, location.host, behaviour, reader)
        return _remotes.get(key) or _remotes.put_if_absent(key, RemoteClients(location, identity))


def _after_fork() -> None:
    """Reset the cache of clients in a forked child: a thread of the parent may have held the lock.

    The parent's clients stay referenced: closing them needs threads that the child does not have.
    """
    global _lock, _memories
    _of_parents.append(_memories)
    _lock, _memories = threading.Lock(), {}


os.register_at_fork(after_in_child=_after_fork)
