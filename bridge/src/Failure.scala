package org.apache.spark.sql.indextables

import org.apache.spark.{QueryContext, SparkRuntimeException}
import org.apache.spark.sql.AnalysisException
import org.apache.spark.sql.catalyst.trees.Origin

/** An error of indextables; the message is that of the planner's error, or is written in the bridge. */
class Failure(sentence: String, cause: Option[Throwable] = None)
    extends AnalysisException(sentence, None, None, cause, None, Map.empty[String, String], Array.empty) {
  // Spark would replace the message by one of its own error classes.
  override def withPosition(origin: Origin): AnalysisException = this
}

/** An error of indextables in a statement that is being parsed. */
class SyntaxFailure(sentence: String)
    extends SyntaxError("PARSE_SYNTAX_ERROR", Map("error" -> "", "hint" -> "")) {
  override def getMessage: String = sentence
}

/** An error of indextables in a task. Spark shows errors with an error class unchanged, and others as an aborted job. */
class TaskFailure(sentence: String)
    extends SparkRuntimeException(
      "USER_RAISED_EXCEPTION", Map("errorMessage" -> sentence), null, Array.empty[QueryContext], "") {
  override def getMessage: String = sentence
}

object TaskFailure {
  /** The failure of a task that caused an error. */
  def of(error: Throwable): Option[TaskFailure] =
    Iterator.iterate(error)(_.getCause).takeWhile(_ != null).collectFirst { case failure: TaskFailure => failure }
}
