"""A create tells the truth, whatever happens to the answer."""

import multiprocessing
import random
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest

from indextables.errors import CredentialsError, OutcomeUnknownError, StoreError, UnsafeStoreError
from indextables.options import Options
from indextables.store import Store, open_store
from tests.servers.fixtures import StoreUrl
from tests.servers.proxy import Fault, Proxy
from tests.servers.s3 import S3Server

pytestmark = pytest.mark.server

UNCLEAR = [f for f in Fault if f not in (Fault.DENIED, Fault.CUT_BODY, Fault.NO_BUCKET, Fault.NO_OBJECT)]


@pytest.fixture
def behind(moto_server: S3Server, faulty_s3: Proxy) -> Callable[..., tuple[Store, Store]]:
    """A store that talks through the proxy, and one that talks to the server itself."""

    def make(**options: Any) -> tuple[Store, Store]:
        url = f"s3://bucket/create-{random.random()}"
        quick = {"cloud.readTimeout": "700", **options}
        return (
            open_store(url, Options.parse({**moto_server.options(faulty_s3.port), **quick})),
            open_store(url, Options.parse(moto_server.options())),
        )

    return make


@pytest.mark.parametrize("fault", UNCLEAR)
def test_a_create_that_failed_once_or_twice_still_wins(
    behind: Callable[..., tuple[Store, Store]], faulty_s3: Proxy, fault: Any
) -> None:
    store, truth = behind()
    faulty_s3.fail(fault, 1 if fault is Fault.HANG_AFTER else 2)
    assert store.create("v1", b"ours") is True
    assert truth.get("v1") == b"ours"


@pytest.mark.parametrize("fault", UNCLEAR)
def test_a_create_that_failed_does_not_take_the_object_of_another(
    behind: Callable[..., tuple[Store, Store]], faulty_s3: Proxy, fault: Any
) -> None:
    store, truth = behind()
    truth.put("v1", b"theirs")
    faulty_s3.fail(fault, 1)
    assert store.create("v1", b"ours") is False
    assert truth.get("v1") == b"theirs"


def test_a_create_that_was_applied_but_can_never_be_read_back_is_unknown(
    behind: Callable[..., tuple[Store, Store]], faulty_s3: Proxy
) -> None:
    store, truth = behind(**{"cloud.maxRetries": "1"})
    faulty_s3.fault = lambda request: Fault.DROP_AFTER
    with pytest.raises(OutcomeUnknownError) as caught:
        store.create("v1", b"ours")
    assert f"{store.url}/v1" in str(caught.value)
    assert truth.get("v1") == b"ours"


def test_a_conflict_that_never_ends_is_unknown_and_not_a_loss(
    behind: Callable[..., tuple[Store, Store]], faulty_s3: Proxy
) -> None:
    store, truth = behind(**{"cloud.maxRetries": "2"})
    faulty_s3.fail(Fault.CONFLICT, 100)
    with pytest.raises(OutcomeUnknownError, match="conflict"):
        store.create("v1", b"ours")
    assert faulty_s3.count("PUT") == 3
    assert not truth.exists("v1")


def test_a_denied_create_is_an_error_of_credentials(
    behind: Callable[..., tuple[Store, Store]], faulty_s3: Proxy
) -> None:
    store, _ = behind()
    faulty_s3.fail(Fault.DENIED, 1)
    with pytest.raises(CredentialsError):
        store.create("v1", b"ours")


def test_a_create_denied_after_a_lost_answer_is_unknown(
    behind: Callable[..., tuple[Store, Store]], faulty_s3: Proxy
) -> None:
    store, _ = behind()
    faults = iter([Fault.DROP_BEFORE, None, Fault.DENIED])
    faulty_s3.fault = lambda request: next(faults, None)
    with pytest.raises(OutcomeUnknownError):
        store.create("v1", b"ours")


def test_a_create_after_a_lost_answer_whose_bucket_is_gone_is_unknown(
    behind: Callable[..., tuple[Store, Store]], faulty_s3: Proxy
) -> None:
    store, truth = behind()
    faults = iter([Fault.DROP_BEFORE, Fault.NO_OBJECT, Fault.NO_BUCKET])
    faulty_s3.fault = lambda request: next(faults, None)
    with pytest.raises(OutcomeUnknownError, match="no such bucket"):
        store.create("v1", b"ours")
    assert not truth.exists("v1")


