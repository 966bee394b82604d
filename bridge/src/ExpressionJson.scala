package org.apache.spark.sql.indextables

import java.nio.{ByteBuffer, ByteOrder}
import java.util

import scala.collection.mutable

import org.apache.spark.sql.connector.expressions._
import org.apache.spark.sql.connector.expressions.filter.Predicate
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** Expressions that Spark pushes, as JSON (bridge/PROTOCOL.md, "Expressions"). */
object ExpressionJson {
  // Deeper conditions are evaluated by Spark: each level costs the planner several frames of its stack.
  private val MaxDepth = 50
  // Shorter lists are not packed.
  private val MinList = 16

  def apply(expression: Expression): util.Map[String, Any] = encode(expression, 0)

  private def encode(expression: Expression, depth: Int): util.Map[String, Any] = expression match {
    case _ if depth > MaxDepth => Json.obj("kind" -> "other", "op" -> "nested too deeply")
    case column: NamedReference => Json.obj("kind" -> "col", "path" -> column.fieldNames)
    case literal: Literal[_] => literalJson(literal.value, literal.dataType)
    case cast: Cast => Json.obj(
      "kind" -> "cast", "type" -> cast.dataType.json, "args" -> Array(encode(cast.expression, depth + 1)))
    case function: UserDefinedScalarFunc =>
      Json.obj("kind" -> "udf", "op" -> function.canonicalName, "args" -> args(function.children, depth))
    case predicate: Predicate => predicate.name match {
      case "AND" | "OR" => Json.obj("kind" -> "op", "op" -> predicate.name, "args" -> args(chain(predicate), depth))
      case "IN" if predicate.children.length > MinList => ListJson(predicate.children.tail).map { list =>
        Json.obj("kind" -> "op", "op" -> "IN", "args" -> args(predicate.children.take(1), depth), "list" -> list)
      }.getOrElse(Json.obj("kind" -> "op", "op" -> "IN", "args" -> args(predicate.children, depth)))
      case name => Json.obj("kind" -> "op", "op" -> name, "args" -> args(predicate.children, depth))
    }
    case function: GeneralScalarExpression =>
      Json.obj("kind" -> "fn", "op" -> function.name, "args" -> args(function.children, depth))
    case other => Json.obj("kind" -> "other", "op" -> other.getClass.getSimpleName)
  }

  def all(expressions: Array[_ <: Expression]): Array[util.Map[String, Any]] =
    expressions.map(expression => apply(expression))

  private def args(expressions: Array[Expression], depth: Int): Array[util.Map[String, Any]] =
    expressions.map(encode(_, depth + 1))

  /** The parts of `a AND b AND c`, however they are nested, in their order. */
  private def chain(predicate: Predicate): Array[Expression] = {
    val parts = mutable.ArrayBuffer.empty[Expression]
    val stack = mutable.Stack[Expression](predicate)
    while (stack.nonEmpty) stack.pop() match {
      case same: Predicate if same.name == predicate.name => same.children.reverseIterator.foreach(stack.push)
      case part => parts += part
    }
    parts.toArray
  }

  private def literalJson(value: Any, dataType: DataType): util.Map[String, Any] = {
    // Literals that JSON cannot represent exactly are sent as text.
    val plain: Option[Any] = value match {
      case null => Some(null)
      // A Java string cannot represent bytes that are not UTF-8.
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
      case Some(value) =>
        val literal = Json.obj("kind" -> "lit", "type" -> dataType.json)
        literal.put("value", value)
        literal
    }
  }
}

/** The literals of a long IN list, packed: whole numbers in eight bytes each, texts concatenated, with their offsets. */
private object ListJson {
  def apply(literals: Array[Expression]): Option[util.Map[String, Any]] = {
    val types = literals.map { case literal: Literal[_] => literal.dataType; case _ => NullType }.distinct
    if (types.length != 1 || types.head == NullType) None
    else {
      val values = literals.map(_.asInstanceOf[Literal[_]].value: Any)
      val present = values.filter(_ != null)
      val packed = if (present.forall(whole.isDefinedAt)) Some(Seq("numbers" -> longs(present.map(whole))))
        else if (present.forall { case text: UTF8String => text.isValid; case _ => false }) {
          Some(texts(present.map(_.asInstanceOf[UTF8String].getBytes)))
        } else None
      packed.map(members => Json.obj(
        Seq("type" -> types.head.json, "has_null" -> (present.length < values.length)) ++ members: _*))
    }
  }

  private val whole: PartialFunction[Any, Long] = {
    case value: Byte => value.toLong
    case value: Short => value.toLong
    case value: Int => value.toLong
    case value: Long => value
  }

  private def longs(values: Array[Long]): String = {
    val buffer = ByteBuffer.allocate(8 * values.length).order(ByteOrder.LITTLE_ENDIAN)
    values.foreach(buffer.putLong)
    util.Base64.getEncoder.encodeToString(buffer.array)
  }

  private def texts(values: Array[Array[Byte]]): Seq[(String, String)] = {
    val all = new java.io.ByteArrayOutputStream()
    values.foreach(value => all.write(value, 0, value.length))
    Seq(
      "offsets" -> longs(values.scanLeft(0L)(_ + _.length)),
      "bytes" -> util.Base64.getEncoder.encodeToString(all.toByteArray))
  }
}
