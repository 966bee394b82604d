"""Errors of obstore as errors of this package: the object, the reason, what to do; never a secret."""

import re
from enum import Enum, auto

from obstore.exceptions import AlreadyExistsError, PermissionDeniedError, UnauthenticatedError

from indextables.errors import CredentialsError, ObjectMissingError, StoreError
from indextables.store.credentials import Identity
from indextables.store.location import Kind

_QUERY = re.compile(r"\?[^\s\"')]*")
_URL = re.compile(r"https?://[^\s\"',)]+")
# URLs from which a client gets credentials before it sends a request to the store
_CREDENTIALS_URL = re.compile(
    r"https?://(169\.254\.|metadata\.google|sts\.[a-z0-9.-]*amazonaws\.|login\.microsoftonline\.|"
    r"oauth2\.googleapis\.|[^/]+/(latest/api/token|latest/meta-data/iam/|computeMetadata/|metadata/identity/))"
)
# hosts of credentials, never of objects: no name of a bucket or object looks like one
_CREDENTIALS_HOST = re.compile(
    r"https?://(169\.254\.169\.254|169\.254\.170\.2|metadata\.google\.internal|login\.microsoftonline\.com|"
    r"oauth2\.googleapis\.com|sts\.((?!s3)[a-z0-9-]+\.)?amazonaws\.com)[:/]"
)
_USER = re.compile(r"//[^/\s\"']*@")
_LONGEST = 300


class Reason(Enum):
    """Why a client failed, as far as its message shows."""

    PROVIDER = auto()
    MISSING = auto()
    NO_BUCKET = auto()
    NO_CREDENTIALS = auto()
    BAD_CREDENTIALS = auto()
    DENIED = auto()
    REGION = auto()
    UNREACHABLE = auto()
    OTHER = auto()


# codes are matched with their tags, so that the name of an object cannot be mistaken for one
_PATTERNS = {
    Reason.NO_CREDENTIALS: re.compile(r"performing token request"),
    Reason.BAD_CREDENTIALS: re.compile(r"credential error|Invalid Access Key|decode service account"),
    Reason.DENIED: re.compile(
        r"status code: 40[13]\b|<Code>(AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|"
        r"AuthenticationFailed|AuthorizationFailure)<|"
        r"DeleteObjects request failed .*\(code: (AccessDenied|InvalidAccessKeyId|ExpiredToken)\)$",
        re.MULTILINE,
    ),
    Reason.NO_BUCKET: re.compile(r"<Code>(NoSuchBucket|ContainerNotFound)<"),
    Reason.REGION: re.compile(
        r"redirect without LOCATION|<Code>(PermanentRedirect|AuthorizationHeaderMalformed)<"
    ),
    Reason.UNREACHABLE: re.compile(r"error sending request|onnection|dns error|operation timed out|TimedOut"),
}
# the type and text of an exception of a credentials provider
_PROVIDER = re.compile(r"External \w+ credential provider: (\w+)(?:: (.*))?")
_NOTHING_DONE = {
    Reason.PROVIDER,
    Reason.MISSING,
    Reason.NO_BUCKET,
    Reason.NO_CREDENTIALS,
    Reason.BAD_CREDENTIALS,
    Reason.DENIED,
    Reason.REGION,
}


def reason(error: Exception) -> Reason:
    """Why the client failed, by the type of the error and by its text."""
    if isinstance(error, UnauthenticatedError) and _PROVIDER.search(str(error)):
        return Reason.PROVIDER
    if _CREDENTIALS_URL.search(str(error)):
        return Reason.NO_CREDENTIALS
    return _reason_by_words(error)


def _reason_by_words(error: Exception) -> Reason:
    text = _URL.sub("", str(error))  # URLs contain names of objects, which may contain any text
    reason_by_pattern = next(
        (reason for reason, pattern in _PATTERNS.items() if pattern.search(text)), Reason.OTHER
    )
    if isinstance(error, (PermissionDeniedError, UnauthenticatedError)):
        return Reason.DENIED
    if isinstance(error, FileNotFoundError) and reason_by_pattern is not Reason.NO_BUCKET:
        return Reason.MISSING
    return reason_by_pattern


def translate(error: Exception, url: str, kind: Kind, identity: Identity) -> StoreError:
    """The error to raise for an error of the client. It has no reference to the client's error."""
    advice = identity.advice(kind)
    match reason(error):
        case Reason.PROVIDER:
            return CredentialsError(f"{url}: {redact(_provider_problem(error), identity)}")
        case Reason.MISSING:
            return ObjectMissingError(url)
        case Reason.NO_BUCKET:
            return StoreError(f"{url}: there is no such bucket or container; create it, or correct the URL")
        case Reason.NO_CREDENTIALS:
            return CredentialsError(f"{url}: no credentials were found; {advice}")
        case Reason.BAD_CREDENTIALS:  # the text may quote the credentials
            return CredentialsError(f"{url}: the credentials are malformed; {advice}")
        case Reason.DENIED:
            return CredentialsError(
                f"{url}: the store refused us: credentials wrong, expired or without the permission; {advice}"
            )
        case Reason.REGION:
            return StoreError(f"{url}: the bucket is in another region; set aws.region to the bucket's")
        case Reason.UNREACHABLE:
            remedy = "check the endpoint and the network, and repeat the operation"
        case _:
            remedy = "repeat the operation; if the error persists, look at the store's own log"
    return StoreError(f"{url}: {redact(str(error), identity)}; {remedy}")


def _provider_problem(error: Exception) -> str:
    """The message of a provider's CredentialsError; else only the error's type, as texts may have secrets."""
    match = _PROVIDER.search(str(error).partition("\n")[0])
    if match is not None and match[1] == CredentialsError.__name__:
        return match[2] or ""
    kind = match[1] if match else "an error"
    return f"the credentials provider failed with {kind}; call it by itself to see why"


def is_denied(error: Exception) -> bool:
    """Whether the store refused the credentials of a request."""
    return reason(error) is Reason.DENIED


def is_refused(error: Exception) -> bool:
    """Whether the store certainly did nothing: it refused the request, or none was sent."""
    if isinstance(error, AlreadyExistsError):
        return False
    if isinstance(error, ValueError) or _CREDENTIALS_HOST.search(str(error)):
        return True
    return _reason_by_words(error) in _NOTHING_DONE


def cause(error: Exception, identity: Identity) -> str:
    """A short reason why the outcome of a create is unknown."""
    if isinstance(error, AlreadyExistsError):
        return "the store reported an existing object or a conflict"
    return redact(str(error), identity)


def redact(text: str, identity: Identity) -> str:
    """The first line of a message, without secrets, and URLs without users and queries (signatures)."""
    line = _USER.sub("//***@", _QUERY.sub("", text.strip().partition("\n")[0]))
    for secret in identity.secrets():
        line = line.replace(secret, "***")
    return line[:_LONGEST]
