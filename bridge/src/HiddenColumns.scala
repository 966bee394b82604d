package org.apache.spark.sql.indextables

import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute
import org.apache.spark.sql.catalyst.expressions.{Alias, Attribute, Expression, NamedExpression}
import org.apache.spark.sql.catalyst.plans.logical.{Aggregate, CTERelationDef, CTERelationRef, LogicalPlan, Project}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation

/**
 * Understands `_score` and `_indexall` where Spark does not find them: above a view or a common table expression, which
 * hide what a table has besides its columns.
 */
object HiddenColumns extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan.resolveOperatorsUp {
    case node if node.childrenResolved && node.expressions.exists(_.exists(isHidden)) && hasTable(node, plan) =>
      understood(node)
  }

  private def isHidden(expression: Expression): Boolean = expression match {
    case UnresolvedAttribute(names) => names.size <= 2 && kinds.contains(names.last.toLowerCase)
    case _ => false
  }

  private val kinds: Map[String, Option[Expression] => Expression] =
    Map(VirtualColumn.Score -> (Score(_)), VirtualColumn.AllFields -> (AllFields(_)))

  /** Whether a table is below a node, also in the common table expressions of its plan; `above` are those that it is part of. */
  private def hasTable(node: LogicalPlan, plan: LogicalPlan, above: Set[Long] = Set.empty): Boolean = node.exists {
    case relation: DataSourceV2Relation => IndexTables.unapply(relation.table).nonEmpty
    case reference: CTERelationRef if !above.contains(reference.cteId) => plan.exists {
      case definition: CTERelationDef if definition.id == reference.cteId =>
        hasTable(definition.child, plan, above + definition.id)
      case _ => false
    }
    case _ => false
  }

  private def understood(node: LogicalPlan): LogicalPlan = {
    val columns = node.children.flatMap(_.output)
    val named = node match {
      case project: Project => project.copy(projectList = project.projectList.map(selected(_, columns)))
      case aggregate: Aggregate =>
        aggregate.copy(aggregateExpressions = aggregate.aggregateExpressions.map(selected(_, columns)))
      case other => other
    }
    named.transformExpressions { case column: UnresolvedAttribute if isHidden(column) => resolve(column, columns) }
  }

  private def selected(expression: NamedExpression, columns: Seq[Attribute]): NamedExpression = expression match {
    case column: UnresolvedAttribute if isHidden(column) => resolve(column, columns) match {
      case same: UnresolvedAttribute => same
      case resolved => Alias(resolved, column.nameParts.last)()
    }
    case other => other
  }

  /** With a table's name before it, it is of that table: of any column that has the name before it too. */
  private def resolve(column: UnresolvedAttribute, columns: Seq[Attribute]): Expression = {
    val make = kinds(column.nameParts.last.toLowerCase)
    column.nameParts match {
      case Seq(table, _) =>
        columns.find(_.qualifier.lastOption.exists(_.equalsIgnoreCase(table))).map(of => make(Some(of))).getOrElse(column)
      case _ => make(None)
    }
  }
}
