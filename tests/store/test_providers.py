"""Providers of credentials: checked, shared, renewed before they expire; services of clouds; Unity Catalog."""

import asyncio
import json
import os
import pickle
import secrets
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import indextables
from indextables.errors import CredentialsError, OptionError
from indextables.options import Options
from indextables.store import open_store
from indextables.store.location import Kind
from indextables.store.providers import RefreshingProvider, UnityCatalog, named_provider
from tests.servers import azure, s3
from tests.servers.azure import AzureServer
from tests.servers.fixtures import StoreUrl
from tests.servers.identity import Catalog, Service, in_an_hour, machine_role, role_keys, service, vault_file
from tests.servers.proxy import Proxy
from tests.servers.s3 import STRANGER, WRITER, Key, S3Server

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A machine without credentials; its metadata service is a closed port."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9")
    return monkeypatch


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def forward(self, **span: Any) -> None:
        self.now += timedelta(**span)


class Vault:
    """Keys that live for some time; each call gives others, or fails."""

    def __init__(self, clock: Any = None, **lifetime: Any) -> None:
        self.clock = clock or Clock()
        self.lifetime = timedelta(**lifetime) if lifetime else None
        self.calls = 0
        self.down = False

    def __call__(self) -> dict[Any, Any]:
        self.calls += 1
        if self.down:
            raise RuntimeError("the vault says HUSH")
        end = None if self.lifetime is None else self.clock() + self.lifetime
        return {
            "access_key_id": f"k{self.calls}",
            "secret_access_key": "HUSH",
            "token": None,
            "expires_at": end,
        }


def refreshing(vault: Vault, kind: Any = Kind.S3) -> RefreshingProvider:
    return RefreshingProvider(vault, kind, "s3://b/t", vault.clock)


# --- renewal ---------------------------------------------------------------------------------------


def test_credentials_are_renewed_before_they_expire() -> None:
    vault = Vault(hours=1)
    provider = refreshing(vault)
    assert provider()["access_key_id"] == "k1"
    assert provider()["expires_at"] == START + timedelta(minutes=55)  # when obstore has to ask again
    vault.clock.forward(minutes=54)
    assert provider()["access_key_id"] == "k1"
    vault.clock.forward(minutes=1)
    assert provider()["access_key_id"] == "k2"
    assert vault.calls == 2


def test_short_lived_credentials_are_used_for_three_quarters_of_their_time() -> None:
    vault = Vault(seconds=40)
    provider = refreshing(vault)
    provider()
    vault.clock.forward(seconds=29)
    assert provider()["access_key_id"] == "k1"
    vault.clock.forward(seconds=1)
    assert provider()["access_key_id"] == "k2"


def test_a_failing_renewal_keeps_credentials_that_are_still_valid() -> None:
    vault = Vault(hours=1)
    provider = refreshing(vault)
    provider()
    vault.down = True
    vault.clock.forward(minutes=56)
    assert provider()["access_key_id"] == "k1"
    assert provider()["access_key_id"] == "k1"
    assert vault.calls == 2  # not asked again for half a minute
    vault.clock.forward(minutes=4)
    with pytest.raises(CredentialsError, match="Vault failed with RuntimeError") as caught:
        provider()
    assert "HUSH" not in str(caught.value)
    assert caught.value.__context__ is None
    vault.down = False
    assert provider()["access_key_id"].startswith("k")