def test_a_create_refused_at_once_is_no_doubt(
    behind: Callable[..., tuple[Store, Store]], faulty_s3: Proxy
) -> None:
    store, truth = behind()
    faulty_s3.fail(Fault.NO_BUCKET, 1)
    with pytest.raises(StoreError, match="no such bucket") as caught:
        store.create("v1", b"ours")
    assert not isinstance(caught.value, OutcomeUnknownError)
    assert not truth.exists("v1")


def test_the_probe_refuses_a_store_that_ignores_the_condition(
    moto_server: S3Server, careless_s3: Proxy
) -> None:
    store = open_store("s3://bucket/careless", Options.parse(moto_server.options(careless_s3.port)))
    with pytest.raises(UnsafeStoreError, match="s3://bucket/careless does not support create-if-absent"):
        store.check_create_if_absent()
    assert list(store.list()) == []


def test_the_probe_names_what_is_really_wrong(moto_server: S3Server) -> None:
    store = open_store("s3://no-such-bucket/t", Options.parse(moto_server.options()))
    with pytest.raises(StoreError, match="no such bucket") as caught:
        store.check_create_if_absent()
    assert not isinstance(caught.value, UnsafeStoreError)


_start = None


def _get_ready(barrier: Any) -> None:
    global _start  # noqa: PLW0603 - how a pool hands its workers what cannot be sent with a task
    _start = barrier


def _claim(url: Any, options: Any, writer: Any, versions: Any) -> list[Any]:
    store = open_store(url, Options.parse(options))
    _start.wait(60)
    return [v for v in range(versions) if store.create(f"{v:03}", f"{writer} of {v}".encode())]


def race(url: str, options: dict[str, str], writers: int, versions: int) -> dict[Any, Any]:
    """Who won which version, by independent processes."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(writers, spawn, _get_ready, (spawn.Barrier(writers),)) as pool:
        claims = {writer: pool.submit(_claim, url, options, writer, versions) for writer in range(writers)}
        return {writer: claim.result(100) for writer, claim in claims.items()}


@pytest.mark.parametrize("kind", ["local", "s3", "azure"])
def test_of_many_processes_one_wins_each_version(make_store_url: StoreUrl, kind: str) -> None:
    url, options = make_store_url(kind)
    won = race(url, options, writers=3, versions=40)
    assert sorted(v for versions in won.values() for v in versions) == list(range(40))
    store = open_store(url, Options.parse(options))
    for writer, versions in won.items():
        assert all(store.get(f"{v:03}") == f"{writer} of {v}".encode() for v in versions)


def test_of_many_processes_one_wins_each_version_though_a_third_of_the_requests_fail(
    moto_server: S3Server, faulty_s3: Proxy
) -> None:
    luck = random.Random(7)
    faults = [Fault.ERROR_AFTER, Fault.DROP_AFTER, Fault.CONFLICT, Fault.BUSY, Fault.DROP_BEFORE]
    faulty_s3.fault = lambda r: luck.choice(faults) if r.method == "PUT" and luck.random() < 0.35 else None
    url = "s3://bucket/faulty-race"
    won = race(url, moto_server.options(faulty_s3.port), writers=3, versions=25)
    assert sorted(v for versions in won.values() for v in versions) == list(range(25))
    store = open_store(url, Options.parse(moto_server.options()))
    for writer, versions in won.items():
        assert all(store.get(f"{v:03}") == f"{writer} of {v}".encode() for v in versions)


def test_a_real_server_creates_once(make_store_url: StoreUrl) -> None:
    url, options = make_store_url("seaweed")
    store = open_store(url, Options.parse(options))
    store.check_create_if_absent()
    assert store.create("day=1/a%2F b", b"ours")
    assert not store.create("day=1/a%2F b", b"theirs")
    store.put("x", bytes(range(256)) * 8192)
    assert store.get_ranges("x", [(0, 4), (2_000_000, 2_000_004)]) == [
        bytes(range(4)),
        bytes(range(128, 132)),
    ]
    assert [info.path for info in store.list()] == ["day=1/a%2F b", "x"]
    with store.open_upload("stream") as sink:
        sink.write(b"s" * (40 << 20))
    assert store.head("stream").size == 40 << 20
    assert store.delete(["x", "stream", "none", "day=1/a%2F b"]) == 4
    assert list(store.list()) == []
