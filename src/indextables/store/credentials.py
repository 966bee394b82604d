"""Who we are at a store: what the caller gave, and what may be shown or kept of it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from indextables.options import Options
from indextables.options.declare import is_secret
from indextables.store.location import Kind

CredentialsProvider = Callable[[], Any]
"""A callable, sync or async, that returns credentials as a dict with `expires_at` (a datetime or None) and
`access_key_id`, `secret_access_key`, `token` for S3; one of `access_key`, `sas_token`, `token` for Azure;
`token` for Google. It is called again when they expire."""

_WHAT_TO_SET = {
    Kind.S3: "set aws.accessKey and aws.secretKey (with aws.sessionToken for temporary keys), or the AWS_ "
    "variables, or a profile",
    Kind.AZURE: "set azure.accountKey, azure.connectionString, azure.bearerToken or azure.tenantId with "
    "azure.clientId and azure.clientSecret, or the AZURE_ variables",
    Kind.GCS: "set gcp.credentialsFile or gcp.serviceAccountKey, or GOOGLE_APPLICATION_CREDENTIALS",
    Kind.MEMORY: "a memory has none",
    Kind.LOCAL: "change the permissions of the folder",
}


@dataclass(frozen=True, slots=True, repr=False)
class Identity:
    """Options and credentials of a handle. Its pickle holds secrets; `without_secrets` is for keeping."""

    options: Options = field(default_factory=Options)
    provider: CredentialsProvider | None = None
    left_behind: tuple[str, ...] = ()

    def without_secrets(self) -> "Identity":
        """What may be kept; it remembers the names of what it lost."""
        lost = [key for key in self.options.values if is_secret(key)]
        if self.provider is not None:
            lost.append("the credentials callable")
        return Identity(self.options.public(), None, tuple(sorted({*self.left_behind, *lost})))

    def secrets(self) -> list[str]:
        """The values that no message may contain."""
        given = [value for key, value in self.options.values.items() if value and is_secret(key)]
        # a connection string holds them as Name=value;Name=value
        parts = [part.partition("=")[2] for value in given for part in value.split(";")]
        return [secret for secret in (*given, *parts) if secret]

    def advice(self, kind: Kind) -> str:
        """What to do about credentials that are missing or refused."""
        if self.left_behind:
            return (
                f"this handle was sent here without its secrets ({', '.join(self.left_behind)}): send "
                f"Store.passport() to tasks instead, or {_WHAT_TO_SET[kind]} in this process"
            )
        return _WHAT_TO_SET[kind]

    def __repr__(self) -> str:
        return f"Identity({self.options!r})"


@dataclass(frozen=True, slots=True, repr=False)
class StaticKeys:
    """S3 keys that stay as they are.

    Handed over as a provider, they are not mixed with a session token from the environment, which would
    belong to other keys.
    """

    access_key: str
    secret_key: str
    token: str | None

    def __call__(self) -> dict[str, Any]:
        """The keys, in obstore's words."""
        return {
            "access_key_id": self.access_key,
            "secret_access_key": self.secret_key,
            "token": self.token,
            "expires_at": None,
        }
