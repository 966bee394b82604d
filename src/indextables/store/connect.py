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
_BEHAVIOUR = ("cloud.", "s3.")

_lock = threading.Lock()
_remotes: OrderedDict[tuple[Any, ...], Clients] = OrderedDict()
_memories: dict[str, MemoryClients] = {}
_of_parents: list[object] = []


def connect(location: Location, identity: Identity, reader: str) -> Backend:
    """The backend for a location. Opening the same store again costs next to nothing.

    `reader` is the digest of the identity: handles share connections only if they have the same credentials.
    """
    if location.kind is Kind.LOCAL:
        return LocalBackend()
    return RemoteBackend(location, identity, _clients(location, identity, reader))


def _clients(location: Location, identity: Identity, reader: str) -> Clients:
    with _lock:
        if location.kind is Kind.MEMORY:
            return _memories.setdefault(location.bucket, MemoryClients())
        behaviour = frozenset(
            item for item in identity.options.values.items() if item[0].startswith(_BEHAVIOUR)
        )
        key = (location.kind, location.bucket, location.host, behaviour, reader)
        clients = _remotes.pop(key, None) or RemoteClients(location, identity)
        _remotes[key] = clients
        while len(_remotes) > _MOST_KEPT:
            _remotes.popitem(last=False)
        return clients


def _forget() -> None:
    """A forked child connects by itself; the parent's lock may be held for ever.

    The parent's clients are not let go: ending them takes threads that the child does not have.
    """
    global _lock, _remotes, _memories
    _of_parents.append((_remotes, _memories))
    _lock, _remotes, _memories = threading.Lock(), OrderedDict(), {}


os.register_at_fork(after_in_child=_forget)
