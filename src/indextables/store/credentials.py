"""The credentials of a handle, a digest of them for caches, and their form without secrets."""

import hashlib
import inspect
import os
import secrets
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Any, NamedTuple, assert_never

from indextables.options import Option, Options, cloud
from indextables.options.declare import is_secret
from indextables.records import dataclass
from indextables.store.location import Kind

CredentialsProvider = Callable[..., Any]
"""A callable, sync or async, that returns credentials as a dict with `expires_at` (a datetime or None) and
`access_key_id`, `secret_access_key`, `token` for S3; one of `access_key`, `sas_token`, `token` for Azure;
`token` for Google. It is called again before they expire. If it has a parameter, it gets the table's URL."""

_WHAT_TO_SET = {
    Kind.S3: "set aws.accessKey and aws.secretKey (with aws.sessionToken for temporary keys), or the AWS_ "
    "variables, or a profile",
    Kind.AZURE: "set azure.accountKey, azure.sasToken, azure.connectionString, azure.bearerToken or "
    "azure.tenantId with azure.clientId and azure.clientSecret, or the AZURE_ variables",
    Kind.GCS: "set gcp.credentialsFile or gcp.serviceAccountKey, or GOOGLE_APPLICATION_CREDENTIALS",
    Kind.MEMORY: "memory needs none",
    Kind.HDFS: "set HADOOP_USER_NAME, or get a Kerberos ticket, or change the permissions of the folder",
    Kind.LOCAL: "change the permissions of the folder",
}


@dataclass(frozen=True, slots=True, repr=False)
class Identity:
    """Options and credentials of a handle. Its pickle holds secrets; `without_secrets` is for keeping.

    `url` is what credentials are for: the URL that was opened, also for handles of folders below it.
    """

    options: Options = field(default_factory=Options)
    provider: CredentialsProvider | None = None
    left_behind: tuple[str, ...] = ()
    url: str = ""
    # The options before Hadoop's keys were replaced by those of one location.
    original_options: Options = field(default_factory=Options)

    def without_secrets(self) -> "Identity":
        """The identity without secrets; `left_behind` has the names of the options that were removed."""
        lost = [key for key in self.options.values if is_secret(key)]
        if self.provider is not None:
            lost.append("the credentials callable")
        names = tuple(sorted({*self.left_behind, *lost}))
        return Identity(self.options.public(), None, names, self.url, self.original_options.public())

    def secrets(self) -> list[str]:
        """The values that no message may contain."""
        values = {*self.options.values.items(), *self.original_options.values.items()}
        texts = [value for key, value in values if value and is_secret(key)]
        # a connection string holds them as Name=value;Name=value
        parts = [part.partition("=")[2] for value in texts for part in value.split(";")]
        return [secret for secret in (*texts, *parts) if secret]

    def advice(self, kind: Kind) -> str:
        """What to do about credentials that are missing or refused."""
        if self.left_behind:
            return (
                f"this handle was sent here without its secrets ({', '.join(self.left_behind)}): send "
                f"Store.with_credentials() to tasks instead, or {_WHAT_TO_SET[kind]} in this process"
            )
        return _WHAT_TO_SET[kind]

    def __repr__(self) -> str:
        return f"Identity({self.options!r})"


@dataclass(frozen=True, slots=True, repr=False)
class StaticKeys:
    """S3 keys that do not change.

    As a provider, so that obstore does not combine them with a session token from the environment, which
    belongs to other keys.
    """

    access_key: str
    secret_key: str
    token: str | None

    def __call__(self) -> dict[str, Any]:
        """The keys, under the names that obstore uses."""
        return {
            "access_key_id": self.access_key,
            "secret_access_key": self.secret_key,
            "token": self.token,
            "expires_at": None,
        }


_OPTIONS = ("aws.", "azure.", "gcp.", "credentials.", "databricks.")
_ENVIRONMENT = ("AWS_", "AZURE_", "GOOGLE_")
_HDFS_OPTIONS = ("dfs.",)
_HDFS_ENVIRONMENT = ("HADOOP_", "KRB5")
# Digests are never stored, and are salted, so that secrets cannot be guessed from them.
_SALT = secrets.token_bytes(32)


class CacheScope(NamedTuple):
    """The key of cached values: where they were read, and with which credentials.

    `reader` reveals no secret.
    """

    url: str
    reader: str


def reader_digest(kind: Kind, identity: Identity) -> str:
    """A digest that is equal for readers with the same endpoint and the same credentials."""
    if kind is Kind.MEMORY:
        return ""
    if kind is Kind.LOCAL:
        return f"{os.geteuid()}:{os.getegid()}"
    digest = hashlib.blake2b(key=_SALT, digest_size=16)
    for part in _parts(kind, identity):
        digest.update(f"{len(part)}:{part}".encode(errors="surrogateescape"))
    return digest.hexdigest()


