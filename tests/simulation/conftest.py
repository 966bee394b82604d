"""`--seed N` runs one seed of the simulator and shows its history."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=None, help="one seed of the simulator, with its history")
