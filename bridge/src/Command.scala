package org.apache.spark.sql.indextables

import java.util

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.{Row, SparkSession}
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.types.DataTypeUtils
import org.apache.spark.sql.classic.{Dataset, SparkSession => ClassicSession}
import org.apache.spark.sql.execution.command.LeafRunnableCommand
import org.apache.spark.sql.execution.python.indextables.ArrowAnswer
import org.apache.spark.sql.types.{DataType, StructType}
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/**
 * A command of indextables: the planner plans it, its tasks run on executors, and the planner computes the result.
 *
 * @param target the name of its table, if it is not a path
 * @param settings whether the result has the settings of Spark and of Hadoop
 * @param empties the cache that it empties, in all planner processes
 */
case class Command(
    statement: String, result: StructType, target: Option[Seq[String]], settings: Boolean, empties: Option[String])
    extends LeafRunnableCommand {
  override lazy val output: Seq[Attribute] = DataTypeUtils.toAttributes(result)

  override def run(session: SparkSession): Seq[Row] = {
    val classic = session.asInstanceOf[ClassicSession]
    val options = target.map(Command.optionsOf(classic, _)).getOrElse(SessionOptions.merge(CaseInsensitiveStringMap.empty))
    val conf = classic.sessionState.conf
    val request = Json.obj(
      "statement" -> statement,
      "options" -> options,
      "executors" -> Executors.names,
      "zone" -> conf.sessionLocalTimeZone,
      "infer_partitions" -> conf.partitionColumnTypeInferenceEnabled)
    ArrowAnswer.rows(new CommandExecution(classic, request, settings, empties).result())
  }
}

object Command {
  /** The command of a statement, if it is a command of indextables. */
  def of(statement: String): Option[Command] = {
    val reply = Rpc("command_schema", Json.obj("statement" -> statement)).json
    if (!reply.has("schema")) None
    else Some(Command(
      statement,
      DataType.fromJson(reply.get("schema").asText).asInstanceOf[StructType],
      Option(reply.get("name")).map(_.asScala.map(_.asText).toSeq),
      reply.get("settings").asBoolean,
      Option(reply.get("empties")).map(_.asText)))
  }

  /** The options of a table of a catalog, by its name. */
  private def optionsOf(session: ClassicSession, name: Seq[String]): util.Map[String, String] =
    Dataset.ofRows(session, UnresolvedRelation(name)).queryExecution.analyzed.collectFirst {
      case IndexRelation(table, relation) => SessionOptions.merge(table.properties, relation.options.asCaseSensitiveMap)
    }.getOrElse(throw new Failure(s"${name.mkString(".")} is not a table of indextables"))
}
