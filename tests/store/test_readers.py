"""What is cached in a process belongs to the reader whose keys it was read with."""

import gc
import importlib
import os
import pkgutil
import types
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

import indextables
from indextables.cache import Cache
from indextables.errors import CredentialsError
from indextables.log import snapshot_cache
from indextables.options import Options
from indextables.read import split_source as sources
from indextables.spark.planner import read_context, tables
from indextables.split.index.cache import index_cache
from indextables.split.query import searcher as search
from indextables.store import Store, StoreWithCredentials, open_store
from indextables.store.credentials import Identity
from tests.servers import s3
from tests.servers.process import free_port
from tests.servers.s3 import LISTER, READER, STRANGER, WRITER, Key, S3Server

TEXT = {"indexing.typemap.t": "text"}


@pytest.fixture
def server(seaweed_server: S3Server) -> S3Server:
    return seaweed_server


@pytest.fixture
def table(server: S3Server, tmp_path: Path) -> Any:
    """A table that the writer has written, read and searched, so that every cache has something of it."""
    url = f"s3://{s3.BUCKET}/{tmp_path.name}"
    options = {**server.options_of(WRITER), "cache.disk.path": str(tmp_path / "cache")}
    indextables.write(url, [{"id": n, "t": f"word{n} all"} for n in range(3)], options={**options, **TEXT})
    read_all(url, options)
    return url, {"cache.disk.path": str(tmp_path / "cache")}


def read_all(url: Any, options: dict[Any, Any]) -> None:
    opened = indextables.open(url, options=options)
    assert opened.scan(["id"])["id"].to_pylist() == [0, 1, 2]
    assert opened.count("t INDEXQUERY 'all'") == 3
    assert opened.files().num_rows == 1


@pytest.mark.server
@pytest.mark.parametrize(
    "key", [LISTER, STRANGER, Key("writer-with-another-secret", ())], ids=lambda k: k.name
)
def test_who_may_not_read_a_table_gets_nothing_of_it_out_of_a_warm_process(
    server: S3Server, table: Any, key: Any
) -> None:
    url, options = table
    given = {**server.options_of(key), **options}
    if key.name not in ("lister", "stranger"):
        given["aws.accessKey"] = WRITER.name
    for read in (
        lambda t: t.scan(),
        lambda t: t.count("t INDEXQUERY 'all'"),
        lambda t: t.files(),
        lambda t: t.schema,
        lambda t: t.history(),
    ):
        with pytest.raises(CredentialsError):
            read(indextables.open(url, options=given))
    read_all(url, {**server.options_of(READER), **options})


@pytest.mark.server
def test_who_may_list_but_not_read_gets_no_split_out_of_a_warm_process(server: S3Server, table: Any) -> None:
    url, options = table
    good = {**server.options_of(WRITER), **options}
    snapshot = indextables.open(url, options=good)
    store = open_store(url, Options.parse({**server.options_of(LISTER), **options}))
    path, size = (snapshot.files()[name][0].as_py() for name in ("path", "size"))
    assert store.list_folder()[1] == ["_transaction_log"]  # it may list
    with pytest.raises(CredentialsError):
        store.get(path)
    ref: Any = types.SimpleNamespace(
        path=path, size=size, footer_start=None, is_parquet=True, num_records=3, source_file=None
    )
    with pytest.raises(CredentialsError):
        sources.open_split(store, ref, None)
    # an index that was built for a split of the original lies in the disk cache, too
    original: Any = types.SimpleNamespace(**{**vars(ref), "is_parquet": False})
    with pytest.raises(CredentialsError):
        sources.open_split(store, original, None)
    assert sources.open_split(open_store(url, Options.parse(good)), ref, None).num_records == 3


@pytest.mark.server
def test_another_key_with_the_same_rights_reads_by_itself_and_fetches_no_index_again(
    server: S3Server, table: Any
) -> None:
    url, options = table
    before = index_cache(Options.parse(options)).stats()
    read_all(url, {**server.options_of(READER), **options})
    after = index_cache(Options.parse(options)).stats()
    assert (after.misses, after.bytes_fetched) == (before.misses, before.bytes_fetched)
    assert before.bytes_fetched
    snapshot = indextables.open(url, options={**server.options_of(READER), **options})._snapshot
    assert snapshot.log._identity.options.values["aws.accesskey"] == "reader"


class Rotating:
    """Keys that someone replaces while the process runs."""

    def __init__(self, key: Key) -> None:
        self.key = key

    def __call__(self) -> dict[Any, Any]:
        return {
            "access_key_id": self.key.name,
            "secret_access_key": self.key.secret,
            "token": None,
            "expires_at": None,
        }


@pytest.mark.server
def test_rotated_keys_work_in_a_process_that_was_warm_with_the_old_ones(tmp_path: Path) -> None:
    old, new = Key("old", ("Read", "Write", "List")), Key("new", ("Read", "Write", "List"))
    folder = tmp_path / "server"
    folder.mkdir()
    ports = [free_port() for _ in range(s3.PORTS)]
    url = f"s3://{s3.BUCKET}/t"
    options = {"cache.disk.path": str(tmp_path / "cache"), "cloud.maxRetries": "1"}
    with s3.seaweed(folder, [old], ports) as server:
        first = {**server.options_of(old), **options}
        indextables.write(url, [{"id": n, "t": f"word{n} all"} for n in range(3)], options={**first, **TEXT})
        read_all(url, first)
        kept = indextables.open(url, options=first)
        kept.scan()
    with s3.seaweed(folder, [new], ports) as server:
        second = {**server.options_of(new), **options}
        for refused in (kept.refresh, kept.history, lambda: indextables.open(url, options=first).scan()):
            with pytest.raises(CredentialsError, match=r"the credentials: they are wrong, expired"):
                refused()
        read_all(url, second)
        indextables.write(url, [{"id": 3, "t": "word3 all"}], options=second)
        assert indextables.open(url, options=second).count("t INDEXQUERY 'all'") == 4
        # one worker process serves tasks with the old keys and with the new ones
        assert StoreWithCredentials(url, Identity(Options.parse(second))).open().list_folder()[1] == [
            "_transaction_log"
        ]
        with pytest.raises(CredentialsError):
            StoreWithCredentials(url, Identity(Options.parse(first))).open().list_folder()


