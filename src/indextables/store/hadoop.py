"""Keys of Hadoop's file systems (`fs.s3a.*`, `fs.azure.*`, `fs.gs.*`) as options of our own.

Options of our own take precedence. Credentials are not mixed: if our options have any for a store, those of
Hadoop's configuration are not used for it.
"""

import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import assert_never

from indextables.errors import CredentialsError, StoreError
from indextables.options import Options, cloud
from indextables.options.declare import boolean
from indextables.store.credentials import has_credentials
from indextables.store.location import Kind, Location, has_scheme

_FAMILIES = ("fs.s3a.", "fs.azure.", "fs.gs.")
_INSTEAD = (
    "set spark.indextables.credentials.provider, or give keys or a callable (docs/operations/storage.md)"
)

Values = dict[str, str]
Get = Callable[[str], str | None]


def default_path(url: str | os.PathLike[str], options: Options) -> str | os.PathLike[str]:
    """Return a path without a scheme as a URL of the default file system, if the options name one.

    >>> default_path("/events", Options.parse({"fs.defaultFS": "s3a://lake/"}))
    's3a://lake/events'
    """
    default = options.get(cloud.DEFAULT_FILE_SYSTEM)
    text = os.fspath(url)
    if default and default.lower().startswith("hdfs://") and re.match(r"hdfs:/(//)?[^/]", text):
        text = "/" + text.removeprefix("hdfs:").lstrip("/")
    if not default or not text or has_scheme(text):
        return url
    if default.lower().partition(":")[0] == "file":
        return url
    if not has_scheme(default):
        raise StoreError(
            f"fs.defaultFS is '{default}', but a URL such as s3a://bucket or file:/// is expected"
        )
    if not text.startswith("/"):
        raise StoreError(
            f"'{text}' is relative, and the default file system is {default} (fs.defaultFS), which has no "
            "working directory; write the path with a '/' at its start, or as a whole URL"
        )
    return f"{default.rstrip('/')}{text}"


def with_hadoop_keys(options: Options, location: Location, *, credentials: bool) -> Options:
    """Return options of our own in place of Hadoop's keys, for one location.

    Args:
        options: options, with Hadoop's keys among them.
        location: the place that is opened; S3A has keys for one bucket, ABFS for one account.
        credentials: whether Hadoop's credentials count; False if a callable supplies them.

    Raises:
        CredentialsError: A key names a source of credentials that has no counterpart here.
    """
    keys = {key: value.strip() for key, value in options.values.items() if key.startswith(_FAMILIES)}
    class_name = options.get(cloud.PROVIDER_CLASS)
    if not keys and not class_name:
        return options
    own = Options({key: value for key, value in options.values.items() if key not in keys})
    use_credentials = credentials and not has_credentials(own, location.kind)
    values: Values = {}
    match location.kind:
        case Kind.S3:
            get = _for_bucket(keys, location.bucket)
            values = _s3_requests(get)
            if class_name and use_credentials:
                values |= _class_credentials(get, class_name.strip())
            elif use_credentials:
                values |= _s3_credentials(
                    get, "fs.s3a.aws.credentials.provider", get("aws.credentials.provider") or ""
                )
        case Kind.AZURE if use_credentials:
            host = location.host or f"{own.get(cloud.AZURE_ACCOUNT) or _azure_account()}.dfs.core.windows.net"
            values = _azure_credentials(_for_account(keys, location.bucket, host.lower()), host)
        case Kind.GCS:
            get = _for_google(keys)
            values = _gcs_requests(get) | (_gcs_credentials(get) if use_credentials else {})
        case Kind.AZURE | Kind.LOCAL | Kind.MEMORY | Kind.HDFS:
            pass
        case kind:
            assert_never(kind)
    return own.over(Options.parse(values))


# --- S3A -------------------------------------------------------------------------------------------

