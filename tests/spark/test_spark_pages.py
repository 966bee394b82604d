"""What the pages show of Spark is true: their examples run in a session and print what stands below them."""

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import indextables
from indextables import functions
from tests import ROOT
from tests.page_examples import Example, examples, printed_by, table_below

SQL_PAGE = "docs/sql.md"


def outcome(spark: SparkSession, example: Example) -> str:
    """What a statement prints: its rows, or the sentence with which it fails."""
    try:
        return printed_by(lambda: spark.sql(example.code).show(truncate=False))
    except PySparkException as error:
        if example.printed is None:
            raise
        return str(error)


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder in which a page works; tables that it makes are dropped in the end."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = {table.name for table in spark.catalog.listTables()}
    yield tmp_path
    for table in spark.catalog.listTables():
        if table.name not in before:
            spark.sql(f"DROP {'VIEW' if table.tableType in ('VIEW', 'TEMPORARY') else 'TABLE'} {table.name}")


@pytest.mark.parametrize(
    "page", ["README.md", "docs/guide/spark.md", "docs/guide/streaming.md", "docs/spark.md", SQL_PAGE]
)
def test_examples_run_and_print_what_the_page_shows(spark: SparkSession, page: str, folder: Path) -> None:
    found = examples(page, "py", "sql")
    assert found
    names: dict[str, object] = {"spark": spark}
    if page == "README.md":
        # Spark reads relative paths where its process started, not where the test went.
        indextables.write("logs", [{"message": "a timeout"}], options={"indexing.typemap.message": "text"})
        (example,) = found
        code = example.code.replace('load("logs")', f'load("{folder}/logs")')
        found = [Example(example.place, example.language, code, "...|a timeout|...")]
    for example in found:
        if example.language == "sql":
            example.check(outcome(spark, example))
        else:
            example.run(names)


@pytest.fixture
def logs(spark: SparkSession, folder: Path) -> Path:
    """The table of the page on SQL."""
    table, *_ = examples(SQL_PAGE, "sql")
    spark.sql(table.code)
    return folder


def test_what_the_page_says_is_refused_is_refused_in_these_words(spark: SparkSession, logs: Path) -> None:
    rows = table_below(SQL_PAGE, "### What is refused")
    assert len(rows) > 5
    for condition, sentence in rows:
        with pytest.raises(PySparkException) as failure:
            spark.sql(f"SELECT id FROM logs WHERE {condition.strip('`')}").collect()
        assert str(failure.value).startswith(sentence), condition


def test_columns_are_searched_as_the_page_says(spark: SparkSession, folder: Path) -> None:
    spark.sql(
        """SELECT 'ERROR' AS level, 'shopping cart' AS service, 'a Timeout' AS message, 'Cart saved' AS title, '10.0.1.7' AS client,
        '{"user": {"name": "ann"}}' AS doc, 500 AS status, TIMESTAMP '2024-05-01 10:00:00' AS at, named_struct('ms', 1001) AS request,
        array('cart', 'pay') AS tags, X'00' AS raw"""
    ).write.format("indextables").options(
        **{
            "indexing.typemap.message": "text",
            "indexing.typemap.title": "string,text",
            "indexing.typemap.client": "ip",
            "indexing.typemap.doc": "json",
        }
    ).save(f"{folder}/columns")
    frame = spark.read.format("indextables").load(f"{folder}/columns")
    conditions = [
        condition
        for *_, cell in table_below(SQL_PAGE, "### Columns")
        for condition in re.findall(r"`([^`]+)`", cell)
    ]
    assert len(conditions) > 10
    for condition in conditions:
        assert frame.where(condition).count() == 1, condition
        assert frame.where(f"NOT ({condition})").count() == 0, condition
    with pytest.raises(PySparkException, match="'raw' is not indexed"):
        frame.where("raw INDEXQUERY 'x'").count()


def test_the_page_names_every_function() -> None:
    text = (ROOT / SQL_PAGE).read_text()
    for name in functions.__all__:
        assert f"`{name}(" in text, name
