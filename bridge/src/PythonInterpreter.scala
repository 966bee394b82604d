package org.apache.spark.sql.indextables

import java.util

import scala.jdk.CollectionConverters._

import org.apache.spark.{SparkConf, SparkContext}
import org.apache.spark.api.python.{PythonUtils, SimplePythonFunction}

/**
 * The Python that runs the planner on the driver, and tasks on executors.
 *
 * It is that of Spark (`spark.pyspark.python`, `PYSPARK_PYTHON`). If neither is set, Spark uses the first `python3` on the
 * path; after `attach` the interpreter that called it is used instead, for tasks only if they run on the same machine.
 */
object PythonInterpreter {
  private case class Interpreter(executable: String, version: String, local: Boolean)

  @volatile private var attached: Option[Interpreter] = None

  def useUnlessSet(context: SparkContext, executable: String, version: String): Unit =
    if (!isSet(context.getConf)) attached = Some(Interpreter(executable, version, context.isLocal))

  private def isSet(conf: SparkConf): Boolean =
    Seq("spark.pyspark.python", "spark.pyspark.driver.python").exists(conf.contains) ||
      Seq("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON").exists(sys.env.contains)

  /** A function for Spark's Python runners, with more variables in the environment of its process. */
  def function(onDriver: Boolean, variables: Map[String, String]): SimplePythonFunction = {
    // Spark starts an interpreter here to get its version.
    val plain = PythonUtils.createPythonFunction(Array.emptyByteArray)
    val environment = new util.HashMap[String, String](plain.envVars)
    environment.putAll(variables.asJava)
    val chosen = attached.filter(interpreter => onDriver || interpreter.local)
    SimplePythonFunction(
      plain.command,
      environment,
      plain.pythonIncludes,
      chosen.map(_.executable).getOrElse(plain.pythonExec),
      chosen.map(_.version).getOrElse(plain.pythonVer),
      plain.broadcastVars,
      plain.accumulator)
  }
}
