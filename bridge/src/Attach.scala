package org.apache.spark.sql.indextables

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
      // The parser is a constant of the session, and there is no other way to put one in front of it.
      val field = classOf[SessionState].getDeclaredFields.find(_.getType == classOf[ParserInterface]).get
      field.setAccessible(true)
      field.set(state, added.buildParser(session, state.sqlParser))
      state.conf.setConfString(Mark, "true")
    }
    !attached
  }

  private val Mark = "spark.indextablesBridge.attached"
}
