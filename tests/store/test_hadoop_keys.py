"""Keys of Hadoop's file systems: weaker than our options, one bucket's before all buckets', no mixture of credentials."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from indextables.diagnostics import environment
from indextables.errors import CredentialsError, OptionError, StoreError
from indextables.options import Options, cloud
from indextables.store import open_store
from indextables.store.hadoop import default_path, with_hadoop_keys
from indextables.store.location import locate
from tests.servers import azure
from tests.servers.azure import AzureServer
from tests.servers.fixtures import StoreUrl
from tests.servers.proxy import Proxy

SIMPLE = "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"
TEMPORARY = "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider"
ENVIRONMENT = "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider"
INSTANCE = "org.apache.hadoop.fs.s3a.auth.IAMInstanceCredentialsProvider"
PROVIDER = "fs.s3a.aws.credentials.provider"


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A machine without credentials; its metadata service is a closed port."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9")
    return monkeypatch


def translated(url: str, given: Any, *, credentials: bool = True) -> dict[Any, Any]:
    options = with_hadoop_keys(Options.parse(given), locate(url), credentials=credentials)
    return dict(options.values)


KEYS = {"fs.s3a.access.key": "a", "fs.s3a.secret.key": "s"}
OWN_KEYS = {"aws.accesskey": "a", "aws.secretkey": "s"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (KEYS, OWN_KEYS),
        ({**KEYS, "fs.s3a.session.token": "t"}, {**OWN_KEYS, "aws.sessiontoken": "t"}),
        ({f"spark.hadoop.{key}": value for key, value in KEYS.items()}, OWN_KEYS),
        ({**KEYS, "fs.s3a.bucket.b.access.key": "B", "fs.s3a.bucket.other.secret.key": "O"}, {**OWN_KEYS, "aws.accesskey": "B"}),
        ({"fs.s3a.endpoint": "minio:9000"}, {"aws.endpoint": "https://minio:9000"}),
        ({"fs.s3a.endpoint": "minio:9000", "fs.s3a.connection.ssl.enabled": "false"}, {"aws.endpoint": "http://minio:9000"}),
        ({"fs.s3a.endpoint": "http://minio:9000", "fs.s3a.path.style.access": "true"},
         {"aws.endpoint": "http://minio:9000", "aws.pathstyleaccess": "True"}),
        ({"fs.s3a.endpoint": "s3.amazonaws.com"}, {}),
        ({"fs.s3a.endpoint": "s3.eu-west-3.amazonaws.com"},
         {"aws.endpoint": "https://s3.eu-west-3.amazonaws.com", "aws.region": "eu-west-3"}),
        ({"fs.s3a.endpoint.region": "eu-west-1", "aws.region": "us-west-2"}, {"aws.region": "us-west-2"}),
        ({"fs.s3a.encryption.algorithm": "SSE-KMS", "fs.s3a.encryption.key": "arn"},
         {"aws.encryption": "SSE-KMS", "aws.encryptionkey": "arn"}),
        ({"fs.s3a.server-side-encryption-algorithm": "AES256"}, {"aws.encryption": "AES256"}),
        ({"fs.s3a.requester.pays.enabled": "true"}, {"aws.requesterpays": "True"}),
        # credentials of two sources are never mixed
        ({**KEYS, "fs.s3a.session.token": "t", "aws.accessKey": "own", "aws.secretKey": "x"},
         {"aws.accesskey": "own", "aws.secretkey": "x"}),
        ({**KEYS, "credentials.provider": "instance"}, {"credentials.provider": "instance"}),
        # lists of providers: the first that has something
        ({**KEYS, PROVIDER: SIMPLE}, OWN_KEYS),
        ({**KEYS, "fs.s3a.session.token": "t", PROVIDER: SIMPLE}, OWN_KEYS),
        ({**KEYS, PROVIDER: f"{TEMPORARY},\n {SIMPLE}"}, OWN_KEYS),
        ({PROVIDER: f"{SIMPLE},{ENVIRONMENT},{INSTANCE}"}, {"credentials.provider": "instance"}),
        ({PROVIDER: "com.amazonaws.auth.DefaultAWSCredentialsProviderChain"}, {}),
        ({PROVIDER: "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"}, {"credentials.provider": "anonymous"}),
        ({**KEYS, PROVIDER: f"{SIMPLE},com.acme.Vault"}, OWN_KEYS),
        # keys of other stores
        ({"fs.azure.account.key.x.dfs.core.windows.net": "k", "fs.gs.auth.type": "COMPUTE_ENGINE"}, {}),
    ],
)  # fmt: skip
def test_what_s3a_keys_mean(given: Any, expected: Any) -> None:
    assert translated("s3://b/t", given) == expected


def test_providers_of_a_list_are_asked_in_its_order(bare: pytest.MonkeyPatch) -> None:
    bare.setenv("AWS_ACCESS_KEY_ID", "e")
    given = {PROVIDER: f"{TEMPORARY},{ENVIRONMENT},{INSTANCE}"}
    assert translated("s3://b/t", given) == {"credentials.provider": "environment"}
    bare.delenv("AWS_ACCESS_KEY_ID")
    bare.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1:9/x")
    assert translated("s3://b/t", given) == {"credentials.provider": "container"}


def test_a_callable_is_stronger_than_credentials_of_hadoop() -> None:
    given = {**KEYS, "fs.s3a.endpoint": "http://x", PROVIDER: "com.acme.Vault"}
    assert translated("s3://b/t", given, credentials=False) == {"aws.endpoint": "http://x"}


ABFS = "abfss://c@acme.dfs.core.windows.net/t"
HOST = "acme.dfs.core.windows.net"
OAUTH = {
    "fs.azure.account.auth.type": "OAuth",
    f"fs.azure.account.oauth.provider.type.{HOST}": "org.apache.hadoop.fs.azurebfs.oauth2.ClientCredsTokenProvider",
    f"fs.azure.account.oauth2.client.id.{HOST}": "id",
    f"fs.azure.account.oauth2.client.secret.{HOST}": "hush",
    "fs.azure.account.oauth2.client.endpoint": "https://login.microsoftonline.com/tenant/oauth2/token",
}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({f"fs.azure.account.key.{HOST}": "k", "fs.azure.account.key": "of-all"}, {"azure.accountkey": "k"}),
        ({"fs.azure.account.key.acme.blob.core.windows.net": "k"}, {"azure.accountkey": "k"}),
        ({"fs.azure.account.key.other.dfs.core.windows.net": "k"}, {}),
        ({f"fs.azure.account.key.{HOST}": "k", "azure.sasToken": "own"}, {"azure.sastoken": "own"}),
        ({"fs.azure.account.auth.type": "SAS", f"fs.azure.sas.fixed.token.{HOST}": "?sv=1"}, {"azure.sastoken": "sv=1"}),
        ({"fs.azure.sas.c.acme.blob.core.windows.net": "sv=1", "fs.azure.sas.d.acme.blob.core.windows.net": "sv=2"},
         {"azure.sastoken": "sv=1"}),
        (OAUTH, {"azure.clientid": "id", "azure.clientsecret": "hush", "azure.tenantid": "tenant",
                 "azure.authorityhost": "https://login.microsoftonline.com"}),
        ({"fs.azure.account.auth.type": "OAuth", "fs.azure.account.oauth2.client.id": "id",
          "fs.azure.account.oauth.provider.type": "org.apache.hadoop.fs.azurebfs.oauth2.MsiTokenProvider",
          "fs.azure.account.oauth2.msi.tenant": "tenant"},
         {"credentials.provider": "instance", "azure.clientid": "id", "azure.tenantid": "tenant"}),
        ({"fs.azure.account.auth.type": "OAuth", "fs.azure.account.oauth2.client.id": "id",
          "fs.azure.account.oauth.provider.type": "org.apache.hadoop.fs.azurebfs.oauth2.WorkloadIdentityTokenProvider",
          "fs.azure.account.oauth2.msi.tenant": "tenant", "fs.azure.account.oauth2.token.file": "/token"},
         {"credentials.provider": "web-identity", "azure.clientid": "id", "azure.tenantid": "tenant",
          "azure.federatedtokenfile": "/token"}),
    ],
)  # fmt: skip
def test_what_azure_keys_mean(given: dict[str, Any], expected: Any) -> None:
    assert translated(ABFS, given) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"fs.gs.auth.service.account.json.keyfile": "/k.json"}, {"gcp.credentialsfile": "/k.json"}),
        ({"fs.gs.auth.type": "COMPUTE_ENGINE"}, {"credentials.provider": "instance"}),
        ({"fs.gs.auth.type": "UNAUTHENTICATED"}, {"credentials.provider": "anonymous"}),
        ({"fs.gs.auth.type": "APPLICATION_DEFAULT"}, {}),
        ({"fs.gs.storage.root.url": "http://127.0.0.1:4443/"}, {"gcp.endpoint": "http://127.0.0.1:4443/"}),
        ({"fs.gs.auth.service.account.json.keyfile": "/k", "gcp.credentialsFile": "/own"}, {"gcp.credentialsfile": "/own"}),
    ],
)  # fmt: skip
def test_what_google_keys_mean(given: dict[str, Any], expected: Any) -> None:
    assert translated("gs://b/t", given) == expected


def test_a_google_key_in_parts_becomes_one() -> None:
    parts = {"email": "e@x", "private.key": "-----BEGIN\\nKEY", "private.key.id": "7"}
    given = {f"fs.gs.auth.service.account.{name}": value for name, value in parts.items()}
    account = json.loads(translated("gs://b/t", given)["gcp.serviceaccountkey"])
    assert account["client_email"] == "e@x"
    assert account["private_key"] == "-----BEGIN\nKEY"


@pytest.mark.parametrize(
    ("url", "given", "message"),
    [
        ("s3://b", {PROVIDER: "com.acme.Vault"}, "fs.s3a.aws.credentials.provider names com.acme.Vault"),
        ("s3://b", {PROVIDER: "org.apache.hadoop.fs.s3a.auth.AssumedRoleCredentialProvider"}, PROVIDER),
        ("s3://b", {PROVIDER: SIMPLE}, "none of the providers in fs.s3a.aws.credentials.provider has credentials"),
        ("s3://b", {"fs.s3a.encryption.algorithm": "CSE-KMS"}, "fs.s3a.encryption.algorithm is 'CSE-KMS'"),
        ("s3://b", {"fs.s3a.endpoint": "x", "fs.s3a.connection.ssl.enabled": "perhaps"}, "fs.s3a.connection.ssl.enabled is 'perhaps'"),
        (ABFS, {"fs.azure.account.auth.type": "Custom"}, "fs.azure.account.auth.type is custom"),
        (ABFS, {"fs.azure.account.auth.type": "SharedKey"}, "fs.azure.account.key.acme.dfs.core.windows.net is not set"),
        (ABFS, {"fs.azure.account.auth.type": "SAS", "fs.azure.sas.token.provider.type": "com.acme.Sas"}, "com.acme.Sas"),
        (ABFS, {"fs.azure.account.keyprovider": "com.acme.Shell"}, "fs.azure.account.keyprovider is com.acme.Shell"),
        (ABFS, {**OAUTH, "fs.azure.account.oauth2.client.endpoint": "nonsense"}, "needs the keys client.id"),
        (ABFS, {"fs.azure.account.auth.type": "OAuth",
                "fs.azure.account.oauth.provider.type": "x.UserPasswordTokenProvider"}, "oauth.provider.type is x.User"),
        ("gs://b", {"fs.gs.auth.type": "USER_CREDENTIALS"}, "fs.gs.auth.type is USER_CREDENTIALS"),
        ("gs://b", {"fs.gs.auth.access.token.provider": "com.acme.T"}, "fs.gs.auth.access.token.provider is com.acme.T"),
        ("gs://b", {"fs.gs.auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE"}, "json.keyfile is not set"),
    ],
)  # fmt: skip
def test_what_has_no_counterpart_is_refused_by_the_name_of_its_key(
    url: str, given: Any, message: str
) -> None:
    with pytest.raises((CredentialsError, StoreError)) as caught:
        open_store(f"{url.rstrip('/')}/x", Options.parse(given))
    assert message in str(caught.value)


def test_keys_without_effect_are_refused_when_they_are_given_to_a_call() -> None:
    for key in (
        "fs.s3a.threads.max",
        "fs.azure.read.request.size",
        "fs.gs.project.id",
        "fs.s3a.bucket.b.threads.max",
    ):
        assert not cloud.hadoop_key(key)
        with pytest.raises(
            OptionError, match=f"'{key}' is \\*\\*\\*, but a key with a counterpart"
        ) as caught:
            Options.parse({key: "VALUE"})
        assert "VALUE" not in str(caught.value)


def test_values_are_shown_nowhere() -> None:
    options = Options.parse(
        {
            "fs.s3a.secret.key": "HUSH",
            "fs.s3a.bucket.b.session.token": "HUSH",
            f"fs.azure.account.key.{HOST}": "HUSH",
            f"fs.azure.sas.c.{HOST}": "HUSH",
            "fs.gs.auth.service.account.private.key": "HUSH",
        }
    )
    assert "HUSH" not in repr(options)
    assert not options.public().values
    assert all("HUSH" not in each.value for each in environment(options=options))
    shown = {each.name for each in environment(options=options)}
    assert "spark.hadoop.fs.s3a.secret.key" in shown


# --- real requests ---------------------------------------------------------------------------------


@pytest.mark.server
def test_requests_to_s3_are_signed_with_keys_of_hadoop(faulty_s3: Proxy) -> None:
    def signer(**given: Any) -> tuple[str, str, str]:
        endpoint = {
            "fs.s3a.endpoint": f"127.0.0.1:{faulty_s3.port}",
            "fs.s3a.connection.ssl.enabled": "false",
        }
        open_store("s3a://bucket/hadoop", Options.parse({**endpoint, **given})).put("x", b"")
        request = faulty_s3.requests[-1]
        signed_by = request.header("authorization")
        return (
            signed_by and signed_by.split("Credential=")[1].split("/")[0],
            request.header("x-amz-security-token"),
            request.header("x-amz-server-side-encryption"),
        )

    given = {**KEYS, "fs.s3a.session.token": "t"}
    assert signer(**given) == ("a", "t", None)
    assert signer(**given, **{"fs.s3a.bucket.bucket.access.key": "B"}) == ("B", "t", None)
    assert signer(**given, **{"aws.accessKey": "own", "aws.secretKey": "x"}) == ("own", None, None)
    assert signer(**KEYS, **{"fs.s3a.encryption.algorithm": "AES256"}) == ("a", None, "AES256")
    anonymous = "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
    with pytest.raises(
        CredentialsError, match="the store refused the credentials"
    ):  # the server wants a signature
        signer(**KEYS, **{PROVIDER: anonymous})
    assert faulty_s3.requests[-1].header("authorization") is None


@pytest.mark.server
@pytest.mark.parametrize("way", ["key", "signature"])
def test_keys_and_signatures_of_hadoop_open_an_azure_container(azurite_server: AzureServer, way: str) -> None:
    host = f"{azure.ACCOUNT}.dfs.core.windows.net"
    endpoint = {"azure.endpoint": azurite_server.options()["azure.endpoint"]}
    given = {f"fs.azure.account.key.{host}": azure.KEY}
    if way == "signature":
        given = {
            "fs.azure.account.auth.type": "SAS",
            f"fs.azure.sas.fixed.token.{host}": azurite_server.shared_access_signature(),
        }
    store = open_store(f"abfss://{azure.CONTAINER}@{host}/hadoop-{way}", Options.parse({**endpoint, **given}))
    assert store.create("x", b"1")
    assert not store.create("x", b"2")
    assert store.get("x") == b"1"
    reading = {**endpoint, "azure.sasToken": azurite_server.shared_access_signature("rl")}
    reader = open_store(store.url, Options.parse({**given, **reading}))
    assert reader.get("x") == b"1"
    with pytest.raises(CredentialsError, match="the store refused the credentials"):
        reader.put("x", b"3")


@pytest.mark.server
def test_requests_to_google_go_where_hadoop_says(gcs_proxy: Proxy, make_store_url: StoreUrl) -> None:
    url, options = make_store_url("gcs")
    open_store(url, Options.parse(options)).put("x", b"1")
    root = f"http://127.0.0.1:{gcs_proxy.port}"
    given = {"fs.gs.storage.root.url": root, "fs.gs.auth.type": "UNAUTHENTICATED"}
    assert open_store(url, Options.parse(given)).get("x") == b"1"
    assert gcs_proxy.requests[-1].header("authorization") is None


# --- the default file system -----------------------------------------------------------------------


def test_a_path_without_a_scheme_follows_the_default_file_system(tmp_path: Path) -> None:
    def at(path: str, default: str) -> str | os.PathLike[str]:
        return default_path(path, Options.parse({"fs.defaultFS": default}))

    assert at("/t", "s3a://lake") == "s3a://lake/t"
    assert at("/t", "s3a://lake/") == "s3a://lake/t"
    assert at("/t", "file:///") == "/t"
    assert at("t", "file:///") == "t"
    assert at("gs://b/t", "s3a://lake") == "gs://b/t"
    assert default_path(tmp_path, Options()) == tmp_path
    with pytest.raises(StoreError, match="'t' is relative, and the default file system is s3a://lake"):
        at("t", "s3a://lake")
    with pytest.raises(StoreError, match=r"fs\.defaultFS is 'lake', but a URL"):
        at("/t", "lake")
    assert open_store("/t", Options.parse({"fs.defaultFS": "s3a://lake", **KEYS})).url == "s3://lake/t"
