package org.apache.spark.sql.indextables

import java.util
import java.util.Locale

import scala.util.Try

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.parser.SqlBaseLexer.{BACKQUOTED_IDENTIFIER, DOUBLEQUOTED_STRING, STRING_LITERAL}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan

/** Statements that may be commands of indextables; only those are sent to the planner. */
object Statements {
  import Declarations.{CommandWordPositions, CommandWords, SharedOpenings}

  def parse(session: SparkSession, sql: String): Option[LogicalPlan] = {
    val lower = sql.toLowerCase(Locale.ROOT)
    if (!CommandWords.exists(lower.contains) && !SharedOpenings.exists(_.forall(lower.contains))) None
    else {
      val tokens = new Tokens(sql)
      val first = (0 until math.min(CommandWordPositions, tokens.size)).map(tokens.text(_).toLowerCase(Locale.ROOT))
      if (first.drop(1).exists(CommandWords)) Command.of(sql)
      else SharedOpenings.find(first.startsWith(_)).filter(opening => isOurs(session, tokens, opening.size)).flatMap(_ => Command.of(sql))
    }
  }

  /** Whether the table that is named here is one of ours. */
  private def isOurs(session: SparkSession, tokens: Tokens, place: Int): Boolean =
    if (tokens.kind(place) == STRING_LITERAL || tokens.kind(place) == DOUBLEQUOTED_STRING) {
      val path = tokens.text(place).drop(1).dropRight(1)
      val options = SessionOptions.merged(util.Collections.emptyMap(), util.Map.of("path", path))
      Try(TableInfo.of(options)).toOption.flatten.nonEmpty
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
