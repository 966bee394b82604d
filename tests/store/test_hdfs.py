"""HDFS: atomic creates on a real cluster, under races, lost answers and kills. Run by `make matrix`."""

import errno
import multiprocessing
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql import SparkSession

import indextables
from indextables.errors import CredentialsError, ObjectMissingError, StoreError
from indextables.options import Options
from indextables.store import Store, hdfs, open_store
from indextables.store.backend import Backoff
from indextables.store.hdfs import HdfsBackend
from tests.servers.fixtures import StoreUrl
from tests.servers.hdfs import HdfsServer

cluster = pytest.mark.connectors


@pytest.fixture
def store(make_store_url: StoreUrl) -> Store:
    url, _ = make_store_url("hdfs")
    return open_store(url)


def temporaries(store: Store) -> list[str]:
    """Temporary files below a store's root, which its own listings do not show."""
    from hdfs_native import Client  # noqa: PLC0415 - optional

    base, root = store._location.base, store._location.root
    try:
        return [
            each.path
            for each in Client(base).list_status(f"/{root}", True)
            if "indextables-part" in each.path
        ]
    except FileNotFoundError:
        return []


# --- atomic creates --------------------------------------------------------------------------------


def claim_all(url: str, who: int, names: list[str]) -> list[str]:
    """Try to create every name; those that were ours."""
    store = open_store(url)
    return [name for name in names if store.create(name, f"{who} {name} {secrets.token_hex(8)}".encode())]


@cluster
def test_one_of_many_processes_wins_every_name(store: Store) -> None:
    names = [f"v{number}" for number in range(8)]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(6, context) as pool:
        jobs = [pool.submit(claim_all, store.url, who, names) for who in range(6)]
        won = [job.result(timeout=300) for job in jobs]
    assert sorted(name for each in won for name in each) == names
    for who, each in enumerate(won):
        for name in each:
            assert store.get(name).startswith(f"{who} {name} ".encode())
    assert temporaries(store) == []


class LossyNameNode:
    """A proxy of the name node that breaks a connection at each of the next calls of a method.

    "request": the name node never sees it. "answer": it has done it, and the client is not told.
    """

    def __init__(self, upstream: int) -> None:
        self.upstream = upstream
        self.port = 0
        self.method = "rename2"
        self.losses: list[str] = []
        self.lost: list[str] = []
        self._connections: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    @property
    def _method(self) -> bytes:
        """The name as a request has it, after its length: paths may contain it as well."""
        return bytes([len(self.method)]) + self.method.encode()

    @contextmanager
    def running(self) -> Iterator["LossyNameNode"]:
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.port = server.getsockname()[1]
            acceptor = threading.Thread(target=self._accept, args=(server,))
            acceptor.start()
            try:
                yield self
            finally:
                _close(server)
                acceptor.join()
                for connection in self._connections:
                    _close(connection)
                for thread in self._threads:
                    thread.join()
                for connection in self._connections:
                    connection.close()

    def _accept(self, server: socket.socket) -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            name_node = socket.create_connection(("127.0.0.1", self.upstream))
            self._connections += [client, name_node]
            swallow = threading.Event()
            for target in (self._requests, self._answers):
                self._threads.append(threading.Thread(target=target, args=(client, name_node, swallow)))
                self._threads[-1].start()

    def _requests(self, client: socket.socket, name_node: socket.socket, swallow: threading.Event) -> None:
        with suppress(OSError):
            while data := client.recv(1 << 16):
                if self._method in data and self.losses:
                    self.lost.append(self.losses.pop(0))
                    if self.lost[-1] == "request":
                        break
                    swallow.set()
                name_node.sendall(data)
        _close(name_node)
        _close(client)

    def _answers(self, client: socket.socket, name_node: socket.socket, swallow: threading.Event) -> None:
        with suppress(OSError):
            while (data := name_node.recv(1 << 16)) and not swallow.is_set():
                client.sendall(data)
        _close(client)
        _close(name_node)


