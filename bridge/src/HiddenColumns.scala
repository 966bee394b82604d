package org.apache.spark.sql.indextables

import org.apache.spark.sql.catalyst.analysis.{UnresolvedAttribute, UnresolvedExtractValue}
import org.apache.spark.sql.catalyst.expressions.{Alias, Attribute, Expression, Literal, NamedExpression}
import org.apache.spark.sql.catalyst.plans.logical.{Aggregate, CTERelationDef, CTERelationRef, LogicalPlan, Project, Union}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation

/**
 * Resolves `_score` and `_indexall` above views and common table expressions, where Spark does not find the metadata columns
 * of a table.
 */
object HiddenColumns extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan.resolveOperatorsUp {
    case node if node.childrenResolved && names(node).exists(isHidden) && hasTable(node, plan) =>
      replace(node) { case column if isHidden(column) => resolve(column, node.children.flatMap(_.output)) }
    // Spark finds `_metadata` itself, but not above a union.
    case node if node.childrenResolved && names(node).exists(isMetadata) && node.exists(_.isInstanceOf[Union]) &&
        hasTable(node, plan) && !node.children.exists(_.output.exists(_.name.equalsIgnoreCase(VirtualColumn.FileMetadata))) =>
      replace(node) { case column if isMetadata(column) => metadata(column.nameParts) }
  }

  private def names(node: LogicalPlan): Seq[UnresolvedAttribute] =
    node.expressions.flatMap(_.collect { case column: UnresolvedAttribute => column })

  private def isHidden(column: UnresolvedAttribute): Boolean =
    column.nameParts.size <= 2 && kinds.contains(column.nameParts.last.toLowerCase)

  private def isMetadata(column: UnresolvedAttribute): Boolean =
    column.nameParts.size <= 2 && column.nameParts.head.equalsIgnoreCase(VirtualColumn.FileMetadata)

  private val kinds: Map[String, Option[Expression] => Expression] =
    Map(VirtualColumn.Score -> (Score(_)), VirtualColumn.AllFields -> (AllFields(_)))

  /** Whether a table is below a node, also in the common table expressions of its plan; `above` are those that contain it. */
  private def hasTable(node: LogicalPlan, plan: LogicalPlan, above: Set[Long] = Set.empty): Boolean = node.exists {
    case relation: DataSourceV2Relation => IndexTables.unapply(relation.table).nonEmpty
    case reference: CTERelationRef if !above.contains(reference.cteId) => plan.exists {
      case definition: CTERelationDef if definition.id == reference.cteId =>
        hasTable(definition.child, plan, above + definition.id)
      case _ => false
    }
    case _ => false
  }

  /** Replaces columns of a node; columns of a SELECT list keep their names. */
  private def replace(node: LogicalPlan)(by: PartialFunction[UnresolvedAttribute, Expression]): LogicalPlan = {
    def select(expression: NamedExpression): NamedExpression = expression match {
      case column: UnresolvedAttribute => by.lift(column) match {
        case None | Some(_: UnresolvedAttribute) => column
        case Some(resolved) => Alias(resolved, column.nameParts.last)()
      }
      case other => other
    }
    val named = node match {
      case project: Project => project.copy(projectList = project.projectList.map(select))
      case aggregate: Aggregate => aggregate.copy(aggregateExpressions = aggregate.aggregateExpressions.map(select))
      case other => other
    }
    named.transformExpressions { case column: UnresolvedAttribute if by.isDefinedAt(column) => by(column) }
  }

  private def metadata(names: Seq[String]): Expression =
    names.drop(1).foldLeft(FileMetadata(): Expression)((of, field) => UnresolvedExtractValue(of, Literal(field)))

  /** A column that is qualified by a table's name is bound to that table, by any of its columns. */
  private def resolve(column: UnresolvedAttribute, columns: Seq[Attribute]): Expression = {
    val make = kinds(column.nameParts.last.toLowerCase)
    column.nameParts match {
      case Seq(table, _) =>
        columns.find(_.qualifier.lastOption.exists(_.equalsIgnoreCase(table))).map(of => make(Some(of))).getOrElse(column)
      case _ => make(None)
    }
  }
}
