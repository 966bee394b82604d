"""Object stores, and the in-memory store, through obstore."""

import os
import queue
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from enum import Enum, auto
from functools import partial
from typing import Any, TypeAlias, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError

from indextables import metrics
from indextables.errors import CredentialsError, ForkedStoreError, ObjectMissingError, StoreError
from indextables.options import cloud
from indextables.store.backend import AmbiguousCreateError, Backoff, ObjectInfo, Sink
from indextables.store.clients import Client, Clients, HedgeBudget
from indextables.store.credentials import Identity
from indextables.store.location import Kind, Location, check_size, join

_QUERY = re.compile(r"\?[^\s\"')]*")
_URL = re.compile(r"https?://[^\s\"',)]+")
# URLs from which a client gets credentials before it sends a request to the store
_CREDENTIALS_URL = re.compile(
    r"https?://(169\.254\.|metadata\.google|sts\.[a-z0-9.-]*amazonaws\.|login\.microsoftonline\.|"
    r"oauth2\.googleapis\.|[^/]+/(latest/api/token|latest/meta-data/iam/|computeMetadata/|metadata/identity/))"
)
# hosts of credentials, never of objects: no name of a bucket or object looks like one
_CREDENTIALS_HOST = re.compile(
    r"https?://(169\.254\.169\.254|169\.254\.170\.2|metadata\.google\.internal|login\.microsoftonline\.com|"
    r"oauth2\.googleapis\.com|sts\.((?!s3)[a-z0-9-]+\.)?amazonaws\.com)[:/]"
)
_USER = re.compile(r"//[^/\s\"']*@")
_LONGEST = 300


class Reason(Enum):
    """Why a client failed, as far as its message shows."""

    PROVIDER = auto()
    MISSING = auto()
    NO_BUCKET = auto()
    NO_CREDENTIALS = auto()
    BAD_CREDENTIALS = auto()
    DENIED = auto()
    REGION = auto()
    UNREACHABLE = auto()
    OTHER = auto()


# codes are matched with their tags, so that the name of an object cannot be mistaken for one
_PATTERNS = {
    Reason.NO_CREDENTIALS: re.compile(r"performing token request"),
    Reason.BAD_CREDENTIALS: re.compile(r"credential error|Invalid Access Key|decode service account"),
    Reason.DENIED: re.compile(
        r"status code: 40[13]\b|<Code>(AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|"
        r"AuthenticationFailed|AuthorizationFailure)<|"
        r"DeleteObjects request failed .*\(code: (AccessDenied|InvalidAccessKeyId|ExpiredToken)\)$",
        re.MULTILINE,
    ),
    Reason.NO_BUCKET: re.compile(r"<Code>(NoSuchBucket|ContainerNotFound)<"),
    Reason.REGION: re.compile(
        r"redirect without LOCATION|<Code>(PermanentRedirect|AuthorizationHeaderMalformed)<"
    ),
    Reason.UNREACHABLE: re.compile(r"error sending request|onnection|dns error|operation timed out|TimedOut"),
}
# the type and text of an exception of a credentials provider
_PROVIDER = re.compile(r"External \w+ credential provider: (\w+)(?:: (.*))?")
_NOTHING_DONE = {
    Reason.PROVIDER,
    Reason.MISSING,
    Reason.NO_BUCKET,
    Reason.NO_CREDENTIALS,
    Reason.BAD_CREDENTIALS,
    Reason.DENIED,
    Reason.REGION,
}


def reason(error: Exception) -> Reason:
    """Why the client failed, by the type of the error and by its text."""
    if isinstance(error, UnauthenticatedError) and _PROVIDER.search(str(error)):
        return Reason.PROVIDER
    if _CREDENTIALS_URL.search(str(error)):
        return Reason.NO_CREDENTIALS
    return _reason_by_words(error)


