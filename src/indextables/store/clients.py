"""Clients of object stores, one for each purpose: reading, writing, and creating if absent.

They differ in timeouts and retries. A stalled read is aborted soon and repeated. The timeout of a write
depends on its size. A claim (create-if-absent) is never retried by the client, so that the handle gets every
ambiguous answer.
"""

import threading
from datetime import timedelta
from typing import Any, Protocol

from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

from indextables.options import Options, cloud
from indextables.store.credentials import Identity
from indextables.store.location import Kind, Location
from indextables.store.providers import RefreshingProvider
from indextables.store.settings import ClientSettings, settings

Client = Any
"""A store of obstore, whose own type exists for type checkers only."""

SMALL_CLAIM_BYTES = 8 << 20
_SLOWEST_BYTES_PER_SECOND = 256 << 10
_GIVE_UP_AFTER = timedelta(minutes=3)
_MAKERS: dict[Kind, Any] = {Kind.S3: S3Store, Kind.AZURE: AzureStore, Kind.GCS: GCSStore}


class HedgeBudget:
    """Bounds how many reads of a bucket are requested twice: some, and then this share of all reads.

    Without it a store that is slow for all reads would get twice the load.
    """

    SHARE = 0.05
    MOST = 8

    def __init__(self) -> None:
        self._left = float(self.MOST)
        self._lock = threading.Lock()

    def count_read(self) -> None:
        """Count a read."""
        with self._lock:
            self._left = min(self._left + self.SHARE, self.MOST)

    def take(self) -> bool:
        """Whether a read may be requested twice; counts it if so."""
        with self._lock:
            if self._left < 1:
                return False
            self._left -= 1
            return True


class Clients(Protocol):
    """The clients of one bucket."""

    budget: HedgeBudget

    def reading(self) -> Client:
        """For reads, listings and deletes."""
        ...

    def reading_once(self) -> Client:
        """The client for the first attempt of a read: it raises errors immediately."""
        ...

    def reading_again(self) -> Client:
        """The client for the further attempts of such a read."""
        ...

    def writing(self) -> Client:
        """For writes that may be repeated."""
        ...

    def claiming(self, size: int) -> Client:
        """For one attempt to create an object of this many bytes."""
        ...

    def renew(self, client: Client) -> bool:
        """Fetch other credentials after the store refused those of a client; whether there are others."""
        ...


class MemoryClients:
    """An in-memory store, which is the client for all purposes."""

    def __init__(self) -> None:
        self.budget = HedgeBudget()
        self._store = MemoryStore()

    def reading(self) -> Client:
        """The in-memory store."""
        return self._store

    reading_once = reading_again = reading

    def writing(self) -> Client:
        """The in-memory store."""
        return self._store

    def claiming(self, size: int) -> Client:  # noqa: ARG002 - memory is never slow
        """The in-memory store."""
        return self._store

    def renew(self, client: Client) -> bool:  # noqa: ARG002 - a memory has no credentials
        """Always false: memory has no credentials to renew."""
        return False


class RemoteClients:
    """Clients of a bucket or container, created on first use."""

    def __init__(self, location: Location, identity: Identity) -> None:
        self._location = location
        self._identity = identity
        self.budget = HedgeBudget()
        self._settings: ClientSettings | None = None
        self._clients: dict[str, Client] = {}
        self._lock = threading.Lock()

    def reading(self) -> Client:
        """The client for reads: stalled ones end after cloud.readTimeout and are repeated."""
        return self._reading("reading", self._identity.options.get(cloud.MAX_RETRIES))

    def reading_once(self) -> Client:
        """The client for a read with a single attempt."""
        return self._reading("reading once", 0)

    def reading_again(self) -> Client:
        """The client for the attempts after the first one."""
        return self._reading("reading again", max(0, self._identity.options.get(cloud.MAX_RETRIES) - 1))

    def writing(self) -> Client:
        """The client for writes: the timeout allows the largest body on a slow connection."""
        options = self._identity.options
        body = max(options.get(cloud.MULTIPART_THRESHOLD), options.get(cloud.PART_SIZE))
        return self._client("writing", _write_timeout(options, body), None, options.get(cloud.MAX_RETRIES))

    def claiming(self, size: int) -> Client:
        """The client for create-if-absent: one attempt without retries."""
        options = self._identity.options
        if size <= SMALL_CLAIM_BYTES:
            return self._client("claiming", _write_timeout(options, 0), None, 0)
        return self._client("claiming much", _write_timeout(options, 1 << 30), None, 0)

    def renew(self, client: Client) -> bool:
        """Whether a provider has other credentials than those the client was refused with.

        Raises:
            CredentialsError: The provider failed.
        """
        with self._lock:
            provider = None if self._settings is None else self._settings.provider
            if not isinstance(provider, RefreshingProvider):
                return False
            if all(each is not client for each in self._clients.values()):
                return True  # another thread has renewed them
            if not provider.refetch():
                return False
            self._clients = {}
            return True

    def _reading(self, purpose: str, retries: int) -> Client:
        stall = timedelta(milliseconds=self._identity.options.get(cloud.READ_TIMEOUT_MS))
        return self._client(purpose, timedelta(hours=1), stall, retries)

    def _client(self, purpose: str, whole: timedelta, stall: timedelta | None, retries: int) -> Client:
        # two threads may both create one, which is harmless
        if (client := self._clients.get(purpose)) is not None:
            return client
        with self._lock:
            if self._settings is None:
                self._settings = settings(self._location, self._identity)
        options = self._identity.options
        client_options: dict[str, Any] = {
            "timeout": whole,
            "connect_timeout": timedelta(milliseconds=options.get(cloud.CONNECTION_TIMEOUT_MS)),
            "pool_max_idle_per_host": str(options.get(cloud.MAX_CONNECTIONS)),
            "allow_http": self._settings.allow_http,
        }
        if stall is not None:
            client_options["read_timeout"] = stall
        client = _MAKERS[self._location.kind](
            self._location.bucket,
            config=self._settings.config,
            client_options=client_options,
            retry_config={"max_retries": retries, "retry_timeout": _GIVE_UP_AFTER},
            credential_provider=self._settings.provider,
        )
        return self._clients.setdefault(purpose, client)


def _write_timeout(options: Options, size: int) -> timedelta:
    base = options.get(cloud.READ_TIMEOUT_MS) / 1000
    return timedelta(seconds=base + size / _SLOWEST_BYTES_PER_SECOND)
