"""Who reads: facts read from a store may be kept in this process, but only for readers with the same rights.

A cache that is keyed by a URL alone would give one user what another one read, and mix up stores that have
the same URL behind different endpoints. So what is read is kept under a scope: the URL, and a digest of all
that decides what the store shows to the reader.
"""

import hashlib
import os
import secrets
import weakref
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from indextables.options import Options, cloud
from indextables.store.credentials import CredentialsProvider, Identity
from indextables.store.location import Kind

_OPTIONS = ("aws.", "azure.", "gcp.")
_ENVIRONMENT = ("AWS_", "AZURE_", "GOOGLE_")
# Digests are never written anywhere; nobody can try out secrets on one even if it is.
_SALT = secrets.token_bytes(32)


class CacheScope(NamedTuple):
    """What facts are cached under: where they were read, and by whom. `reader` tells no secret."""

    url: str
    reader: str


def reader_digest(kind: Kind, identity: Identity) -> str:
    """Equal for readers whom a store cannot tell apart: same endpoint, same credentials."""
    if kind is Kind.MEMORY:
        return ""
    if kind is Kind.LOCAL:
        return f"{os.geteuid()}:{os.getegid()}"
    digest = hashlib.blake2b(key=_SALT, digest_size=16)
    for part in _parts(kind, identity):
        digest.update(f"{len(part)}:{part}".encode(errors="surrogateescape"))
    return digest.hexdigest()


def _parts(kind: Kind, identity: Identity) -> Iterator[str]:
    for name, value in sorted(identity.options.values.items()):
        if name.startswith(_OPTIONS):
            yield f"{name}={value}"
    for name, value in sorted(os.environ.items()):
        if name.startswith(_ENVIRONMENT):
            yield f"{name}={value}"
    for file in _files(kind, identity.options):
        try:
            found = file.stat()
        except OSError:
            continue
        yield f"{file} {found.st_ino} {found.st_size} {found.st_mtime_ns}"
    if identity.provider is not None:
        yield f"provider {_token(identity.provider)}"


def _files(kind: Kind, options: Options) -> Iterator[Path]:
    """Files that may hold credentials, which a client reads once: a change makes another reader."""
    home = Path.home()
    if kind is Kind.S3:
        yield Path(os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or home / ".aws" / "credentials")
        yield Path(os.environ.get("AWS_CONFIG_FILE") or home / ".aws" / "config")
    elif kind is Kind.GCS:
        named = options.get(cloud.GCP_FILE) or os.environ.get("GOOGLE_APPLICATION_CREDENTIALS")
        yield Path(named or home / ".config" / "gcloud" / "application_default_credentials.json")


# Providers by their id, as long as they live: an id can be given again to another object.
_providers: dict[int, tuple[weakref.ref[object], str]] = {}


def _token(provider: CredentialsProvider) -> str:
    """The same for the same object, another for every other; a method counts with its object."""
    owner = getattr(provider, "__self__", None)
    if owner is not None:
        return f"{_token_of(owner)} {getattr(provider, '__qualname__', '')}"
    return _token_of(provider)


def _token_of(thing: object) -> str:
    found = _providers.get(id(thing))
    if found is not None and found[0]() is thing:
        return found[1]
    token = secrets.token_hex(16)
    with suppress(TypeError):  # without weak references every handle is a reader of its own
        _providers[id(thing)] = (weakref.ref(thing, _forget_provider), token)
    return token


def _forget_provider(dead: weakref.ref[object]) -> None:
    for key, (reference, _) in list(_providers.items()):
        if reference is dead:
            _providers.pop(key, None)
