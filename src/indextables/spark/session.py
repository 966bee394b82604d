"""Setting up Spark: configure a session before it starts, or attach to a running one."""

import os
import re
import sys
import warnings
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from indextables.spark import bridge
from indextables.spark.bridge import BridgeError

_JARS = "spark.jars"
_EXTENSIONS = "spark.sql.extensions"
_ATTACH = "org.apache.spark.sql.indextables.Attach"
_SOCKETS = "spark.python.unix.domain.socket.enabled"
# Spark's own pattern of names of secrets, extended: Spark shows the values of all other settings.
SECRETS = (
    "secret|password|token(?!izer)|access[.]?key|account[.]?key|encryption[.]?key|private[.]?key|connection[.]?string|"
    "fs[.]azure[.]sas|[.]credential$|iceberg[.]uri$"
)
_REDACTION = "spark.redaction.regex"
_SQL_REDACTION = "spark.sql.redaction.options.regex"
_DAEMON = "spark.python.daemon.module"
# The interpreter of the driver, for the bridge (PythonInterpreter.scala).
_PYTHON = "spark.indextablesBridge.python"
_PYTHON_VERSION = "spark.indextablesBridge.pythonVersion"


def configure(builder: SparkSession.Builder) -> SparkSession.Builder:
    """Add the jar and the SQL extension to a session builder, in addition to existing settings.

    Args:
        builder: `SparkSession.builder`, before `getOrCreate()`.

    Returns:
        The same builder.

    Raises:
        BridgeError: A session without the bridge is running, which `getOrCreate()` would return; or there is
            no bridge for this version of Spark.

    >>> from pyspark.sql import SparkSession  # doctest: +SKIP
    >>> spark = configure(SparkSession.builder).getOrCreate()  # doctest: +SKIP
    """
    _ignore_warning_of_pyspark()
    jar = str(bridge.jar())
    _prepare_running_jvm(jar)
    settings = _settings(builder)
    builder.config(_JARS, _add_to_list(settings.get(_JARS), jar))
    if not _has_extensions(str(settings.get(_EXTENSIONS) or "")):
        builder.config(_EXTENSIONS, _add_to_list(settings.get(_EXTENSIONS), bridge.EXTENSIONS))
    if _REDACTION not in settings:
        builder.config(_REDACTION, f"(?i){SECRETS}")
    if _SOCKETS not in settings:
        builder.config(_SOCKETS, "true")
    master = settings.get("spark.master") or settings.get("spark.remote") or ""
    if _DAEMON not in settings and master.startswith("local"):
        # On executors of a cluster, workers of users' functions do not need indextables.
        builder.config(_DAEMON, "indextables.spark.daemon")
    builder.config(_PYTHON, sys.executable).config(_PYTHON_VERSION, _version())
    if "spark.pyspark.python" not in settings:
        # Executors on this machine must find the packages that this interpreter has.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    _ignore_warnings_of_connect(settings)
    return builder


def attach(spark: SparkSession) -> SparkSession:
    """Add the jar and the SQL extension to a running session, as in a notebook.

    Returns:
        The same session.

    Raises:
        BridgeError: It is a session of Spark Connect; there is no bridge for its version of Spark; or Spark's
            Python workers cannot import indextables.
    """
    if not hasattr(spark, "_jvm"):
        raise BridgeError(
            "this is a session of Spark Connect, whose server cannot be reached from here; start the server "
            "with the bridge (configure its builder, or set spark.jars and spark.sql.extensions there)"
        )
    jar = str(bridge.jar(spark.version))
    if spark.conf.get(_SQL_REDACTION, "(?i)url") == "(?i)url":
        spark.conf.set(_SQL_REDACTION, f"(?i)url|{SECRETS}")
    _ignore_warning_of_pyspark()
    session: Any = spark._jsparkSession  # noqa: SLF001 - there is no public way into the JVM
    loader = _class_loader(spark._jvm)  # noqa: SLF001
    if _add_jar(spark._jvm, loader, jar):  # noqa: SLF001
        session.sparkContext().addJar(jar)
    attaching = _attaching(loader)
    problem = attaching.attach(session, sys.executable, _version())
    if problem:
        raise BridgeError(
            f"Spark's Python workers cannot run indextables: {problem}\nSet the environment variable "
            f"PYSPARK_PYTHON to a Python that has it, such as {sys.executable}, before the session starts"
        )
    return spark


