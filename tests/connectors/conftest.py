"""Sessions with a lake connector and indextables: either extension first, or indextables attached later."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import indextables
from tests.java_options import QUICK_START
from tests.servers.maven import PACKAGES, ivy_folder

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Connector:
    """A lake connector: its format, the name of a table of its, and the settings of a session."""

    format: str
    table: str
    extensions: str
    settings: dict[str, str]


def _connectors(home: Path) -> dict[str, Connector]:
    iceberg = "org.apache.iceberg.spark"
    return {
        "delta": Connector(
            "delta",
            "owners",
            "io.delta.sql.DeltaSparkSessionExtension",
            {
                "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
                "spark.databricks.delta.snapshotPartitions": "2",
            },
        ),
        "iceberg": Connector(
            "iceberg",
            "lake.db.owners",
            f"{iceberg}.extensions.IcebergSparkSessionExtensions",
            {
                "spark.sql.catalog.spark_catalog": f"{iceberg}.SparkSessionCatalog",
                "spark.sql.catalog.spark_catalog.type": "hadoop",
                "spark.sql.catalog.spark_catalog.warehouse": str(home / "session-lake"),
                "spark.sql.catalog.lake": f"{iceberg}.SparkCatalog",
                "spark.sql.catalog.lake.type": "hadoop",
                "spark.sql.catalog.lake.warehouse": str(home / "lake"),
                # Which metadata file is the newest, only this catalog knows.
                "spark.sql.catalog.jdbc": f"{iceberg}.SparkCatalog",
                "spark.sql.catalog.jdbc.type": "jdbc",
                "spark.sql.catalog.jdbc.uri": "jdbc:derby:memory:lake;create=true",
                "spark.sql.catalog.jdbc.warehouse": str(home / "jdbc-lake"),
            },
        ),
    }


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--connector", choices=["delta", "iceberg"], help="the connector that fits this Spark")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.connectors)


@pytest.fixture(scope="module", params=["connector first", "indextables first", "attached"])
def session(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[SparkSession, Connector]]:
    """A session with both, and its connector. One JVM serves all, so Spark fetches the connector once."""
    name = request.config.getoption("--connector")
    assert name is not None, "give --connector delta or --connector iceberg"
    home = tmp_path_factory.mktemp("connectors")
    connector = _connectors(home)[name]
    builder = SparkSession.Builder().master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
    builder = builder.config("spark.sql.shuffle.partitions", "2")
    builder = builder.config("spark.sql.warehouse.dir", str(home / "warehouse"))
    builder = builder.config("spark.driver.extraJavaOptions", f"{QUICK_START} -Xss16m")
    builder = builder.config("spark.jars.packages", ",".join(PACKAGES[name]))
    builder = builder.config("spark.jars.ivy", str(ivy_folder(name)))
    for key, value in connector.settings.items():
        builder = builder.config(key, value)
    builder = builder.config("spark.sql.extensions", connector.extensions)
    if request.param == "attached":
        spark = indextables.attach(builder.getOrCreate())
    else:
        builder = indextables.configure(builder)
        if request.param == "indextables first":
            theirs, ours = builder._options["spark.sql.extensions"].split(",")
            builder = builder.config("spark.sql.extensions", f"{ours},{theirs}")
        spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    if name == "iceberg":
        spark.sql("CREATE NAMESPACE lake.db")
    spark.sql(f"CREATE TABLE {connector.table} (service STRING, owner STRING) USING {connector.format}")
    spark.sql(f"INSERT INTO {connector.table} VALUES ('web', 'ann'), ('db', 'bob')")
    spark.sql(
        "CREATE TABLE logs (id BIGINT, service STRING, message STRING) USING indextables "
        "OPTIONS ('indexing.typemap.message' 'text')"
    )
    spark.sql(
        "INSERT INTO logs VALUES (1, 'web', 'connection refused'), (2, 'db', 'disk full'), "
        "(3, 'web', 'connection closed')"
    )
    yield spark, connector
    spark.stop()


@pytest.fixture
def spark(session: tuple[SparkSession, Connector]) -> SparkSession:
    return session[0]


@pytest.fixture
def connector(session: tuple[SparkSession, Connector]) -> Connector:
    return session[1]


@pytest.fixture
def rows(spark: SparkSession) -> Callable[..., list[tuple[Any, ...]]]:
    """Runs a statement and returns its rows as tuples."""
    return lambda statement: [tuple(row) for row in spark.sql(statement).collect()]