def test_threads_fetch_credentials_once() -> None:
    vault = Vault(hours=1)
    provider = refreshing(vault)
    threads = [threading.Thread(target=provider) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert vault.calls == 1


@pytest.mark.parametrize(
    ("kind", "answer", "problem"),
    [
        (Kind.S3, None, "returned NoneType, but a dict is expected"),
        (Kind.S3, {}, "returned nothing, but access_key_id, secret_access_key is expected"),
        (Kind.S3, {"access_key_id": "HUSH"}, "returned access_key_id, but"),
        (Kind.S3, {"access_key_id": "HUSH", "secret_access_key": 7}, "is empty or no text"),
        (Kind.S3, {"access_key_id": "a", "secret_access_key": "HUSH", "expires_at": "soon"}, "no datetime"),
        (Kind.S3, {"access_key_id": "a", "secret_access_key": "HUSH", "expires_at": datetime(2030, 1, 1)}, "time zone"),  # noqa: DTZ001
        (Kind.AZURE, {"access_key": "HUSH", "sas_token": "HUSH"}, "access_key or sas_token or token is expected"),
        (Kind.GCS, {"access_key_id": "HUSH"}, "but token is expected"),
    ],
)  # fmt: skip
def test_a_wrong_answer_is_refused_and_not_quoted(kind: Any, answer: Any, problem: str) -> None:
    with pytest.raises(CredentialsError) as caught:
        RefreshingProvider(lambda: answer, kind, "s3://b/t")()
    assert problem in str(caught.value)
    assert "HUSH" not in str(caught.value)


def test_a_callable_may_be_async_and_may_take_the_url() -> None:
    async def fetch(url: Any) -> dict[Any, Any]:
        await asyncio.sleep(0)
        return {"token": url}

    def call() -> dict[str, Any]:
        return RefreshingProvider(fetch, Kind.GCS, "gs://b/t")()

    async def in_a_loop() -> Any:
        return call()

    assert call()["token"] == "gs://b/t"
    assert asyncio.run(in_a_loop())["token"] == "gs://b/t"


# --- callables in open, write, sql -----------------------------------------------------------------


def keys_of(key: Key) -> dict[Any, Any]:
    return {"access_key_id": key.name, "secret_access_key": key.secret, "token": None, "expires_at": None}


@pytest.mark.server
def test_open_write_sql_and_repair_take_a_callable(seaweed_server: S3Server) -> None:
    url = f"s3://{s3.BUCKET}/callable-{secrets.token_hex(6)}"
    options = {"aws.endpoint": seaweed_server.endpoint}
    calls = []

    def provider(of: Any) -> Any:
        calls.append(of)
        return keys_of(WRITER)

    given: Any = {"options": options, "credentials": provider}
    indextables.write(url, [{"id": 1}, {"id": 2}], **given)
    table = indextables.open(url, **given)
    assert table.count() == 2
    table.merge()
    assert indextables.sql(f"DESCRIBE INDEXTABLES TRANSACTION LOG '{url}'", **given).num_rows
    repaired = f"{url}-repaired/_transaction_log"
    indextables.sql(
        f"REPAIR INDEXFILES TRANSACTION LOG '{url}/_transaction_log' AT LOCATION '{repaired}'", **given
    )
    assert calls[0] == url
    # another user in this process
    with pytest.raises(CredentialsError, match="the store refused the credentials"):
        indextables.open(url, options=options, credentials=lambda: keys_of(STRANGER))
    with pytest.raises(CredentialsError, match="no AWS credentials"):
        indextables.open(url, options=options)


@pytest.mark.server
@pytest.mark.parametrize("operation", ["get", "put", "create", "list", "list_folder", "delete", "upload"])
def test_keys_that_were_rotated_are_fetched_when_the_store_refuses_the_old_ones(
    seaweed_server: S3Server, tmp_path: Path, operation: str
) -> None:
    options = Options.parse({"aws.endpoint": seaweed_server.endpoint})
    url = f"s3://{s3.BUCKET}/rotated-{secrets.token_hex(6)}"
    open_store(url, options, credentials=lambda: keys_of(WRITER)).put("x", b"1")
    answers = [STRANGER, WRITER]
    store = open_store(url, options, credentials=lambda: keys_of(answers.pop(0)))
    file = tmp_path / "file"
    file.write_bytes(b"2" * 1000)
    calls: dict[str, Callable[[], object]] = {
        "get": lambda: store.get("x"),
        "put": lambda: store.put("y", b"1"),
        "create": lambda: store.create("y", b"1"),
        "list": lambda: list(store.list()),
        "list_folder": store.list_folder,
        "delete": lambda: store.delete(["x"]),
        "upload": lambda: store.upload("y", file),
    }
    calls[operation]()
    assert answers == []
    if operation == "upload":
        assert store.get("y") == file.read_bytes()


@pytest.mark.server
def test_a_provider_without_other_keys_is_not_asked_for_every_request(seaweed_server: S3Server) -> None:
    calls = []

    def provider() -> Any:
        calls.append(1)
        return keys_of(STRANGER)

    options = Options.parse({"aws.endpoint": seaweed_server.endpoint})
    store = open_store(f"s3://{s3.BUCKET}/refused", options, credentials=provider)
    for _ in range(3):
        with pytest.raises(CredentialsError, match="the store refused the credentials"):
            store.get("x")
    assert len(calls) == 2


@pytest.mark.server
def test_a_failing_callable_is_named_and_nothing_is_created(seaweed_server: S3Server) -> None:
    vault = Vault()
    vault.down = True
    options = Options.parse({"aws.endpoint": seaweed_server.endpoint})
    store = open_store(f"s3://{s3.BUCKET}/failing", options, credentials=vault)
    for call in (lambda: store.get("x"), lambda: store.create("x", b"1"), lambda: list(store.list())):
        with pytest.raises(
            CredentialsError, match=r"s3://bucket/failing.*provider Vault failed with RuntimeError"
        ) as caught:
            call()
        assert "HUSH" not in str(caught.value)


# --- functions that options name -------------------------------------------------------------------


@pytest.mark.server
def test_a_function_is_named_in_options_and_pickled_by_its_name(seaweed_server: S3Server) -> None:
    name = f"vault-{secrets.token_hex(6)}"
    file = vault_file(name)
    options = {
        "aws.endpoint": seaweed_server.endpoint,
        "credentials.provider": "tests.servers.identity:vault",
    }
    keys = {"access_key_id": WRITER.name, "secret_access_key": WRITER.secret}
    try:
        file.write_text(json.dumps(keys))
        store = open_store(f"s3://{s3.BUCKET}/{name}/t", Options.parse(options))
        store.put("x", b"1")
        assert WRITER.secret.encode() not in pickle.dumps(store)
        arrived = pickle.loads(pickle.dumps(store))
        assert arrived.get("x") == b"1"
        assert arrived.at("folder")._identity.url == store.url
        file.write_text(json.dumps({**keys, "access_key_id": "nobody"}))
        with pytest.raises(CredentialsError, match="the store refused the credentials"):
            arrived.get("x")
    finally:
        file.unlink()
        file.with_suffix(".calls").unlink()


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("no_such_module:f", "cannot be imported here"),
        ("tests.servers.identity:no_such_function", "cannot be imported here"),
        ("tests.servers.identity:__name__", "is not a function"),
    ],
)
def test_a_function_that_is_not_there_is_refused(name: str, problem: str) -> None:
    with pytest.raises(CredentialsError, match=problem):
        open_store("s3://b/t", Options.parse({"credentials.provider": name})).get("x")


