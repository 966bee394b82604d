"""Transient errors are retried, requests are few, and big things arrive whole."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from indextables.errors import CredentialsError, StoreError
from indextables.options import Options
from indextables.store import Store, open_store
from tests.servers.azure import AzureServer
from tests.servers.fixtures import StoreUrl
from tests.servers.proxy import Fault, Proxy, proxy, small_pages
from tests.servers.s3 import S3Server

pytestmark = pytest.mark.server

FINAL = (Fault.DENIED, Fault.CONFLICT, Fault.NO_BUCKET, Fault.NO_OBJECT)
TRANSIENT = [f for f in Fault if f not in FINAL]


@pytest.fixture
def through(moto_server: S3Server, faulty_s3: Proxy) -> Callable[..., Store]:
    def make(**options: Any) -> Store:
        given = {**moto_server.options(faulty_s3.port), "cloud.readTimeout": "700", **options}
        return open_store(f"s3://bucket/faults-{random.random()}", Options.parse(given))

    return make


@pytest.mark.parametrize("fault", TRANSIENT)
def test_a_read_is_retried(through: Callable[..., Any], faulty_s3: Proxy, fault: Any) -> None:
    store = through()
    data = bytes(range(256)) * 4000
    store.put("x", data)
    faulty_s3.fail(fault, 2 if fault is not Fault.HANG_AFTER else 1, methods=("GET",))
    assert store.get("x") == data
    faulty_s3.fail(fault, 1, methods=("GET",))
    assert store.get_ranges("x", [(5, 50_000), (900_000, 900_010)]) == [data[5:50_000], data[900_000:900_010]]


@pytest.mark.parametrize("fault", [f for f in TRANSIENT if f not in (Fault.HANG_AFTER, Fault.CUT_BODY)])
def test_a_write_a_listing_and_a_delete_are_retried(
    through: Callable[..., Any], faulty_s3: Proxy, fault: Any
) -> None:
    store = through()
    faulty_s3.fail(fault, 2)
    store.put("x", b"1")
    faulty_s3.fail(fault, 2, methods=("GET",))
    assert [info.path for info in store.list()] == ["x"]
    faulty_s3.fail(fault, 1, methods=("POST",))
    assert store.delete(["x"]) == 1
    assert not store.exists("x")


def test_retries_end(through: Callable[..., Any], faulty_s3: Proxy) -> None:
    store = through(**{"cloud.maxRetries": "2"})
    faulty_s3.fail(Fault.BUSY, 100)
    with pytest.raises(StoreError, match=r"x: .*503"):
        store.put("x", b"1")
    assert faulty_s3.count("PUT") == 3


def test_a_denial_is_not_retried(through: Callable[..., Any], faulty_s3: Proxy) -> None:
    store = through()
    faulty_s3.fail(Fault.DENIED, 100, methods=("GET", "PUT"))
    for call in (lambda: store.get("x"), lambda: store.put("x", b""), lambda: list(store.list())):
        with pytest.raises(CredentialsError, match=r"aws\.accessKey"):
            call()
    assert len(faulty_s3.requests) == 3


def test_near_ranges_share_a_request_and_far_ones_do_not(
    through: Callable[..., Any], faulty_s3: Proxy
) -> None:
    store = through()
    data = random.Random(1).randbytes(4 << 20)
    store.put("x", data)
    near = [(n * 5000, n * 5000 + 100) for n in range(100)]
    assert store.get_ranges("x", near) == [data[start:end] for start, end in near]
    assert faulty_s3.count("GET") == 1
    far = [(0, 10), (3 << 20, (3 << 20) + 10)]
    assert store.get_ranges("x", far) == [data[start:end] for start, end in far]
    assert faulty_s3.count("GET") == 3


def test_who_stops_listing_early_pays_for_one_page(
    through: Callable[..., Any], faulty_s3: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("indextables.store.remote._PAGE", 10)
    store = through()
    faulty_s3.rewrite = small_pages
    paths = [f"{n:02}" for n in range(35)]
    for path in paths:
        store.put(path, b"")
    assert next(store.list()).path == "00"
    assert faulty_s3.count("GET") == 1
    assert [info.path for info in store.list(after="30")] == ["31", "32", "33", "34"]
    assert faulty_s3.count("GET") == 2
    assert [info.path for info in store.list()] == paths
    assert faulty_s3.count("GET") == 6


def test_deletes_go_by_the_thousand(through: Callable[..., Any], faulty_s3: Proxy) -> None:
    store = through()
    store.put("1500", b"")
    assert store.delete(str(n) for n in range(2001)) == 2001
    assert faulty_s3.count("POST") == 3
    assert list(store.list()) == []


def test_an_upload_in_parts_survives_faults_and_shows_nothing_before_its_end(
    through: Callable[..., Any], faulty_s3: Proxy, moto_server: S3Server, tmp_path: Path
) -> None:
    store = through(**{"s3.partSize": "5M", "s3.multipartThreshold": "5M"})
    source = tmp_path / "source"
    source.write_bytes(random.Random(2).randbytes(11 << 20))
    luck = random.Random(3)
    faulty_s3.fault = lambda r: Fault.BUSY if r.method == "PUT" and luck.random() < 0.5 else None
    assert store.upload("x", source) == 11 << 20
    assert store.get("x") == source.read_bytes()
    assert faulty_s3.count("PUT") > 3


@pytest.mark.parametrize("way", ["abort", "fail", "forget"])
def test_an_abandoned_upload_leaves_no_parts(
    through: Callable[..., Any], moto_server: S3Server, way: str
) -> None:
    store = through(**{"s3.partSize": "5M"})

    def abandon() -> None:
        with store.open_upload("x") as sink:
            sink.write(b"x" * (11 << 20))
            if way == "abort":
                sink.abort()
            else:
                raise ZeroDivisionError

    if way == "forget":
        sink = store.open_upload("x")
        sink.write(b"x" * (11 << 20))
        del sink
    elif way == "abort":
        abandon()
    else:
        with pytest.raises(ZeroDivisionError):
            abandon()
    assert list(store.list()) == []
    assert "Uploads" not in moto_server.client().list_multipart_uploads(Bucket="bucket")


def test_an_upload_whose_end_fails_is_not_visible(
    through: Callable[..., Any], faulty_s3: Proxy, moto_server: S3Server
) -> None:
    store = through(**{"s3.partSize": "5M", "cloud.maxRetries": "0"})
    sink = store.open_upload("x")
    sink.write(b"x" * (11 << 20))
    faulty_s3.fail(Fault.BUSY, 100, methods=("POST",))
    with pytest.raises(StoreError, match="503"):
        sink.close()
    assert sink.closed
    assert list(store.list()) == []


def test_a_folder_marker_of_another_tool_is_no_object(
    through: Callable[..., Any], moto_server: S3Server
) -> None:
    store = through()
    prefix = store.url.removeprefix("s3://bucket/")
    store.put("m/a", b"1")
    store.put("m-x", b"1")
    for marker in ("", "m/"):
        moto_server.client().put_object(Bucket="bucket", Key=f"{prefix}/{marker}", Body=b"")
    assert [info.path for info in store.list()] == ["m-x", "m/a"]
    assert [info.path for info in store.list("m")] == ["m/a"]
    assert store.list_folder("m")[0] == list(store.list("m"))
    assert [info.path for info in store.list_folder()[0]] == ["m-x"]


def test_a_listing_out_of_order_is_an_error_and_not_a_wrong_answer(moto_server: S3Server) -> None:
    def swapped(_request: Any, answer: bytes) -> bytes:
        return answer.replace(b"/a-b<", b"/a~b<").replace(b"/a/b<", b"/a-b<").replace(b"/a~b<", b"/a/b<")

    with proxy(moto_server.port, answer=swapped) as made:
        store = open_store("s3://bucket/unsorted", Options.parse(moto_server.options(made.port)))
        store.put("a-b", b"1")
        store.put("a/b", b"1")
        with pytest.raises(StoreError, match="out of order"):
            list(store.list())


def test_adls_listings_are_put_in_order(azurite_server: AzureServer) -> None:
    url = "abfss://container@devstoreaccount1.dfs.core.windows.net/adls"
    store = open_store(url, Options.parse(azurite_server.options()))
    for path in ("a/b", "a-b", "a.b"):
        store.put(path, b"1")
    assert store.url == url
    assert [info.path for info in store.list(after="a-a")] == ["a-b", "a.b", "a/b"]


def test_google_takes_the_same_contract_through_a_shim(make_store_url: StoreUrl, tmp_path: Path) -> None:
    url, options = make_store_url("gcs")
    store = open_store(url, Options.parse(options))
    store.check_create_if_absent()
    assert store.create("a=1/ä %2F", b"ours")
    assert not store.create("a=1/ä %2F", b"theirs")
    store.put("x", bytes(range(100)))
    assert store.get_ranges("x", [(90, 100), (0, 3)]) == [bytes(range(90, 100)), bytes(range(3))]
    assert [info.path for info in store.list()] == ["a=1/ä %2F", "x"]
    assert store.list_folder() == ([store.head("x")], ["a=1"])
    assert store.delete(["x", "none", "a=1/ä %2F"]) == 3
    assert list(store.list()) == []
