"""Credentials: those of a handle, a digest of them for caches, and providers that return them.

A provider is a callable, a function that options name, or Unity Catalog. What it returns is checked, shared
by the clients of a store, and fetched again before it expires.
"""

import asyncio
import base64
import hashlib
import importlib
import inspect
import json
import os
import secrets
import threading
import urllib.error
import urllib.parse
import urllib.request
import weakref
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import field
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple, NoReturn
from urllib.parse import urlsplit

from indextables.errors import CredentialsError
from indextables.options import Option, Options, cloud
from indextables.options.declare import is_secret
from indextables.records import dataclass
from indextables.store.backend import Backoff
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
    if kind is Kind.S3:
        yield Path(os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or home / ".aws" / "credentials")
        yield Path(os.environ.get("AWS_CONFIG_FILE") or home / ".aws" / "config")
    elif kind is Kind.GCS:
        named = options.get(cloud.GCP_FILE) or os.environ.get("GOOGLE_APPLICATION_CREDENTIALS")
        yield Path(named or home / ".config" / "gcloud" / "application_default_credentials.json")


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
        _providers[id(thing)] = (weakref.ref(thing, _forget_provider), token)
    return token


def _forget_provider(dead: weakref.ref[object]) -> None:
    for key, (reference, _) in list(_providers.items()):
        if reference is dead:
            _providers.pop(key, None)


Credentials = dict[str, Any]

_BEFORE_EXPIRY = timedelta(minutes=5)
_AFTER_FAILURE = timedelta(seconds=30)
_AFTER_REFUSAL = timedelta(minutes=1)
_Clock = Callable[[], datetime]


def _now() -> datetime:
    return datetime.now(UTC)


class RefreshingProvider:
    """The credentials of a provider, fetched again before they expire.

    They are renewed five minutes before they expire, or after three quarters of their lifetime if that is
    later. If renewing fails while they are still valid, they stay in use, and renewing is tried again after
    half a minute.
    """

    def __init__(self, provider: CredentialsProvider, kind: Kind, url: str, clock: _Clock = _now) -> None:
        """Use `provider`, which gets `url` if it takes an argument, for a store of some kind."""
        self._provider = provider
        self._kind = kind
        self._url = url
        self._clock = clock
        self._lock = threading.Lock()
        self._credentials: Credentials | None = None
        self._expires_at: datetime | None = None
        self._renew_at: datetime | None = None
        self._same_until: datetime | None = None

    def __call__(self) -> Credentials:
        """Return credentials as obstore takes them, with the time when it has to call again.

        Raises:
            CredentialsError: The provider failed, or returned something else.
        """
        with self._lock:
            now = self._clock()
            if self._credentials is None or (self._renew_at is not None and now >= self._renew_at):
                try:
                    self._store(self._fetch(), now)
                except CredentialsError:
                    if self._credentials is None or self._expires_at is None or now >= self._expires_at:
                        raise
                    self._renew_at = min(now + _AFTER_FAILURE, self._expires_at)
            return {**(self._credentials or {}), "expires_at": self._renew_at}

    def refetch(self) -> bool:
        """Fetch credentials again after the store refused these; returns whether there are others now.

        A provider without others is not called again for a minute.

        Raises:
            CredentialsError: The provider failed, or returned something else.
        """
        with self._lock:
            now = self._clock()
            if self._same_until is not None and now < self._same_until:
                return False
            before = self._credentials
            self._store(self._fetch(), now)
            self._same_until = now + _AFTER_REFUSAL if self._credentials == before else None
            return self._credentials != before

    def _store(self, credentials: Credentials, now: datetime) -> None:
        self._expires_at = credentials.pop("expires_at", None)
        self._credentials = credentials
        self._renew_at = None
        if self._expires_at is not None:
            margin = min(_BEFORE_EXPIRY, (self._expires_at - now) / 4)
            self._renew_at = self._expires_at - max(margin, timedelta(0))

    def _fetch(self) -> Credentials:
        arguments = (self._url,) if takes_url(self._provider) else ()
        answer: object = None
        problem = ""
        try:
            answer = self._provider(*arguments)
            if inspect.isawaitable(answer):
                answer = _run(answer)
        except CredentialsError:
            raise
        except Exception as error:  # noqa: BLE001 - anything that a callable of a user raises
            problem = type(error).__name__
        if problem:  # outside of the handler: text and traceback of the error may quote secrets
            self._reject(f"failed with {problem}; call it by itself to see why")
        return self._check(answer)

    def _check(self, answer: object) -> Credentials:
        if not isinstance(answer, Mapping):
            self._reject(f"returned {type(answer).__name__}, but a dict is expected")
        fields = {str(key): value for key, value in answer.items() if value is not None}
        expires_at = fields.pop("expires_at", None)
        if expires_at is not None and (
            not isinstance(expires_at, datetime) or expires_at.utcoffset() is None
        ):
            self._reject("returned an expires_at that is no datetime with a time zone")
        choices = _FIELDS[self._kind]
        optional = {"token"} if self._kind is Kind.S3 else set()
        if not any(fields.keys() - optional == choice for choice in choices):
            expected = " or ".join(", ".join(sorted(choice)) for choice in choices)
            self._reject(f"returned {', '.join(sorted(fields)) or 'nothing'}, but {expected} is expected")
        if not all(isinstance(value, str) and value for value in fields.values()):
            self._reject("returned a value that is empty or no text")
        return {**fields, "expires_at": expires_at}

    def _reject(self, problem: str) -> NoReturn:
        raise CredentialsError(
            f"the credentials provider {_name(self._provider)} {problem} (docs/operations/storage.md)"
        )


