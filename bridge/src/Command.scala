package org.apache.spark.sql.indextables

import java.util

import scala.jdk.CollectionConverters._

import org.apache.spark.JobArtifactSet
import org.apache.spark.sql.{Row, SparkSession}
import org.apache.spark.sql.catalyst.CatalystTypeConverters
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.types.DataTypeUtils
import org.apache.spark.sql.classic.{Dataset, SparkSession => ClassicSession}
import org.apache.spark.sql.connector.catalog.{SupportsRead, Table, TableCapability}
import org.apache.spark.sql.connector.read._
import org.apache.spark.sql.execution.arrow.ArrowConverters
import org.apache.spark.sql.execution.command.LeafRunnableCommand
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
import org.apache.spark.sql.execution.datasources.v2.python.{PythonInputPartition, PythonPartitionReaderFactory}
import org.apache.spark.sql.types.{BinaryType, DataType, StructType}
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** A command of ours: Python plans it, its tasks run on executors, Python finishes it. */
case class Command(statement: String, result: StructType, target: Option[Seq[String]]) extends LeafRunnableCommand {
  override lazy val output: Seq[Attribute] = DataTypeUtils.toAttributes(result)

  override def run(session: SparkSession): Seq[Row] = {
    val classic = session.asInstanceOf[ClassicSession]
    val options = target.map(Command.optionsOf(classic, _)).getOrElse(SessionOptions.merged(CaseInsensitiveStringMap.empty))
    val request = Json.obj("statement" -> statement, "options" -> options)
    val planned = Rpc("command_plan", request)
    val answer =
      if (planned.json.get("done").asBoolean) planned.blobs.head
      else {
        val Seq(function, state) = planned.blobs.take(2)
        Rpc("command_finish", request, state +: Tasks.run(classic, function, planned.blobs.drop(2)): _*).blobs.head
      }
    val (rows, _) = ArrowConverters.fromIPCStream(answer)
    val convert = CatalystTypeConverters.createToScalaConverter(result)
    try rows.map(row => convert(row).asInstanceOf[Row]).toList finally rows.close()
  }
}

object Command {
  /** The command that a statement is, if it is one of ours. */
  def of(statement: String): Option[Command] = {
    val reply = Rpc("command_schema", Json.obj("statement" -> statement)).json
    if (!reply.has("schema")) None
    else Some(Command(
      statement,
      DataType.fromJson(reply.get("schema").asText).asInstanceOf[StructType],
      Option(reply.get("name")).map(_.asScala.map(_.asText).toSeq)))
  }

  /** What a name stands for: a table of ours in a catalog. */
  private def optionsOf(session: ClassicSession, name: Seq[String]): util.Map[String, String] =
    Dataset.ofRows(session, UnresolvedRelation(name)).queryExecution.analyzed.collectFirst {
      case DataSourceV2Relation(table: IndexTable, _, _, _, options, _) =>
        SessionOptions.merged(table.properties, options.asCaseSensitiveMap)
    }.getOrElse(throw new Failure(s"${name.mkString(".")} is not a table of indextables"))
}

/** Tasks that Python planned, run on executors: bytes in, bytes out. */
object Tasks {
  private val Result = new StructType().add("result", BinaryType)

  def run(session: ClassicSession, function: Array[Byte], tasks: Seq[Array[Byte]]): Seq[Array[Byte]] = {
    val relation =
      DataSourceV2Relation.create(new Planned(function, tasks), None, None, CaseInsensitiveStringMap.empty)
    Dataset.ofRows(session, relation).collect().map(_.getAs[Array[Byte]](0)).toSeq
  }

  private class Planned(function: Array[Byte], tasks: Seq[Array[Byte]]) extends Table with SupportsRead {
    override def name(): String = s"${Provider.Name} tasks"
    override def schema(): StructType = Result
    override def capabilities(): util.Set[TableCapability] = util.EnumSet.of(TableCapability.BATCH_READ)
    override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder = () => new Scan with Batch {
      override def readSchema(): StructType = Result
      override def toBatch: Batch = this
      override def planInputPartitions(): Array[InputPartition] =
        tasks.zipWithIndex.map { case (task, number) => PythonInputPartition(number, task) }.toArray
      override def createReaderFactory(): PartitionReaderFactory = new PythonPartitionReaderFactory(
        Rpc.source, function, Result, JobArtifactSet.getCurrentJobArtifactState.map(_.uuid), None)
    }
  }
}
