package org.apache.spark.sql.indextables

import java.util
import java.util.Locale

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.parser.SqlBaseLexer.{BACKQUOTED_IDENTIFIER, DOUBLEQUOTED_STRING, STRING_LITERAL}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan

/** Statements that may be commands of indextables; only those are sent to the planner. */
object Statements {
  import Declarations.{CommandWordPositions, CommandWords, SharedOpenings}

  /** The plan of a command of indextables, or why the table of the statement cannot be read. */
  case class ParseResult(plan: Option[LogicalPlan], problem: Option[String] = None)

  def parse(session: SparkSession, sql: String): ParseResult = {
    val lower = sql.toLowerCase(Locale.ROOT)
    if (!CommandWords.exists(lower.contains) && !SharedOpenings.exists(_.forall(lower.contains))) ParseResult(None)
    else {
      val tokens = new Tokens(sql)
      val first = (0 until math.min(CommandWordPositions, tokens.size)).map(tokens.text(_).toLowerCase(Locale.ROOT))
      if (first.drop(1).exists(CommandWords)) ParseResult(Command.of(sql))
      else SharedOpenings.find(first.startsWith(_)).fold(ParseResult(None)) { opening =>
        // A table that cannot be read here may be one of Delta, which has other credentials for it.
        val table = try Right(isIndexTable(session, tokens, opening.size)) catch { case error: Failure => Left(error.getMessage) }
        table.fold(problem => ParseResult(None, Some(problem)), isCommand => ParseResult(if (isCommand) Command.of(sql) else None))
      }
    }
  }

  /** Whether the table at this place of the statement is one of indextables. */
  private def isIndexTable(session: SparkSession, tokens: Tokens, place: Int): Boolean =
    if (tokens.kind(place) == STRING_LITERAL || tokens.kind(place) == DOUBLEQUOTED_STRING) {
      val path = tokens.text(place).drop(1).dropRight(1)
      val options = SessionOptions.merge(util.Collections.emptyMap(), util.Map.of("path", path))
      TableInfo.of(options).nonEmpty
    } else {
      val names = parts(tokens, place)
      names match {
        case Seq(format, path) if path.contains("/") => format.equalsIgnoreCase(Provider.Name)
        case _ => names.nonEmpty && TimeTravel(session).catalogTable(names).nonEmpty
      }
    }

  /** The parts of a qualified name, without quotes. */
  private def parts(tokens: Tokens, place: Int): Seq[String] = {
    val name = if (tokens.kind(place) == BACKQUOTED_IDENTIFIER) tokens.text(place).drop(1).dropRight(1).replace("``", "`")
      else tokens.text(place)
    if (name.isEmpty) Nil
    else if (tokens.text(place + 1) == ".") name +: parts(tokens, place + 2)
    else Seq(name)
  }
}
