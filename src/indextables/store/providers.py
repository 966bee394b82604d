"""Providers of credentials: callables, functions that options name, and Unity Catalog.

What a provider returns is checked, shared by the clients of a store, and fetched again before it expires.
"""

import asyncio
import base64
import importlib
import inspect
import json
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from http.client import HTTPException
from typing import Any, NoReturn
from urllib.parse import urlsplit

from indextables.errors import CredentialsError
from indextables.options import Options, cloud
from indextables.store.backend import Backoff
from indextables.store.credentials import CredentialsProvider, takes_url
from indextables.store.location import Kind

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