@pytest.mark.parametrize("error", ["ValueError", "ImportError", "RuntimeError"])
def test_what_a_module_of_a_provider_raises_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: str
) -> None:
    (tmp_path / "failing_provider.py").write_text(f"raise {error}('hush-hush')")
    monkeypatch.syspath_prepend(tmp_path)
    options = Options.parse({"credentials.provider": "failing_provider:f"})
    with pytest.raises(CredentialsError, match=rf"cannot be imported here \({error}\)") as caught:
        open_store("s3://b/t", options).get("x")
    shown = "".join(traceback.format_exception(caught.value))
    assert "hush-hush" not in shown


@pytest.mark.parametrize("name", ["vault", "os.system", "a:b()", ":f", "m:", "instance:x", "a b:c"])
def test_what_names_no_provider_is_refused(name: str) -> None:
    with pytest.raises(OptionError, match=r"credentials\.provider"):
        Options.parse({"credentials.provider": name})


# --- services of clouds ----------------------------------------------------------------------------


@pytest.fixture
def signed(faulty_s3: Proxy) -> Callable[..., Any]:
    """Who the store takes us for: access key and session token of a request."""

    def make(**options: Any) -> Any:
        endpoint = {"aws.endpoint": f"http://127.0.0.1:{faulty_s3.port}"}
        open_store("s3://bucket/signed", Options.parse({**endpoint, **options})).put("x", b"")
        request = faulty_s3.requests[-1]
        access = request.header("authorization").split("Credential=")[1].split("/")[0]
        return access, request.header("x-amz-security-token")

    return make


