"""Generated queries about generated tables: every answer is the one Spark gives over plain Parquet."""

import itertools
import os
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.spark.answer_comparison import differences
from tests.spark.generated_queries import FREE, GeneratedQuery, QueryGenerator
from tests.spark.generated_rows import Pair, make_pair
from tests.spark.script_runner import run_script
from tests.spark.user_functions import register

# New queries in every run; failures print the seed that repeats them.
SEED = int(os.environ.get("INDEXTABLES_QUERY_SEED") or random.SystemRandom().randrange(1 << 31))
# The number of queries of the long run, or its duration.
SOAK_QUERIES = int(os.environ.get("INDEXTABLES_SOAK_QUERIES") or 0)
SOAK_SECONDS = float(os.environ.get("INDEXTABLES_SOAK_SECONDS") or 1800)
SOAK_PER_TABLE = int(os.environ.get("INDEXTABLES_SOAK_PER_TABLE") or 100)

pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")

ZONES = ("UTC", "America/New_York", "Asia/Kolkata", "Europe/Berlin")
# The planner answers small tables itself; without that, tasks do.
WHERE: tuple[dict[str, str], ...] = ({}, {"spark.indextables.read.inline.maxRows": "0"})
SETTINGS = [
    {
        "spark.sql.ansi.enabled": ansi,
        "spark.sql.session.timeZone": zone,
        "spark.sql.caseSensitive": cased,
        # Least and greatest values in Parquet know no NaN, so Spark skips rows there that it should find.
        "spark.sql.parquet.filterPushdown": "false",
        **place,
    }
    for (ansi, cased), zone, place in itertools.product(
        (("true", "false"), ("false", "false"), ("true", "true")), ZONES, WHERE
    )
]


# Spark compiles code for each query; on tables this small that takes a part of the time.
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