# The fields of credentials by kind of store; S3 has a token as well if the keys are temporary.
_FIELDS = {
    Kind.S3: ({"access_key_id", "secret_access_key"},),
    Kind.AZURE: ({"access_key"}, {"sas_token"}, {"token"}),
    Kind.GCS: ({"token"},),
}


def _name(provider: CredentialsProvider) -> str:
    return str(getattr(provider, "__qualname__", type(provider).__qualname__))


def _run(answer: Awaitable[Any]) -> Any:  # noqa: ANN401 - what the callable returns is checked later
    """The result of an async callable, run in a separate thread, since this one may run an event loop."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, _await(answer)).result()


async def _await(answer: Awaitable[Any]) -> Any:  # noqa: ANN401
    return await answer


# --- providers that options name -------------------------------------------------------------------


def named_provider(options: Options, kind: Kind) -> CredentialsProvider | None:
    """Return the provider that the options name: Unity Catalog, or a function; None if they name neither.

    Raises:
        CredentialsError: There is no such function, or an option of Unity Catalog is missing.
    """
    name = options.get(cloud.PROVIDER) or ""
    if name == cloud.UNITY_CATALOG:
        return UnityCatalog(options, kind)
    module, colon, function = name.partition(":")
    if not colon or module in cloud.PROVIDERS:
        return None
    target: Any = None
    problem = ""
    try:
        target = importlib.import_module(module)
        for part in function.split("."):
            target = getattr(target, part)
    except Exception as error:  # noqa: BLE001 - anything that a module of a user raises
        problem = type(error).__name__
    if problem:  # out here: its text and its traceback may quote secrets
        raise CredentialsError(
            f"credentials.provider is '{name}', which cannot be imported here ({problem}); install the "
            "module on the driver and on all executors, for example by spark.submit.pyFiles"
        )
    if not callable(target):
        raise CredentialsError(f"credentials.provider is '{name}', which is not a function; name one")
    provider: CredentialsProvider = target
    return provider


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: they would take the token to another host."""

    def redirect_request(self, *_: Any, **__: Any) -> None:  # noqa: ANN401 - Python's own signature
        """Return no request: redirects are not followed."""


_API = "/api/2.1/unity-catalog"
_TIMEOUT_SECONDS = 30
_RETRIED = {408, 429, 500, 502, 503, 504}
_BACKOFF = Backoff(base_ms=200, max_ms=5000)
_LARGEST_ANSWER = 1 << 20


class _ForbiddenError(CredentialsError):
    """The catalog authenticated the caller, and denied the operation."""


