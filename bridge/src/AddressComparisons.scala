package org.apache.spark.sql.indextables

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.types.{BooleanType, StringType}

/**
 * Replaces comparisons of a column of addresses with constants (`ip = '10.0.0.0/24'`, `ip < '10.0.0.30'`) by searches.
 *
 * The planner returns the query of a comparison. Columns of other tables are compared as texts, by Spark.
 */
object AddressComparisons extends Rule[LogicalPlan] {
  private[indextables] val reverse = Map("=" -> "=", "<=>" -> "<=>", "<" -> ">", "<=" -> ">=", ">" -> "<", ">=" -> "<=")

  override def apply(plan: LogicalPlan): LogicalPlan =
    if (!WholePlan.nodes(plan).exists(node => !node.analyzed && hasComparison(node))) plan
    else {
      val comparisons = new AddressComparisons(new AddressOrigins(plan))
      WholePlan.rewrite(plan) { case node if hasComparison(node) => comparisons.withSearches(node) }
    }

  private def hasComparison(node: LogicalPlan): Boolean =
    node.resolved && node.children.nonEmpty && node.expressions.exists(_.exists {
      case comparison: BinaryComparison => reverse.contains(comparison.symbol) && comparison.left.dataType == StringType
      case In(value, _) => value.dataType == StringType
      case _ => false
    })
}

private class AddressComparisons(origins: AddressOrigins) {
  import AddressComparisons.reverse

  def withSearches(node: LogicalPlan): LogicalPlan = node.transformExpressions(inlineDefinitions).transformExpressions {
    case Not(Comparison(value, op, condition)) => unlessNull(value, op, Not(condition))
    case Comparison(value, op, condition) => unlessNull(value, op, condition)
  }

  /** BETWEEN computes its left side once; that is not needed for a column. */
  private val inlineDefinitions: PartialFunction[Expression, Expression] = {
    case With(child, definitions) if definitions.forall(definition => origins.areAddresses(definition.child)) =>
      child.transform { case ref: CommonExpressionRef => definitions.find(_.id == ref.id).map(_.child).getOrElse(ref) }
  }

  /** A search is false for null, a comparison is unknown. */
  private def unlessNull(value: Expression, op: String, condition: Expression): Expression =
    if (op == "<=>") condition else If(IsNull(value), Literal(null, BooleanType), condition)

  /** A comparison of addresses with constants: the addresses, the operator, and the comparison as a search. */
  private object Comparison {
    def unapply(expression: Expression): Option[(Expression, String, Expression)] = expression match {
      case comparison: BinaryComparison if reverse.contains(comparison.symbol) =>
        searchOf(comparison.left, comparison.symbol, comparison.right)
          .orElse(searchOf(comparison.right, reverse(comparison.symbol), comparison.left))
      case In(value, list) if value.dataType == StringType && list.exists(isConstant) && origins.areAddresses(value) =>
        val (constants, others) = list.partition(isConstant)
        search(value, "=", constants.map(literal)).map { condition =>
          (value, "=", if (others.isEmpty) condition else Or(condition, In(value, others)))
        }
      case _ => None
    }

    private def searchOf(value: Expression, op: String, other: Expression): Option[(Expression, String, Expression)] =
      if (value.dataType != StringType) None
      else if (isConstant(other)) {
        if (origins.areAddresses(value)) search(value, op, Seq(literal(other))).map((value, op, _)) else None
      } else other match {
        case _: ScalarSubquery if origins.areAddresses(value) => throw new Failure(
          s"${value.sql} has the values of a column of addresses, which are compared with constants, but in ${value.sql} $op " +
            s"(SELECT ...) the address is not a constant; write the address as a constant, or compare texts: " +
            s"${value.sql} IN (SELECT ...)")
        case _ => None
      }
  }

  private def isConstant(expression: Expression): Boolean =
    expression.resolved && expression.foldable && expression.dataType == StringType &&
      !expression.exists(_.isInstanceOf[Unevaluable])

  private def literal(constant: Expression): Literal = Literal(constant.eval(), StringType)

  /** The comparison as a search; None if it compares texts. */
  private def search(value: Expression, op: String, values: Seq[Literal]): Option[Expression] = {
    val (nulls, texts) = values.partition(_.value == null)
    if (texts.isEmpty) None
    else {
      val reply = Rpc("addresses", Json.obj(
        "column" -> name(value), "op" -> op, "values" -> texts.map(_.value.toString).toArray)).json
      Option(reply.get("query")).map { query =>
        val sql = s"${value.sql} " + (if (values.size > 1) values.map(_.sql).mkString("IN (", ", ", ")") else s"$op ${values.head.sql}")
        val condition = Search("indexquery", column(value, sql), Literal(query.asText), Some(sql))
        val others = reply.get("texts").asScala.map(text => Literal(text.asText)).toSeq ++ nulls
        if (others.isEmpty) condition else Or(condition, In(value, others))
      }
    }
  }

  private def name(value: Expression): String = value match {
    case column: NamedExpression => column.name
    case other => other.sql
  }

  /** The column of a value, without casts to its own type, such as those of views. */
  private def column(value: Expression, sql: String): Expression = value match {
    case _: Attribute | _: OuterReference => value
    case cast: Cast => column(cast.child, sql)
    case other => throw new Failure(
      s"$sql cannot be answered here: ${other.sql} is computed from a column of addresses, and only a column is compared as " +
        "addresses; compare the column itself")
  }
}