def _parts(kind: Kind, identity: Identity) -> Iterator[str]:
    is_hdfs = kind is Kind.HDFS
    for name, value in sorted(identity.options.values.items()):
        if name.startswith(_HDFS_OPTIONS if is_hdfs else _OPTIONS):
            yield f"{name}={value}"
    for name, value in sorted(os.environ.items()):
        if name.startswith(_HDFS_ENVIRONMENT if is_hdfs else _ENVIRONMENT):
            yield f"{name}={value}"
    if is_hdfs:
        yield f"user {os.geteuid()}"
        return
    for file in _files(kind, identity.options):
        try:
            status = file.stat()
        except OSError:
            continue
        yield f"{file} {status.st_ino} {status.st_size} {status.st_mtime_ns}"
    if identity.provider is not None:
        yield f"provider {_token(identity.provider)}"
    if is_scoped(identity):
        yield f"credentials for {identity.url}"


def is_scoped(identity: Identity) -> bool:
    """Whether the provider may return different credentials for another URL."""
    if identity.provider is not None:
        return takes_url(identity.provider)
    name = identity.options.get(cloud.PROVIDER) or ""
    return name == cloud.UNITY_CATALOG or (":" in name and name.partition(":")[0] not in cloud.PROVIDERS)


def takes_url(provider: CredentialsProvider) -> bool:
    """Whether a callable has a parameter without a default: then it is called with the table's URL."""
    try:
        parameters = inspect.signature(provider).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(each.kind in positional and each.default is inspect.Parameter.empty for each in parameters)


# Options that are credentials; if one is set, credentials of other sources are not used.
OWN_CREDENTIALS: Mapping[Kind, Sequence[Option[str | None]]] = {
    Kind.S3: (cloud.PROVIDER, cloud.AWS_ACCESS_KEY, cloud.AWS_SECRET_KEY, cloud.AWS_SESSION_TOKEN),
    Kind.AZURE: (
        cloud.PROVIDER,
        cloud.AZURE_KEY,
        cloud.AZURE_SAS,
        cloud.AZURE_CONNECTION_STRING,
        cloud.AZURE_TOKEN,
        cloud.AZURE_CLIENT_SECRET,
        cloud.AZURE_TOKEN_FILE,
    ),
    Kind.GCS: (cloud.PROVIDER, cloud.GCP_KEY, cloud.GCP_FILE),
}


def has_credentials(options: Options, kind: Kind) -> bool:
    """Whether options of our own have credentials for a kind of store, or name a provider."""
    return any(options.is_set(each) for each in OWN_CREDENTIALS.get(kind, ()))


def with_provider(options: Options, kind: Kind) -> Options:
    """Return the options, with Unity Catalog as the provider if its URL is set and no credentials are."""
    if (
        kind not in OWN_CREDENTIALS
        or not options.is_set(cloud.UC_WORKSPACE)
        or has_credentials(options, kind)
    ):
        return options
    return Options({**options.values, cloud.PROVIDER.key: cloud.UNITY_CATALOG})


def _files(kind: Kind, options: Options) -> Iterator[Path]:
    """Files that may hold credentials.

    Clients read them once, so a changed file changes the reader's digest.
    """
    home = Path.home()
    match kind:
        case Kind.S3:
            yield Path(os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or home / ".aws" / "credentials")
            yield Path(os.environ.get("AWS_CONFIG_FILE") or home / ".aws" / "config")
        case Kind.GCS:
            path = options.get(cloud.GCP_FILE) or os.environ.get("GOOGLE_APPLICATION_CREDENTIALS")
            yield Path(path or home / ".config" / "gcloud" / "application_default_credentials.json")
        case Kind.AZURE | Kind.HDFS | Kind.LOCAL | Kind.MEMORY:
            pass
        case _:
            assert_never(kind)


# Providers by their id while they exist: Python may reuse an id for another object.
_providers: dict[int, tuple[weakref.ref[object], str]] = {}


def _token(provider: CredentialsProvider) -> str:
    """A stable id of a callable; bound methods are identified by their object."""
    owner = getattr(provider, "__self__", None)
    if owner is not None:
        return f"{_token_of(owner)} {getattr(provider, '__qualname__', '')}"
    return _token_of(provider)


def _token_of(thing: object) -> str:
    provider = _providers.get(id(thing))
    if provider is not None and provider[0]() is thing:
        return provider[1]
    token = secrets.token_hex(16)
    with suppress(TypeError):  # without weak references every handle has its own digest
        _providers[id(thing)] = (weakref.ref(thing, _remove_provider), token)
    return token


def _remove_provider(dead: weakref.ref[object]) -> None:
    for key, (reference, _) in list(_providers.items()):
        if reference is dead:
            _providers.pop(key, None)