@pytest.mark.server
def test_the_role_of_a_machine_can_be_named(signed: Callable[..., Any], bare: pytest.MonkeyPatch) -> None:
    with service(machine_role) as metadata:
        bare.setenv("AWS_METADATA_ENDPOINT", metadata.url)
        assert signed(**{"credentials.provider": "instance"}) == ("of-machine", "t")
        bare.setenv("AWS_ACCESS_KEY_ID", "environment")
        with pytest.raises(
            CredentialsError, match="the environment has AWS_ACCESS_KEY_ID, which would be used"
        ):
            signed(**{"credentials.provider": "instance"})
    bare.delenv("AWS_ACCESS_KEY_ID")
    bare.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(CredentialsError, match="there is no metadata service"):
        signed(**{"credentials.provider": "instance"})


@pytest.mark.server
def test_the_role_of_a_container(
    signed: Callable[..., Any], bare: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("container-token")
    with service(lambda _: (200, role_keys("of-container"))) as credentials:
        bare.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{credentials.url}/role")
        bare.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(token))
        assert signed(**{"credentials.provider": "container"}) == ("of-container", "t")
        assert credentials.calls[0].headers["authorization"] == "container-token"
    bare.delenv("AWS_CONTAINER_CREDENTIALS_FULL_URI")
    with pytest.raises(CredentialsError, match="AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"):
        signed(**{"credentials.provider": "container"})


@pytest.mark.server
def test_a_web_identity_of_aws(signed: Callable[..., Any], bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("web-token")
    answer = (
        "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>"
        "<SessionToken>t</SessionToken><SecretAccessKey>s</SecretAccessKey>"
        f"<Expiration>{in_an_hour()}</Expiration><AccessKeyId>of-web</AccessKeyId></Credentials>"
        "</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"
    )
    # the client takes tokens to encrypted services only
    with service(lambda _: (200, answer), certificate=tmp_path) as sts:
        bare.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
        bare.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(token))
        bare.setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/reader")
        bare.setenv("AWS_ENDPOINT_URL_STS", sts.url)
        assert signed(**{"credentials.provider": "web-identity"}) == ("of-web", "t")
        assert signed() == ("of-web", "t")
        assert "web-token" in sts.calls[0].path + sts.calls[0].body
    bare.delenv("AWS_WEB_IDENTITY_TOKEN_FILE")
    with pytest.raises(CredentialsError, match="AWS_WEB_IDENTITY_TOKEN_FILE"):
        signed(**{"credentials.provider": "web-identity"})


@pytest.mark.server
def test_a_profile_can_be_named_and_its_keys_be_rotated(
    signed: Callable[..., Any], bare: pytest.MonkeyPatch, faulty_s3: Proxy, tmp_path: Path
) -> None:
    def write(key: str) -> None:
        text = f"[default]\naws_access_key_id = d\naws_secret_access_key = s\n[work]\naws_access_key_id = {key}\naws_secret_access_key = s\n"
        (tmp_path / ".aws" / "credentials").write_text(text)

    (tmp_path / ".aws").mkdir()
    write("first")
    bare.setenv("AWS_ACCESS_KEY_ID", "environment")
    bare.setenv("AWS_SECRET_ACCESS_KEY", "s")
    assert signed(**{"credentials.provider": "profile:work"}) == ("first", None)
    assert signed(**{"credentials.provider": "profile"}) == ("d", None)
    assert signed(**{"credentials.provider": "environment"}) == ("environment", None)
    write("second")
    assert signed(**{"credentials.provider": "profile:work"}) == ("second", None)
    with pytest.raises(CredentialsError, match="'absent'"):
        signed(**{"credentials.provider": "profile:absent"})