# The source of keys of each class, by its name without the package, since packages have changed.
_S3A_PROVIDERS = {
    "SimpleAWSCredentialsProvider": "keys",
    "TemporaryAWSCredentialsProvider": "temporary keys",
    "EnvironmentVariableCredentialsProvider": "environment",
    "ProfileCredentialsProvider": "profile",
    "WebIdentityTokenCredentialsProvider": "web-identity",
    "WebIdentityTokenFileCredentialsProvider": "web-identity",
    "ContainerCredentialsProvider": "container",
    "IAMInstanceCredentialsProvider": "container or instance",
    "EC2ContainerCredentialsProviderWrapper": "container or instance",
    "InstanceProfileCredentialsProvider": "instance",
    "AnonymousAWSCredentialsProvider": "anonymous",
    "AnonymousAWSCredentials": "anonymous",
    "AnonymousCredentialsProvider": "anonymous",
    "DefaultAWSCredentialsProviderChain": "default",
    "DefaultCredentialsProvider": "default",
}
_PACKAGES = ("org.apache.hadoop.fs.s3a.", "com.amazonaws.auth.", "software.amazon.awssdk.auth.credentials.")
_ENCRYPTIONS = {"aes256": "AES256", "sse-kms": "SSE-KMS", "dsse-kms": "DSSE-KMS", "sse-c": "SSE-C"}
_AWS_HOST = re.compile(r"s3[.-](?:dualstack\.)?([a-z]{2}(?:-[a-z]+)+-\d)\.amazonaws\.com(?:\.cn)?")


def _for_bucket(keys: Mapping[str, str], bucket: str) -> Get:
    def get(name: str) -> str | None:
        return keys.get(f"fs.s3a.bucket.{bucket.lower()}.{name}") or keys.get(f"fs.s3a.{name}") or None

    return get


def _s3_requests(get: Get) -> Values:
    values: Values = {}
    host = get("endpoint")
    if host and host.lower().removeprefix("https://").rstrip("/") not in ("s3.amazonaws.com", "central"):
        if "://" not in host:
            encrypted = _flag("fs.s3a.connection.ssl.enabled", get("connection.ssl.enabled") or "true")
            host = f"{'https' if encrypted else 'http'}://{host}"
        values["aws.endpoint"] = host
        if region := _AWS_HOST.fullmatch(host.partition("://")[2].rstrip("/").lower()):
            values["aws.region"] = region[1]
    if region_name := get("endpoint.region"):
        values["aws.region"] = region_name
    if style := get("path.style.access"):
        values["aws.pathStyleAccess"] = str(_flag("fs.s3a.path.style.access", style))
    if payer := get("requester.pays.enabled"):
        values["aws.requesterPays"] = str(_flag("fs.s3a.requester.pays.enabled", payer))
    return values | _encryption(get)


def _encryption(get: Get) -> Values:
    key = "encryption.algorithm" if get("encryption.algorithm") else "server-side-encryption-algorithm"
    algorithm = get(key)
    if not algorithm:
        return {}
    if algorithm.lower() not in _ENCRYPTIONS:
        raise StoreError(
            f"fs.s3a.{key} is '{algorithm}', which has no counterpart here: objects would be written without "
            f"it; use one of {', '.join(_ENCRYPTIONS.values())}, or set spark.indextables.aws.encryption"
        )
    secret = get("encryption.key") or get("server-side-encryption.key")
    return {
        "aws.encryption": _ENCRYPTIONS[algorithm.lower()],
        **({"aws.encryptionKey": secret} if secret else {}),
    }


def _class_credentials(get: Get, name: str) -> Values:
    """The credentials of the class that an option of IndexTables for Scala names."""
    if name.rpartition(".")[2] == "UnityCatalogAWSCredentialProvider":
        return {cloud.PROVIDER.key: cloud.UNITY_CATALOG}
    return _s3_credentials(get, f"spark.indextables.{cloud.PROVIDER_CLASS.key}", name)


