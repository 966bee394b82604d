package org.apache.spark.sql.indextables

import java.util

import org.apache.spark.sql.connector.expressions._
import org.apache.spark.sql.connector.expressions.filter.Predicate
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** Expressions that Spark pushes, as JSON (bridge/PROTOCOL.md, "Expressions"). */
object ExpressionJson {
  def apply(expression: Expression): util.Map[String, Any] = expression match {
    case column: NamedReference => Json.obj("kind" -> "col", "path" -> column.fieldNames)
    case literal: Literal[_] => literalJson(literal.value, literal.dataType)
    case cast: Cast => Json.obj(
      "kind" -> "cast", "type" -> cast.dataType.json, "args" -> Array(apply(cast.expression)))
    case function: UserDefinedScalarFunc =>
      Json.obj("kind" -> "udf", "op" -> function.canonicalName, "args" -> args(function))
    case predicate: Predicate => Json.obj("kind" -> "op", "op" -> predicate.name, "args" -> args(predicate))
    case function: GeneralScalarExpression =>
      Json.obj("kind" -> "fn", "op" -> function.name, "args" -> args(function))
    case other => Json.obj("kind" -> "other", "op" -> other.getClass.getSimpleName)
  }

  def all(expressions: Array[_ <: Expression]): Array[util.Map[String, Any]] =
    expressions.map(expression => apply(expression))

  private def args(expression: Expression): Array[util.Map[String, Any]] = expression.children.map(child => apply(child))

  private def literalJson(value: Any, dataType: DataType): util.Map[String, Any] = {
    // A literal that JSON cannot hold exactly travels as text.
    val plain: Option[Any] = value match {
      case null => Some(null)
      // A text of Java would have other characters than bytes that are not UTF-8.
      case text: UTF8String => if (text.isValid) Some(text.toString) else None
      case text: String => Some(text)
      case decimal: Decimal => Some(decimal.toJavaBigDecimal.toPlainString)
      case bytes: Array[Byte] => Some(util.Base64.getEncoder.encodeToString(bytes))
      case double: Double => Some(double.toString)
      case float: Float => Some(float.toString)
      case _: Boolean | _: Byte | _: Short | _: Int | _: Long => Some(value)
      case _ => None
    }
    plain match {
      case None => Json.obj("kind" -> "other", "op" -> dataType.simpleString)
      case Some(held) =>
        val made = Json.obj("kind" -> "lit", "type" -> dataType.json)
        made.put("value", held)
        made
    }
  }
}