@pytest.fixture
def azure_header(azurite_server: AzureServer) -> Iterator[Callable[..., str]]:
    """The Authorization header of a request to Azure; Azurite refuses tokens, for it has no TLS here."""
    from tests.servers.proxy import proxy  # noqa: PLC0415 - one use

    with proxy(azurite_server.port) as before:

        def make(**options: Any) -> str:
            endpoint = f"http://127.0.0.1:{before.port}/{azure.ACCOUNT}"
            given = {"azure.accountName": azure.ACCOUNT, "azure.endpoint": endpoint, **options}
            store = open_store(f"az://{azure.CONTAINER}/token", Options.parse(given))
            with pytest.raises(CredentialsError, match="the store refused the credentials"):
                store.get("x")
            return before.requests[-1].header("authorization")

        yield make


def token_answer(call: Any) -> Any:
    return 200, {"access_token": f"token-of{call.path.split('?')[0]}", "expires_in": 3600, "expires_on": "4102444800",
                 "token_type": "Bearer", "resource": "https://storage.azure.com", "not_before": "0"}  # fmt: skip


@pytest.mark.server
def test_identities_of_azure(
    azure_header: Callable[..., Any], bare: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text("federated-token")
    bare.setenv("AZURE_STORAGE_ACCOUNT_KEY", azure.KEY)  # a named provider is stronger
    with service(token_answer) as identity:
        instance = {"credentials.provider": "instance", "azure.identityEndpoint": f"{identity.url}/msi"}
        assert azure_header(**instance) == "Bearer token-of/msi"
        principal = {"azure.tenantId": "tenant", "azure.clientId": "c", "azure.authorityHost": identity.url}
        workload = {"credentials.provider": "web-identity", "azure.federatedTokenFile": str(file)}
        assert azure_header(**principal, **workload) == "Bearer token-of/tenant/oauth2/v2.0/token"
        assert "federated-token" in identity.calls[-1].body
        secret = {"azure.clientSecret": "hush"}
        assert azure_header(**principal, **secret) == "Bearer token-of/tenant/oauth2/v2.0/token"
        assert "hush" in identity.calls[-1].body
        hadoop = {
            "fs.azure.account.auth.type": "OAuth",
            "fs.azure.account.oauth.provider.type": "org.apache.hadoop.fs.azurebfs.oauth2.ClientCredsTokenProvider",
            "fs.azure.account.oauth2.client.id": "c",
            "fs.azure.account.oauth2.client.secret": "hush",
            "fs.azure.account.oauth2.client.endpoint": f"{identity.url}/of-hadoop/oauth2/token",
        }
        assert azure_header(**hadoop) == "Bearer token-of/of-hadoop/oauth2/v2.0/token"


@pytest.mark.server
def test_a_callable_gives_a_signature_of_azure(azurite_server: AzureServer) -> None:
    given = {**azurite_server.options()}
    del given["azure.accountKey"]
    provider = lambda: {"sas_token": azurite_server.shared_access_signature(), "expires_at": None}  # noqa: E731
    store = open_store(f"az://{azure.CONTAINER}/signature", Options.parse(given), credentials=provider)
    store.put("x", b"1")
    assert store.get("x") == b"1"


@pytest.mark.server
def test_a_callable_gives_a_token_of_google(gcs_proxy: Proxy, make_store_url: StoreUrl) -> None:
    url, options = make_store_url("gcs")
    endpoint = Options.parse({"gcp.endpoint": options["gcp.endpoint"]})
    store = open_store(url, endpoint, credentials=lambda: {"token": "of-callable", "expires_at": None})
    store.put("x", b"1")
    assert store.get("x") == b"1"
    assert gcs_proxy.requests[-1].header("authorization") == "Bearer of-callable"


@pytest.mark.server
def test_the_account_of_a_google_machine(
    gcs_proxy: Proxy, make_store_url: StoreUrl, bare: pytest.MonkeyPatch
) -> None:
    url, options = make_store_url("gcs")
    open_store(url, Options.parse(options)).put("x", b"1")
    endpoint = {"gcp.endpoint": options["gcp.endpoint"], "credentials.provider": "instance"}
    with service(lambda _: (200, {"access_token": "of-machine", "expires_in": 3600})) as metadata:
        bare.setenv("GCE_METADATA_HOST", f"127.0.0.1:{metadata.port}")
        assert open_store(url, Options.parse(endpoint)).get("x") == b"1"
        assert gcs_proxy.requests[-1].header("authorization") == "Bearer of-machine"
    bare.setenv("GOOGLE_SERVICE_ACCOUNT", "/key.json")
    with pytest.raises(CredentialsError, match="GOOGLE_SERVICE_ACCOUNT, which would be used instead"):
        open_store(url, Options.parse(endpoint)).get("x")


@pytest.mark.parametrize("url", ["az://c/t", "gs://b/t"])
def test_providers_that_a_cloud_does_not_have_are_refused(url: str) -> None:
    given = {"credentials.provider": "profile", "azure.accountName": "a"}
    with pytest.raises(CredentialsError, match=r"'profile', which .* does not have"):
        open_store(url, Options.parse(given)).get("x")
    with pytest.raises(CredentialsError, match=r"but none of .* is set"):
        open_store(url, Options.parse({**given, "credentials.provider": "environment"})).get("x")


# --- Unity Catalog ---------------------------------------------------------------------------------

AWS_KEYS = {"aws_temp_credentials": {"access_key_id": WRITER.name, "secret_access_key": WRITER.secret}}


def catalog_options(server: Service, **more: Any) -> dict[Any, Any]:
    return {
        "databricks.workspaceUrl": f"{server.url}/",
        "databricks.apiToken": "uc-token-never-shown",
        **more,
    }


@pytest.mark.server
def test_unity_catalog_vends_credentials_for_a_path(seaweed_server: S3Server) -> None:
    url = f"s3://{s3.BUCKET}/uc-{secrets.token_hex(6)}"
    with service(Catalog(AWS_KEYS)) as catalog:
        options = catalog_options(catalog, **{"aws.endpoint": seaweed_server.endpoint})
        indextables.write(url, [{"id": 1}], options=options)
        assert indextables.open(url, options=options).count() == 1
        requests = [json.loads(call.body) for call in catalog.calls]
        assert requests == [{"url": url, "operation": "PATH_READ_WRITE"}]  # folders below share them
        indextables.write(f"{url}-other", [{"id": 1}], options=options)
        assert json.loads(catalog.calls[-1].body)["url"] == f"{url}-other"
        # keys of our own are stronger
        calls = len(catalog.calls)
        indextables.open(url, options={**options, **seaweed_server.options_of(WRITER)})
        assert len(catalog.calls) == calls


def test_unity_catalog_vends_credentials_for_a_table_to_a_service_principal() -> None:
    with service(Catalog(AWS_KEYS)) as catalog:
        given = {
            "databricks.workspaceUrl": catalog.url,
            "databricks.clientId": "id",
            "databricks.clientSecret": "uc-secret",
        }
        options = Options.parse({**given, "databricks.tableName": "main.logs.events"})
        provider = UnityCatalog(options, Kind.S3)
        assert provider("s3://b/t")["access_key_id"] == WRITER.name
        provider("s3://b/t")
        assert [call.path.rpartition("/")[2] for call in catalog.calls] == [
            "token", "main.logs.events", "temporary-table-credentials", "main.logs.events", "temporary-table-credentials",
        ]  # fmt: skip
        assert json.loads(catalog.calls[2].body) == {"table_id": "table-7", "operation": "READ_WRITE"}


def test_who_may_only_read_gets_credentials_for_reading() -> None:
    with service(Catalog(AWS_KEYS, readers_only=True)) as catalog:
        options = Options.parse(catalog_options(catalog))
        UnityCatalog(options, Kind.S3)("s3://b/t")
        assert [json.loads(call.body)["operation"] for call in catalog.calls] == [
            "PATH_READ_WRITE",
            "PATH_READ",
        ]
        strict = Options.parse({**options.values, "databricks.credential.operation": "PATH_READ_WRITE"})
        with pytest.raises(CredentialsError, match="status 403 PERMISSION_DENIED"):
            UnityCatalog(strict, Kind.S3)("s3://b/t")


@pytest.mark.parametrize(
    ("kind", "answer", "expected"),
    [
        (Kind.AZURE, {"azure_user_delegation_sas": {"sas_token": "?sv=1"}}, {"sas_token": "sv=1"}),
        (Kind.AZURE, {"azure_aad": {"aad_token": "t"}}, {"token": "t"}),
        (Kind.GCS, {"gcp_oauth_token": {"oauth_token": "t"}}, {"token": "t"}),
        (Kind.S3, {"r2_temp_credentials": {"access_key_id": "a", "secret_access_key": "s", "session_token": "t"}},
         {"access_key_id": "a", "secret_access_key": "s", "token": "t"}),
    ],
)  # fmt: skip
def test_credentials_of_unity_catalog_for_every_cloud(
    kind: Any, answer: dict[str, Any], expected: dict[str, Any]
) -> None:
    with service(Catalog(answer)) as catalog:
        provider = RefreshingProvider(
            UnityCatalog(Options.parse(catalog_options(catalog)), kind), kind, "x://b/t"
        )
        credentials = provider()
        assert {key: credentials[key] for key in expected} == expected
        assert credentials["expires_at"] > datetime.now(UTC) + timedelta(minutes=50)
        with pytest.raises(CredentialsError, match="returned no credentials for"):
            UnityCatalog(Options.parse(catalog_options(catalog)), Kind.S3 if kind is Kind.GCS else Kind.GCS)(
                "x://b/t"
            )


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ((401, {"error_code": "UNAUTHENTICATED", "message": "uc-token-never-shown"}), "status 401 UNAUTHENTICATED"),
        ((404, "not JSON, uc-token-never-shown"), "status 404 to"),
        ((200, "not JSON"), "an answer that is no JSON to"),
        ((200, []), "an answer that is no JSON object"),
        ((307, "http://127.0.0.1:9/elsewhere"), "status 307"),
        ((503, {}), "status 503"),
    ],
)  # fmt: skip
def test_failures_of_unity_catalog(answer: Any, problem: str) -> None:
    with service(lambda _: answer) as catalog:
        options = Options.parse(catalog_options(catalog, **{"databricks.retry.attempts": "2"}))
        with pytest.raises(CredentialsError) as caught:
            UnityCatalog(options, Kind.S3)("s3://b/t")
        assert problem in str(caught.value)
        assert "never-shown" not in str(caught.value)
        assert len(catalog.calls) == (2 if answer[0] == 503 else 1)


