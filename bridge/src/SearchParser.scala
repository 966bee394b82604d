package org.apache.spark.sql.indextables

import java.lang.reflect.{InvocationHandler, InvocationTargetException, Method, Proxy}

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.parser.{ParseException, ParserInterface}

/**
 * Spark's parser, with our operators and commands in front of it.
 *
 * Spark adds methods to its parser in every version, so only those that take a statement are met here, by their names,
 * and all others are passed on.
 */
object SearchParser {
  private val statements = Set("parsePlan", "parsePlanWithParameters")
  private val texts = statements ++ Set("parseQuery", "parseExpression")

  def apply(session: SparkSession, inner: ParserInterface): ParserInterface = Proxy.newProxyInstance(
    getClass.getClassLoader, Array(classOf[ParserInterface]), new Handler(session, inner)).asInstanceOf[ParserInterface]

  private class Handler(session: SparkSession, inner: ParserInterface) extends InvocationHandler {
    override def invoke(proxy: Object, method: Method, parameters: Array[Object]): Object = {
      val arguments = Option(parameters).getOrElse(Array.empty[Object])
      if (texts(method.getName)) parsed(method, arguments) else call(method, arguments)
    }

    private def parsed(method: Method, arguments: Array[Object]): Object = {
      val sql = arguments(0).asInstanceOf[String]
      val ours = if (statements(method.getName)) command(sql) else None
      ours.getOrElse {
        val rewritten = Operators.rewrite(sql)
        try call(method, rewritten.sql +: arguments.tail)
        catch {
          case error: ParseException => throw rewritten.complaint.map(new SyntaxFailure(_)).getOrElse(error)
        }
      }
    }

    // A parser throws no other errors than its own.
    private def command(sql: String): Option[Object] =
      try Statements.parse(session, sql) catch { case error: Failure => throw new SyntaxFailure(error.getMessage) }

    private def call(method: Method, arguments: Array[Object]): Object =
      try method.invoke(inner, arguments: _*)
      catch { case error: InvocationTargetException => throw error.getCause }
  }
}
