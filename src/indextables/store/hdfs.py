"""HDFS as a store, through hdfs-native, a client without a JVM.

Bytes go into a hidden temporary file beside the target, are flushed by the data nodes (`hsync`), and only
then get their name by a rename, which the name node does atomically: without the flag to overwrite it fails
if the name is taken (create), with it it replaces (put). docs/decisions/012-hdfs.md explains why that is
safe.
"""

import os
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Any, TypeVar

from indextables.cache import Cache
from indextables.errors import CredentialsError, ObjectMissingError, StoreError
from indextables.options import Options, cloud
from indextables.store.backend import (
    TEMPORARY,
    AmbiguousCreateError,
    Backoff,
    ObjectInfo,
    Sink,
    temporary_name,
)
from indextables.store.credentials import Identity
from indextables.store.location import Kind, Location, check_size, join
from indextables.store.remote import cut_ranges, merge_ranges

# The errors of hdfs-native: OSError and its subclasses, RuntimeError for other errors of the name node.
_FAILURES = (OSError, RuntimeError)
_REMOTE = re.compile(r'RPCError\("([\w.$]+)", "(.*?)(?:\\n|"\))', re.DOTALL)
_DENIED = ("AccessControlException", "AuthorizationException", "InvalidToken", "SaslException")
_COPY_BYTES = 8 << 20
_LONGEST = 300
_MAX_CLIENTS = 16
_BACKOFF = Backoff(base_ms=50, max_ms=5000)
# The maximum number of attempts to delete a temporary file.
_DELETIONS = 3
_Result = TypeVar("_Result")
_HdfsClient = Any
"""A client of hdfs-native, which is an optional package."""


