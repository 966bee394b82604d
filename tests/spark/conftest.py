"""Every test here needs a JVM, and most of them need no compiled queries."""

from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent

# Spark compiles code for each query; on small tables that takes most of the time of a test.
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}

# Modules whose queries run as compiled code, as those of users do.
COMPILED = ("test_differential", "test_pushdown", "test_python_udfs", "test_tpch")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.spark)
            if "spark" in getattr(item, "fixturenames", ()):
                item.fixturenames.insert(0, "interpreted_queries")


@pytest.fixture(scope="module")
def interpreted_queries(request: pytest.FixtureRequest, spark) -> Iterator[None]:
    """Queries of the module are interpreted, unless it needs compiled ones."""
    if request.module.__name__.rpartition(".")[2] in COMPILED:
        yield
        return
    for key, value in INTERPRETED.items():
        spark.conf.set(key, value)
    yield
    for key in INTERPRETED:
        spark.conf.unset(key)
