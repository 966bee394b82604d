package org.apache.spark.sql.indextables

import java.util
import java.util.Locale

import scala.jdk.CollectionConverters._

import org.apache.spark.SparkContext
import org.apache.spark.sql.{DataFrame, SaveMode}
import org.apache.spark.sql.classic.Dataset
import org.apache.spark.sql.execution.datasources.DataSourceUtils
import org.apache.spark.sql.execution.streaming.Sink
import org.apache.spark.sql.streaming.OutputMode
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** A micro-batch of a stream: the id of its query, which is stored in the stream's checkpoint, and its number. */
case class StreamBatch(query: String, number: Long) {
  def json: util.Map[String, Any] = Json.obj("app" -> query, "batch" -> number)
}

object StreamBatch {
  // StreamExecution.QUERY_ID_KEY and MicroBatchExecution.BATCH_ID_KEY, whose packages differ between versions of Spark.
  private val QueryId = "sql.streaming.queryId"
  private val BatchId = "streaming.sql.batchId"

  /** The micro-batch that this thread runs. */
  def current(context: SparkContext): Option[StreamBatch] =
    for (query <- Option(context.getLocalProperty(QueryId)); number <- Option(context.getLocalProperty(BatchId)))
      yield StreamBatch(query, number.toLong)
}

/** Removes Spark's own options of a stream. */
object StreamOptions {
  private val Names = Set("checkpointlocation", "queryname")

  def remove(options: CaseInsensitiveStringMap): CaseInsensitiveStringMap =
    new CaseInsensitiveStringMap(options.asCaseSensitiveMap.asScala
      .filterNot { case (key, _) => Names(key.toLowerCase(Locale.ROOT)) }.asJava)
}

/** A stream into a table by its path: each micro-batch is one write, with the query and the number of the batch. */
class TableSink(parameters: Map[String, String], partitionColumns: Seq[String], mode: OutputMode) extends Sink {
  private val saveMode =
    if (mode == OutputMode.Append()) SaveMode.Append
    else if (mode == OutputMode.Complete()) SaveMode.Overwrite
    else throw new Failure("a stream into a table has the output mode append or complete: there are no updates of rows")

  private val options: Map[String, String] = {
    val own = StreamOptions.remove(new CaseInsensitiveStringMap(parameters.asJava)).asCaseSensitiveMap.asScala.toMap
    val partitions =
      if (partitionColumns.isEmpty) Map.empty
      else Map(DataSourceUtils.PARTITIONING_COLUMNS_KEY -> DataSourceUtils.encodePartitioningColumns(partitionColumns))
    own ++ partitions
  }

  override def addBatch(number: Long, data: DataFrame): Unit = {
    val rows = data.asInstanceOf[Dataset[_]]
    val session = rows.sparkSession
    // The plan of the stream is executed unchanged, with its state; its rows are written by another plan.
    val written = session.internalCreateDataFrame(rows.queryExecution.toRdd, rows.schema)
    val batch = StreamBatch.current(session.sparkContext).getOrElse(throw new IllegalStateException("this thread runs no micro-batch"))
    SaveModes.save(session.sqlContext, saveMode, options, written, Some(StreamBatch(batch.query, number)))
  }

  override def toString: String = s"${Provider.Name} ${parameters.getOrElse("path", "")}".trim
}
