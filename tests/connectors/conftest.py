"""One session with a lake connector and indextables, in either order of their extensions."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--connector", choices=["delta", "iceberg"], help="the connector that fits this Spark")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.connectors)


@pytest.fixture
def connector(request: pytest.FixtureRequest) -> str:
    name = request.config.getoption("--connector")
    assert name is not None, "give --connector delta or --connector iceberg"
    return str(name)


@pytest.fixture
def run_session(tmp_path, connector):
    """Runs the session of a connector in a process of its own: one process has one JVM."""

    def run(order: str) -> None:
        script = [sys.executable, "-W", "ignore", "-m", "tests.connectors.session", connector, order]
        subprocess.run([*script, str(tmp_path)], check=True, cwd=HERE.parent.parent, timeout=900)

    return run
