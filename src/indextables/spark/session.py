"""Setting up Spark: configure a session before it starts, or attach to a running one."""

import os
import sys
from typing import Any

from pyspark.sql import SparkSession

from indextables.spark import bridge
from indextables.spark.bridge import BridgeError

_JARS = "spark.jars"
_EXTENSIONS = "spark.sql.extensions"
_ATTACH = "org.apache.spark.sql.indextables.Attach"
_SOCKETS = "spark.python.unix.domain.socket.enabled"


def configure(builder: SparkSession.Builder) -> SparkSession.Builder:
    """Add the jar and the SQL extension to a session builder; existing settings are kept.

    >>> from pyspark.sql import SparkSession  # doctest: +SKIP
    >>> spark = configure(SparkSession.builder).getOrCreate()  # doctest: +SKIP
    """
    given = _settings(builder)
    builder.config(_JARS, _joined(given.get(_JARS), str(bridge.jar())))
    builder.config(_EXTENSIONS, _joined(given.get(_EXTENSIONS), bridge.EXTENSIONS))
    if _SOCKETS not in given:
        builder.config(_SOCKETS, "true")
    if "spark.pyspark.python" not in given:
        # Executors on this machine must find the packages that this interpreter has.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return builder


def attach(spark: SparkSession) -> SparkSession:
    """Add the jar and the SQL extension to a running session, as in a notebook; returns the session.

    Names of the form indextables.`/path` in SQL then work in sessions that come from it (`newSession()`), and
    in the session itself if no query ran before.
    """
    if not hasattr(spark, "_jvm"):
        raise BridgeError(
            "this is a session of Spark Connect, whose server cannot be reached from here; start the server "
            "with the bridge (configure its builder, or set spark.jars and spark.sql.extensions there)"
        )
    found = bridge.jar(spark.version)
    jvm: Any = spark._jvm  # noqa: SLF001 - there is no public way into the JVM
    session: Any = spark._jsparkSession  # noqa: SLF001
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    url = jvm.java.io.File(str(found)).toURI().toURL()
    if not any(url.equals(known) for known in loader.getURLs()):
        loader.addURL(url)
        session.sparkContext().addJar(str(found))
    attaching = loader.loadClass(_ATTACH + "$").getField("MODULE$").get(None)
    attaching.attach(session)
    return spark


def _settings(builder: SparkSession.Builder) -> dict[str, Any]:
    """The settings of the builder."""
    options: dict[str, Any] = getattr(builder, "_options", {})
    return options


def _joined(before: str | None, addition: str) -> str:
    """A comma-separated list to which a value is added once."""
    listed = [part.strip() for part in (before or "").split(",") if part.strip()]
    return ",".join([*listed, *([] if addition in listed else [addition])])
