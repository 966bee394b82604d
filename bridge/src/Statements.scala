package org.apache.spark.sql.indextables

import java.util.Locale

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan

/** Statements that may be commands of indextables; only those are sent to the planner. */
object Statements {
  private val words = Set("indextables", "indextable", "indexfiles", "splits", "tantivy4spark")
  // A word of ours stands among the first ones: WAIT FOR INDEXTABLES ...
  private val lookedAt = 4

  def parse(sql: String): Option[LogicalPlan] = {
    val lower = sql.toLowerCase(Locale.ROOT)
    if (!words.exists(lower.contains)) None
    else {
      val tokens = new Tokens(sql)
      val first = (1 until math.min(lookedAt, tokens.size)).map(tokens.text(_).toLowerCase(Locale.ROOT))
      if (first.exists(words)) Command.of(sql) else None
    }
  }
}