def _reason_by_words(error: Exception) -> Reason:
    text = _URL.sub("", str(error))  # URLs contain names of objects, which may contain any text
    reason_by_pattern = next(
        (reason for reason, pattern in _PATTERNS.items() if pattern.search(text)), Reason.OTHER
    )
    if isinstance(error, (PermissionDeniedError, UnauthenticatedError)):
        return Reason.DENIED
    if isinstance(error, FileNotFoundError) and reason_by_pattern is not Reason.NO_BUCKET:
        return Reason.MISSING
    return reason_by_pattern


def translate(error: Exception, url: str, kind: Kind, identity: Identity) -> StoreError:
    """The error to raise for an error of the client. It has no reference to the client's error."""
    advice = identity.advice(kind)
    match reason(error):
        case Reason.PROVIDER:
            return CredentialsError(f"{url}: {redact(_provider_problem(error), identity)}")
        case Reason.MISSING:
            return ObjectMissingError(url)
        case Reason.NO_BUCKET:
            return StoreError(f"{url}: there is no such bucket or container; create it, or correct the URL")
        case Reason.NO_CREDENTIALS:
            return CredentialsError(f"{url}: no credentials were found; {advice}")
        case Reason.BAD_CREDENTIALS:  # the text may quote the credentials
            return CredentialsError(f"{url}: the credentials are malformed; {advice}")
        case Reason.DENIED:
            return CredentialsError(
                f"{url}: the store refused the credentials: they are wrong, expired, or lack the permission; "
                f"{advice}"
            )
        case Reason.REGION:
            return StoreError(f"{url}: the bucket is in another region; set aws.region to the bucket's")
        case Reason.UNREACHABLE:
            remedy = "check the endpoint and the network, and repeat the operation"
        case _:
            remedy = "repeat the operation; if the error persists, look at the store's own log"
    return StoreError(f"{url}: {redact(str(error), identity)}; {remedy}")


def _provider_problem(error: Exception) -> str:
    """The message of a provider's CredentialsError; else only the error's type, as texts may have secrets."""
    match = _PROVIDER.search(str(error).partition("\n")[0])
    if match is not None and match[1] == CredentialsError.__name__:
        return match[2] or ""
    kind = match[1] if match else "an error"
    return f"the credentials provider failed with {kind}; call it by itself to see why"


def is_denied(error: Exception) -> bool:
    """Whether the store refused the credentials of a request."""
    return reason(error) is Reason.DENIED


def is_refused(error: Exception) -> bool:
    """Whether the store certainly did nothing: it refused the request, or none was sent."""
    if isinstance(error, AlreadyExistsError):
        return False
    if isinstance(error, ValueError) or _CREDENTIALS_HOST.search(str(error)):
        return True
    return _reason_by_words(error) in _NOTHING_DONE


def cause(error: Exception, identity: Identity) -> str:
    """A short reason why the outcome of a create is unknown."""
    if isinstance(error, AlreadyExistsError):
        return "the store reported an existing object or a conflict"
    return redact(str(error), identity)


def redact(text: str, identity: Identity) -> str:
    """The first line of a message, without secrets, and URLs without users and queries (signatures)."""
    line = _USER.sub("//***@", _QUERY.sub("", text.strip().partition("\n")[0]))
    for secret in identity.secrets():
        line = line.replace(secret, "***")
    return line[:_LONGEST]


T = TypeVar("T")
_Task: TypeAlias = Callable[[], None]

_PAGE = 1000
_MOST_PARTS = 10_000
_DELETES_AT_ONCE = 16
_AZURE_BATCH = 256
# Larger reads take long because of their size, and are not requested a second time.
_HEDGED_BYTES = 1 << 20
# A thread that has no read for this long ends.
_IDLE_SECONDS = 10.0
# After the first attempt of a read failed.
_BACKOFF = Backoff(base_ms=100, max_ms=100)
# Reads that were requested a second time.
HEDGED = "indextables.store.hedged_reads"
# the errors of obstore; ValueError for an invalid key
_FAILURES = (BaseError, OSError, ValueError)


class _Runtime:
    """The process that runs obstore's threads; in its forked children a call would hang."""

    pid: int | None = None


