package org.apache.spark.sql.indextables

import java.util.Locale

import scala.collection.mutable

import org.apache.spark.sql.catalyst.parser.SqlBaseLexer._

/** A statement with search operators rewritten as functions; `problem` is an operator that could not be rewritten. */
case class RewrittenSql(sql: String, problem: Option[String])

/** `column [NOT] INDEXQUERY 'query'` becomes `indexquery(column, 'query')`, and so on for all operators. */
object Operators {
  private val names = SearchFunctions.Kinds
  // Keywords that can precede an operator; they are not columns.
  private val notNames = Set(
    SELECT, WHERE, AND, OR, NOT, ON, WHEN, THEN, ELSE, CASE, HAVING, BY, FROM, IN, LIKE, BETWEEN, IS, NULL, TRUE, FALSE,
    DISTINCT, AS, JOIN, USING, UNION, SET, VALUES)

  def rewrite(sql: String): RewrittenSql = {
    val lower = sql.toLowerCase(Locale.ROOT)
    if (!names.exists(lower.contains)) RewrittenSql(sql, None) else new Rewriter(new Tokens(sql)).result
  }

  private class Rewriter(tokens: Tokens) {
    private val edits = mutable.ArrayBuffer.empty[(Int, Int, String)]
    private var problem: Option[String] = None

    def result: RewrittenSql = {
      var place = 1
      while (place < tokens.size) {
        operator(place).foreach { name =>
          query(place + 1) match {
            case Some(last) => leftSide(place).foreach { case (first, rewrite) =>
              val argument = tokens.sql.substring(tokens.start(place + 1), tokens.end(last))
              edits += ((tokens.start(first), tokens.end(last), rewrite(name, argument)))
              place = last
            }
            case None => if (isName(place - 1)) {
              report(s"${name.toUpperCase(Locale.ROOT)} takes its query in quotes, as message ${name.toUpperCase(Locale.ROOT)} 'words'")
            }
          }
        }
        place += 1
      }
      val rewritten = new StringBuilder(tokens.sql)
      edits.reverseIterator.foreach { case (start, end, text) => rewritten.replace(start, end, text) }
      RewrittenSql(rewritten.toString, problem)
    }

    private def report(sentence: String): Unit = if (problem.isEmpty) problem = Some(sentence)

    private def operator(place: Int): Option[String] =
      if (tokens.kind(place) != IDENTIFIER) None
      else names.find(_.equalsIgnoreCase(tokens.text(place)))

    /** The last token of a query that starts here: a text (adjacent ones are concatenated, as in Spark), or a parameter. */
    private def query(place: Int): Option[Int] = tokens.kind(place) match {
      case STRING_LITERAL | DOUBLEQUOTED_STRING =>
        Some(Iterator.from(place).takeWhile(at => isText(at)).reduce((_, last) => last))
      case QUESTION => Some(place)
      case COLON if isName(place + 1) => Some(place + 1)
      case _ => None
    }

    private def isText(place: Int): Boolean =
      tokens.kind(place) == STRING_LITERAL || tokens.kind(place) == DOUBLEQUOTED_STRING

    /** The left side of an operator: its first token, and a function of operator and query that returns the SQL. */
    private def leftSide(operator: Int): Option[(Int, (String, String) => String)] = {
      val not = tokens.kind(operator - 1) == NOT && operator > 1
      val last = if (not) operator - 2 else operator - 1
      val before = if (not) "NOT " else ""
      if (tokens.kind(last) == ASTERISK && !isOperand(last - 1)) {
        Some((last, (name, query) => s"($before${name}all($query))"))
      } else if (isName(last)) {
        var first = last
        while (tokens.text(first - 1) == "." && isName(first - 2)) first -= 2
        val column = tokens.sql.substring(tokens.start(first), tokens.end(last))
        if (column.equalsIgnoreCase(VirtualColumn.AllFields)) Some((first, (name, query) => s"($before${name}all($query))"))
        else Some((first, (name, query) => s"($before$name($column, $query))"))
      } else {
        val name = tokens.text(operator).toUpperCase(Locale.ROOT)
        report(s"$name takes a column on its left, or * for all fields, as message $name 'words'")
        None
      }
    }

    private def isName(place: Int): Boolean = tokens.kind(place) match {
      case IDENTIFIER | BACKQUOTED_IDENTIFIER => true
      case kind if notNames(kind) => false
      case _ => tokens.text(place).matches("[A-Za-z_][A-Za-z0-9_]*")
    }

    private def isOperand(place: Int): Boolean = place >= 0 && (isName(place) || isText(place) || (tokens.kind(place) match {
      case RIGHT_PAREN | RIGHT_BRACKET | INTEGER_VALUE | DECIMAL_VALUE | DOUBLE_LITERAL | BIGINT_LITERAL => true
      case _ => false
    }))
  }
}
