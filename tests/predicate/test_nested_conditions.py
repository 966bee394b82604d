"""Conditions on elements of arrays and maps: as Spark answers them, and as SQL writes them."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from indextables.predicate import evaluate, parse_condition, to_sql

ITEM = pa.struct([("name", pa.string()), ("counts", pa.list_(pa.int32()))])
SCHEMA = pa.schema(
    [
        ("tags", pa.list_(pa.string())),
        ("nums", pa.list_(pa.int32())),
        ("reals", pa.list_(pa.float64())),
        ("deep", pa.list_(pa.list_(pa.int64()))),
        ("items", pa.list_(ITEM)),
        ("labels", pa.map_(pa.string(), pa.string())),
        ("codes", pa.map_(pa.int32(), pa.float64())),
        ("user", pa.struct([("tags", pa.list_(pa.string()))])),
    ]
)
WORDS = ["ok", "failed", "", "größe", None]
NUMBERS = [0, 1, 2, 7, -3, None]
REALS = [0.0, -0.0, 1.5, float("nan"), float("inf"), None]
CONDITIONS = """
array_contains(tags, 'ok')
NOT array_contains(tags, 'ok')
array_contains(tags, 'ok') IS NULL
array_contains(tags, 'ok') = false
array_contains(nums, 2)
array_contains(nums, 2L)
array_contains(nums, 3000000000)
array_contains(reals, double('NaN'))
array_contains(reals, 0.0D)
array_contains(user.tags, 'failed')
size(tags) = 2
size(tags) IS NULL
size(labels) > 1
cardinality(nums) IN (0, 3)
size(user.tags) BETWEEN 1 AND 2
get(tags, 0) = 'ok' | tags[0] = 'ok'
get(tags, 1) LIKE 'f%' | tags[1] LIKE 'f%'
get(nums, 2) > 1 | nums[2] > 1
get(nums, 0) <=> NULL | nums[0] <=> NULL
get(nums, 0) IN (1, 2, NULL) | nums[0] IN (1, 2, NULL)
get(reals, 0) >= double('NaN') | reals[0] >= double('NaN')
get(get(deep, 0), 1) = 2 | deep[0][1] = 2
size(get(deep, 1)) = 0 | size(deep[1]) = 0
array_contains(get(deep, 0), 7) | array_contains(deep[0], 7)
get(items, 0).name = 'ok' | items[0].name = 'ok'
get(get(items, 0).counts, 1) < 2 | items[0].counts[1] < 2
labels['k'] = 'ok'
labels['k'] IS NOT NULL
NOT labels['z'] = 'ok'
startswith(labels['k'], 'f')
codes[1] > 1
codes[7] IS NULL
""".strip().splitlines()


def rows_of(count: int, seed: int) -> pa.Table:
    luck = random.Random(seed)

    def listed(pick: Any, most: int = 3) -> list[Any]:
        return None if luck.random() < 0.15 else [pick() for _ in range(luck.randint(0, most))]

    def one_of(values: list[Any]) -> Callable[..., Any]:
        return lambda: luck.choice(values)

    def item() -> dict[str, Any]:
        return luck.choice([None, {"name": luck.choice(WORDS), "counts": listed(one_of(NUMBERS))}])

    def mapped(keys: list[Any], values: list[Any]) -> list[Any]:
        chosen = luck.sample(keys, luck.randint(0, len(keys)))
        return None if luck.random() < 0.15 else [(key, luck.choice(values)) for key in chosen]

    rows = [
        {
            "tags": listed(one_of(WORDS)),
            "nums": listed(one_of(NUMBERS)),
            "reals": listed(one_of(REALS)),
            "deep": listed(lambda: listed(one_of(NUMBERS)), 2),
            "items": listed(item, 2),
            "labels": mapped(["k", "z", ""], WORDS),
            "codes": mapped([1, 7, -1], REALS),
            "user": luck.choice([None, {"tags": listed(one_of(WORDS))}]),
        }
        for _ in range(count)
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


@pytest.mark.spark
def test_elements_sizes_and_contents_get_sparks_answers(spark: SparkSession, tmp_path: Path) -> None:
    """`get` is Spark's element that is null beyond the end, as ours is; brackets raise there in ANSI mode."""
    rows = rows_of(150, seed=11)
    pq.write_table(rows, tmp_path / "rows.parquet")
    pairs = [[part.strip() for part in line.split(" | ")] for line in CONDITIONS]
    columns = [f"({pair[0]}) AS c{index}" for index, pair in enumerate(pairs)]
    answers = spark.read.parquet(str(tmp_path / "rows.parquet")).selectExpr(*columns).collect()
    for index, pair in enumerate(pairs):
        ours = evaluate(parse_condition(pair[-1], SCHEMA), rows).to_pylist()
        theirs = [answer[index] for answer in answers]
        assert ours == theirs, pair
        assert len(set(ours)) > 1, f"{pair} tells no rows apart"


@pytest.mark.parametrize("position", [-1, 3, 2**40])
def test_there_is_no_element_before_the_first_or_behind_the_last(position: int) -> None:
    rows = rows_of(60, seed=5)
    found = evaluate(parse_condition(f"nums[{position}] IS NULL", SCHEMA), rows)
    assert found.to_pylist() == [True] * 60


@pytest.mark.parametrize("line", CONDITIONS)
def test_a_condition_on_elements_survives_being_written_as_sql(line: Any) -> None:
    predicate = parse_condition(line.split(" | ")[-1], SCHEMA)
    again = parse_condition(to_sql(predicate), SCHEMA)
    rows = rows_of(60, seed=5)
    assert evaluate(again, rows).equals(evaluate(predicate, rows))
    assert to_sql(again) == to_sql(predicate)


@pytest.mark.parametrize("line", CONDITIONS)
def test_slices_and_chunks_of_rows_get_the_answers_of_the_whole(line: Any) -> None:
    predicate = parse_condition(line.split(" | ")[-1], SCHEMA)
    rows = rows_of(60, seed=6)
    whole = evaluate(predicate, rows)
    assert evaluate(predicate, rows.slice(7, 20)).equals(whole.slice(7, 20))
    pieces = pa.concat_tables([rows.slice(0, 9), rows.slice(9)])
    assert evaluate(predicate, pieces).equals(whole)