class _DaemonThreads:
    """Threads of reads that may be requested twice, as many as there are such reads.

    The end of the process does not wait for them, so a request without a response does not delay it. A
    forked child creates its own.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Reset in a forked child, which has no threads."""
        self._lock = threading.Lock()
        # With this, threads without a read wait for their next one.
        self._idle: list[queue.SimpleQueue[_Task]] = []

    def submit(self, read: Callable[[], T]) -> "Future[T]":
        """Start a read now."""
        future: Future[T] = Future()
        task = partial(_complete, future, read)
        with self._lock:
            inbox = self._idle.pop() if self._idle else None
        if inbox is not None:
            inbox.put(task)
        else:
            threading.Thread(target=self._work, args=(task,), name="indextables-read", daemon=True).start()
        return future

    def _work(self, task: "_Task | None") -> None:
        inbox: queue.SimpleQueue[_Task] = queue.SimpleQueue()
        while task is not None:
            task()
            with self._lock:
                self._idle.append(inbox)
            task = self._next(inbox)

    def _next(self, inbox: "queue.SimpleQueue[_Task]") -> "_Task | None":
        """The next read of a thread; None if there is none for some time."""
        try:
            return inbox.get(timeout=_IDLE_SECONDS)
        except queue.Empty:
            with self._lock:
                if inbox in self._idle:
                    self._idle.remove(inbox)
                    return None
        return inbox.get()


def _complete(future: "Future[T]", read: Callable[[], T]) -> None:
    try:
        future.set_result(read())
    except BaseException as error:  # noqa: BLE001 - the caller raises it
        future.set_exception(error)


_daemon_threads = _DaemonThreads()
os.register_at_fork(after_in_child=_daemon_threads.reset)


def hedge(read: Callable[[], T], seconds: float, budget: HedgeBudget) -> T:
    """The result of a read. After `seconds` it is requested a second time, and the first result counts.

    An error counts only if both reads fail. If the budget is used up, the first read is awaited.
    """
    budget.count_read()
    running = {_daemon_threads.submit(read)}
    done, running = wait(running, seconds)
    if not done and budget.take():
        metrics.record(HEDGED, 1)
        running.add(_daemon_threads.submit(read))
    while not done or (running and all(each.exception() for each in done)):
        more, running = wait(running, return_when=FIRST_COMPLETED)
        done |= more
    return min(done, key=lambda each: each.exception() is not None).result()


