"""What obstore says, in our words: the object, the reason, what to do; and never a secret."""

import re

from obstore.exceptions import AlreadyExistsError, PermissionDeniedError, UnauthenticatedError

from indextables.errors import CredentialsError, ObjectMissingError, StoreError
from indextables.store.credentials import Identity
from indextables.store.location import Kind

_DENIED = re.compile(r"\b(401 Unauthorized|403 Forbidden)\b|InvalidAccessKeyId|SignatureDoesNotMatch")
_NO_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound|specified bucket does not exist")
_NO_CREDENTIALS = re.compile(
    r"169\.254\.|metadata\.google|MissingCredential|[Mm]issing (access|secret) key|CredentialProvider|"
    r"metadata (service|server)|token request|Error performing token|computeMetadata",
)
_REGION = re.compile(r"redirect without LOCATION|PermanentRedirect|AuthorizationHeaderMalformed")
_CONNECTION = re.compile(r"error sending request|[Cc]onnection|dns error|operation timed out|TimedOut")
_QUERY = re.compile(r"\?[^\s\"')]*")
_LONGEST = 300

_WHAT_TO_SET = {
    Kind.S3: "set aws.accessKey and aws.secretKey (with aws.sessionToken for temporary keys), or the AWS_ "
    "variables, or a profile",
    Kind.AZURE: "set azure.accountKey, azure.connectionString, azure.bearerToken or azure.tenantId with "
    "azure.clientId and azure.clientSecret, or the AZURE_ variables",
    Kind.GCS: "set gcp.credentialsFile or gcp.serviceAccountKey, or GOOGLE_APPLICATION_CREDENTIALS",
    Kind.MEMORY: "a memory has none",
    Kind.LOCAL: "change the permissions of the folder",
}


def translate(error: Exception, url: str, kind: Kind, identity: Identity) -> StoreError:
    """The error to raise for a failure of the client. It holds no reference to the original."""
    text = str(error)
    if isinstance(error, (PermissionDeniedError, UnauthenticatedError)) or _DENIED.search(text):
        return CredentialsError(f"{url}: the store refused our credentials; {_advice(kind, identity)}")
    if _NO_BUCKET.search(text):
        return StoreError(f"{url}: there is no such bucket or container; create it, or correct the URL")
    if isinstance(error, FileNotFoundError):
        return ObjectMissingError(url)
    if _NO_CREDENTIALS.search(text):
        return CredentialsError(f"{url}: no credentials were found; {_advice(kind, identity)}")
    if _REGION.search(text):
        return StoreError(f"{url}: the bucket is in another region; set aws.region to the bucket's")
    advice = (
        "check the endpoint and the network, and repeat the operation"
        if _CONNECTION.search(text)
        else "repeat the operation; if it stays, look at the store's own log"
    )
    return StoreError(f"{url}: {clean(text, identity)}; {advice}")


def refused(error: Exception) -> bool:
    """Whether the store certainly did nothing: it said no, or was never asked."""
    text = str(error)
    return isinstance(
        error, (FileNotFoundError, ValueError, PermissionDeniedError, UnauthenticatedError)
    ) or any(pattern.search(text) for pattern in (_DENIED, _NO_BUCKET, _NO_CREDENTIALS, _REGION))


def cause(error: Exception, identity: Identity) -> str:
    """In short why a create came back without an answer."""
    if isinstance(error, AlreadyExistsError):
        return "the store says that an object is there, or that there was a conflict"
    return clean(str(error), identity)


def clean(text: str, identity: Identity) -> str:
    """The first line of a message, without queries of URLs (signatures are in them) and without secrets."""
    line = _QUERY.sub("", text.strip().partition("\n")[0])
    for secret in identity.secrets():
        line = line.replace(secret, "***")
    return line[:_LONGEST]


def _advice(kind: Kind, identity: Identity) -> str:
    if identity.left_behind:
        return (
            f"this handle was sent here without its secrets ({', '.join(identity.left_behind)}): send "
            f"Store.passport() to tasks instead, or {_WHAT_TO_SET[kind]} in this process"
        )
    return _WHAT_TO_SET[kind]
