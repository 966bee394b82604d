package org.apache.spark.sql.indextables

import java.util

import scala.sys.process.Process
import scala.util.control.NonFatal

import org.apache.spark.SparkContext
import org.apache.spark.api.python.{PythonUtils, SimplePythonFunction}

/**
 * The Python that runs the planner on the driver, and tasks on executors.
 *
 * Tasks run in Spark's own choice (`spark.pyspark.python`, `PYSPARK_PYTHON`), the planner in the interpreter that called
 * `configure` or `attach`: it has indextables, and the one of tasks may be on other machines only. A local session has one of
 * them for both, that of tasks if it is set. `PYSPARK_DRIVER_PYTHON` counts only if nothing else is set: it names what starts
 * the program on the driver, for example `jupyter`.
 */
object PythonInterpreter {
  private case class Interpreter(executable: String, version: String)

  // What `configure` sets (spark/session.py).
  private val Executable = "spark.indextablesBridge.python"
  private val Version = "spark.indextablesBridge.pythonVersion"

  @volatile private var attached: Option[Interpreter] = None

  /** The interpreter that called `attach`. */
  def use(executable: String, version: String): Unit = attached = Some(Interpreter(executable, version))

  /** A function for Spark's Python runners, with more variables in the environment of its process. */
  def function(onDriver: Boolean, variables: Map[String, String]): SimplePythonFunction = {
    val path = PythonUtils.mergePythonPaths(PythonUtils.sparkPythonPath, sys.env.getOrElse("PYTHONPATH", ""))
    val python = interpreter(onDriver, path)
    val environment = new util.HashMap[String, String]
    environment.put("PYTHONPATH", path)
    variables.foreach { case (name, value) => environment.put(name, value) }
    val none = new util.ArrayList[String]
    SimplePythonFunction(Nil, environment, none, python.executable, python.version, new util.ArrayList, null)
  }

  private def interpreter(onDriver: Boolean, path: String): Interpreter = {
    val context = SparkContext.getActive.get
    val conf = context.getConf
    val caller = attached.orElse(for (executable <- conf.getOption(Executable); version <- conf.getOption(Version))
      yield Interpreter(executable, version))
    val ofTasks = conf.getOption("spark.pyspark.python").orElse(sys.env.get("PYSPARK_PYTHON"))
    def interpreterAt(executable: String) =
      caller.filter(_.executable == executable).getOrElse(Interpreter(executable, versionOf(executable, path)))
    def ofDriver = caller.getOrElse(interpreterAt(PythonUtils.defaultPythonExec))
    if (context.isLocal) ofTasks.map(interpreterAt).getOrElse(ofDriver)
    else if (onDriver) ofDriver
    // Perhaps on other machines only. Spark refuses tasks in another version of Python than that of the driver.
    else Interpreter(ofTasks.getOrElse("python3"), ofDriver.version)
  }

  private def versionOf(executable: String, path: String): String =
    try {
      val script = "import sys; print('%d.%d' % sys.version_info[:2])"
      Process(Seq(executable, "-c", script), None, "PYTHONPATH" -> path).!!.trim
    } catch {
      case NonFatal(error) => throw new Failure(
        s"'$executable', which Spark is set up to run Python with, cannot be run (${error.getMessage}); set the environment " +
          "variable PYSPARK_PYTHON to a Python that has indextables, before the session starts", Some(error))
    }
}
