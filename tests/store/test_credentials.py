"""Credentials: options before the environment before the default chains, and never a mixture."""

import json
import os
import pickle
import stat
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import indextables
from indextables.diagnostics import environment
from indextables.errors import CredentialsError, OptionError, StoreError
from indextables.options import Options, cloud
from indextables.store import open_store
from indextables.store.credentials import Identity
from indextables.store.hadoop import with_hadoop_keys
from indextables.store.location import locate
from indextables.store.remote import redact
from indextables.store.settings import ClientSettings, settings
from tests.servers import azure
from tests.servers.azure import AzureServer
from tests.servers.identity import machine_role, service
from tests.servers.proxy import Proxy
from tests.servers.s3 import SECRET_KEY, S3Server


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A machine without credentials; its metadata service is a closed port."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9")
    return monkeypatch


def client_settings(url: str, **options: Any) -> ClientSettings:
    return settings(locate(url), Identity(Options.parse(options)))


# --- S3: what is sent is seen by a proxy -----------------------------------------------------------


@pytest.fixture
def signed(faulty_s3: Proxy, moto_server: S3Server) -> Callable[..., Any]:
    """Who the store takes us for: access key and session token of a request."""

    def make(credentials: Any = None, **options: Any) -> Any:
        endpoint = {"aws.endpoint": f"http://127.0.0.1:{faulty_s3.port}"}
        store = open_store(
            "s3://bucket/signed", Options.parse({**endpoint, **options}), credentials=credentials
        )
        store.put("x", b"")
        request = faulty_s3.requests[-1]
        return request.header("authorization").split("Credential=")[1].split("/")[0], request.header(
            "x-amz-security-token"
        )

    return make


@pytest.mark.server
def test_keys_in_options_are_not_mixed_with_a_token_of_the_environment(
    signed: Callable[..., Any], bare: pytest.MonkeyPatch
) -> None:
    bare.setenv("AWS_ACCESS_KEY_ID", "environment")
    bare.setenv("AWS_SECRET_ACCESS_KEY", "s")
    bare.setenv("AWS_SESSION_TOKEN", "token-of-the-environment")
    assert signed() == ("environment", "token-of-the-environment")
    assert signed(**{"aws.accessKey": "option", "aws.secretKey": "s"}) == ("option", None)
    assert signed(**{"aws.accessKey": "o", "aws.secretKey": "s", "aws.sessionToken": "t"}) == ("o", "t")


@pytest.mark.server
def test_the_environment_names_the_endpoint_too(bare: pytest.MonkeyPatch, moto_server: S3Server) -> None:
    bare.setenv("AWS_ACCESS_KEY_ID", "testkey")
    bare.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    bare.setenv("AWS_ENDPOINT_URL", moto_server.endpoint)
    store = open_store("s3://bucket/environment")
    store.put("x", b"1")
    assert store.get("x") == b"1"


