"""Settings of the clients of object stores: from options, else the environment, else the default chain."""

import configparser
import os
import socket
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, assert_never
from urllib.parse import urlsplit

from indextables.errors import CredentialsError, OptionError, StoreError
from indextables.options import Options, cloud
from indextables.records import dataclass
from indextables.store.credentials import CredentialsProvider, Identity, StaticKeys
from indextables.store.location import Kind, Location
from indextables.store.providers import RefreshingProvider, named_provider

# settings of a profile whose keys only AWS's own library can get
_INDIRECT = ("sso_session", "sso_start_url", "role_arn", "credential_process", "web_identity_token_file")


@dataclass(frozen=True, slots=True, repr=False)
class Profile:
    """The settings of an AWS profile; empty if there is none."""

    keys: CredentialsProvider | None = None
    region: str | None = None
    endpoint: str | None = None


def _profile_values(environment: Mapping[str, str], home: Path) -> tuple[str, dict[str, str]]:
    """The name of the profile, and its settings."""
    chosen = environment.get("AWS_PROFILE") or environment.get("AWS_DEFAULT_PROFILE")
    name = chosen or "default"
    shared = environment.get("AWS_SHARED_CREDENTIALS_FILE") or home / ".aws" / "credentials"
    config = environment.get("AWS_CONFIG_FILE") or home / ".aws" / "config"
    values = {
        **_section(Path(config), name if name == "default" else f"profile {name}"),
        **_section(Path(shared), name),
    }
    if chosen and not values:
        raise CredentialsError(
            f"AWS_PROFILE is '{chosen}', but neither {shared} nor {config} has a profile of that name"
        )
    return name, values


def read_profile(environment: Mapping[str, str], home: Path) -> Profile:
    """The profile that AWS_PROFILE names, or the default one."""
    name, values = _profile_values(environment, home)
    keys = _keys(name, values, environment)
    if isinstance(keys, StaticKeys):
        keys = ProfileKeys(dict(environment), home)
    return Profile(keys, values.get("region"), values.get("endpoint_url"))


@dataclass(frozen=True, slots=True, repr=False)
class ProfileKeys:
    """The keys in a profile; each call reads its files."""

    environment: Mapping[str, str]
    home: Path

    def __call__(self) -> dict[str, Any]:
        """The keys, in obstore's words."""
        name, values = _profile_values(self.environment, self.home)
        keys = _keys(name, values, self.environment)
        if not isinstance(keys, StaticKeys):
            raise CredentialsError(f"the AWS profile '{name}' has no keys any more; add them again")
        return keys()


def _section(file: Path, name: str) -> dict[str, str]:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read(file, encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError):  # not quoted: the text may contain secrets
        raise CredentialsError(f"{file} is not a valid AWS profile file; correct or remove it") from None
    return dict(parser[name]) if parser.has_section(name) else {}


def _keys(name: str, values: Mapping[str, str], environment: Mapping[str, str]) -> CredentialsProvider | None:
    if environment.get(
        "AWS_WEB_IDENTITY_TOKEN_FILE"
    ):  # takes precedence over a profile, and the client reads it by itself
        return None
    if (access := values.get("aws_access_key_id")) and (secret := values.get("aws_secret_access_key")):
        return StaticKeys(access, secret, values.get("aws_session_token"))
    way = next((way for way in _INDIRECT if way in values), None)
    return None if way is None else _through_boto3(name, way)


def _through_boto3(name: str, way: str) -> CredentialsProvider:
    try:
        # optional and slow to import; only such profiles need it
        import boto3  # noqa: PLC0415
        from obstore.auth.boto3 import Boto3CredentialProvider  # noqa: PLC0415
    except ImportError:
        raise CredentialsError(
            f"the AWS profile '{name}' takes keys by '{way}', which needs the package boto3; install it or "
            "put keys into the environment (aws configure export-credentials --format env)"
        ) from None
    provider: CredentialsProvider = Boto3CredentialProvider(boto3.Session(profile_name=name))
    return provider


@dataclass(frozen=True, slots=True, repr=False)
class ClientSettings:
    """The configuration of a client, under obstore's names; never shown, because it contains secrets."""

    config: Mapping[str, Any]
    provider: CredentialsProvider | None
    allow_http: bool


def settings(location: Location, identity: Identity) -> ClientSettings:
    """The settings of the clients of a location, with the credentials of an identity."""
    if identity.provider is None:
        identity = replace(identity, provider=named_provider(identity.options, location.kind))
    match location.kind:
        case Kind.S3:
            values = _s3(location, identity)
        case Kind.AZURE:
            values = _azure(location, identity)
        case Kind.GCS:
            values = _gcs(identity)
        case Kind.LOCAL | Kind.MEMORY | Kind.HDFS:
            raise AssertionError(f"{location.kind} has no client of an object store")
        case kind:
            assert_never(kind)
    if values.provider is None or isinstance(values.provider, StaticKeys):
        return values
    return replace(values, provider=RefreshingProvider(values.provider, location.kind, identity.url))


