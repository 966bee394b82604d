package org.apache.spark.sql.indextables

import org.apache.spark.{QueryContext, SparkRuntimeException}
import org.apache.spark.sql.AnalysisException
import org.apache.spark.sql.catalyst.trees.Origin

/** An error of ours: its message is the sentence that Python raised, or one written here in the same style. */
class Failure(sentence: String, cause: Option[Throwable] = None)
    extends AnalysisException(sentence, None, None, cause, None, Map.empty[String, String], Array.empty) {
  // Spark would make the message anew from an error class of its own.
  override def withPosition(origin: Origin): AnalysisException = this
}

/** The same for a statement, found while it is parsed. */
class SyntaxFailure(sentence: String)
    extends SyntaxError("PARSE_SYNTAX_ERROR", Map("error" -> "", "hint" -> "")) {
  override def getMessage: String = sentence
}

/** The same in a task. Spark shows errors with an error class unchanged, and others as an aborted job. */
class TaskFailure(sentence: String)
    extends SparkRuntimeException(
      "USER_RAISED_EXCEPTION", Map("errorMessage" -> sentence), null, Array.empty[QueryContext], "") {
  override def getMessage: String = sentence
}

object TaskFailure {
  /** The one that an error came of. */
  def in(error: Throwable): Option[TaskFailure] =
    Iterator.iterate(error)(_.getCause).takeWhile(_ != null).collectFirst { case failure: TaskFailure => failure }
}
