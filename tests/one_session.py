"""One Spark session for all tests that need a JVM."""

import shutil
import tempfile
import warnings
from collections.abc import Iterator

import pytest

import indextables
from tests.java_options import QUICK_START


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> Iterator[object]:
    """A local session with the bridge, its catalog and warehouse in a folder of its own."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - slow to load, and most tests do without

    home = tempfile.mkdtemp(prefix="indextables-spark-")
    # The second compiler of the JVM costs more than it saves, except in hours of queries.
    options = "" if request.config.getoption("markexpr") == "soak" else QUICK_START
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("indextables-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", f"{home}/warehouse")
        .config("spark.driver.extraJavaOptions", f"-Dderby.system.home={home} {options} -Xss16m")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.indextables.cache.disk.path", f"{home}/cache")
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PySpark speaks of its own dependencies
        session = indextables.configure(builder).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
    shutil.rmtree(home, ignore_errors=True)