_AWS_IDENTITIES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_SKIP_SIGNATURE",
)

_AZURE_IDENTITIES = (
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_SAS_TOKEN",
    "AZURE_STORAGE_TOKEN",
    "AZURE_CLIENT_SECRET",
    "AZURE_FEDERATED_TOKEN_FILE",
)
_GOOGLE_IDENTITIES = (
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_SERVICE_ACCOUNT",
    "GOOGLE_SERVICE_ACCOUNT_PATH",
    "GOOGLE_SERVICE_ACCOUNT_KEY",
)

# --- S3 --------------------------------------------------------------------------------------------


_ENCRYPTION = {"SSE-KMS": "aws:kms", "DSSE-KMS": "aws:kms:dsse", "SSE-C": "sse-c"}


def _s3(location: Location, identity: Identity) -> ClientSettings:
    options = identity.options
    profile = _profile_if_needed(identity)
    config: dict[str, Any] = _s3_requests(options)
    endpoint = options.get(cloud.AWS_ENDPOINT) or profile.endpoint
    if (path_style := options.get(cloud.AWS_PATH_STYLE)) is not None:
        config["virtual_hosted_style_request"] = not path_style
        if endpoint and not path_style:
            scheme, slashes, host = endpoint.partition("://")
            endpoint = f"{scheme}{slashes}{location.bucket}.{host}"
    if endpoint:
        config["aws_endpoint_url_s3"] = _endpoint(endpoint, f"option '{cloud.AWS_ENDPOINT.key}'")
    if options.get(cloud.PROVIDER) == "anonymous" and identity.provider is None:
        config["skip_signature"] = True
    if region := options.get(cloud.AWS_REGION) or profile.region:
        config["region"] = region
    used = endpoint or _environment_endpoint("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    return ClientSettings(config, _s3_keys(identity, profile), _is_http(used))


def _s3_requests(options: Options) -> dict[str, Any]:
    """Headers of requests: encryption of written objects, and requester pays."""
    config: dict[str, Any] = {}
    if algorithm := options.get(cloud.AWS_ENCRYPTION):
        config["server_side_encryption"] = _ENCRYPTION.get(algorithm, algorithm)
        key = options.get(cloud.AWS_ENCRYPTION_KEY)
        if key and algorithm != "AES256":
            config["sse_customer_key_base64" if algorithm == "SSE-C" else "sse_kms_key_id"] = key
        if algorithm == "SSE-C" and not key:
            raise CredentialsError("aws.encryption is SSE-C, which needs a key; set aws.encryptionKey")
    if options.get(cloud.AWS_REQUESTER_PAYS):
        config["request_payer"] = True
    return config


def _s3_keys(identity: Identity, profile: Profile) -> CredentialsProvider | None:
    if identity.provider is not None:
        return identity.provider
    options = identity.options
    if name := options.get(cloud.PROVIDER):
        return _s3_named(name, profile)
    access, secret = options.get(cloud.AWS_ACCESS_KEY), options.get(cloud.AWS_SECRET_KEY)
    token = options.get(cloud.AWS_SESSION_TOKEN)
    if access and secret:
        return StaticKeys(access, secret, token)
    if access or secret or token:
        raise CredentialsError(
            "aws.accessKey and aws.secretKey go together (and aws.sessionToken with both); one is missing"
        )
    if profile.keys is None and not _environment(*_AWS_IDENTITIES) and not _has_metadata_service():
        raise CredentialsError(
            "no AWS credentials were found in the options, the environment or a profile, and there is "
            f"no metadata service; {identity.advice(Kind.S3)}"
        )
    return profile.keys


def _environment_keys() -> dict[str, Any]:
    access, secret = _environment("AWS_ACCESS_KEY_ID"), _environment("AWS_SECRET_ACCESS_KEY")
    if not access or not secret:
        raise CredentialsError(
            "credentials.provider is 'environment', but AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are "
            "not both set; set them"
        )
    return StaticKeys(access, secret, _environment("AWS_SESSION_TOKEN"))()


# The sources that the client tries first by itself; none can be skipped.
_AWS_ORDER = {
    "web-identity": ("AWS_WEB_IDENTITY_TOKEN_FILE",),
    "container": ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"),
    "instance": (),
}


def _s3_named(name: str, profile: Profile) -> CredentialsProvider | None:
    """The keys of one named source; None if the client itself reads that source first."""
    option = f"credentials.provider is '{name}'"
    if name == "anonymous":
        return None
    if name == "environment":
        return _environment_keys
    if name.startswith("profile"):
        if profile.keys is None:
            raise CredentialsError(f"{option}, but the AWS profile has no keys; add them, or name another")
        return profile.keys
    before = ["AWS_ACCESS_KEY_ID"]
    for each, variables in _AWS_ORDER.items():
        if each == name:
            break
        before += variables
    if (used := next((variable for variable in before if os.environ.get(variable)), None)) is not None:
        raise CredentialsError(
            f"{option}, but the environment has {used}, which would be used instead; remove the variable"
        )
    needed = _AWS_ORDER[name]
    if needed and not _environment(*needed):
        raise CredentialsError(f"{option}, but {' and '.join(needed)} are not set; set one of them")
    if name == "instance" and not _has_metadata_service():
        raise CredentialsError(f"{option}, but there is no metadata service; name another provider")
    return None


def _has_metadata_service() -> bool:
    """Whether there is a metadata service; the client would wait minutes for a missing one."""
    if os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return False
    service = urlsplit(os.environ.get("AWS_METADATA_ENDPOINT") or "http://169.254.169.254")
    try:
        socket.create_connection((service.hostname, service.port or 80), timeout=1).close()
    except (OSError, ValueError):
        return False
    return True


def _profile_if_needed(identity: Identity) -> Profile:
    """The AWS profile, unless options or environment have credentials: then it is not used at all."""
    name = identity.options.get(cloud.PROVIDER)
    if name and identity.provider is None:
        if not name.startswith("profile"):
            return Profile()
        chosen = name.partition(":")[2]
        environment = {k: v for k, v in os.environ.items() if k != "AWS_WEB_IDENTITY_TOKEN_FILE"}
        return read_profile({**environment, **({"AWS_PROFILE": chosen} if chosen else {})}, Path.home())
    if identity.provider or identity.options.get(cloud.AWS_ACCESS_KEY) or _environment("AWS_ACCESS_KEY_ID"):
        return Profile()
    return read_profile(os.environ, Path.home())


# --- Azure -----------------------------------------------------------------------------------------


def _azure(location: Location, identity: Identity) -> ClientSettings:
    options = identity.options
    config: dict[str, Any] = {}
    if text := options.get(cloud.AZURE_CONNECTION_STRING):
        config.update(_connection_string(text))
    if account := location.account or options.get(cloud.AZURE_ACCOUNT):
        config["account_name"] = account
    if location.host.endswith(".fabric.microsoft.com"):
        config["use_fabric_endpoint"] = True
    elif location.host and not location.host.endswith(".core.windows.net"):
        config["endpoint"] = "https://" + location.host.replace(".dfs.", ".blob.", 1)
    if endpoint := options.get(cloud.AZURE_ENDPOINT):
        config["endpoint"] = _endpoint(endpoint, f"option '{cloud.AZURE_ENDPOINT.key}'")
    if not config.get("account_name") and not _environment("AZURE_STORAGE_ACCOUNT_NAME"):
        raise CredentialsError(
            f"{location.url} does not name the storage account; set azure.accountName or "
            "AZURE_STORAGE_ACCOUNT_NAME, or write abfss://container@account.dfs.core.windows.net/path"
        )
    if identity.provider is None:
        config.update(_azure_credentials(identity))
    used = config.get("endpoint") or _environment_endpoint("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")
    return ClientSettings(config, identity.provider, _is_http(used))


def _azure_credentials(identity: Identity) -> dict[str, Any]:
    """The credential of the options with the highest precedence; those of the environment are disabled."""
    options = identity.options
    config: dict[str, Any] = {}
    if tenant := options.get(cloud.AZURE_TENANT):
        config["tenant_id"] = tenant
    if client := options.get(cloud.AZURE_CLIENT):
        config["client_id"] = client
    if file := options.get(cloud.AZURE_TOKEN_FILE):
        config["federated_token_file"] = file
    if host := options.get(cloud.AZURE_AUTHORITY):
        config["authority_host"] = host
    if service := options.get(cloud.AZURE_IDENTITY_ENDPOINT):
        config["msi_endpoint"] = service
    if name := options.get(cloud.PROVIDER):
        return {**config, **_azure_named(name)}
    if key := options.get(cloud.AZURE_KEY):
        return {**config, "account_key": key, "credential_type": "access_key"}
    if token := options.get(cloud.AZURE_TOKEN):
        return {**config, "token": token, "credential_type": "bearer_token"}
    if signature := options.get(cloud.AZURE_SAS):
        return {**config, "sas_key": signature.removeprefix("?"), "credential_type": "sas_token"}
    if secret := options.get(cloud.AZURE_CLIENT_SECRET):
        return {**config, "client_secret": secret, "credential_type": "client_secret"}
    if config.get("federated_token_file"):
        return {**config, "credential_type": "workload_identity"}
    return config


def _azure_named(name: str) -> dict[str, Any]:
    option = f"credentials.provider is '{name}'"
    match name:
        case "anonymous":
            return {"skip_signature": True}
        case "instance":
            return {"credential_type": "managed_identity"}
        case "web-identity":
            return {"credential_type": "workload_identity"}
        case "environment":
            if not _environment(*_AZURE_IDENTITIES):
                raise CredentialsError(
                    f"{option}, but none of {', '.join(_AZURE_IDENTITIES)} is set; set one"
                )
            return {}
        case _:
            raise CredentialsError(f"{option}, which Azure does not have; use another")


def _connection_string(text: str) -> dict[str, Any]:
    parts: dict[str, str] = {}
    for item in filter(None, (item.strip() for item in text.split(";"))):
        name, equals, value = item.partition("=")
        if not equals:
            raise OptionError(
                "option 'azure.connectionString' is ***, but pairs 'Name=value' separated by ';' are expected"
            )
        parts[name.lower()] = value
    config: dict[str, Any] = {}
    if account := parts.get("accountname"):
        config["account_name"] = account
    if key := parts.get("accountkey"):
        config.update(account_key=key, credential_type="access_key")
    elif signature := parts.get("sharedaccesssignature"):
        config.update(sas_key=signature.removeprefix("?"), credential_type="sas_token")
    if endpoint := parts.get("blobendpoint"):
        config["endpoint"] = _endpoint(endpoint, "BlobEndpoint in option 'azure.connectionString'")
    elif account and (suffix := parts.get("endpointsuffix")):
        config["endpoint"] = f"{parts.get('defaultendpointsprotocol', 'https')}://{account}.blob.{suffix}"
    return config


# --- Google ----------------------------------------------------------------------------------------


def _gcs(identity: Identity) -> ClientSettings:
    options = identity.options
    config: dict[str, Any] = {}
    if endpoint := options.get(cloud.GCP_ENDPOINT):
        config["base_url"] = _endpoint(endpoint, f"option '{cloud.GCP_ENDPOINT.key}'")
    if identity.provider is None:
        if name := options.get(cloud.PROVIDER):
            config.update(_gcs_named(name))
        elif key := options.get(cloud.GCP_KEY):
            config["service_account_key"] = key
        elif file := options.get(cloud.GCP_FILE):
            if not Path(file).is_file():
                raise CredentialsError(f"gcp.credentialsFile names '{file}', but there is no such file")
            config["application_credentials"] = file
    return ClientSettings(
        config, identity.provider, _is_http(endpoint or _environment_endpoint("GOOGLE_BASE_URL"))
    )


def _gcs_named(name: str) -> dict[str, Any]:
    option = f"credentials.provider is '{name}'"
    used = next((variable for variable in _GOOGLE_IDENTITIES if os.environ.get(variable)), None)
    match name:
        case "anonymous":
            return {"skip_signature": True}
        case "environment" if used is None:
            raise CredentialsError(f"{option}, but none of {', '.join(_GOOGLE_IDENTITIES)} is set; set one")
        case "environment":
            return {}
        case "instance" if used is not None:
            raise CredentialsError(
                f"{option}, but the environment has {used}, which would be used instead; remove the variable"
            )
        case "instance":
            return {}
        case _:
            raise CredentialsError(f"{option}, which Google does not have; use another")


# --- all -------------------------------------------------------------------------------------------


def _endpoint(url: str, name: str) -> str:
    if "@" in url:  # not quoted: it contains a password
        raise CredentialsError(
            f"{name} has a user or a password in its URL, where logs and errors would show them; write it "
            "without, and give credentials by their own options"
        )
    if not url.lower().startswith(("http://", "https://")):
        raise StoreError(f"{name} is '{url}', but a URL with http:// or https:// is expected")
    return url.rstrip("/")


def _environment_endpoint(*names: str) -> str | None:
    """The endpoint in the environment, which the client reads by itself."""
    endpoint = _environment(*names)
    return None if endpoint is None else _endpoint(endpoint, f"the environment ({' or '.join(names)})")


def _environment(*names: str) -> str | None:
    return next((value for name in names if (value := os.environ.get(name))), None)


def _is_http(endpoint: str | None) -> bool:
    return bool(endpoint) and str(endpoint).lower().startswith("http://")
