package org.apache.spark.sql.indextables

import org.apache.spark.sql.AnalysisException

/** An error of ours: its message is the sentence that Python raised, or one written here in the same style. */
class Failure(sentence: String, cause: Option[Throwable] = None)
    extends AnalysisException(sentence, None, None, cause, None, Map.empty[String, String], Array.empty)
