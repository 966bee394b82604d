"""A cluster: executors are processes of their own, and they die."""

from story import told


def test_an_executor_that_dies_in_a_write_or_a_read_costs_no_row(tmp_path):
    heard = told("session_of_a_cluster.py", tmp_path)
    assert heard["killed_writing"]
    assert heard["killed_reading"]
    assert heard["written"] == [20_000, 20_000]
    assert heard["versions"] == 1, "the table, and one version for all rows"
    assert heard["read"] == [20_000, 20_000]
    assert heard["search"] == [777]
    assert heard["merged"] == [4000, 1, "MERGE SPLITS"]
