package org.apache.spark.sql.indextables

import java.lang.reflect.{InvocationHandler, InvocationTargetException, Method, Proxy}

import scala.collection.mutable

import org.apache.spark.sql.{SparkSession, SparkSessionExtensions}
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

  private type Builder = (SparkSession, ParserInterface) => ParserInterface

  /**
   * Makes it the outermost parser of a session, also if `spark.sql.extensions` names other extensions after this one.
   *
   * Delta's parser takes OPTIMIZE, VACUUM and others for any table. This one passes those of other tables on.
   */
  def inject(session: SparkSessionExtensions): Unit = {
    val builder: Builder = apply
    try {
      val field = classOf[SparkSessionExtensions].getDeclaredField("parserBuilders")
      field.setAccessible(true)
      field.set(session, new Builders(field.get(session).asInstanceOf[mutable.Buffer[Builder]], builder))
    } catch {
      // Another Spark: the order is that of the setting.
      case _: ReflectiveOperationException | _: RuntimeException => session.injectParser(builder)
    }
  }

  /** Builders of parsers, each of which gets the parser of the one before; the last one stays the last. */
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
      if (texts(method.getName)) parsed(method, arguments) else call(method, arguments)
    }

    private def parsed(method: Method, arguments: Array[Object]): Object = {
      val sql = arguments(0).asInstanceOf[String]
      val ours = if (statements(method.getName)) command(sql) else Statements.Parsed(None)
      ours.plan.getOrElse {
        val rewritten = Operators.rewrite(sql)
        try call(method, rewritten.sql +: arguments.tail)
        catch {
          case error: ParseException => throw rewritten.complaint.orElse(ours.problem).map(new SyntaxFailure(_)).getOrElse(error)
        }
      }
    }

    // A parser throws no other errors than its own.
    private def command(sql: String): Statements.Parsed =
      try Statements.parse(session, sql) catch { case error: Failure => throw new SyntaxFailure(error.getMessage) }

    private def call(method: Method, arguments: Array[Object]): Object =
      try method.invoke(inner, arguments: _*)
      catch { case error: InvocationTargetException => throw error.getCause }
  }
}
