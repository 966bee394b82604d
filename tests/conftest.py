"""Fixtures that every test may use, and the order of the tests: cheapest failure first."""

import pytest
from hypothesis import HealthCheck, settings

from tests.one_session import spark
from tests.servers.fixtures import (
    any_store,
    azurite_server,
    careless_s3,
    faulty_s3,
    gcs_proxy,
    hdfs_server,
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
    "hdfs_server",
    "make_store_url",
    "moto_server",
    "seaweed_server",
    "spark",
]

# A busy machine is no failure: how long an example takes is not what a property says.
settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")

# Folders whose tests take long, in the order in which they run after all others.
_LAST = ("property", "race", "bench", "test_wheel.py")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Plain tests first, then those that start servers, then long ones, then those that need a JVM."""
    items.sort(key=_rank)


def _rank(item: pytest.Item) -> tuple[int, int]:
    late = next((n + 1 for n, name in enumerate(_LAST) if name in item.path.parts), 0)
    markers = 2 if item.get_closest_marker("spark") else 1 if item.get_closest_marker("server") else 0
    return markers, late