@pytest.mark.server
def test_a_profile_comes_after_the_environment(
    signed: Callable[..., Any], bare: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(
        "[default]\naws_access_key_id = of-default\naws_secret_access_key = s\n"
        "[other]\naws_access_key_id = of-other\naws_secret_access_key = s%p\naws_session_token = t\n"
    )
    assert signed() == ("of-default", None)
    bare.setenv("AWS_PROFILE", "other")
    assert signed() == ("of-other", "t")
    bare.setenv("AWS_ACCESS_KEY_ID", "environment")
    bare.setenv("AWS_SECRET_ACCESS_KEY", "s")
    assert signed() == ("environment", None)


@pytest.mark.server
def test_a_profile_may_name_a_program(
    signed: Callable[..., Any], bare: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "program"
    answer = {"Version": 1, "AccessKeyId": "of-program", "SecretAccessKey": "s", "SessionToken": "t"}
    program.write_text(f"#!{sys.executable}\nprint({json.dumps(json.dumps(answer))})\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    config = tmp_path / "config"
    config.write_text(f"[profile robot]\ncredential_process = {program}\nregion = eu-west-3\n")
    bare.setenv("AWS_CONFIG_FILE", str(config))
    bare.setenv("AWS_PROFILE", "robot")
    assert signed() == ("of-program", "t")
    assert client_settings("s3://b").config["region"] == "eu-west-3"


def test_a_profile_that_needs_boto3_says_so(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("[default]\nsso_session = work\n")
    bare.setenv("AWS_CONFIG_FILE", str(config))
    bare.setitem(sys.modules, "boto3", None)
    with pytest.raises(CredentialsError, match="'sso_session', which needs the package boto3"):
        client_settings("s3://b")


def test_a_profile_that_does_not_exist_is_named(bare: pytest.MonkeyPatch) -> None:
    bare.setenv("AWS_PROFILE", "absent")
    with pytest.raises(CredentialsError, match="AWS_PROFILE is 'absent'"):
        client_settings("s3://b")


def test_a_broken_profile_file_is_named_and_not_quoted(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "credentials"
    file.write_text("aws_secret_access_key = SECRET\n")
    bare.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    with pytest.raises(CredentialsError, match=str(file)) as caught:
        client_settings("s3://b")
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize("given", [{"aws.accessKey": "a"}, {"aws.secretKey": "s"}, {"aws.sessionToken": "t"}])
def test_half_a_pair_of_keys_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(CredentialsError, match="go together"):
        client_settings("s3://b", **given)


def test_without_any_credentials_the_answer_is_quick_and_says_what_to_set() -> None:
    began = time.monotonic()
    store = open_store("s3://bucket/t", Options.parse({"aws.endpoint": "http://127.0.0.1:9"}))
    with pytest.raises(
        CredentialsError, match=r"no AWS credentials .* set aws\.accessKey and aws\.secretKey"
    ):
        store.get("x")
    assert time.monotonic() - began < 5


@pytest.mark.server
def test_the_machine_is_asked_last(signed: Callable[..., Any], bare: pytest.MonkeyPatch) -> None:
    with service(machine_role) as metadata:
        bare.setenv("AWS_METADATA_ENDPOINT", metadata.url)
        assert signed() == ("of-machine", "t")
        bare.setenv("AWS_EC2_METADATA_DISABLED", "true")
        with pytest.raises(CredentialsError):
            signed()


class Vault:
    """Credentials that a program fetches itself."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self) -> dict[Any, Any]:
        self.asked += 1
        return {
            "access_key_id": f"vault-{self.asked}",
            "secret_access_key": "VAULT-SECRET",
            "token": None,
            "expires_at": None,
        }


@pytest.mark.server
def test_a_callable_wins_over_all_and_is_asked_once(
    signed: Callable[..., Any], bare: pytest.MonkeyPatch
) -> None:
    bare.setenv("AWS_ACCESS_KEY_ID", "environment")
    bare.setenv("AWS_SECRET_ACCESS_KEY", "s")
    vault = Vault()
    given = {"aws.accessKey": "option", "aws.secretKey": "s"}
    assert signed(vault, **given) == ("vault-1", None)
    assert signed(vault, **given) == ("vault-1", None)
    assert vault.asked == 1


def test_a_callable_is_pickled_with_credentials_only() -> None:
    store = open_store("s3://bucket/t", credentials=Vault())
    assert b"Vault" not in pickle.dumps(store)
    assert "the credentials callable" in pickle.loads(pickle.dumps(store))._identity.left_behind
    assert isinstance(pickle.loads(pickle.dumps(store.with_credentials())).open()._identity.provider, Vault)


def test_an_endpoint_may_put_the_bucket_into_the_host() -> None:
    keys = {"aws.accessKey": "a", "aws.secretKey": "s"}
    config = client_settings(
        "s3://b", **keys, **{"aws.endpoint": "https://s3.acme.org/", "aws.pathStyleAccess": "false"}
    ).config
    assert config["aws_endpoint_url_s3"] == "https://b.s3.acme.org"
    assert config["virtual_hosted_style_request"] is True
    assert (
        client_settings("s3://b", **keys, **{"aws.pathStyleAccess": "true"}).config[
            "virtual_hosted_style_request"
        ]
        is False
    )
    with pytest.raises(StoreError, match="with http:// or https:// is expected"):
        client_settings("s3://b", **keys, **{"aws.endpoint": "s3.acme.org"})


def test_plain_http_is_used_only_when_written(bare: pytest.MonkeyPatch) -> None:
    keys = {"aws.accessKey": "a", "aws.secretKey": "s"}
    assert not client_settings("s3://b", **keys).allow_http
    assert not client_settings("s3://b", **keys, **{"aws.endpoint": "https://x"}).allow_http
    assert client_settings("s3://b", **keys, **{"aws.endpoint": "http://x"}).allow_http
    bare.setenv("AWS_ENDPOINT_URL", "http://x")
    assert client_settings("s3://b", **keys).allow_http


# --- Azure -----------------------------------------------------------------------------------------


@pytest.mark.server
@pytest.mark.parametrize(
    "way", ["options", "environment", "connection string", "stronger than the environment"]
)
def test_every_way_to_an_azure_key_opens_the_store(
    azurite_server: AzureServer, bare: pytest.MonkeyPatch, way: str
) -> None:
    given = azurite_server.options()
    if way == "environment":
        bare.setenv("AZURE_STORAGE_ACCOUNT_NAME", azure.ACCOUNT)
        bare.setenv("AZURE_STORAGE_ACCOUNT_KEY", azure.KEY)
        bare.setenv("AZURE_STORAGE_ENDPOINT", given["azure.endpoint"])
        given = {}
    elif way == "connection string":
        text = f"DefaultEndpointsProtocol=http;AccountName={azure.ACCOUNT};AccountKey={azure.KEY};BlobEndpoint={given['azure.endpoint']};"
        given = {"azure.connectionString": text}
    elif way.startswith("stronger"):
        bare.setenv("AZURE_STORAGE_TOKEN", "a-token-of-somebody-else")
        bare.setenv("AZURE_STORAGE_SAS_TOKEN", "sv=1&sig=x")
    store = open_store("az://container/credentials", Options.parse(given))
    store.put("x", b"1")
    assert store.get("x") == b"1"


@pytest.mark.server
def test_a_wrong_azure_key_is_refused_by_name_of_the_option(azurite_server: AzureServer) -> None:
    store = open_store(
        "az://container/t", Options.parse({**azurite_server.options(), "azure.accountKey": "d3Jvbmc="})
    )
    for call in (lambda: store.get("x"), lambda: list(store.list()), lambda: store.create("x", b"")):
        with pytest.raises(CredentialsError, match=r"azure\.accountKey"):
            call()


def test_what_azure_is_told() -> None:
    assert client_settings("abfss://c@acme.dfs.core.windows.net/t", **{"azure.bearerToken": "t"}).config == {
        "account_name": "acme",
        "token": "t",
        "credential_type": "bearer_token",
    }
    principal = {"azure.tenantId": "t", "azure.clientId": "c", "azure.clientSecret": "s"}
    assert client_settings("az://c/t", **principal, **{"azure.accountName": "acme"}).config == {
        "account_name": "acme",
        "tenant_id": "t",
        "client_id": "c",
        "client_secret": "s",
        "credential_type": "client_secret",
    }
    assert (
        client_settings("abfss://c@acme.dfs.core.chinacloudapi.cn/t").config["endpoint"]
        == "https://acme.blob.core.chinacloudapi.cn"
    )
    assert (
        client_settings("abfss://w@onelake.dfs.fabric.microsoft.com/t").config["use_fabric_endpoint"] is True
    )
    signature = "AccountName=acme;SharedAccessSignature=?sv=1&sig=x;EndpointSuffix=core.windows.net"
    assert client_settings("az://c/t", **{"azure.connectionString": signature}).config == {
        "account_name": "acme",
        "sas_key": "sv=1&sig=x",
        "credential_type": "sas_token",
        "endpoint": "https://acme.blob.core.windows.net",
    }


def test_azure_without_an_account_says_where_to_name_it() -> None:
    with pytest.raises(CredentialsError, match=r"set azure\.accountName or AZURE_STORAGE_ACCOUNT_NAME"):
        open_store("az://container/t").get("x")


def test_a_malformed_connection_string_is_not_quoted() -> None:
    with pytest.raises(OptionError, match=r"azure\.connectionString") as caught:
        client_settings("az://c", **{"azure.connectionString": "SECRET"})
    assert "SECRET" not in str(caught.value)


# --- Google ----------------------------------------------------------------------------------------


def test_what_google_is_told(tmp_path: Path) -> None:
    file = tmp_path / "key.json"
    file.write_text("{}")
    assert client_settings("gs://b", **{"gcp.credentialsFile": str(file)}).config == {
        "application_credentials": str(file)
    }
    assert client_settings("gs://b", **{"gcp.serviceAccountKey": "{}"}).config == {
        "service_account_key": "{}"
    }
    with pytest.raises(CredentialsError, match=r"gcp\.credentialsFile names '/none'"):
        client_settings("gs://b", **{"gcp.credentialsFile": "/none"})


def test_malformed_keys_are_not_quoted() -> None:
    for url, given in (
        ("gs://b/t", {"gcp.serviceAccountKey": '{"private_key": SECRET'}),
        ("az://c/t", {"azure.accountName": "a", "azure.accountKey": "SECRET !"}),
    ):
        with pytest.raises(CredentialsError, match="malformed") as caught:
            open_store(url, Options.parse(given)).get("x")
        assert "SECRET" not in str(caught.value)


# --- options ---------------------------------------------------------------------------------------


def test_a_class_of_the_original_names_a_provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    (tmp_path / "credentials").write_text("[default]\n")

    def provider(name: str) -> str | None:
        options = Options.parse({"spark.indextables.aws.credentialsProviderClass": name})
        return with_hadoop_keys(options, locate("s3://b/t"), credentials=True).get(cloud.PROVIDER)

    aws = "software.amazon.awssdk.auth.credentials."
    assert provider("io.indextables.spark.auth.unity.UnityCatalogAWSCredentialProvider") == "unity-catalog"
    assert provider(f"{aws}ProfileCredentialsProvider") == "profile"
    assert provider(f"{aws}DefaultCredentialsProvider") is None
    with pytest.raises(
        CredentialsError, match=r"credentialsProviderClass names com\.acme\.Vault, which has no"
    ):
        provider("com.acme.Vault")


def test_credentials_that_are_given_count_more_than_a_class() -> None:
    named = {"spark.indextables.aws.credentialsProviderClass": "com.acme.Vault"}
    for own in ({"credentials.provider": "module:function"}, {"aws.accessKey": "a", "aws.secretKey": "s"}):
        options = with_hadoop_keys(Options.parse({**named, **own}), locate("s3://b/t"), credentials=True)
        assert options.get(cloud.PROVIDER) == own.get("credentials.provider")


def test_a_class_without_a_counterpart_is_no_matter_of_local_tables(tmp_path: Path) -> None:
    options = {"spark.indextables.aws.credentialsProviderClass": "com.acme.Vault"}
    indextables.write(tmp_path / "t", [{"n": 1}], options=options)
    assert indextables.open(tmp_path / "t", options=options).count() == 1


def test_a_part_is_never_smaller_than_stores_allow() -> None:
    assert Options.parse({"s3.partSize": "5M"}).get(cloud.PART_SIZE) == 5 << 20
    with pytest.raises(OptionError, match="at least 5M"):
        Options.parse({"s3.partSize": "4M"})


SECRET_URL = "http://user:p4ssw0rd@127.0.0.1:9/x"


@pytest.mark.parametrize("name", ["aws.endpoint", "azure.endpoint", "gcp.endpoint"])
def test_an_endpoint_with_a_password_is_refused_and_never_quoted(name: str) -> None:
    with pytest.raises(OptionError, match="without a user and a password") as caught:
        Options.parse({name: SECRET_URL})
    assert "p4ssw0rd" not in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "url"),
    [
        ("AWS_ENDPOINT_URL", "s3://bucket/t"),
        ("AWS_ENDPOINT_URL_S3", "s3://bucket/t"),
        ("AZURE_STORAGE_ENDPOINT", "az://container/t"),
        ("GOOGLE_BASE_URL", "gs://bucket/t"),
    ],
)
def test_a_password_in_an_endpoint_of_the_environment_is_refused_and_never_shown(
    monkeypatch: pytest.MonkeyPatch, variable: str, url: str
) -> None:
    monkeypatch.setenv(variable, SECRET_URL)
    options = Options.parse(
        {"aws.accessKey": "a", "aws.secretKey": "b", "azure.accountName": "c", "azure.accountKey": "ZA=="}
    )
    with pytest.raises(CredentialsError, match="without, and give credentials") as caught:
        open_store(url, options).get("x")
    assert "p4ssw0rd" not in "".join(traceback.format_exception(caught.value))
    assert all("p4ssw0rd" not in each.value for each in environment(options=options))


def test_a_password_in_a_connection_string_is_refused_and_never_shown() -> None:
    text = f"AccountName=a;AccountKey=ZA==;BlobEndpoint={SECRET_URL}"
    store = open_store("az://container/t", Options.parse({"azure.connectionString": text}))
    with pytest.raises(CredentialsError, match="BlobEndpoint") as caught:
        store.get("x")
    assert "p4ssw0rd" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "s3://user:p4ssw0rd@bucket/t",
        "s3://user:p4ssw0rd/x@bucket/t",
        "hdfs://user:p4ssw0rd@host/t",
        "hdfs://user:p4ss@p4ssw0rd/@host/t",
        "file://user:p4ssw0rd@host/t",
        "abfss://user:p4ssw0rd@account.dfs.core.windows.net/t",
        "s3:/user:p4ssw0rd@bucket",
    ],
)
def test_a_password_in_the_url_of_a_table_is_never_shown(url: str) -> None:
    with pytest.raises(StoreError) as caught:
        open_store(url)
    assert "p4ssw0rd" not in str(caught.value)


def test_what_a_client_says_is_shown_without_users_of_urls() -> None:
    said = 'error sending request for url (http://user:p4ssw0rd@127.0.0.1:9/b?X-Sig=1) via "http://u:p4ssw0rd@proxy"'
    shown = redact(said, Identity())
    assert "p4ssw0rd" not in shown
    assert "http://***@127.0.0.1:9/b" in shown


@pytest.mark.parametrize("key", ["azure.accountName", "companion.parquet.azure.accountName", "aws.region"])
@pytest.mark.parametrize("value", ["evil.example/x?", "evil.example#", "a@b", "a:1", ""])
def test_a_name_that_would_be_another_host_is_refused(key: str, value: str) -> None:
    with pytest.raises(
        OptionError, match=r"letters, digits and '-'|options of stores are expected|as of the"
    ):
        Options.parse({key: value})


ELSEWHERE = "abfss://c@storage.evil.example/source"


@pytest.mark.parametrize("index", ["/tmp/index", "abfss://c@acme.dfs.core.windows.net/index", "s3://b/index"])
@pytest.mark.parametrize(
    "options",
    [
        {"azure.bearerToken": "t"},
        {"companion.parquet.azure.sasToken": "t"},
        {"azure.connectionString": "AccountName=a;AccountKey=aGk=;BlobEndpoint=https://x.y.z"},
        {},
    ],
)
def test_an_index_does_not_choose_the_host_that_gets_the_credentials_of_its_reader(
    index: str, options: dict[str, str]
) -> None:
    store = open_store(index, Options.parse({"aws.accessKey": "a", "aws.secretKey": "b", **options}))
    with pytest.raises(CredentialsError, match=r"storage\.evil\.example, which is none of Azure's"):
        store.source_store(ELSEWHERE)
    with pytest.raises(CredentialsError, match=r"storage\.evil\.example, which is none of Azure's"):
        open_store(index, credentials=dict).source_store(ELSEWHERE)


@pytest.mark.parametrize(
    ("index", "source", "options"),
    [
        ("/tmp/index", "abfss://c@other.dfs.core.windows.net/s", {}),
        ("/tmp/index", "abfss://w@onelake.dfs.fabric.microsoft.com/s", {}),
        ("/tmp/index", "abfss://c@a.dfs.core.chinacloudapi.cn/s", {}),
        ("abfss://c@storage.own.example/index", "abfss://d@storage.own.example/s", {}),
        ("/tmp/index", ELSEWHERE, {"azure.endpoint": "https://storage.evil.example"}),
        ("/tmp/index", ELSEWHERE, {"companion.parquet.azure.endpoint": "https://storage.evil.example"}),
        ("/tmp/index", ELSEWHERE, {"credentials.provider": "anonymous"}),
    ],
)
def test_a_source_is_read_from_hosts_of_the_cloud_of_the_index_and_of_options(
    index: str, source: str, options: dict[str, str]
) -> None:
    token = {} if "credentials.provider" in options else {"azure.bearerToken": "t"}
    store = open_store(index, Options.parse({**token, **options})).source_store(source)
    assert store.url == source
