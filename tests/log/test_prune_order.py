"""A file with one of the first rows is never skipped, whoever wrote its statistics."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from indextables.log.pruning import First, may_hold_first
from tests.log.prunable import PARTITIONS, SCHEMA, File, table_of
from tests.log.test_prune_property import CUTS, POOLS, seeds


def listed(files: Any, options: Any = None, counts: list[Any] | None = None) -> Any:
    table = table_of([file.entry(options) for file in files])
    return table.append_column(
        "numRecords", pa.array(counts or [len(file.rows) for file in files], pa.int64())
    )


def rank(value: Any, first: First) -> Any:
    """Where Spark puts a value: nulls on their side, NaN above all numbers, zeros equal."""
    if value is None:
        return (0 if first.nulls_first else 2, 0, 0)
    if isinstance(value, float):
        key = (1, 0.0) if math.isnan(value) else (0, value + 0.0)
        return (1, *(key if first.ascending else (-key[0], -key[1])))
    if isinstance(value, str):
        place = tuple(value.encode())
        return (1, 0, place if first.ascending else (*(-b for b in place), 1))
    return (1, 0, value if first.ascending else -value)


@given(seeds)
def test_a_file_with_one_of_the_first_rows_is_kept(rnd: Any) -> None:
    name = rnd.choice(list(POOLS))
    pool = rnd.sample(POOLS[name], min(len(POOLS[name]), rnd.randrange(1, 8)))
    nulls = rnd.choice([0, 0, 0.3])
    files = []
    for _ in range(rnd.randrange(1, 9)):
        rows: list[dict[str, Any]] = [{} for _ in range(rnd.randrange(1, 5))]
        partition = {"p": rnd.choice([None, 0, 9]), "q": "a"}
        if name in PARTITIONS:
            partition[name] = None if rnd.random() < nulls else rnd.choice(pool)
        else:
            # Neighbours in the pool, so that files lie beside each other as often as across.
            start, width = rnd.randrange(len(pool)), rnd.randrange(1, 3)
            near = sorted(range(len(pool)), key=lambda i: abs(i - start))[:width]
            rows = [{name: None if rnd.random() < nulls else pool[rnd.choice(near)]} for _ in rows]
        files.append(File(rows, partition, rnd.choice(["ours", "ours", "ours", "scala", "rust"])))
    first = First(name, rnd.randrange(1, 6), rnd.random() < 0.5, rnd.random() < 0.5)
    wanted = np.array([rnd.random() < 0.8 for _ in files])
    keep = may_hold_first(listed(files, rnd.choice(CUTS)), first, wanted, SCHEMA, PARTITIONS)
    # The rows that are certainly wanted compete with one row of any other file.
    ranks = [[rank(row.get(name), first) for row in file.full_rows()] for file in files]
    sure = sorted(place for number, places in enumerate(ranks) if wanted[number] for place in places)
    if len(sure) < first.count:
        assert keep.all()
        return
    last = sure[first.count - 1]
    for number, places in enumerate(ranks):
        assert keep[number] or all(place > last for place in places)


def numbered(*ranges: range) -> list[Any]:
    return [File([{"i": n} for n in each], {"p": 0, "q": "a"}) for each in ranges]


def top_n_mask(
    files: Any, first: First, certain: list[Any] | None = None, counts: list[Any] | None = None
) -> Any:
    sure = np.ones(len(files), dtype=bool) if certain is None else np.array(certain)
    return may_hold_first(listed(files, counts=counts), first, sure, SCHEMA, PARTITIONS).tolist()


def test_the_newest_rows_are_in_the_last_files() -> None:
    files = numbered(range(10), range(10, 20), range(20, 30))
    assert top_n_mask(files, First("i", 10, ascending=False, nulls_first=False)) == [False, False, True]
    assert top_n_mask(files, First("i", 11, ascending=False, nulls_first=False)) == [False, True, True]
    assert top_n_mask(files, First("i", 3, ascending=True, nulls_first=True)) == [True, False, False]
    assert top_n_mask(files, First("i", 31, ascending=True, nulls_first=True)) == [True, True, True]


def test_files_that_overlap_the_last_of_the_first_rows_are_kept() -> None:
    files = numbered(range(10), range(5, 15), range(9, 20))
    assert top_n_mask(files, First("i", 5, ascending=True, nulls_first=True)) == [True, True, True]
    files = numbered(range(10), range(5, 15), range(10, 20))
    assert top_n_mask(files, First("i", 5, ascending=True, nulls_first=True)) == [True, True, False]


def test_files_of_which_only_some_rows_are_wanted_do_not_count() -> None:
    files = numbered(range(10), range(10, 20), range(20, 30))
    first = First("i", 5, ascending=False, nulls_first=False)
    assert top_n_mask(files, first, certain=[True, True, False]) == [False, True, True]
    assert top_n_mask(files, first, certain=[False, False, False]) == [True, True, True]


def test_files_with_nulls_are_kept_where_nulls_come_first() -> None:
    files = [*numbered(range(10), range(10, 20)), File([{"i": None}, {"i": -5}], {"p": 0, "q": "a"})]
    assert top_n_mask(files, First("i", 5, ascending=False, nulls_first=True)) == [False, True, True]
    assert top_n_mask(files, First("i", 5, ascending=False, nulls_first=False)) == [False, True, False]


@pytest.mark.parametrize("name", ["j", "nothing"])
def test_a_column_without_statistics_keeps_all(name: str) -> None:
    schema = SCHEMA.append(pa.field("j", pa.struct([("a", pa.int64())])))
    files = listed(numbered(range(10), range(10, 20)))
    first = First(name, 1, ascending=True, nulls_first=True)
    assert may_hold_first(files, first, np.ones(2, dtype=bool), schema, PARTITIONS).all()


def test_a_file_whose_number_of_rows_is_unknown_does_not_count() -> None:
    files = numbered(range(10), range(10, 20))
    first = First("i", 5, ascending=False, nulls_first=False)
    assert top_n_mask(files, first, counts=[10, None]) == [True, True]


def test_no_files_are_no_error() -> None:
    first = First("i", 5, ascending=False, nulls_first=False)
    assert not may_hold_first(listed([]), first, np.zeros(0, dtype=bool), SCHEMA, PARTITIONS).size
