package org.apache.spark.sql.indextables

import scala.collection.mutable

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical.{CTERelationDef, CTERelationRef, Expand, LogicalPlan, Union, UnionLoop, UnionLoopRef}
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation

/**
 * A plan with its subqueries.
 *
 * Spark's analyzer also runs its rules on each subquery alone, without the outer query and the common table expressions
 * around it. A rule that needs these is applied to the whole plan, from which it visits the subqueries.
 */
object WholePlan {
  def nodes(plan: LogicalPlan): Seq[LogicalPlan] = plan.collectWithSubqueries { case node => node }

  /** The plan and its subqueries, whose analyzed parts stay as they are. */
  def rewrite(plan: LogicalPlan)(rule: PartialFunction[LogicalPlan, LogicalPlan]): LogicalPlan = plan.resolveOperatorsUp {
    case node =>
      val inner = if (!node.expressions.exists(SubqueryExpression.hasSubquery)) node else node.transformExpressions {
        case subquery: SubqueryExpression =>
          val changed = rewrite(subquery.plan)(rule)
          if (changed.fastEquals(subquery.plan)) subquery else subquery.withNewPlan(changed)
      }
      rule.applyOrElse(inner, (same: LogicalPlan) => same)
  }

  /** The common table expressions of a plan, by their ids. */
  def definitions(nodes: Seq[LogicalPlan]): Map[Long, CTERelationDef] =
    nodes.collect { case definition: CTERelationDef => definition.id -> definition }.toMap
}

/** Finds the expressions of a plan whose values are those of address columns of indextables tables. */
class AddressOrigins(plan: LogicalPlan) {
  private val nodes = WholePlan.nodes(plan).filter(_.resolved)

  private lazy val ofTables: Map[ExprId, (IndexTable, String)] = nodes.flatMap {
    case relation: DataSourceV2Relation => IndexTables.unapply(relation.table).toSeq.flatMap { case (table, _) =>
      relation.output.map(column => column.exprId -> (table, column.name))
    }
    case stream: StreamingRelationV2 => IndexTables.unapply(stream.table).toSeq.flatMap { case (table, _) =>
      stream.output.map(column => column.exprId -> (table, column.name))
    }
    case _ => Nil
  }.toMap

  /** The expressions that a column has its values from. */
  private lazy val values: Map[ExprId, Seq[Expression]] = {
    val all = mutable.Buffer.empty[(ExprId, Expression)]
    def add(columns: Seq[Attribute], from: Seq[Expression]): Unit =
      columns.zip(from).foreach { case (column, value) => all += column.exprId -> value }
    val definitions = WholePlan.definitions(nodes)
    val loops = nodes.collect { case loop: UnionLoop => loop.id -> loop }.toMap
    nodes.foreach { node =>
      node match {
        case reference: CTERelationRef => definitions.get(reference.cteId).foreach(to => add(reference.output, to.child.output))
        case reference: UnionLoopRef => loops.get(reference.loopId).foreach(to => add(reference.output, to.anchor.output))
        case _: Union | _: UnionLoop => node.children.foreach(child => add(node.output, child.output))
        case expand: Expand => expand.projections.foreach(add(expand.output, _))
        case _ =>
      }
      node.expressions.foreach(_.foreach {
        case alias: Alias => all += alias.exprId -> alias.child
        case _ =>
      })
    }
    all.toSeq.groupMap(_._1)(_._2)
  }

  def areAddresses(expression: Expression): Boolean = areAddresses(expression, Set.empty)

  private def areAddresses(expression: Expression, seen: Set[ExprId]): Boolean = expression match {
    case column: Attribute => !seen(column.exprId) && (
      ofTables.get(column.exprId).exists { case (table, name) => table.addresses(name.toLowerCase) } ||
        values.getOrElse(column.exprId, Nil).exists(areAddresses(_, seen + column.exprId)))
    case OuterReference(column) => areAddresses(column.toAttribute, seen)
    case cast: Cast if cast.child.dataType == cast.dataType => areAddresses(cast.child, seen)
    case Coalesce(choices) => choices.exists(areAddresses(_, seen))
    case If(_, yes, no) => areAddresses(yes, seen) || areAddresses(no, seen)
    case CaseWhen(branches, otherwise) => (branches.map(_._2) ++ otherwise).exists(areAddresses(_, seen))
    case subquery: ScalarSubquery => subquery.plan.output.headOption.exists(areAddresses(_, seen))
    case replaced: RuntimeReplaceable => areAddresses(replaced.replacement, seen)
    case _ => false
  }
}