# --- without a server ------------------------------------------------------------------------------


def reachable(roots: list[Any]) -> Collection[object]:
    """Every object that can be reached from some, but for code."""
    seen: dict[int, object] = {}
    waiting = list(roots)
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen or isinstance(thing, (type, types.ModuleType, types.FunctionType)):
            continue
        seen[id(thing)] = thing
        waiting.extend(gc.get_referents(thing))
    return seen.values()


def test_no_cache_of_the_process_holds_a_store_or_a_secret(tmp_path: Path) -> None:
    options = {"aws.secretKey": "hush-hush", "aws.accessKey": "AKIA", "cache.disk.path": str(tmp_path / "c")}
    url = str(tmp_path / "t")
    indextables.write(url, [{"id": n, "t": f"word{n} all"} for n in range(3)], options={**options, **TEXT})
    read_all(url, options)
    indextables.open(url, options=options).refresh().count("id = 1")
    request = {"options": {"path": url, **options}}
    tables.snapshot(request, ())
    assert read_context.read_context(request) is not None
    indextables.open(url, options=options).search("t:all", limit=2)
    assert snapshot_cache.NEWEST and snapshot_cache.FILE_LISTS and snapshot_cache.VERSIONS  # noqa: PT018
    assert sources._splits and search._open_indexes and read_context._tables and tables._snapshots  # noqa: PT018
    for where, cache in module_caches():
        for thing in reachable([cache]):
            assert not isinstance(thing, (Store, Identity, StoreWithCredentials)), (where, thing)
            assert not (isinstance(thing, str) and "hush-hush" in thing), where


# Clients of stores, and open files of companion sources: they hold keys, and are found only by whoever has these keys.
CLIENT_POOLS = {
    *(f"indextables.store.handle.{name}" for name in ("_remotes", "_memories", "_of_parents")),
    "indextables.source.description._readers",
}


def module_caches() -> Iterator[Any]:
    """Whatever modules hold that grows, except the pools of clients."""
    for info in pkgutil.walk_packages(indextables.__path__, "indextables."):
        if info.name.endswith("__main__"):
            continue
        for name, value in vars(importlib.import_module(info.name)).items():
            grows = isinstance(value, (dict, list, set, Cache)) or hasattr(value, "cache_clear")
            where = f"{info.name}.{name}"
            if grows and not name.startswith("__") and where not in CLIENT_POOLS:
                yield where, value


def test_a_table_opened_with_other_options_is_read_with_those(tmp_path: Path) -> None:
    url = str(tmp_path / "t")
    indextables.write(url, [{"id": 1}])
    for name in ("OLD", "NEW"):
        opened = indextables.open(url, options={"aws.accessKey": name, "aws.secretKey": "x"})
        opened.scan()
        assert opened._snapshot.log._identity.options.values["aws.accesskey"] == name


def scope(options: dict[Any, Any], credentials: Any = None, url: str = "s3://bucket/t") -> Any:
    return open_store(url, Options.parse(options), credentials=credentials).cache_scope


def test_readers_differ_by_keys_endpoints_environment_and_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = {"aws.accessKey": "a", "aws.secretKey": "s"}
    seen = {scope(base)}
    assert scope(dict(base)) in seen
    assert scope({**base, "s3.partSize": "6M"}) in seen  # how, not who
    for more in (
        {"aws.accessKey": "b"},
        {"aws.secretKey": "t"},
        {"aws.sessionToken": "x"},
        {"aws.endpoint": "http://127.0.0.1:1"},
    ):
        seen.add(scope({**base, **more}))
    monkeypatch.setenv("AWS_PROFILE", "other")
    seen.add(scope(base))
    profile = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(profile))
    profile.write_text("[other]\n")
    seen.add(scope({}))
    profile.write_text("[other]\naws_access_key_id = rotated\n")
    seen.add(scope({}))
    assert len(seen) == 8
    assert not any("other" in each.reader or "rotated" in each.reader for each in seen)


def test_a_callable_is_one_reader_as_long_as_it_lives_and_another_is_another() -> None:
    def make() -> Callable[..., dict[str, None]]:
        return lambda: {"token": None}

    one, two = make(), make()
    assert scope({}, one) == scope({}, one)
    assert scope({}, one) != scope({}, two)
    rotating = Rotating(WRITER)
    assert scope({}, rotating.__call__) == scope({}, rotating.__call__)
    assert scope({}, rotating.__call__) != scope({}, Rotating(WRITER).__call__)
    places = set()
    for _ in range(50):  # ids are given again, readers are not
        places.add(scope({}, make()))
    assert len(places) == 50


def test_local_files_belong_to_the_user_of_the_process(tmp_path: Path) -> None:
    assert scope({}, url=str(tmp_path)).reader == f"{os.geteuid()}:{os.getegid()}"