def test_a_catalog_that_is_down_is_named() -> None:
    given = {
        "databricks.workspaceUrl": "http://127.0.0.1:9",
        "databricks.apiToken": "uc-token",
        "databricks.retry.attempts": "1",
    }
    with pytest.raises(CredentialsError, match=r"Unity Catalog at http://127\.0\.0\.1:9 gave no answer"):
        open_store("s3://b/t", Options.parse(given)).get("x")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"credentials.provider": "unity-catalog"}, "needs databricks.workspaceUrl"),
        ({"databricks.workspaceUrl": "https://x"}, "needs databricks.apiToken"),
        (
            {"databricks.workspaceUrl": "https://x", "databricks.clientId": "c"},
            "databricks.clientSecret; set them",
        ),
        ({"databricks.workspaceUrl": "workspace", "databricks.apiToken": "t"}, "a URL with https://"),
    ],
)
def test_missing_options_of_unity_catalog_are_named(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(CredentialsError) as caught:
        open_store("s3://b/t", Options.parse(given)).get("x")
    assert problem in str(caught.value)


def test_no_provider_is_named_by_default() -> None:
    assert named_provider(Options(), Kind.S3) is None
    assert named_provider(Options.parse({"credentials.provider": "profile:x"}), Kind.S3) is None
    assert "tests.servers.identity" in sys.modules
