"""Spark itself, asked the same conditions about the same rows."""

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from indextables.predicate import evaluate, parse_condition, to_sql
from tests.predicate.condition_rows import POOLS, PREDICATES, SCHEMA, TYPES, table

pytestmark = pytest.mark.spark

WRITTEN_BY_HAND = r"""
whole <> 1
5 < whole
whole !> 5
whole <=> NULL
NOT NOT flag
flag = 'yes'
flag IS NOT FALSE
flag IS UNKNOWN
(whole = 1) IS UNKNOWN
NOT whole = 1 AND flag
whole = 1 = true
(whole = 1) <=> false
whole IS NOT DISTINCT FROM 1
whole BETWEEN -1 AND 2.5
real NOT BETWEEN 0 AND double('NaN')
isnan(single)
whole IN (1, 2.5, NULL)
big IN (9007199254740993, 2D)
1 IN (whole, tiny)
tiny = 300
tiny < 300
tiny <=> 300
whole < 1.5
whole >= -1.5
whole = '1'
big = ' 5 '
big = 9007199254740992D
big > 9007199254740992D
big < 9223372036854775807D
big = 9223372036854775808
big >= 9223372036854775808
9223372036854775807.5 > tiny
NOT big > -9223372036854775809
big BETWEEN 0 AND 9223372036854775808
big BETWEEN -9223372036854775809 AND 9223372036854775808
big = 9223372036854775807.5
single = 1.1
single < 1.1
single > 0.1
single = 16777217
single = 1.1F
single > 1e300
real = 0.1
real = '0.1'
real = 1.1F
real <= double('-Infinity')
price = 1.1
price = 1.105
price > 1.105
price = '1.10'
price = 1.1D
price < 1e30
price > CAST('1.105' AS DECIMAL(10,2))
huge = 0.1D
huge = 9007199254740993
huge > 9007199254740992D
day = '2024-01-01'
day = '2024'
day >= '2024-1-1 12:00'
day < TIMESTAMP '1970-01-01 12:00:00'
day = TIMESTAMP_NTZ '1970-01-02 00:00:00'
day < DATE '-0044-03-15'
moment = '2024-01-01'
moment > DATE '1970-01-01'
moment < '2024-01-01 02:00:00.000001+02:00'
moment <= '2024-01-01 00:00:00.000001999'
moment > TIMESTAMP_NTZ '2024-01-01 00:00:00'
moment > '2024-01-01 01:00:00 Europe/Berlin'
wall = TIMESTAMP '2024-01-01 00:00:00'
wall >= '2024-01-01T00:00:00Z'
wall < DATE '2024-01-01'
bytes = 'a'
bytes < X'ff'
bytes >= x'a'
word = 'a\nb'
word = '\u0041'
word = '\101' 'b'
word = r'a\b'
word = "a" 'b'
word = 'a%b'
word LIKE 'a\%b'
word LIKE 'a!%b' ESCAPE '!'
word LIKE r'a\\b'
word LIKE 'a_b'
word LIKE '_'
word LIKE '%'
word ILIKE 'i̇%'
word ILIKE 'ας'
word ILIKE '%Σ'
word ILIKE 'SS'
word LIKE ANY ('a', 'A%')
word LIKE ALL ('a%', '%b')
word NOT LIKE '%b'
word > '😀'
word < '￿'
contains(word, '')
startswith(word, 'a') = false
endswith(nested.inner.word, 'b')
NESTED.whole > 1
nested.inner.word <=> NULL
nested IS NULL
nested.inner IS NOT NULL
1 = 1.0
'a' < 'B'
'5' > 40
NULL IS NULL
CAST(-5.9D AS INT) = -5
-(-5) = 5
2 <=> NULL
""".strip().splitlines()


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    """The shared session, with settings of its own."""
    made = spark.newSession()
    made.conf.set("spark.sql.codegen.wholeStage", "false")
    made.conf.set("spark.sql.parquet.datetimeRebaseModeInRead", "CORRECTED")
    return made


def _rows(count: int) -> list[Any]:
    """Rows whose values come from the pools, a few of them null."""
    luck = random.Random(7)

    def pick(type_: Any) -> Any:
        return None if luck.random() < 0.15 else luck.choice(POOLS[type_])

    return [
        {name: pick(type_) for name, type_ in TYPES.items()}
        | {
            "nested": None
            if luck.random() < 0.2
            else {
                "whole": pick(pa.int32()),
                "inner": None if luck.random() < 0.2 else {"word": pick(pa.string())},
            }
        }
        for _ in range(count)
    ]


@pytest.fixture(scope="module")
def compare_with_spark(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """A function that asks Spark and us the same conditions, and compares the answers row by row."""
    rows = table(_rows(120))
    path = tmp_path_factory.mktemp("spark") / "rows.parquet"
    pq.write_table(rows, path)
    session.read.parquet(str(path)).createOrReplaceTempView("rows")

    def ask(conditions: Any) -> None:
        columns = ", ".join(f"({text}) AS c{index}" for index, text in enumerate(conditions))
        answers = session.sql(f"SELECT {columns} FROM rows").collect()
        assert len(answers) == rows.num_rows
        for index, text in enumerate(conditions):
            ours = evaluate(parse_condition(text, SCHEMA), rows).to_pylist()
            theirs = [answer[index] for answer in answers]
            wrong = [row for row in range(rows.num_rows) if ours[row] is not theirs[row]]
            assert not wrong, (text, rows.slice(wrong[0], 1).to_pylist(), ours[wrong[0]], theirs[wrong[0]])

    return ask


def test_conditions_written_by_hand_get_sparks_answers(compare_with_spark: Callable[..., Any]) -> None:
    for start in range(0, len(WRITTEN_BY_HAND), 30):
        compare_with_spark(WRITTEN_BY_HAND[start : start + 30])


@settings(
    max_examples=25, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
@given(st.lists(PREDICATES, min_size=20, max_size=20))
def test_generated_conditions_get_sparks_answers(
    compare_with_spark: Callable[..., Any], predicates: Any
) -> None:
    compare_with_spark([to_sql(predicate) for predicate in predicates])
