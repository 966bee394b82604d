"""Handles: they refuse forked children, travel without secrets, and show none."""

import multiprocessing
import os
import pickle
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest

from indextables.errors import CredentialsError, ForkedStoreError, StoreError
from indextables.options import Options
from indextables.store import open_store
from tests.servers.fixtures import StoreUrl
from tests.servers.s3 import SECRET_KEY

SECRETS = {
    "aws.accessKey": "ACCESS-abc",
    "aws.secretKey": "SECRET-def",
    "aws.sessionToken": "SESSION-ghi",
    "azure.accountKey": "QVpVUkVLRVk=",
    "azure.connectionString": "AccountName=x;AccountKey=Q09OTg==",
    "azure.clientSecret": "CLIENT-mno",
    "azure.bearerToken": "BEARER-pqr",
    "gcp.serviceAccountKey": '{"private_key":"GOOGLE-stu"}',
}


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A machine without any credentials, and without a metadata service to ask."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return monkeypatch


def in_forked_child(work: Any) -> str:
    """What the work returns or raises there."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            result = repr(work())
        except BaseException as error:  # noqa: BLE001 - the child reports and ends, whatever happened
            result = f"{type(error).__name__}: {error}"
        os.write(writer, result.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        told = pipe.read().decode()
    os.waitpid(child, 0)
    return told


@pytest.mark.parametrize("kind", ["local", "memory", pytest.param("s3", marks=pytest.mark.server)])
def test_a_handle_refuses_to_work_in_a_forked_child(make_store_url: StoreUrl, kind: str) -> None:
    url, options = make_store_url(kind)
    store = open_store(url, Options.parse(options))
    store.put("x", b"1")
    told = in_forked_child(lambda: store.get("x"))
    assert told.startswith("ForkedStoreError")
    assert store.url in told
    assert store.get("x") == b"1"


@pytest.mark.parametrize("kind", ["memory", pytest.param("s3", marks=pytest.mark.server)])
def test_a_new_handle_of_an_object_store_does_not_hang_in_a_forked_child(
    make_store_url: StoreUrl, kind: str
) -> None:
    url, options = make_store_url(kind)
    open_store(url, Options.parse(options)).put("x", b"1")
    told = in_forked_child(lambda: open_store(url, Options.parse(options)).get("x"))
    assert told.startswith("ForkedStoreError")
    assert "spawn" in told


def test_a_new_local_handle_works_in_a_forked_child(make_store_url: StoreUrl) -> None:
    url, _ = make_store_url("local")
    open_store(url).put("x", b"1")
    assert in_forked_child(lambda: open_store(url).get("x")) == "b'1'"


def _read(handle: Any) -> bytes:
    result: bytes = handle.get("x")
    return result


def _read_with_passport(with_credentials: Any) -> bytes:
    result: bytes = with_credentials.open().get("x")
    return result


@pytest.mark.server
def test_a_passport_takes_the_secrets_to_a_spawned_process(make_store_url: StoreUrl) -> None:
    url, options = make_store_url("s3")
    store = open_store(url, Options.parse(options))
    store.put("x", b"1")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_read_with_passport, (store.with_credentials(),)) == b"1"


@pytest.mark.server
def test_a_handle_that_lost_its_secrets_says_so_or_takes_those_of_its_new_home(
    make_store_url: StoreUrl, nowhere: pytest.MonkeyPatch
) -> None:
    url, options = make_store_url("s3")
    store = open_store(url, Options.parse(options))
    store.put("x", b"1")
    arrived = pickle.loads(pickle.dumps(store))
    with pytest.raises(
        CredentialsError, match=r"without its secrets \(aws.accesskey, aws.secretkey\).*with_credentials"
    ):
        arrived.get("x")
    nowhere.setenv("AWS_ACCESS_KEY_ID", "testkey")
    nowhere.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    assert pickle.loads(pickle.dumps(store)).get("x") == b"1"


@pytest.mark.parametrize("url", ["s3://bucket/t", "az://container/t", "gs://bucket/t", "/tmp/t"])
def test_secrets_are_in_the_passport_and_nowhere_else(url: str) -> None:
    store = open_store(url, Options.parse({**SECRETS, "aws.region": "eu-central-1"}))
    kept = pickle.dumps(store).decode("latin-1")
    shown = repr(store) + str(store) + store.url + repr(store.with_credentials()) + repr(store._identity)
    for secret in SECRETS.values():
        assert secret not in kept
        assert secret not in shown
        assert secret in pickle.dumps(store.with_credentials()).decode("latin-1")
    assert "eu-central-1" in kept
    assert pickle.loads(pickle.dumps(store)).url == store.url
    assert pickle.loads(pickle.dumps(store.with_credentials())).open().url == store.url


def test_errors_quote_no_secret(nowhere: pytest.MonkeyPatch) -> None:
    given = {**SECRETS, "cloud.maxRetries": "0"}
    closed = "http://127.0.0.1:9"
    signature = "sv=2020&sig=SIGNATURE-vwx"
    azure = {
        "azure.connectionString": f"AccountName=a;SharedAccessSignature={signature};BlobEndpoint={closed}/a"
    }
    places = {
        "s3://bucket/t": {**given, "aws.endpoint": closed},
        "az://container/t": {"cloud.maxRetries": "0", **azure},
        "gs://bucket/t": {**given, "gcp.endpoint": closed},
    }
    for url, options in places.items():
        store = open_store(url, Options.parse(options))
        for call in (
            lambda s=store: s.get("x"),
            lambda s=store: s.create("x", b""),
            lambda s=store: list(s.list()),
        ):
            with pytest.raises(StoreError) as caught:
                call()
            told = "".join(traceback.format_exception(caught.value)) + repr(caught.value.__context__)
            for secret in (*SECRETS.values(), "SIGNATURE-vwx", "GOOGLE-stu"):
                assert secret not in told


def test_a_memory_is_known_by_name_in_its_process_and_nowhere_else(make_store_url: StoreUrl) -> None:
    url, _ = make_store_url("memory")
    store = open_store(url)
    store.put("x", b"1")
    assert open_store(url).get("x") == b"1"
    assert pickle.loads(pickle.dumps(store)).get("x") == b"1"
    assert not open_store(url.replace("memory://", "memory://other")).exists("x")
    code = "import pickle, sys; pickle.load(sys.stdin.buffer)"
    ended = subprocess.run(
        [sys.executable, "-c", code], input=pickle.dumps(store), capture_output=True, check=False
    )
    assert b"is the memory of process" in ended.stderr


@pytest.mark.server
def test_opening_again_shares_the_client(make_store_url: StoreUrl) -> None:
    url, options = make_store_url("s3")
    one, other = (open_store(url, Options.parse(options)) for _ in range(2))
    different = open_store(url, Options.parse({**options, "cloud.maxRetries": "3"}))
    assert one._backend._clients is other._backend._clients is one.at("deeper")._backend._clients  # type: ignore[attr-defined]
    assert one._backend._clients is not different._backend._clients  # type: ignore[attr-defined]


def test_forked_store_error_is_a_store_error() -> None:
    assert issubclass(ForkedStoreError, StoreError)
