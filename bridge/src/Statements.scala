package org.apache.spark.sql.indextables

import java.util
import java.util.Locale

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.parser.SqlBaseLexer.{BACKQUOTED_IDENTIFIER, DOUBLEQUOTED_STRING, STRING_LITERAL}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan

/** Statements that may be commands of indextables; only those are sent to the planner. */
object Statements {
  import Declarations.{CommandWordPositions, CommandWords, SharedOpenings}

  /** A command of ours, or why it is not known whether it is one. */
  case class Parsed(plan: Option[LogicalPlan], problem: Option[String] = None)

  def parse(session: SparkSession, sql: String): Parsed = {
    val lower = sql.toLowerCase(Locale.ROOT)
    if (!CommandWords.exists(lower.contains) && !SharedOpenings.exists(_.forall(lower.contains))) Parsed(None)
    else {
      val tokens = new Tokens(sql)
      val first = (0 until math.min(CommandWordPositions, tokens.size)).map(tokens.text(_).toLowerCase(Locale.ROOT))
      if (first.drop(1).exists(CommandWords)) Parsed(Command.of(sql))
      else SharedOpenings.find(first.startsWith(_)).fold(Parsed(None)) { opening =>
        // What cannot be read here may be a table of Delta, which reads it with its own credentials.
        val named = try Right(isOurs(session, tokens, opening.size)) catch { case error: Failure => Left(error.getMessage) }
        named.fold(problem => Parsed(None, Some(problem)), ours => Parsed(if (ours) Command.of(sql) else None))
      }
    }
  }

  /** Whether the table that is named here is one of ours. */
  private def isOurs(session: SparkSession, tokens: Tokens, place: Int): Boolean =
    if (tokens.kind(place) == STRING_LITERAL || tokens.kind(place) == DOUBLEQUOTED_STRING) {
      val path = tokens.text(place).drop(1).dropRight(1)
      val options = SessionOptions.merged(util.Collections.emptyMap(), util.Map.of("path", path))
      TableInfo.of(options).nonEmpty
    } else {
      val names = parts(tokens, place)
      names match {
        case Seq(format, path) if path.contains("/") => format.equalsIgnoreCase(Provider.Name)
        case _ => names.nonEmpty && TimeTravel(session).catalogTable(names).nonEmpty
      }
    }

  /** A name and the names before it, without their quotes. */
  private def parts(tokens: Tokens, place: Int): Seq[String] = {
    val name = if (tokens.kind(place) == BACKQUOTED_IDENTIFIER) tokens.text(place).drop(1).dropRight(1).replace("``", "`")
      else tokens.text(place)
    if (name.isEmpty) Nil
    else if (tokens.text(place + 1) == ".") name +: parts(tokens, place + 2)
    else Seq(name)
  }
}
