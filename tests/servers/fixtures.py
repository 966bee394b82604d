"""Stores for tests: `any_store` runs a test on each kind, `make_store_url` names one for other processes."""

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from indextables.options import Options
from indextables.store import Store, open_store
from tests.servers import azure, hdfs, s3
from tests.servers.proxy import Proxy, google_to_s3, ignore_conditions, proxy, s3_to_google
from tests.servers.s3 import S3Server

StoreUrl = Callable[[str], tuple[str, dict[str, str]]]

KINDS = [
    "local",
    "memory",
    pytest.param("s3", marks=pytest.mark.server),
    pytest.param("azure", marks=pytest.mark.server),
    pytest.param("hdfs", marks=pytest.mark.connectors),
]


@pytest.fixture(scope="session")
def moto_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s3.S3Server]:
    with s3.moto(tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture(scope="session")
def seaweed_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s3.S3Server]:
    with s3.seaweed(tmp_path_factory.mktemp("seaweed"), s3.USERS) as server:
        yield server


@pytest.fixture(scope="session")
def azurite_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[azure.AzureServer]:
    if (reason := azure.missing()) is not None:
        pytest.skip(reason)
    with azure.azurite(tmp_path_factory.mktemp("azurite")) as server:
        yield server


@pytest.fixture(scope="session")
def hdfs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[hdfs.HdfsServer]:
    with hdfs.mini_cluster(tmp_path_factory.mktemp("hdfs")) as server:
        yield server


@pytest.fixture(scope="session")
def gcs_proxy(moto_server: S3Server) -> Iterator[Proxy]:
    """Google's protocol in front of moto: it tests our side and the client's, not Google's."""
    with proxy(moto_server.port, google_to_s3, s3_to_google) as made:
        yield made


@pytest.fixture
def faulty_s3(moto_server: S3Server) -> Iterator[Proxy]:
    """moto behind a proxy that fails on demand."""
    with proxy(moto_server.port) as made:
        yield made


@pytest.fixture
def careless_s3(moto_server: S3Server) -> Iterator[Proxy]:
    """An S3 server that ignores If-None-Match."""
    with proxy(moto_server.port, ignore_conditions) as made:
        yield made


@pytest.fixture
def make_store_url(request: pytest.FixtureRequest, tmp_path: Path) -> StoreUrl:
    """A function from a kind of store to an empty, unique URL there and the options that open it.

    Kinds: local, memory, s3 (moto), seaweed, azure (Azurite), gcs (a shim), hdfs (a cluster). Servers start when first asked for.
    """

    def make(kind: str) -> tuple[str, dict[str, str]]:
        name = secrets.token_hex(6)
        if kind == "local":
            return str(tmp_path / name), {}
        if kind == "memory":
            return f"memory://{name}/table", {}
        if kind in ("s3", "seaweed"):
            server = request.getfixturevalue("moto_server" if kind == "s3" else "seaweed_server")
            return f"s3://{s3.BUCKET}/{name}/table", server.options()
        if kind == "azure":
            server = request.getfixturevalue("azurite_server")
            return f"az://{azure.CONTAINER}/{name}/table", server.options()
        if kind == "hdfs":
            return f"{request.getfixturevalue('hdfs_server').url}/{name}/table", {}
        if kind == "gcs":
            port = request.getfixturevalue("gcs_proxy").port
            key = '{"gcs_base_url":"http://127.0.0.1:%d","disable_oauth":true,"client_email":"","private_key":"","private_key_id":""}'
            return f"gs://{s3.BUCKET}/{name}/table", {
                "gcp.serviceAccountKey": key % port,
                "gcp.endpoint": f"http://127.0.0.1:{port}",
            }
        raise ValueError(kind)

    return make


@pytest.fixture(params=KINDS)
def any_store(request: pytest.FixtureRequest, make_store_url: StoreUrl) -> Store:
    """An empty store of each kind in turn."""
    url, options = make_store_url(request.param)
    return open_store(url, Options.parse(options))
