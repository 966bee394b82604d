"""A cluster: workers are processes of their own, they die, and tasks that lag are tried twice at once."""

from typing import Any

import pytest

from tests.spark.script_runner import run_script


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run_script("cluster_session", tmp_path_factory.mktemp("cluster"))


def test_a_worker_that_dies_in_a_write_costs_no_row(results: dict[str, Any]) -> None:
    assert results["written"] == [1, 20_000, 20_000], "one version for all rows, each once"


def test_a_worker_that_dies_in_a_read_costs_no_row(results: dict[str, Any]) -> None:
    assert results["killed_reading"]
    assert results["read"] == [20_000, 20_000]
    assert results["search"] == [777]


def test_of_two_attempts_that_end_together_one_is_written(results: dict[str, Any]) -> None:
    assert results["tried_again"]
    assert results["written_twice"] == [1, 8000, 8000]


def test_a_merge_on_write_runs_on_the_cluster(results: dict[str, Any]) -> None:
    assert results["merged"] == [4000, 1, "MERGE SPLITS"]


def test_a_conversion_runs_on_the_cluster(results: dict[str, Any]) -> None:
    assert results["converted"] == ["success", 3, 0]