def _close(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def lossy(hdfs_server: HdfsServer) -> Iterator[LossyNameNode]:
    with LossyNameNode(hdfs_server.port).running() as proxy:
        yield proxy


@cluster
@pytest.mark.parametrize(
    "losses", [["request"], ["answer"], ["answer", "answer"], ["request", "answer", "request"]]
)
def test_a_create_whose_answer_was_lost_is_decided_by_the_bytes(
    store: Store, lossy: LossyNameNode, losses: list[str]
) -> None:
    path = store._location.root
    through = open_store(f"hdfs://127.0.0.1:{lossy.port}/{path}")
    through.put("other", b"warm")
    lossy.losses = list(losses)
    assert through.create("v1", b"ours") is True
    assert lossy.lost == losses[: len(lossy.lost)]
    assert lossy.lost
    assert store.get("v1") == b"ours"
    # the same name for another: lost, however many answers are
    lossy.losses = list(losses)
    assert through.create("v1", b"theirs") is False
    assert store.get("v1") == b"ours"
    lossy.losses = []
    assert temporaries(store) == []


@cluster
@pytest.mark.parametrize("loss", ["request", "answer"])
@pytest.mark.parametrize("method", ["create", "addBlock", "complete", "rename2", "delete"])
def test_a_lost_connection_is_repaired_in_every_step_of_a_write(
    store: Store, lossy: LossyNameNode, tmp_path: Path, method: str, loss: str
) -> None:
    through = open_store(f"hdfs://127.0.0.1:{lossy.port}/{store._location.root}")
    through.put("warm", b"1")
    lossy.method = method
    (tmp_path / "file").write_bytes(b"uploaded")
    for name in ("v1", "v2", "v1"):
        lossy.losses = [loss]
        through.put(name, b"put " + name.encode())
        assert store.get(name) == b"put " + name.encode()
    lossy.losses = [loss]
    assert through.create("v3", b"created") is True
    lossy.losses = [loss]
    assert through.create("v3", b"again") is False
    assert store.get("v3") == b"created"
    lossy.losses = [loss]
    assert through.upload("v4", tmp_path / "file") == len(b"uploaded")
    assert store.get("v4") == b"uploaded"
    # The deletion of a name that others may use is not repeated.
    lossy.losses = [] if method == "delete" else [loss]
    through.delete(["v1", "v2"])
    assert not store.exists("v1")
    assert not store.exists("v2")
    lossy.losses = []
    assert lossy.lost
    assert temporaries(store) == []


@cluster
def test_without_retries_the_outcome_is_still_right(store: Store, lossy: LossyNameNode) -> None:
    options = Options.parse({"cloud.maxRetries": "0"})
    through = open_store(f"hdfs://127.0.0.1:{lossy.port}/{store._location.root}", options)
    through.put("other", b"warm")
    lossy.losses = ["answer"]
    assert through.create("v1", b"ours") is True
    assert store.get("v1") == b"ours"


@cluster
def test_a_killed_writer_leaves_only_a_hidden_file(store: Store) -> None:
    script = (
        "import sys, time\n"
        "from indextables.store import open_store\n"
        f"sink = open_store({store.url!r}).open_upload('big')\n"
        "sink.write(b'x' * 100000)\n"
        "print('writing', flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"writing\n"
        writer.send_signal(signal.SIGKILL)
    assert list(store.list()) == []
    assert len(temporaries(store)) == 1
    assert store.create("big", b"1")
    soon = store.head("big").modified_ms + 3_600_000
    assert store.remove_abandoned(before_ms=0) == 0
    assert store.remove_abandoned(before_ms=soon) == 1
    assert temporaries(store) == []
    assert store.get("big") == b"1"


# --- tables ----------------------------------------------------------------------------------------


@cluster
def test_a_table_is_written_searched_merged_and_purged(store: Store, tmp_path: Path) -> None:
    options = {"cache.disk.path": str(tmp_path / "cache")}
    rows = [
        {"id": number, "day": f"2024-01-01 1{number % 2}:00", "t": f"word{number} all"} for number in range(6)
    ]
    for part in (rows[:3], rows[3:]):
        indextables.write(
            store.url, part, partition_by=["day"], options={**options, "indexing.typemap.t": "text"}
        )
    table = indextables.open(store.url, options=options)
    assert table.count("t INDEXQUERY 'word4 OR word1'") == 2
    table.merge()
    table = table.refresh()
    assert sorted(table.scan(["id"])["id"].to_pylist()) == [0, 1, 2, 3, 4, 5]
    assert indextables.open(store.url, version=1, options=options).count() == 3
    assert indextables.sql(f"CHECKPOINT INDEXTABLES '{store.url}'", options=options).num_rows == 1
    assert indextables.sql(f"PURGE INDEXTABLE '{store.url}' DRY RUN", options=options).num_rows == 1
    assert temporaries(store) == []


@cluster
@pytest.mark.spark
def test_spark_reads_and_writes_hdfs_by_url_and_as_default_file_system(
    spark: SparkSession, hdfs_server: HdfsServer
) -> None:
    session = spark.newSession()
    path = f"/spark-{secrets.token_hex(6)}/t"
    session.range(0, 6, 1, 2).write.format("indextables").save(f"{hdfs_server.url}{path}")
    assert session.read.format("indextables").load(f"{hdfs_server.url}{path}").where("id > 3").count() == 2
    session.conf.set("fs.defaultFS", hdfs_server.url)
    session.range(6, 8, 1, 1).write.format("indextables").mode("append").save(path)
    frame = session.read.format("indextables").load(f"hdfs://{path}")
    assert sorted(row.id for row in frame.collect()) == list(range(8))


# --- refusals --------------------------------------------------------------------------------------


@cluster
def test_who_may_not_write_is_told_so(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    from hdfs_native import Client  # noqa: PLC0415 - optional

    store.put("x", b"1")
    Client(store._location.base).set_permission(f"/{store._location.root}", 0o755)
    monkeypatch.setenv("HADOOP_USER_NAME", "stranger")
    stranger = open_store(store.url)
    assert stranger.cache_scope != store.cache_scope
    assert stranger.get("x") == b"1"
    for write in (
        lambda: stranger.put("y", b"1"),
        lambda: stranger.create("y", b"1"),
        lambda: stranger.delete(["x"]),
    ):
        with pytest.raises(CredentialsError, match=r"HDFS refused the user: .*stranger") as caught:
            write()
        assert "FSPermissionChecker" not in str(caught.value)  # nothing of the name node's trace
    assert [info.path for info in store.list()] == ["x"]


@cluster
def test_names_that_hdfs_does_not_allow_are_refused(store: Store) -> None:
    for write in (
        lambda: store.put("a:b", b""),
        lambda: store.create("a:b", b""),
        lambda: store.open_upload("a:b"),
    ):
        with pytest.raises(StoreError, match="has a colon, which HDFS does not allow"):
            write()


def test_a_name_node_that_is_down_is_named() -> None:
    store = open_store("hdfs://127.0.0.1:9/t", Options.parse({"cloud.maxRetries": "0"}))
    for call in (lambda: store.get("x"), lambda: store.create("x", b""), lambda: list(store.list())):
        with pytest.raises(StoreError, match=r"hdfs://127\.0\.0\.1:9/t.*check the name node") as caught:
            call()
        assert not isinstance(caught.value, ObjectMissingError)


def test_a_name_service_is_found_in_the_options() -> None:
    with pytest.raises(StoreError, match="name a host and port, or a name service"):
        open_store("hdfs://Lake/t").get("x")
    given = {
        "spark.hadoop.dfs.ha.namenodes.Lake": "NN1,NN2",
        "dfs.namenode.rpc-address.Lake.NN1": "127.0.0.1:9",
        "dfs.namenode.rpc-address.Lake.NN2": "127.0.0.1:9",
        "cloud.maxRetries": "1",
    }
    with pytest.raises(StoreError, match="check the name node"):
        open_store("hdfs://Lake/t", Options.parse(given)).get("x")


class FakeNameNode:
    """Loses the answer of the first rename, which has taken effect or not; then the source is not there."""

    def __init__(self, size: int | None) -> None:
        self.size = size
        self.renames = 0

    def create(self, _path: str, _options: object) -> "FakeNameNode":
        return self

    def write(self, data: bytes) -> int:
        return len(data)

    def hsync(self) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing is open."""

    def rename(self, source: str, *_: object) -> None:
        self.renames += 1
        if self.renames == 1:
            raise OSError("early eof")
        raise FileNotFoundError(source)

    def get_file_info(self, path: str) -> SimpleNamespace:
        if self.size is None:
            raise FileNotFoundError(path)
        return SimpleNamespace(length=self.size)

    def delete(self, *_: object) -> bool:
        return False


@pytest.mark.parametrize(("size", "stands"), [(5, True), (4, False), (None, False)])
@pytest.mark.parametrize("way", ["put", "upload", "sink"])
def test_after_a_lost_rename_only_a_file_that_is_there_counts_as_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, size: int | None, stands: bool, way: str
) -> None:
    """The temporary file may be gone because its folder was deleted meanwhile."""
    name_node = FakeNameNode(size)
    monkeypatch.setattr(HdfsBackend, "_client", lambda _: name_node)
    monkeypatch.setitem(sys.modules, "hdfs_native", SimpleNamespace(WriteOptions=lambda **_: None))
    monkeypatch.setattr(hdfs, "_BACKOFF", Backoff(0, 0))
    store = open_store("hdfs://lake:8020/t")
    (tmp_path / "file").write_bytes(b"bytes")

    def write() -> None:
        if way == "put":
            store.put("part.split", b"bytes")
        elif way == "upload":
            store.upload("part.split", tmp_path / "file")
        else:
            with store.open_upload("part.split") as sink:
                sink.write(b"bytes")

    with nullcontext() if stands else pytest.raises(StoreError, match="repeat the operation"):
        write()
    assert name_node.renames == 2


def test_an_error_of_the_local_file_is_not_taken_for_a_lost_connection(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    name_node, reads = FakeNameNode(5), []

    def fail(*_: object) -> None:
        reads.append(1)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(HdfsBackend, "_client", lambda _: name_node)
    monkeypatch.setitem(sys.modules, "hdfs_native", SimpleNamespace(WriteOptions=lambda **_: None))
    monkeypatch.setattr(hdfs, "_copy", fail)
    (tmp_path / "file").write_bytes(b"bytes")
    with pytest.raises(StoreError, match="Input/output error"):
        open_store("hdfs://lake:8020/t").upload("part.split", tmp_path / "file")
    assert (len(reads), name_node.renames) == (1, 0)


def test_without_the_package_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hdfs_native", None)
    with pytest.raises(StoreError, match=r"needs the package hdfs-native; install it: pip install"):
        open_store("hdfs://nowhere:1/t").get("x")


@pytest.mark.parametrize("url", ["hdfs:///t", "hdfs://", "hdfs://a b/t", "hdfs://host:port/t"])
def test_an_hdfs_url_needs_a_name_node(url: str) -> None:
    with pytest.raises(StoreError, match="hdfs://host:port/path"):
        open_store(url)


def test_an_hdfs_url_without_a_host_follows_the_default_file_system() -> None:
    options = Options.parse({"fs.defaultFS": "hdfs://lake:8020/"})
    for path in ("/t", "hdfs:///t", "hdfs:/t"):
        assert open_store(path, options).url == "hdfs://lake:8020/t"
    assert open_store("hdfs://other:8020/t", options).url == "hdfs://other:8020/t"
    assert isinstance(open_store("/t", options)._backend, HdfsBackend)
