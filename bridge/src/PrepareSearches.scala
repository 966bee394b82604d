package org.apache.spark.sql.indextables

import org.apache.spark.sql.catalyst.expressions.{Attribute, Expression, UnaryExpression, Unevaluable}
import org.apache.spark.sql.catalyst.optimizer.InlineCTE
import org.apache.spark.sql.catalyst.plans.logical.{Command, LogicalPlan, UnaryNode, WithCTE}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.columnar.InMemoryRelation
import org.apache.spark.sql.types.DataType

/**
 * Protects searches from rules of Spark between the analysis and BindToTable.
 *
 * Spark replaces plans by their cached rows, which have no index, and it moves an expression without references to any
 * side of a join. The rule runs on an analyzed plan, after Spark's checks and before it looks for cached data. Tables of
 * other formats that are searched are replaced by their companion indexes here.
 */
object PrepareSearches extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan =
    if (plan.collectWithSubqueries { case node if hasSearch(node) => node }.isEmpty) plan
    else {
      val sources = new SearchedSources
      sources.replaceOtherReads(inlineDefinitions(plan).transformUpWithSubqueries { case node if hasSearch(node) =>
        withTargets(sources.replaceSources(node)).transformExpressionsUp {
          case MovementBarrier(inner: MovementBarrier) => inner
          case expression: IndexExpression if expression.subject.isEmpty => MovementBarrier(expression)
        }
      })
    }

  private def hasSearch(node: LogicalPlan): Boolean =
    node.children.nonEmpty && !node.isInstanceOf[Command] && node.expressions.exists(_.exists {
      case _: Buckets => false
      case expression => expression.isInstanceOf[IndexExpression]
    })

  /** The plan with inlined common table expressions, which hide their tables; Spark's optimizer inlines most of them later. */
  private def inlineDefinitions(plan: LogicalPlan): LogicalPlan =
    if (plan.collectWithSubqueries { case node: WithCTE => node }.isEmpty) plan else InlineCTE().apply(plan)

  private def withTargets(node: LogicalPlan): LogicalPlan = node.mapChildren(_.transformUp {
    case IndexRelation(_, relation) => SearchTarget(relation, 1)
    case SearchTarget(SearchTarget(table, _), searches) => SearchTarget(table, searches + 1)
  })
}

/**
 * A table that expressions above it search; `searches` is the number of such nodes.
 *
 * Spark does not find it among its cached plans, except below the plan of the same searches, and cached rows do not
 * replace the table. A write still invalidates cached plans with it, because the table is its child.
 */
case class SearchTarget(child: LogicalPlan, searches: Int) extends UnaryNode {
  override def output: Seq[Attribute] = child.output
  override def metadataOutput: Seq[Attribute] = child.metadataOutput
  override protected def withNewChildInternal(newChild: LogicalPlan): LogicalPlan = newChild match {
    case _: InMemoryRelation => this
    case other => copy(child = other)
  }
}

/** Removes the protection after Spark has looked for cached data. */
object RemoveSearchTargets extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan.transformUp { case target: SearchTarget => target.child }
}

/**
 * Keeps an expression without a column (`* INDEXQUERY 'words'`, `score()`) at its place in the plan until BindToTable has
 * visited it.
 *
 * Spark's optimizer moves only deterministic expressions, so this one is declared non-deterministic.
 */
case class MovementBarrier(child: Expression) extends UnaryExpression with Unevaluable {
  override lazy val deterministic: Boolean = false
  override def dataType: DataType = child.dataType
  override def nullable: Boolean = child.nullable
  override protected def withNewChildInternal(newChild: Expression): Expression = copy(child = newChild)
}