def _s3_credentials(get: Get, key: str, class_names: str) -> Values:
    """The credentials of S3A; `key` lists the classes of providers."""
    access, secret, token = get("access.key"), get("secret.key"), get("session.token")
    values = {"aws.accessKey": access, "aws.secretKey": secret, "aws.sessionToken": token}
    keys = {name: value for name, value in values.items() if value}
    providers = re.split(r"[,\s]+", class_names.strip(", \n\t"))
    if providers == [""]:
        return keys
    for each in providers:
        source = _S3A_PROVIDERS.get(each.rpartition(".")[2]) if each.startswith(_PACKAGES) else None
        if source is None:
            raise CredentialsError(f"{key} names {each}, which has no counterpart here; {_INSTEAD}")
        if source == "keys" and access and secret:
            return {"aws.accessKey": access, "aws.secretKey": secret}
        if source == "temporary keys" and access and secret and token:
            return keys
        if source == "default":
            return {}
        if source == "container or instance":
            source = "container" if _has_container() else "instance"
        if source in cloud.PROVIDERS and _may_answer(source):
            return {cloud.PROVIDER.key: source}
    raise CredentialsError(
        f"none of the providers in {key} has credentials here "
        f"({', '.join(providers)}); set fs.s3a.access.key and fs.s3a.secret.key, or {_INSTEAD}"
    )


def _has_container() -> bool:
    return any(os.environ.get(f"AWS_CONTAINER_CREDENTIALS_{kind}_URI") for kind in ("RELATIVE", "FULL"))


