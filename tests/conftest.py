"""Fixtures that every test may use."""

from servers.fixtures import (
    any_store,
    azurite_server,
    careless_s3,
    faulty_s3,
    gcs_proxy,
    make_store_url,
    moto_server,
    seaweed_server,
)

__all__ = [
    "any_store",
    "azurite_server",
    "careless_s3",
    "faulty_s3",
    "gcs_proxy",
    "make_store_url",
    "moto_server",
    "seaweed_server",
]