def _version() -> str:
    return ".".join(str(part) for part in sys.version_info[:2])


def _ignore_warning_of_pyspark() -> None:
    """Ignore what PySpark prints in each session about its own dependencies."""
    warnings.filterwarnings(
        "ignore",
        "PySpark does not yet fully support pandas",
        FutureWarning,
        r"pyspark\.(testing|sql\.connect)",
    )


def _ignore_warnings_of_connect(settings: dict[str, Any]) -> None:
    """Ignore that a session of Spark Connect cannot change settings with which PySpark starts its server."""
    if str(settings.get("spark.remote") or os.environ.get("SPARK_REMOTE", "")).startswith("local"):
        for key in {_JARS, _EXTENSIONS, _REDACTION, _SOCKETS, _DAEMON} & settings.keys():
            message = f"Failed to set {key} to Some({settings[key]})"
            warnings.filterwarnings("ignore", re.escape(message), UserWarning, r"pyspark\.sql\.connect")


def _prepare_running_jvm(jar: str) -> None:
    """Load the jar into the JVM of an earlier session; refuse if Spark runs without the bridge."""
    gateway: Any = getattr(SparkContext, "_gateway", None)
    if gateway is None:
        return
    loader = _class_loader(gateway.jvm)
    context: Any = getattr(SparkContext, "_active_spark_context", None)
    if context is None:
        # A JVM reads spark.jars only when it starts; this one outlived the session that started it.
        _add_jar(gateway.jvm, loader, jar)
    elif not _has_bridge(context, loader):
        raise BridgeError(
            "Spark is running without the bridge, and getOrCreate() would return the session that it has, or "
            "build one without it; use indextables.attach(spark) with that session, or call spark.stop() "
            "before configure"
        )


def _has_bridge(context: Any, loader: Any) -> bool:  # noqa: ANN401
    """Whether the session that `getOrCreate()` returns has the bridge, in any thread."""
    try:
        attaching = _attaching(loader)
    except Py4JJavaError:
        return False  # the JVM has no such class
    session: Any = getattr(SparkSession, "_instantiatedSession", None)
    if session is None or session.sparkContext is not context:
        return _has_extensions(context.getConf().get(_EXTENSIONS, ""))
    return bool(attaching.isAttached(session._jsparkSession))  # noqa: SLF001


def _attaching(loader: Any) -> Any:  # noqa: ANN401
    """The object of the JVM that attaches sessions; raises Py4JJavaError if its jar is not loaded."""
    return loader.loadClass(_ATTACH + "$").getField("MODULE$").get(None)


def _has_extensions(setting: str) -> bool:
    """Whether a list of extensions has that of the bridge, also by a name of IndexTables for Scala."""
    names = {name.strip() for name in setting.split(",")}
    return not names.isdisjoint((bridge.EXTENSIONS, *bridge.EXTENSIONS_OF_SCALA))


def _class_loader(jvm: Any) -> Any:  # noqa: ANN401 - objects of the JVM have no types here
    return jvm.java.lang.Thread.currentThread().getContextClassLoader()


def _add_jar(jvm: Any, loader: Any, jar: str) -> bool:  # noqa: ANN401
    """Add a jar to the class path of a running JVM; False if it is there already."""
    url = jvm.java.io.File(jar).toURI().toURL()
    if any(url.equals(other) for other in loader.getURLs()):
        return False
    loader.addURL(url)
    return True


def _settings(builder: SparkSession.Builder) -> dict[str, Any]:
    """The settings of the builder."""
    options: dict[str, Any] = getattr(builder, "_options", {})
    return options


def _add_to_list(before: str | None, addition: str) -> str:
    """A comma-separated list to which a value is added once."""
    entries = [part.strip() for part in (before or "").split(",") if part.strip()]
    return ",".join([*entries, *([] if addition in entries else [addition])])
