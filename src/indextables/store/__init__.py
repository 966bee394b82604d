"""Bytes on local disk and object stores.

`open_store(url, options)` gives a `Store`: objects below a URL, written atomically, created only if absent
on request, listed in order; errors are those of this package and contain no secrets.
"""

from indextables.store.backend import ObjectInfo, Sink
from indextables.store.credentials import CacheScope, CredentialsProvider
from indextables.store.handle import Store, StoreWithCredentials, open_store

__all__ = [
    "CacheScope",
    "CredentialsProvider",
    "ObjectInfo",
    "StoreWithCredentials",
    "Sink",
    "Store",
    "open_store",
]