class RemoteBackend:
    """One bucket or container; a key is the path of an object in it."""

    def __init__(self, location: Location, identity: Identity, clients: Clients) -> None:
        self._location = location
        self._identity = identity
        self._clients = clients

    def get(self, key: str) -> bytes:
        """The whole object."""
        return self._fetching(key, partial(_get, key=key, url=self._url(key)), is_small=False)

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Fetch ranges: those close to each other by one request, others in parallel."""
        is_small = sum(end - start for start, end in merge_ranges(ranges)) <= _HEDGED_BYTES
        try:
            return self._fetching(key, partial(_fetch, key=key, ranges=ranges), is_small=is_small)
        except (ObjectMissingError, CredentialsError):
            raise
        except StoreError:
            # obstore raises an error for a range that begins after the end of the object
            size = self.head(key).size
            if all(start < size for start, _ in ranges):
                raise
        inside = [(start, min(end, size)) for start, end in ranges if start < size]
        parts = iter(self.get_ranges(key, inside) if inside else [])
        return [next(parts) if start < size else b"" for start, _ in ranges]

    def head(self, key: str) -> ObjectInfo:
        """Size and time of an object."""
        return _info(self._reading(key, lambda client: obstore.head(client, key)))

    def walk(self, folder: str, after: str) -> Iterator[ObjectInfo]:
        """Every object below a folder, page by page, in order."""
        pages = self._pages(folder, after)
        if self._location.hierarchical:
            # ADLS Gen2 sorts folder by folder ("a/b" before "a-b"), so all pages are sorted again
            yield from sorted((info for page in pages for info in page), key=lambda info: info.path)
            return
        last = ""
        for page in pages:
            for info in page:
                if info.path > last:
                    last = info.path
                    yield info
                elif info.size:  # an empty object marks a folder for some tools: it is skipped
                    raise StoreError(
                        f"{self._url(folder)}: the store lists '{info.path}' after '{last}', out of order; "
                        "on ADLS Gen2 write the URL as abfss://"
                    )

    def list_folder(self, folder: str) -> tuple[list[ObjectInfo], list[str]]:
        """List one level, with the delimiter of the store's API."""
        listing = self._reading(folder, lambda client: obstore.list_with_delimiter(client, folder or None))
        objects = [_info(meta) for meta in listing["objects"] if meta["path"] != folder]
        return objects, list(listing["common_prefixes"])

    def put(self, key: str, data: bytes) -> None:
        """Write an object, replacing one that is there."""
        self._writing(key, partial(self._send, key=key, source=data, size=len(data)))

    def create(self, key: str, data: bytes) -> None:
        """Send one conditional request; raises AmbiguousCreateError if the outcome is unknown."""
        self._request(
            lambda: self._clients.claiming(len(data)),
            lambda client: obstore.put(client, key, data, mode="create", use_multipart=False),
            lambda error: self._translate_claim_error(error, key),
        )

    def upload(self, key: str, local_file: str) -> int:
        """Write a small file by one request, a large one in parts; visible when all parts have arrived."""
        size = os.stat(local_file).st_size  # noqa: PTH116 - a string is what callers have
        with open(local_file, "rb") as source:  # noqa: PTH123

            def send(client: Client) -> None:
                source.seek(0)
                self._send(client, key, source, size)

            self._writing(key, send)
        return size

    def open_upload(self, key: str) -> Sink:
        """Open an upload in parts, which are sent while more is written; closing creates the object."""
        return _RemoteSink(self, key)

    def delete(self, keys: Sequence[str], root: str) -> int:  # noqa: ARG002 - there are no folders to tidy up
        """Delete in bulk if the store can; counts all keys, since the store does not report which existed."""
        if self._location.kind in (Kind.S3, Kind.MEMORY):  # missing keys are no error in these stores
            self._reading(keys[0], lambda client: obstore.delete(client, list(keys)))
            return len(keys)
        for at in range(0, len(keys), _AZURE_BATCH):
            self._delete_batch(keys[at : at + _AZURE_BATCH])
        return len(keys)

    def remove_abandoned(self, folder: str, before_ms: int, other_tables: str) -> int:  # noqa: ARG002
        """Do nothing: unfinished uploads are invisible, and a lifecycle rule of the bucket removes them."""
        return 0

    def start_upload(self, key: str) -> "obstore.WritableFile":
        """Start an upload in parts."""
        options = self._identity.options
        return self._writing(
            key,
            lambda client: obstore.open_writer(
                client,
                key,
                buffer_size=options.get(cloud.PART_SIZE),
                max_concurrency=options.get(cloud.MAX_CONCURRENCY),
            ),
        )

    def during_upload(self, key: str, step: Callable[[], T]) -> T:
        """Run a step of an upload; errors of obstore are raised as errors of this package."""
        return self._request(
            self._clients.writing,
            lambda _: step(),
            lambda error: self._translate_write_error(error, key),
            repeatable=False,
        )

    # --- below, the edge: every call into obstore goes through here ----------------------------------

    def _fetching(self, key: str, call: Callable[[Client], T], *, is_small: bool) -> T:
        """Read bytes; a small read that takes unusually long is requested a second time.

        A client repeats what fails by itself, and that takes long, too. So the first attempt is one request,
        and only that one may be made twice.
        """
        options = self._identity.options
        seconds = options.get(cloud.HEDGE_AFTER_MS) / 1000
        if not seconds or self._location.kind is Kind.MEMORY:
            return self._reading(key, call)
        once = partial(self._reading, key, call, self._clients.reading_once)
        try:
            return hedge(once, seconds, self._clients.budget) if is_small else once()
        except (ObjectMissingError, CredentialsError):
            raise
        except StoreError:
            if not options.get(cloud.MAX_RETRIES):
                raise
        _BACKOFF.sleep(1)
        return self._reading(key, call, self._clients.reading_again)

    def _reading(
        self,
        key: str,
        call: Callable[[Client], T],
        choose: Callable[[], Client] | None = None,
        *,
        repeatable: bool = True,
    ) -> T:
        return self._request(
            choose or self._clients.reading,
            call,
            lambda error: translate(error, self._url(key), self._location.kind, self._identity),
            repeatable=repeatable,
        )

    def _writing(self, key: str, call: Callable[[Client], T]) -> T:
        return self._request(
            self._clients.writing, call, lambda error: self._translate_write_error(error, key)
        )

    def _request(
        self,
        choose: Callable[[], Client],
        call: Callable[[Client], T],
        failure_of: Callable[[Exception], Exception],
        *,
        repeatable: bool = True,
    ) -> T:
        """Call a client; if the store refuses the credentials and a provider has others, call once more."""
        attempts = 2 if repeatable else 1
        while True:
            attempts -= 1
            client = self._client(choose)
            try:
                return call(client)
            except _FAILURES as error:
                failure, again = failure_of(error), attempts > 0 and is_denied(error)
            # outside of the handler, so that the client's error, which may quote secrets, is not its context
            if not again or not self._clients.renew(client):
                raise failure

    def _client(self, choose: Callable[[], Client]) -> Client:
        if _Runtime.pid not in (None, os.getpid()):
            raise ForkedStoreError(
                f"{self._location.url} cannot be used in process {os.getpid()}, forked from {_Runtime.pid}, "
                "which used an object store before; start children with the 'spawn' or 'forkserver' method"
            )
        _Runtime.pid = os.getpid()
        try:
            return choose()
        except (BaseError, ValueError) as error:
            failure = translate(error, self._location.url, self._location.kind, self._identity)
        raise failure

    def _translate_claim_error(self, error: Exception, key: str) -> Exception:
        if is_refused(error):
            return self._translate_write_error(error, key)
        return AmbiguousCreateError(cause(error, self._identity))

    def _translate_write_error(self, error: Exception, key: str) -> StoreError:
        translated = translate(error, self._url(key), self._location.kind, self._identity)
        if isinstance(translated, ObjectMissingError):  # a write needs no object, so the bucket is missing
            return StoreError(
                f"{translated.url}: there is no such bucket or container; create it, or correct the URL"
            )
        return translated

    def _send(self, client: Client, key: str, source: Any, size: int) -> None:  # noqa: ANN401 - bytes or a file
        options = self._identity.options
        obstore.put(
            client,
            key,
            source,
            mode="overwrite",
            use_multipart=size > options.get(cloud.MULTIPART_THRESHOLD),
            chunk_size=max(options.get(cloud.PART_SIZE), -(-size // _MOST_PARTS)),
            max_concurrency=options.get(cloud.MAX_CONCURRENCY),
        )

    def _pages(self, folder: str, after: str) -> Iterator[list[ObjectInfo]]:
        # only on S3: other stores may ignore the offset or interpret it differently; callers filter anyway
        offset = after if after and self._location.kind is Kind.S3 else None

        def start(client: Client) -> tuple[Any, Any]:
            stream = obstore.list(client, folder or None, offset=offset, chunk_size=_PAGE)
            return stream, next(stream, None)

        stream, page = self._reading(folder, start)
        while page is not None:
            yield [_info(meta) for meta in page if meta["path"] != folder]
            page = self._reading(folder, lambda _: next(stream, None), repeatable=False)

    def _delete_batch(self, keys: Sequence[str]) -> None:
        try:
            self._reading(keys[0], lambda client: obstore.delete(client, list(keys)))
        except ObjectMissingError:
            # the first missing key ends a bulk call before the others are deleted: one by one
            with ThreadPoolExecutor(_DELETES_AT_ONCE) as pool:
                list(pool.map(self._delete_one, keys))

    def _delete_one(self, key: str) -> None:
        with suppress(ObjectMissingError):
            self._reading(key, lambda client: obstore.delete(client, key))

    def _url(self, key: str) -> str:
        return join(self._location.base, key)


class _RemoteSink(Sink):
    """An upload in parts."""

    def __init__(self, backend: RemoteBackend, key: str) -> None:
        super().__init__()
        self._backend = backend
        self._key = key
        self._writer = backend.start_upload(key)

    def _add(self, data: memoryview) -> None:
        self._backend.during_upload(self._key, lambda: self._writer.write(data))

    def _publish(self) -> None:
        self._backend.during_upload(self._key, self._writer.close)

    def _discard(self) -> None:
        # leaving its `with` block by an exception aborts obstore's writer
        self._writer.__exit__(InterruptedError, InterruptedError(), None)


def _get(client: Client, *, key: str, url: str) -> bytes:
    result = obstore.get(client, key)
    check_size(url, result.meta["size"])
    return bytes(result.bytes())


def _fetch(client: Client, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
    # ranges are merged here, since obstore panics when the object ends inside a merged range
    whole = merge_ranges(ranges)

    def fetch(some: Sequence[tuple[int, int]]) -> list[memoryview]:
        starts, ends = [start for start, _ in some], [end for _, end in some]
        parts = obstore.get_ranges(client, key, starts=starts, ends=ends, coalesce=0)
        return [memoryview(part) for part in parts]

    if len(whole) <= _RANGES_AT_ONCE:
        return cut_ranges(ranges, whole, fetch(whole))
    groups = [whole[at : at + _RANGES_AT_ONCE] for at in range(0, len(whole), _RANGES_AT_ONCE)]
    with ThreadPoolExecutor(
        min(len(groups), _MAX_THREADS), thread_name_prefix="indextables-ranges"
    ) as threads:
        return cut_ranges(ranges, whole, [part for parts in threads.map(fetch, groups) for part in parts])


def _info(meta: "obstore.ObjectMeta") -> ObjectInfo:
    modified_ms = int(meta["last_modified"].timestamp() * 1000)
    return ObjectInfo(meta["path"], meta["size"], modified_ms, meta["e_tag"] or "")


# Ranges with a gap of at most this many bytes are read by one request. A few parallel requests cost no more
# than one; with many, larger gaps are read instead.
_SMALL_GAP_BYTES, _LARGE_GAP_BYTES = 64 << 10, 1 << 20
_FEW_REQUESTS = 16
# The number of parallel requests of one call of obstore; for more, several calls run in parallel.
_RANGES_AT_ONCE = 10
_MAX_THREADS = 4

Range = tuple[int, int]


def merge_ranges(ranges: Sequence[Range]) -> list[Range]:
    """Merge ranges with a gap of at most 64 KiB, or 1 MiB if there are many ranges.

    >>> merge_ranges([(10, 20), (5_000_000, 5_000_010), (0, 5), (15, 30)])
    [(0, 30), (5000000, 5000010)]
    >>> merge_ranges([(at, at + 10) for at in range(0, 10_000_000, 500_000)])
    [(0, 9500010)]
    """
    few = _merge(ranges, _SMALL_GAP_BYTES)
    return few if len(few) <= _FEW_REQUESTS else _merge(few, _LARGE_GAP_BYTES)


def _merge(ranges: Sequence[Range], gap: int) -> list[Range]:
    joined: list[Range] = []
    for start, end in sorted(ranges):
        if joined and start - joined[-1][1] <= gap:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


def cut_ranges(ranges: Sequence[Range], fetched: Sequence[Range], parts: Sequence[memoryview]) -> list[bytes]:
    """Cut each range out of the merged ones that were fetched; truncated where these are.

    >>> cut_ranges([(2, 4), (0, 1)], [(0, 4)], [memoryview(b"abcd")])
    [b'cd', b'a']
    """
    cuts: dict[Range, bytes] = {}
    at = 0
    for start, end in sorted(ranges):
        while fetched[at][1] < end:
            at += 1
        first = fetched[at][0]
        cuts[start, end] = bytes(parts[at][start - first : end - first])
    return [cuts[part] for part in ranges]
