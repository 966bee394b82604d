"""A cluster: workers are processes of their own, they die, and tasks that lag are tried twice at once."""

import pytest

from tests.spark.story import told


@pytest.fixture(scope="module")
def heard(tmp_path_factory):
    return told("session_of_a_cluster", tmp_path_factory.mktemp("cluster"))


def test_a_worker_that_dies_in_a_write_costs_no_row(heard):
    assert heard["written"] == [1, 20_000, 20_000], "one version for all rows, each once"


def test_a_worker_that_dies_in_a_read_costs_no_row(heard):
    assert heard["killed_reading"]
    assert heard["read"] == [20_000, 20_000]
    assert heard["search"] == [777]


def test_of_two_attempts_that_end_together_one_is_written(heard):
    assert heard["tried_again"]
    assert heard["written_twice"] == [1, 8000, 8000]


def test_a_merge_on_write_runs_on_the_cluster(heard):
    assert heard["merged"] == [4000, 1, "MERGE SPLITS"]