def _may_answer(source: str) -> bool:
    """Whether a provider of a list is used; then later providers are not tried."""
    match source:
        case "environment":
            return bool(os.environ.get("AWS_ACCESS_KEY_ID"))
        case "profile":
            home = Path.home() / ".aws"
            return any(
                Path(os.environ.get(name) or home / file).is_file()
                for name, file in (
                    ("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
                    ("AWS_CONFIG_FILE", "config"),
                )
            )
        case "web-identity":
            return bool(os.environ.get("AWS_WEB_IDENTITY_TOKEN_FILE"))
        case "container":
            return _has_container()
        case _:
            return True


# --- ABFS and WASB ---------------------------------------------------------------------------------

_OAUTH_PROVIDERS = {
    "ClientCredsTokenProvider": "secret",
    "MsiTokenProvider": "instance",
    "WorkloadIdentityTokenProvider": "web-identity",
}


def _azure_account() -> str:
    return os.environ.get("AZURE_STORAGE_ACCOUNT_NAME", "")


def _for_account(keys: Mapping[str, str], container: str, host: str) -> Get:
    """Keys for a container of an account, for the account, for all, in this order."""
    hosts = [host, host.replace(".dfs.", ".blob.", 1)]
    endings = [*(f".{container}.{each}" for each in hosts), *(f".{each}" for each in hosts), ""]

    def get(name: str) -> str | None:
        return next((keys[key] for end in endings if keys.get(key := f"fs.azure.{name}{end}")), None)

    return get


def _azure_credentials(get: Get, host: str) -> Values:
    if (provider := get("account.keyprovider")) and not provider.endswith(".SimpleKeyProvider"):
        raise _no_counterpart("fs.azure.account.keyprovider", provider)
    key, sas = get("account.key"), get("sas.fixed.token") or get("sas")
    match (get("account.auth.type") or "").lower():
        case "oauth":
            return _azure_oauth(get)
        case "sas":
            provider = get("sas.token.provider.type") or ""
            if not sas or (provider and not provider.endswith(".FixedSASTokenProvider")):
                raise _no_counterpart("fs.azure.sas.token.provider.type", provider)
            return {"azure.sasToken": sas.removeprefix("?")}
        case "sharedkey" | "" if key:
            return {"azure.accountKey": key}
        case "" if sas:
            return {"azure.sasToken": sas.removeprefix("?")}
        case "":
            return _azure_oauth(get) if get("account.oauth.provider.type") else {}
        case "sharedkey":
            raise CredentialsError(
                f"fs.azure.account.auth.type is SharedKey, but fs.azure.account.key.{host} is not set; set it"
            )
        case other:
            raise _no_counterpart("fs.azure.account.auth.type", other)


def _azure_oauth(get: Get) -> Values:
    name = get("account.oauth.provider.type") or ""
    source = _OAUTH_PROVIDERS.get(name.rpartition(".")[2])
    if source is None:
        raise _no_counterpart("fs.azure.account.oauth.provider.type", name)
    values = {
        "azure.clientId": get("account.oauth2.client.id"),
        "azure.tenantId": get("account.oauth2.msi.tenant"),
        "azure.authorityHost": get("account.oauth2.msi.authority"),
    }
    if source == "secret":
        # https://login.microsoftonline.com/<tenant>/oauth2/token
        url = re.fullmatch(r"(https?://[^/]+)/([^/]+)/oauth2/.*", get("account.oauth2.client.endpoint") or "")
        secret = get("account.oauth2.client.secret")
        if url is None or not secret or not values["azure.clientId"]:
            raise CredentialsError(
                f"fs.azure.account.oauth.provider.type is {name}, which needs the keys client.id, "
                "client.secret and client.endpoint of fs.azure.account.oauth2, the last such as "
                "https://login.microsoftonline.com/<tenant>/oauth2/token; set all three"
            )
        values.update({"azure.clientSecret": secret, "azure.tenantId": url[2], "azure.authorityHost": url[1]})
    else:
        values[cloud.PROVIDER.key] = source
        values["azure.identityEndpoint" if source == "instance" else "azure.federatedTokenFile"] = get(
            "account.oauth2.msi.endpoint" if source == "instance" else "account.oauth2.token.file"
        )
    return {key: value for key, value in values.items() if value}


# --- Google ----------------------------------------------------------------------------------------


def _for_google(keys: Mapping[str, str]) -> Get:
    def get(name: str) -> str | None:
        return keys.get(f"fs.gs.{name}") or None

    return get


def _gcs_requests(get: Get) -> Values:
    values: Values = {}
    if (root := get("storage.root.url")) and root.rstrip("/") != "https://storage.googleapis.com":
        values["gcp.endpoint"] = root
    return values


def _gcs_credentials(get: Get) -> Values:
    for key in ("auth.access.token.provider", "auth.access.token.provider.impl"):
        if provider := get(key):
            raise _no_counterpart(f"fs.gs.{key}", provider)
    kind = (get("auth.type") or "").upper()
    if kind == "UNAUTHENTICATED" or _flag("fs.gs.auth.null.enable", get("auth.null.enable") or "false"):
        return {cloud.PROVIDER.key: "anonymous"}
    if kind == "COMPUTE_ENGINE":
        return {cloud.PROVIDER.key: "instance"}
    if kind not in ("", "APPLICATION_DEFAULT", "SERVICE_ACCOUNT_JSON_KEYFILE"):
        raise _no_counterpart("fs.gs.auth.type", kind)
    if kind == "APPLICATION_DEFAULT":
        return {}
    if file := get("auth.service.account.json.keyfile"):
        return {"gcp.credentialsFile": file}
    email, private_key = get("auth.service.account.email"), get("auth.service.account.private.key")
    if email and private_key:
        account = {
            "type": "service_account",
            "client_email": email,
            "private_key": private_key.replace("\\n", "\n"),
            "private_key_id": get("auth.service.account.private.key.id") or "",
        }
        return {"gcp.serviceAccountKey": json.dumps(account)}
    if kind:
        raise CredentialsError(
            "fs.gs.auth.type is SERVICE_ACCOUNT_JSON_KEYFILE, but fs.gs.auth.service.account.json.keyfile is "
            "not set; set it to the path of the key file"
        )
    return {}


def _no_counterpart(key: str, value: str) -> CredentialsError:
    return CredentialsError(f"{key} is {value or 'empty'}, which has no counterpart here; {_INSTEAD}")


def _flag(key: str, text: str) -> bool:
    try:
        return boolean.parse(text)
    except ValueError:
        raise StoreError(f"{key} is '{text}', but true or false is expected; correct it") from None
