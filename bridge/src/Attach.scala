package org.apache.spark.sql.indextables

import java.lang.reflect.Field

import scala.util.control.NonFatal

import org.apache.spark.sql.SparkSessionExtensions
import org.apache.spark.sql.catalyst.analysis.Analyzer
import org.apache.spark.sql.catalyst.parser.ParserInterface
import org.apache.spark.sql.classic.SparkSession

/** Adds the bridge to a running session, as `spark.sql.extensions` does when a session starts. */
object Attach {
  /**
   * Attaches the session, once, and starts a planner process.
   *
   * `python` and its `version` are the interpreter of the driver (PythonInterpreter).
   * Returns why the planner cannot run, or an empty text.
   */
  def attach(session: SparkSession, python: String, version: String): String = {
    attach(session)
    PythonInterpreter.use(python, version)
    try {
      session.withActive(Rpc("ping", Json.obj()))
      ""
    } catch { case NonFatal(error) => firstMessage(error) }
  }

  /** The message of the first cause of an error. */
  private def firstMessage(error: Throwable): String =
    Iterator.iterate(error)(_.getCause).takeWhile(_ != null).take(10).flatMap(each => Option(each.getMessage)).toSeq.last

  /**
   * Whether a session has the bridge: from its start, attached, or from the session that it comes from. The setting does not
   * say it: Spark ignores extensions whose jar is not there when the session starts.
   */
  def isAttached(session: SparkSession): Boolean =
    session.sessionState.analyzer.hintResolutionRules.exists(_.isInstanceOf[TimeTravel])

  private def attach(session: SparkSession): Unit = session.synchronized {
    val state = session.sessionState
    if (!isAttached(session)) {
      val added = new SparkSessionExtensions
      new Extensions()(added)
      // An analyzer is built once, with the rules that its session has at that time.
      val analyzer = state.analyzer
      append(analyzer, "hintResolutionRules", added.buildHintResolutionRules(session))
      append(analyzer, "extendedResolutionRules", added.buildResolutionRules(session))
      append(analyzer, "postHocResolutionRules", added.buildPostHocResolutionRules(session))
      append(analyzer, "extendedCheckRules", added.buildCheckRules(session))
      new Extensions()(session.extensions) // rules of the optimizer, and sessions that are created from this one
      added.registerFunctions(state.functionRegistry)
      added.registerTableFunctions(state.tableFunctionRegistry)
      val methods = session.experimental
      methods.extraStrategies = added.buildPlannerStrategies(session) ++ methods.extraStrategies
      // The parser and the normalization rules are constants of a session, so their fields are replaced.
      replace(state, _.getType == classOf[ParserInterface], _ => added.buildParser(session, state.sqlParser))
      replace(state, _.getName == "planNormalizationRules",
        _ => state.planNormalizationRules ++ added.buildPlanNormalizationRules(session))
      SessionTables.install(session)
    }
  }

  private def append(analyzer: Analyzer, field: String, rules: Seq[Any]): Unit =
    replace(analyzer, _.getName == field, (before: Any) => before.asInstanceOf[Seq[Any]] ++ rules)

  private def replace(owner: AnyRef, isField: Field => Boolean, value: Any => Any): Unit = {
    val field = owner.getClass.getDeclaredFields.find(isField).get
    field.setAccessible(true)
    field.set(owner, value(field.get(owner)))
  }
}
