package org.apache.spark.sql.indextables

import org.apache.spark.sql.SparkSessionExtensions

/** What `spark.sql.extensions` names: everything that a session gets from indextables. */
class Extensions extends (SparkSessionExtensions => Unit) {
  override def apply(session: SparkSessionExtensions): Unit = {
    session.injectHintResolutionRule(PathRelation(_))
  }
}
