package org.apache.spark.sql.indextables

import java.lang.reflect.Field

import scala.util.control.NonFatal

import org.apache.spark.sql.SparkSessionExtensions
import org.apache.spark.sql.catalyst.parser.ParserInterface
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.internal.SessionState

/** Gives to a session that runs already what `spark.sql.extensions` would have given it at its start. */
object Attach {
  /**
   * Attaches the session, once, and starts a planner process.
   *
   * `python` and its `version` are the interpreter of the driver, which is used where Spark has none set.
   * Returns why the planner cannot run, or an empty text.
   */
  def attach(session: SparkSession, python: String, version: String): String = {
    attach(session)
    PythonInterpreter.useUnlessSet(session.sparkContext, python, version)
    try {
      session.withActive(Rpc("ping", Json.obj()))
      ""
    } catch { case NonFatal(error) => String.valueOf(error.getMessage) }
  }

  private def attach(session: SparkSession): Unit = session.synchronized {
    val state = session.sessionState
    val attached = state.conf.getConfString(Mark, "false").toBoolean
    if (!attached) {
      new Extensions()(session.extensions) // rules of the optimizer, and sessions that come from this one
      val added = new SparkSessionExtensions
      new Extensions()(added)
      added.registerFunctions(state.functionRegistry)
      added.registerTableFunctions(state.tableFunctionRegistry)
      val methods = session.experimental
      methods.extraStrategies = added.buildPlannerStrategies(session) ++ methods.extraStrategies
      // The parser and the normalization rules are constants of a session, so their fields are replaced.
      replace(state, _.getType == classOf[ParserInterface], added.buildParser(session, state.sqlParser))
      replace(state, _.getName == "planNormalizationRules",
        state.planNormalizationRules ++ added.buildPlanNormalizationRules(session))
      SessionTables.install(session)
      state.conf.setConfString(Mark, "true")
    }
  }

  private def replace(state: SessionState, isField: Field => Boolean, value: Any): Unit = {
    val field = classOf[SessionState].getDeclaredFields.find(isField).get
    field.setAccessible(true)
    field.set(state, value)
  }

  private val Mark = "spark.indextablesBridge.attached"
}
