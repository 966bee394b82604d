package org.apache.spark.sql.indextables

import org.apache.spark.internal.config.SECRET_REDACTION_PATTERN
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.classic
import org.apache.spark.sql.internal.SQLConf

/**
 * Sets Spark's redaction patterns, which miss the names of some secrets of indextables, before the first plan of a session
 * that was set up by `spark.sql.extensions` alone. Patterns that the user has set are not changed.
 */
case class RedactSecrets(session: SparkSession) extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = {
    val classicSession = session.asInstanceOf[classic.SparkSession]
    val ofSession = classicSession.sessionState.conf
    val options = SQLConf.SQL_OPTIONS_REDACTION_PATTERN
    if (!ofSession.contains(options.key)) ofSession.setConf(options, s"(?i)url|${Declarations.Secrets}".r)
    val ofContext = classicSession.sparkContext.conf
    if (!ofContext.contains(SECRET_REDACTION_PATTERN.key)) {
      ofContext.set(SECRET_REDACTION_PATTERN.key, s"(?i)${Declarations.Secrets}")
    }
    plan
  }
}
