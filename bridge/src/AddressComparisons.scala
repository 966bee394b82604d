package org.apache.spark.sql.indextables

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
import org.apache.spark.sql.types.{BooleanType, StringType}
import org.apache.spark.unsafe.types.UTF8String

/**
 * Makes a search of a comparison of a column of addresses with constants: `ip = '10.0.0.0/24'`, `ip < '10.0.0.30'`.
 *
 * The planner says what a comparison means; columns of other tables are compared as Spark does.
 */
object AddressComparisons extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan.resolveOperatorsUp {
    case node if node.resolved && node.children.nonEmpty && node.expressions.exists(_.exists(isComparison)) =>
      node.transformExpressions(inlined(node)).transformExpressions {
        case Not(original @ Comparison(column, op, values)) if isAddress(column, node) =>
          search(column, op, values).map(condition => unlessNull(column, op, Not(condition))).getOrElse(Not(original))
        case original @ Comparison(column, op, values) if isAddress(column, node) =>
          search(column, op, values).map(condition => unlessNull(column, op, condition)).getOrElse(original)
      }
  }

  private def isComparison(expression: Expression): Boolean = expression match {
    case With(_, definitions) => definitions.exists(_.child.isInstanceOf[Attribute])
    case _ => Comparison.unapply(expression).nonEmpty
  }

  /** BETWEEN computes its left side once; that is not needed for a column. */
  private def inlined(node: LogicalPlan): PartialFunction[Expression, Expression] = {
    case With(child, definitions) if definitions.forall(_.child match {
          case column: Attribute => isAddress(column, node)
          case _ => false
        }) =>
      child.transform { case ref: CommonExpressionRef => definitions.find(_.id == ref.id).map(_.child).getOrElse(ref) }
  }

  /** A search is false for null, a comparison is unknown. */
  private def unlessNull(column: Attribute, op: String, condition: Expression): Expression =
    if (op == "<=>") condition else If(IsNull(column), Literal(null, BooleanType), condition)

  /** Whether a column is, in the end, a column of addresses of a table of ours. */
  private def isAddress(column: Attribute, node: LogicalPlan): Boolean =
    node.children.exists(origin(column, _).exists { case (table, name) => table.addresses(name.toLowerCase) })

  private def origin(column: Attribute, plan: LogicalPlan): Option[(IndexTable, String)] = {
    val inTable = plan.collectFirst {
      case relation: DataSourceV2Relation if relation.output.exists(_.exprId == column.exprId) => relation
    }
    inTable match {
      case Some(relation) => IndexTables.unapply(relation.table).map { case (table, _) =>
        (table, relation.output.find(_.exprId == column.exprId).get.name)
      }
      case None => alias(column, plan).flatMap(origin(_, plan))
    }
  }

  private def alias(column: Attribute, plan: LogicalPlan): Option[Attribute] =
    plan.collect { case node => node.expressions }.flatten.collectFirst {
      case named @ Alias(SameValue(inner), _) if named.exprId == column.exprId && inner.exprId != column.exprId => inner
    }

  /** A column, perhaps cast to the type that it has, as in a view. */
  private object SameValue {
    def unapply(expression: Expression): Option[Attribute] = expression match {
      case column: Attribute => Some(column)
      case cast: Cast if cast.child.dataType == cast.dataType => unapply(cast.child)
      case _ => None
    }
  }

  /** The comparison as a search; None if it stays one of texts. */
  private def search(column: Attribute, op: String, values: Seq[Literal]): Option[Expression] = {
    val texts = values.filter(_.value != null).map(_.value.toString)
    val reply = Rpc("addresses", Json.obj("column" -> column.name, "op" -> op, "values" -> texts.toArray)).json
    Option(reply.get("query")).map { query =>
      val condition = Search("indexquery", column, Literal(query.asText))
      val others = reply.get("texts").asScala.map(text => Literal(text.asText)).toSeq ++ values.filter(_.value == null)
      if (others.isEmpty) condition else Or(condition, In(column, others))
    }
  }

  /** A column compared with constant texts. */
  private object Comparison {
    private val mirrored = Map("=" -> "=", "<=>" -> "<=>", "<" -> ">", "<=" -> ">=", ">" -> "<", ">=" -> "<=")

    def unapply(expression: Expression): Option[(Attribute, String, Seq[Literal])] = expression match {
      case comparison: BinaryComparison if mirrored.contains(comparison.symbol) => (comparison.left, comparison.right) match {
        case (column: Attribute, Text(value)) => Some((column, comparison.symbol, Seq(value)))
        case (Text(value), column: Attribute) => Some((column, mirrored(comparison.symbol), Seq(value)))
        case _ => None
      }
      case In(column: Attribute, list) if column.dataType == StringType =>
        val values = list.collect { case Constant(value) => value }
        if (values.size == list.size && values.exists(_.value != null)) Some((column, "=", values)) else None
      case _ => None
    }
  }

  /** A constant text that is not null. */
  private object Text {
    def unapply(expression: Expression): Option[Literal] = Constant.unapply(expression).filter(_.value != null)
  }

  private object Constant {
    def unapply(expression: Expression): Option[Literal] = expression match {
      case literal if literal.resolved && literal.foldable && literal.dataType == StringType => literal.eval() match {
        case null => Some(Literal(null, StringType))
        case text: UTF8String => Some(Literal(text, StringType))
        case _ => None
      }
      case _ => None
    }
  }
}
