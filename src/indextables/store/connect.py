"""From a location to the backend that serves it; clients of object stores are shared within a process."""

import os
import threading
from collections import OrderedDict
from typing import Any

from indextables.store.backend import Backend
from indextables.store.clients import Clients, MemoryClients, RemoteClients
from indextables.store.credentials import Identity
from indextables.store.local import LocalBackend
from indextables.store.location import Kind, Location
from indextables.store.remote import RemoteBackend

_MOST_KEPT = 64
_FAMILIES = ("aws.", "azure.", "gcp.", "cloud.", "s3.")
_ENVIRONMENT = ("AWS_", "AZURE_", "GOOGLE_")

_lock = threading.Lock()
_remotes: OrderedDict[tuple[Any, ...], Clients] = OrderedDict()
_memories: dict[tuple[int, str], MemoryClients] = {}


def connect(location: Location, identity: Identity) -> Backend:
    """The backend for a location. Opening the same store again costs next to nothing."""
    if location.kind is Kind.LOCAL:
        return LocalBackend()
    return RemoteBackend(location, identity, _clients(location, identity))


def _clients(location: Location, identity: Identity) -> Clients:
    with _lock:
        if location.kind is Kind.MEMORY:
            return _memories.setdefault((os.getpid(), location.bucket), MemoryClients())
        key = _sharing_key(location, identity)
        clients = _remotes.pop(key, None) or RemoteClients(location, identity)
        _remotes[key] = clients
        while len(_remotes) > _MOST_KEPT:
            _remotes.popitem(last=False)
        return clients


def _sharing_key(location: Location, identity: Identity) -> tuple[Any, ...]:
    """Equal for handles that may share connections: same bucket, same settings, same process."""
    options = frozenset((k, v) for k, v in identity.options.values.items() if k.startswith(_FAMILIES))
    environment = frozenset((k, v) for k, v in os.environ.items() if k.startswith(_ENVIRONMENT))
    # the provider itself, not its id: an id can be given again to another object
    provider = (id(identity.provider), identity.provider) if identity.provider is not None else None
    return os.getpid(), location.kind, location.bucket, location.host, options, environment, provider