class UnityCatalog:
    """Temporary credentials of Unity Catalog, for a path or for a table, through its REST API."""

    def __init__(self, options: Options, kind: Kind) -> None:
        """Read the options.

        Raises:
            CredentialsError: The workspace's URL, or the credentials for it, are missing.
        """
        self._kind = kind
        self._workspace = (options.get(cloud.UC_WORKSPACE) or "").rstrip("/")
        self._token = options.get(cloud.UC_TOKEN)
        self._client = options.get(cloud.UC_CLIENT), options.get(cloud.UC_CLIENT_SECRET)
        self._table = options.get(cloud.UC_TABLE)
        self._operation = options.get(cloud.UC_OPERATION)
        self._attempts = options.get(cloud.UC_ATTEMPTS)
        self._access: tuple[str, datetime] | None = None
        if not self._workspace:
            raise CredentialsError(
                "credentials.provider is 'unity-catalog', which needs databricks.workspaceUrl; set it"
            )
        if urlsplit(self._workspace).scheme not in ("http", "https"):
            raise CredentialsError(
                f"databricks.workspaceUrl is '{self._workspace}', but a URL with https:// is expected"
            )
        if not self._token and not all(self._client):
            raise CredentialsError(
                "Unity Catalog needs databricks.apiToken, or databricks.clientId and "
                "databricks.clientSecret; set them (a handle that was sent without its secrets has lost them)"
            )

    def __call__(self, url: str) -> Credentials:
        """Return credentials for the table at a URL.

        Raises:
            CredentialsError: The catalog denied the request, or did not answer.
        """
        if self._operation:
            return self._vend(url, self._operation)
        try:
            return self._vend(url, "PATH_READ_WRITE")
        except _ForbiddenError:
            return self._vend(url, "PATH_READ")

    def _vend(self, url: str, operation: str) -> Credentials:
        if self._table:
            table = self._call(f"{_API}/tables/{urllib.parse.quote(self._table, safe='')}", None)
            request = {"table_id": table.get("table_id"), "operation": operation.removeprefix("PATH_")}
            answer = self._call(f"{_API}/temporary-table-credentials", request)
        else:
            request = {"url": url, "operation": operation}
            answer = self._call(f"{_API}/temporary-path-credentials", request)
        expiration = answer.get("expiration_time")
        expires_at = None
        if isinstance(expiration, (int, float)) and expiration > 0:
            expires_at = datetime.fromtimestamp(expiration / 1000, UTC)
        return {**self._credentials(answer), "expires_at": expires_at}

    def _credentials(self, answer: Mapping[str, Any]) -> Credentials:
        keys = answer.get("aws_temp_credentials") or answer.get("r2_temp_credentials")
        if self._kind is Kind.S3 and keys:
            return {
                "access_key_id": keys.get("access_key_id"),
                "secret_access_key": keys.get("secret_access_key"),
                "token": keys.get("session_token"),
            }
        if self._kind is Kind.AZURE and (signature := answer.get("azure_user_delegation_sas")):
            return {"sas_token": str(signature.get("sas_token", "")).removeprefix("?")}
        if self._kind is Kind.AZURE and (token := answer.get("azure_aad")):
            return {"token": token.get("aad_token")}
        if self._kind is Kind.GCS and (token := answer.get("gcp_oauth_token")):
            return {"token": token.get("oauth_token")}
        raise CredentialsError(
            f"{self._workspace} returned no credentials for {self._kind.value}; check the table's location"
        )

    def _call(self, path: str, request: Mapping[str, Any] | None) -> Mapping[str, Any]:
        headers = {"Authorization": f"Bearer {self._bearer()}", "Content-Type": "application/json"}
        body = None if request is None else json.dumps(request).encode()
        return self._send(urllib.request.Request(self._workspace + path, body, headers))  # noqa: S310 - checked above

    def _bearer(self) -> str:
        if self._token:
            return self._token
        now = _now()
        if self._access is None or now >= self._access[1]:
            identifier, secret = self._client
            basic = base64.b64encode(f"{identifier}:{secret}".encode()).decode()
            form = urllib.parse.urlencode({"grant_type": "client_credentials", "scope": "all-apis"})
            request = urllib.request.Request(  # noqa: S310 - checked above
                f"{self._workspace}/oidc/v1/token", form.encode(), {"Authorization": f"Basic {basic}"}
            )
            answer = self._send(request)
            seconds = answer.get("expires_in")
            lifetime = (
                timedelta(seconds=seconds) if isinstance(seconds, (int, float)) else timedelta(minutes=5)
            )
            self._access = str(answer.get("access_token", "")), now + lifetime * 3 / 4
        return self._access[0]

    def _send(self, request: urllib.request.Request) -> Mapping[str, Any]:
        """Send a request; returns the answer as a JSON object.

        Errors omit the catalog's text: it may quote a token.
        """
        problem, kind = "", CredentialsError
        opener = urllib.request.build_opener(_NoRedirects)
        for attempt in range(self._attempts):
            if attempt:
                _BACKOFF.sleep(attempt)
            try:
                with opener.open(request, timeout=_TIMEOUT_SECONDS) as reply:
                    answer = json.loads(reply.read(_LARGEST_ANSWER))
            except urllib.error.HTTPError as error:
                problem = f"status {error.code}{_code(error)}"
                kind = _ForbiddenError if error.code == HTTPStatus.FORBIDDEN else CredentialsError
                if error.code not in _RETRIED:
                    break
            except (OSError, HTTPException) as error:
                problem = f"no answer ({type(error).__name__})"
            except ValueError:
                problem = "an answer that is no JSON"
                break
            else:
                if isinstance(answer, dict):
                    return answer
                problem = "an answer that is no JSON object"
                break
        where = urlsplit(request.full_url)
        raise kind(
            f"Unity Catalog at {self._workspace} gave {problem} to {where.path}; check the URL, the token "
            f"and the privileges on the {'table ' + self._table if self._table else 'external location'}"
        )


def _code(error: urllib.error.HTTPError) -> str:
    """The catalog's code of an error, such as PERMISSION_DENIED."""
    try:
        code = json.loads(error.read(_LARGEST_ANSWER)).get("error_code")
    except (ValueError, AttributeError, OSError):
        return ""
    return f" {code}" if isinstance(code, str) and code.isidentifier() and len(code) <= 64 else ""
