package org.apache.spark.sql.indextables

import java.lang.reflect.Field

import org.apache.spark.sql.SparkSessionExtensions
import org.apache.spark.sql.catalyst.parser.ParserInterface
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.internal.SessionState

/** Gives to a session that runs already what `spark.sql.extensions` would have given it at its start. */
object Attach {
  /** Whether anything was done: a session is attached to once. */
  def attach(session: SparkSession): Boolean = session.synchronized {
    val state = session.sessionState
    val attached = state.conf.getConfString(Mark, "false").toBoolean
    if (!attached) {
      new Extensions()(session.extensions) // rules of the optimizer, and sessions that come from this one
      val added = new SparkSessionExtensions
      new Extensions()(added)
      added.registerFunctions(state.functionRegistry)
      val methods = session.experimental
      methods.extraStrategies = added.buildPlannerStrategies(session) ++ methods.extraStrategies
      // The parser and the normalization rules are constants of a session, so their fields are replaced.
      replace(state, _.getType == classOf[ParserInterface], added.buildParser(session, state.sqlParser))
      replace(state, _.getName == "planNormalizationRules",
        state.planNormalizationRules ++ added.buildPlanNormalizationRules(session))
      state.conf.setConfString(Mark, "true")
    }
    !attached
  }

  private def replace(state: SessionState, isField: Field => Boolean, value: Any): Unit = {
    val field = classOf[SessionState].getDeclaredFields.find(isField).get
    field.setAccessible(true)
    field.set(state, value)
  }

  private val Mark = "spark.indextablesBridge.attached"
}