@contextmanager
def session_with(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    before = {key: spark.conf.get(key, None) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in before.items():
            spark.conf.unset(key) if value is None else spark.conf.set(key, value)


def compare(
    spark: SparkSession, pair: Pair, queries: Iterator[GeneratedQuery], settings: Mapping[str, str]
) -> list[str]:
    """What differs, each with the query that shows it."""
    with session_with(spark, settings):
        return differences(spark, pair, queries, f"{SEED}, {settings}")


def generated(seed: int, count: int, settings: Mapping[str, str]) -> Iterator[GeneratedQuery]:
    generator = QueryGenerator(
        seed,
        case_sensitive=settings["spark.sql.caseSensitive"] == "true",
        ansi=settings["spark.sql.ansi.enabled"] == "true",
    )
    return (generator.query() for _ in range(count))


@pytest.fixture(scope="module", autouse=True)
def functions(spark: SparkSession) -> None:
    """Functions of users that queries call."""
    register(spark)


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> list[Pair]:
    """Partitioned or not, written by Spark and by Python, of several splits."""
    folder = tmp_path_factory.mktemp("differential")
    return [
        make_pair(spark, folder, 0, count=240, through_spark=True),
        make_pair(spark, folder, 1, count=120, writes=1),
        make_pair(spark, folder, 4, count=120, through_spark=True, writes=1),
    ]


@pytest.mark.parametrize("settings", [SETTINGS[0], SETTINGS[11]], ids=["planner", "tasks"])
def test_conditions_written_by_hand_hold_for_the_same_rows(
    spark: SparkSession, tables: list[Pair], settings: Any
) -> None:
    pair = tables[0]
    queries = [
        GeneratedQuery(f"SELECT id FROM {{t}} WHERE {each}".replace("mixedcase_", "MixedCase"))
        for each in FREE
    ]
    problems = []
    with session_with(spark, settings):
        # Where tasks answer, each run has another third of the conditions.
        if settings.get("spark.indextables.read.inline.maxRows"):
            queries = queries[SEED % 3 :: 3]
        for some in (queries[start : start + 30] for start in range(0, len(queries), 30)):
            expected = at_once(spark, some, pair)
            for query, ids in zip(some, expected, strict=True):
                found = sorted(row.id for row in spark.sql(query.ours(pair.ours)).collect())
                if found != ids:
                    problems.append(f"{query.ours(pair.ours)}\n{found} instead of {ids}")
    assert not problems, "\n\n".join(problems)


def at_once(spark: SparkSession, queries: list[GeneratedQuery], pair: Pair) -> list[list[int]]:
    """The rows for which each of some conditions holds, found by one query."""
    conditions = [query.plain(pair.plain).partition(" WHERE ")[2] for query in queries]
    columns = ", ".join(f"({condition}) AS c{i}" for i, condition in enumerate(conditions))
    rows = spark.sql(f"SELECT id, {columns} FROM {pair.plain} ORDER BY id").collect()
    return [[row.id for row in rows if row[i + 1]] for i in range(len(conditions))]


@pytest.mark.parametrize("number", range(6))
def test_generated_queries_have_the_same_answers(
    spark: SparkSession, tables: list[Pair], number: int
) -> None:
    settings = SETTINGS[(number * 5 + 1) % len(SETTINGS)]
    pair = tables[number % len(tables)]
    problems = compare(spark, pair, generated(SEED + number, 12, settings), settings)
    assert not problems, "\n\n".join(problems)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_hundreds_of_queries_without_the_bridge_have_the_same_answers(tmp_path: Path) -> None:
    results = run_script("queries_without_bridge", tmp_path, SEED, 8, 50, timeout=3500)
    assert results["problems"] == [], "\n\n".join(results["problems"])


# --- columns that change under a DataFrame ------------------------------------------------------------

# Types by name, and an expression that makes a value of the type from `id`.
COLUMN_TYPES = {
    "int": "CAST(id AS int)",
    "bigint": "id",
    "double": "CAST(id AS double)",
    "decimal(10,2)": "CAST(id AS decimal(10,2))",
    "decimal(12,4)": "CAST(id AS decimal(12,4))",
    "string": "concat('text ', id)",
    "binary": "CAST(concat('text ', id) AS binary)",
    "date": "date_from_unix_date(CAST(id AS int))",
    "timestamp": "timestamp_seconds(id)",
    "timestamp_ntz": "CAST(timestamp_seconds(id) AS timestamp_ntz)",
    "boolean": "id % 2 = 0",
    "struct<a int, b string>": "named_struct('a', CAST(id AS int), 'b', 'x')",
    "struct<b string, a int>": "named_struct('b', 'x', 'a', CAST(id AS int))",
    "array<int>": "array(CAST(id AS int))",
    "map<string, int>": "map('k', CAST(id AS int))",
}
USES = (
    "SELECT * FROM {v}",
    "SELECT changing FROM {v} WHERE changing IS NOT NULL",
    "SELECT count(changing) FROM {v}",
    "SELECT id FROM {v} WHERE {c}",
    "SELECT max(id) FROM {v} WHERE {c}",
    "SELECT same_pandas(id), changing FROM {v}",
)


def _condition(name: str) -> str:
    return "size(changing) > 0" if name.startswith(("array", "map")) else f"changing = ({COLUMN_TYPES[name]})"


@pytest.mark.parametrize("number", range(3))
def test_a_view_whose_columns_were_replaced_is_refused_or_unchanged(
    spark: SparkSession, tmp_path: Path, number: int
) -> None:
    rng = random.Random(f"columns {SEED + number}")
    path, view = str(tmp_path / "t"), f"changing_{number}"

    def write(kind: str | None, **options: str) -> None:
        column = "" if kind is None else f", {COLUMN_TYPES[kind]} AS changing"
        data = spark.sql(f"SELECT id{column}, 'x' AS other FROM range(4)").coalesce(1)
        data.write.format("indextables").mode("overwrite").options(**options).save(path)

    before = rng.choice(list(COLUMN_TYPES))
    write(before)
    with session_with(spark, {"spark.indextables.read.inline.maxRows": rng.choice(["0", "4096"])}):
        spark.read.format("indextables").load(path).createOrReplaceTempView(view)
        query = rng.choice(USES).format(v=view, c=_condition(before))
        expected = sorted(map(str, spark.sql(query).collect()))
        for after in [*rng.sample([kind for kind in COLUMN_TYPES if kind != before], 3), None, before]:
            write(after, overwriteSchema="true")
            why = f"INDEXTABLES_QUERY_SEED={SEED}, {before} became {after}: {query}"
            if after == before:
                assert sorted(map(str, spark.sql(query).collect())) == expected, why
                continue
            with pytest.raises(PySparkException, match="were replaced after this DataFrame or view") as error:
                spark.sql(query).collect()
            assert "changing" in str(error.value), why


@pytest.mark.soak
@pytest.mark.timeout(12 * 3600)
def test_thousands_of_queries_about_hundreds_of_tables_have_the_same_answers(
    spark: SparkSession, tmp_path: Path
) -> None:
    problems: list[str] = []
    count = 0
    until = time.monotonic() + SOAK_SECONDS
    while count < SOAK_QUERIES if SOAK_QUERIES else time.monotonic() < until:
        seed = SEED + count // SOAK_PER_TABLE
        settings = {**SETTINGS[seed % len(SETTINGS)], **(INTERPRETED if seed % 8 else {})}
        with session_with(spark, settings):
            pair = make_pair(spark, tmp_path, seed, count=90 + seed % 7 * 60, through_spark=seed % 3 == 0)
        found = compare(spark, pair, generated(seed, SOAK_PER_TABLE, settings), settings)
        count += SOAK_PER_TABLE
        problems += found
        print(f"{count} queries, {len(problems)} differences", *found, sep="\n", flush=True)  # noqa: T201 - progress
    assert not problems, f"{len(problems)} of {count} answers differ\n" + "\n\n".join(problems[:50])
