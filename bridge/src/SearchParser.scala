package org.apache.spark.sql.indextables

import java.lang.reflect.{InvocationHandler, InvocationTargetException, Method, Proxy}

import scala.collection.mutable

import org.apache.spark.sql.{SparkSession, SparkSessionExtensions}
import org.apache.spark.sql.catalyst.parser.{ParseException, ParserInterface}

/**
 * Spark's parser, extended by search operators and commands.
 *
 * Spark adds methods to its parser in every version, so a proxy handles the methods that take a statement, by their names,
 * and passes all other calls to Spark's parser.
 */
object SearchParser {
  private val statements = Set("parsePlan", "parsePlanWithParameters")
  private val parseMethods = statements ++ Set("parseQuery", "parseExpression")

  private type Builder = (SparkSession, ParserInterface) => ParserInterface

  /**
   * Makes it the outermost parser of a session, also if `spark.sql.extensions` names other extensions after this one.
   *
   * Delta's parser accepts OPTIMIZE, VACUUM and others for any table. This one passes them on unless the table is one of indextables.
   */
  def inject(session: SparkSessionExtensions): Unit = {
    val builder: Builder = apply
    try {
      val field = classOf[SparkSessionExtensions].getDeclaredField("parserBuilders")
      field.setAccessible(true)
      field.set(session, new Builders(field.get(session).asInstanceOf[mutable.Buffer[Builder]], builder))
    } catch {
      // In a Spark without this field, the order is that of the setting.
      case _: ReflectiveOperationException | _: RuntimeException => session.injectParser(builder)
    }
  }

  /** Builders of parsers, each of which gets the parser of the previous one; `last` always remains the last one. */
  private class Builders(before: Iterable[Builder], last: Builder) extends mutable.ArrayBuffer[Builder] {
    before.foreach(super.addOne)
    super.addOne(last)
    override def addOne(builder: Builder): this.type = {
      insert(length - 1, builder)
      this
    }
  }

  def apply(session: SparkSession, inner: ParserInterface): ParserInterface = Proxy.newProxyInstance(
    getClass.getClassLoader, Array(classOf[ParserInterface]), new Handler(session, inner)).asInstanceOf[ParserInterface]

  private class Handler(session: SparkSession, inner: ParserInterface) extends InvocationHandler {
    override def invoke(proxy: Object, method: Method, parameters: Array[Object]): Object = {
      val arguments = Option(parameters).getOrElse(Array.empty[Object])
      if (parseMethods(method.getName)) parse(method, arguments) else call(method, arguments)
    }

    private def parse(method: Method, arguments: Array[Object]): Object = {
      val sql = arguments(0).asInstanceOf[String]
      val statement = if (statements(method.getName)) command(sql) else Statements.ParseResult(None)
      statement.plan.getOrElse {
        val rewritten = Operators.rewrite(sql)
        try call(method, rewritten.sql +: arguments.tail)
        catch {
          case error: ParseException => throw rewritten.problem.orElse(statement.problem).map(new SyntaxFailure(_)).getOrElse(error)
        }
      }
    }

    // Spark expects parse errors from a parser.
    private def command(sql: String): Statements.ParseResult =
      try Statements.parse(session, sql) catch { case error: Failure => throw new SyntaxFailure(error.getMessage) }

    private def call(method: Method, arguments: Array[Object]): Object =
      try method.invoke(inner, arguments: _*)
      catch { case error: InvocationTargetException => throw error.getCause }
  }
}