class HdfsBackend:
    """Files of one name node or name service; a key is an absolute path without its first slash."""

    def __init__(self, location: Location, identity: Identity, reader: str) -> None:
        self._location = location
        self._identity = identity
        self._reader = reader

    def get(self, key: str) -> bytes:
        """The whole file."""
        with self._translate_errors(key):
            reader = self._client().read(_path(key))
            check_size(self._url(key), len(reader))
            return bytes(reader.read_range(0, len(reader)))

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Parts of a file; truncated at its end. Adjacent parts are read together."""
        with self._translate_errors(key):
            reader = self._client().read(_path(key))
            size = len(reader)
            whole = merge_ranges(ranges)
            parts = [_read(reader, min(start, size), min(end, size)) for start, end in whole]
        return cut_ranges(ranges, whole, [memoryview(part) for part in parts])

    def head(self, key: str) -> ObjectInfo:
        """Size and time of a file; a folder is not an object."""
        with self._translate_errors(key):
            status = self._client().get_file_info(_path(key))
            if status.isdir:
                raise ObjectMissingError(self._url(key))
            return _info(status)

    def walk(self, folder: str, after: str) -> Iterator[ObjectInfo]:
        """Every file below a folder, sorted as object stores do; whole folders before `after` are skipped."""
        for name, status in self._entries(folder):
            key = join(folder, name)
            if name.endswith("/"):
                if key > after or after.startswith(key):
                    yield from self.walk(key[:-1], after)
            elif key > after and TEMPORARY.fullmatch(name) is None:
                yield _info(status)

    def list_folder(self, folder: str) -> tuple[list[ObjectInfo], list[str]]:
        """Files and folders directly in a folder; a folder without any file below it does not exist."""
        objects, folders = [], []
        for name, status in self._entries(folder):
            key = join(folder, name)
            if not name.endswith("/"):
                if TEMPORARY.fullmatch(name) is None:
                    objects.append(_info(status))
            elif next(self.walk(key[:-1], ""), None) is not None:
                folders.append(key[:-1])
        return objects, folders

    def put(self, key: str, data: bytes) -> None:
        """Write a file, replacing one that is there."""
        self._write(key, lambda writer: writer.write(data), len(data))

    def create(self, key: str, data: bytes) -> None:
        """Write a file if there is none; if the file exists, the caller determines who wrote it.

        Before the rename nothing is visible. After any error of the rename the outcome is unknown: its answer
        may be lost.
        """
        temporary = self._fill(key, lambda writer: writer.write(data))
        reason = ""
        try:
            self._client().rename(_path(temporary), _path(key), False)
        except FileExistsError:
            reason = "the name is taken"
        except _FAILURES as error:
            reason = _text(error)
        if reason:
            # A delayed rename then has no source.
            self._abandon(temporary)
            raise AmbiguousCreateError(reason)

    def upload(self, key: str, local_file: str) -> int:
        """Copy a local file in, atomically."""
        with open(local_file, "rb", buffering=0) as source:  # noqa: PTH123 - a string is what callers have
            size = os.fstat(source.fileno()).st_size
            self._write(key, lambda writer: _copy(source, writer), size)
        return size

    def open_upload(self, key: str) -> Sink:
        """Write a file piece by piece."""
        with self._translate_errors(key, writes=True):
            temporary, writer = self._repeat(lambda: self._start(key))
            return _HdfsSink(self, key, temporary, writer)

    def delete(self, keys: Sequence[str], root: str) -> int:
        """Delete files, and the folders below `root` that this leaves empty."""
        deleted = 0
        folders = set()
        for key in keys:
            with self._translate_errors(key):
                if self._client().delete(_path(key), False):
                    deleted += 1
                    folders.add(key.rpartition("/")[0])
        for folder in folders:
            self._remove_empty(folder, root)
        return deleted

    def remove_abandoned(self, folder: str, before_ms: int, other_tables: str) -> int:
        """Delete temporary files of killed processes."""
        entries = self._entries(folder)
        removed = 0
        for name, status in entries:
            key = join(folder, name)
            if name.endswith("/"):
                if not any(below == f"{other_tables}/" for below, _ in self._entries(key[:-1])):
                    removed += self.remove_abandoned(key[:-1], before_ms, other_tables)
            elif TEMPORARY.fullmatch(name) and status.modification_time < before_ms:
                with self._translate_errors(key):
                    removed += self._client().delete(_path(key), False)
        return removed

    # --- steps of a write ----------------------------------------------------------------------------

    def _start(self, key: str) -> tuple[str, Any]:
        """A new temporary file beside a key, and its writer; folders above it are created."""
        from hdfs_native import WriteOptions  # noqa: PLC0415 - optional

        temporary = self._temporary(key)
        try:
            options = WriteOptions(create_parent=True, overwrite=False)
            return temporary, self._client().create(_path(temporary), options)
        except OSError as error:
            if _is_lost(error):
                self._abandon(temporary)
            raise

    def publish(self, key: str, temporary: str, writer: Any, size: int) -> None:  # noqa: ANN401
        """Flush a temporary file of this many bytes and give it its name, replacing a file that has it."""
        try:
            with self._translate_errors(key, writes=True):
                _finish(writer)
        except BaseException:
            self._abandon(temporary)
            raise
        self._rename_over(temporary, key, size)

    def discard(self, temporary: str, writer: Any) -> None:  # noqa: ANN401
        """Delete a temporary file that is not finished."""
        with suppress(*_FAILURES):  # a file that is still open is deleted all the same
            writer.close()
        self._abandon(temporary)

    @contextmanager
    def translate_write_errors(self, key: str) -> Iterator[None]:
        """Raise errors of hdfs-native during a write as errors of this package."""
        with self._translate_errors(key, writes=True):
            yield

    def _write(self, key: str, fill: Callable[[Any], Any], size: int) -> None:
        self._rename_over(self._fill(key, fill), key, size)

    def _rename_over(self, temporary: str, key: str, size: int) -> None:
        lost = False

        def rename() -> None:
            nonlocal lost
            try:
                self._client().rename(_path(temporary), _path(key), True)
            except FileNotFoundError:
                # If an attempt before this one took effect, the file is there under its name. It is not if
                # its folder was deleted meanwhile.
                if not lost or self._size_of(key) != size:
                    raise
            except OSError as error:
                lost = lost or _is_lost(error)
                raise

        try:
            with self._translate_errors(key, writes=True):
                self._repeat(rename)
        except BaseException:
            self._abandon(temporary)
            raise

    def _size_of(self, key: str) -> int | None:
        """The size of a file; None if there is none."""
        try:
            length: int = self._client().get_file_info(_path(key)).length
        except FileNotFoundError:
            return None
        return length

    def _fill(self, key: str, fill: Callable[[Any], Any]) -> str:
        """Write a temporary file, flush and close it; returns its key. `fill` may be called several times."""

        def attempt() -> str:
            temporary, writer = self._start(key)
            try:
                fill(writer)
                _finish(writer)
            except BaseException:
                self._abandon(temporary)
                raise
            return temporary

        with self._translate_errors(key, writes=True):
            return self._repeat(attempt)

    def _temporary(self, key: str) -> str:
        if ":" in key:
            raise StoreError(
                f"{self._url(key)} has a colon, which HDFS does not allow in names; escape it as %3A"
            )
        return join(key.rpartition("/")[0], temporary_name(secrets.token_hex(16)))

    def _abandon(self, temporary: str) -> None:
        with suppress(*_FAILURES, StoreError):  # the first error is the one to raise
            # The name is unique, so that a repeated deletion cannot hit another file.
            self._repeat(lambda: self._client().delete(_path(temporary), False), most=_DELETIONS)

    def _remove_empty(self, folder: str, root: str) -> None:
        while folder.startswith(root + "/"):
            try:
                if not self._client().delete(_path(folder), False):
                    return
            except _FAILURES:  # not empty, or not removable by this user
                return
            folder = folder.rpartition("/")[0]

    def _entries(self, folder: str) -> list[tuple[str, Any]]:
        """The entries of a folder, in the order of whole keys: a folder is compared with its slash."""
        path = _path(folder)
        try:
            with self._translate_errors(folder):
                listing = list(self._client().list_status(path, False))
        except ObjectMissingError:
            return []
        entries = [(_name(status), status) for status in listing if status.path != path or status.isdir]
        return sorted(entries, key=lambda entry: entry[0])

    # --- the edge: every call into hdfs-native goes through a client from here ------------------------

    def _client(self) -> _HdfsClient:
        retries = self._identity.options.get(cloud.MAX_RETRIES)
        key = (self._location.bucket, self._reader, retries)
        return _clients.get(key) or _clients.put_if_absent(
            key, _connect(self._location, self._identity.options)
        )

    def _repeat(self, call: Callable[[], _Result], *, most: int = 1000) -> _Result:
        """Repeat an idempotent call after a lost connection; hdfs-native itself repeats only reads."""
        attempts = min(self._identity.options.get(cloud.MAX_RETRIES) + 1, most)
        for attempt in range(1, attempts):
            try:
                return call()
            except OSError as error:
                if not _is_lost(error):
                    raise
            _BACKOFF.sleep(attempt)
        return call()

    @contextmanager
    def _translate_errors(self, key: str, *, writes: bool = False) -> Iterator[None]:
        failure: Exception | None = None
        try:
            yield
        except _FAILURES as error:
            failure = self._translate(error, key, writes=writes)
        if failure is not None:  # outside of the handler: the client's error quotes traces of the name node
            raise failure

    def _translate(self, error: Exception, key: str, *, writes: bool) -> Exception:
        url = self._url(key)
        if isinstance(error, FileNotFoundError) and not writes:
            return ObjectMissingError(url)
        text = _text(error)
        if isinstance(error, PermissionError) or any(word in text for word in _DENIED):
            advice = self._identity.advice(Kind.HDFS)
            return CredentialsError(f"{url}: HDFS refused the user: {text}; {advice}")
        return StoreError(f"{url}: {text}; check the name node and the network, and repeat the operation")

    def _url(self, key: str) -> str:
        return join(self._location.base, key)


# By name node, reader and number of retries.
_clients: Cache[tuple[str, str, int], _HdfsClient] = Cache(_MAX_CLIENTS, retain_in_child=True)


def _connect(location: Location, options: Options) -> _HdfsClient:
    try:
        from hdfs_native import Client  # noqa: PLC0415 - optional
    except ImportError:
        raise StoreError(
            f"{location.base} needs the package hdfs-native; install it: pip install 'indextables[hdfs]'"
        ) from None
    service = location.bucket
    config = _name_service(options, service)
    # Observer name nodes may lag behind acknowledged writes; the active name node does not.
    config[f"dfs.client.failover.proxy.provider.{service}"] = (
        "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"
    )
    config["dfs.client.failover.max.attempts"] = str(options.get(cloud.MAX_RETRIES) + 1)
    config["dfs.client.failover.sleep.base.millis"] = "100"
    config["dfs.client.failover.sleep.max.millis"] = "5000"
    problem = ""
    try:
        return Client(location.base, config)
    except _FAILURES as error:
        problem = _text(error)
    raise StoreError(
        f"{location.base}: {problem}; name a host and port, or a name service that the session's Hadoop "
        "configuration or the files in HADOOP_CONF_DIR define"
    )


def _name_service(options: Options, service: str) -> dict[str, str]:
    """The settings of a name service; keys of options are in lower case, names of services may not be."""
    config = {key: value for key, value in options.values.items() if key.startswith("dfs.")}
    members = config.get(f"dfs.ha.namenodes.{service.lower()}", "")
    if members:
        config[f"dfs.ha.namenodes.{service}"] = members
    for member in (each.strip() for each in members.split(",")):
        name = f"dfs.namenode.rpc-address.{service}.{member}"
        if address := config.get(name.lower()):
            config[name] = address
    return config


class _HdfsSink(Sink):
    """A temporary file that gets its name when it is closed."""

    def __init__(self, backend: HdfsBackend, key: str, temporary: str, writer: Any) -> None:  # noqa: ANN401
        super().__init__()
        self._backend = backend
        self._key, self._temporary, self._writer = key, temporary, writer

    def _add(self, data: memoryview) -> None:
        with self._backend.translate_write_errors(self._key):
            _write_all(self._writer, data)

    def _publish(self) -> None:
        self._backend.publish(self._key, self._temporary, self._writer, self.tell())

    def _discard(self) -> None:
        self._backend.discard(self._temporary, self._writer)


def _finish(writer: Any) -> None:  # noqa: ANN401
    """Flush the bytes to the disks of the data nodes, and close the file."""
    writer.hsync()
    writer.close()


def _write_all(writer: Any, data: memoryview) -> None:  # noqa: ANN401
    for at in range(0, len(data), _COPY_BYTES):
        writer.write(bytes(data[at : at + _COPY_BYTES]))


def _copy(source: IO[bytes], writer: Any) -> None:  # noqa: ANN401
    source.seek(0)
    while part := source.read(_COPY_BYTES):
        writer.write(part)


def _is_lost(error: OSError) -> bool:
    """Whether the connection was lost before the answer; other errors have their own classes.

    hdfs-native raises a plain OSError for each error of a connection, without a number. One with a number is
    of the local file that is read.
    """
    return (type(error) is OSError and error.errno is None) or isinstance(error, ConnectionError)


def _read(reader: Any, start: int, end: int) -> bytes:  # noqa: ANN401
    return bytes(reader.read_range(start, end - start)) if start < end else b""


def _info(status: Any) -> ObjectInfo:  # noqa: ANN401
    etag = f"{status.modification_time}-{status.length}"
    return ObjectInfo(status.path.lstrip("/"), status.length, status.modification_time, etag)


def _name(status: Any) -> str:  # noqa: ANN401
    name: str = status.path.rpartition("/")[2]
    return f"{name}/" if status.isdir else name


def _path(key: str) -> str:
    return "/" + key


def _text(error: Exception) -> str:
    """The first line of the name node's message, without its stack trace."""
    remote = _REMOTE.search(str(error))
    line = f"{remote[1].rpartition('.')[2]}: {remote[2]}" if remote else str(error).partition("\n")[0]
    return line.strip()[:_LONGEST] or type(error).__name__
