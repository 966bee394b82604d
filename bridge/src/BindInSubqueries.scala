package org.apache.spark.sql.indextables

import org.apache.spark.sql.catalyst.expressions.{Expression, OuterReference, PredicateHelper}
import org.apache.spark.sql.catalyst.plans.logical.{Filter, LogicalPlan}
import org.apache.spark.sql.catalyst.rules.Rule

/**
 * Binds searches of a subquery's own table in conditions that name columns of the outer query as well.
 *
 * Spark moves such a condition out of the subquery, and plans the scan of the subquery, before its optimizer applies
 * BindToTable. So this rule is applied as soon as the subquery is resolved.
 */
object BindInSubqueries extends Rule[LogicalPlan] with PredicateHelper {
  override def apply(plan: LogicalPlan): LogicalPlan = plan.resolveOperatorsUp {
    case filter: Filter if filter.resolved && splitConjunctivePredicates(filter.condition).exists(isMixed) =>
      BindToTable.bind(filter)
  }

  private def isMixed(condition: Expression): Boolean =
    condition.exists(_.isInstanceOf[OuterReference]) && condition.exists {
      case expression: IndexExpression => !expression.exists(_.isInstanceOf[OuterReference])
      case _ => false
    }
}
