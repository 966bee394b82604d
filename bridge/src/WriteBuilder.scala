package org.apache.spark.sql.indextables

import java.util

import scala.jdk.CollectionConverters._

import org.apache.spark.{JobArtifactSet, SparkContext}
import org.apache.spark.sql.connector.distributions.{Distribution, Distributions}
import org.apache.spark.sql.connector.expressions.{Expression, SortOrder}
import org.apache.spark.sql.connector.expressions.filter.Predicate
import org.apache.spark.sql.connector.metric.{CustomMetric, CustomTaskMetric}
import org.apache.spark.sql.connector.write._
import org.apache.spark.sql.connector.write.streaming.{StreamingDataWriterFactory, StreamingWrite}

/** Collects the mode, filters and options of a write. */
class IndexWriteBuilder(table: IndexTable, info: LogicalWriteInfo)
    extends WriteBuilder with SupportsOverwriteV2 with SupportsDynamicOverwrite {
  private var mode = table.mode.getOrElse("append")
  private var replace: Option[String] = None
  private var filters: Option[Array[util.Map[String, Any]]] = None
  // Writes within foreachBatch have the properties of the micro-batch, too, but another query id.
  private val batch =
    table.batch.orElse(SparkContext.getActive.flatMap(StreamBatch.current).filter(_.query == info.queryId))

  override def truncate(): WriteBuilder = overwriteWith("all")

  override def overwriteDynamicPartitions(): WriteBuilder = overwriteWith("partitions")

  // The planner refuses conditions that cannot be overwritten, with a reason.
  override def canOverwrite(predicates: Array[Predicate]): Boolean = true

  override def overwrite(predicates: Array[Predicate]): WriteBuilder = {
    filters = Some(ExpressionJson.all(predicates))
    overwriteWith("where")
  }

  private def overwriteWith(what: String): WriteBuilder = {
    mode = "overwrite"
    replace = Some(what)
    this
  }

  override def build(): Write = {
    val writeOptions = StreamOptions.remove(info.options)
    SessionOptions.check(writeOptions, "write")
    val options = SessionOptions.merge(table.properties, writeOptions.asCaseSensitiveMap)
    val request = Json.obj(
      "options" -> options,
      "own" -> SessionOptions.own(table.properties, info.options.asCaseSensitiveMap),
      "schema" -> info.schema.json,
      "declared" -> (if (table.isInCatalog) Some(table.schema.json) else None),
      "partitions" -> table.declaredPartitions,
      "mode" -> mode,
      "replace" -> replace,
      "filters" -> filters,
      "stream" -> batch.map(_.json))
    new IndexWrite(options, info, batch, Rpc("write", request))
  }
}

/** A write after its plan. */
class IndexWrite(options: util.Map[String, String], info: LogicalWriteInfo, batch: Option[StreamBatch], planned: Reply)
    extends Write with RequiresDistributionAndOrdering with BatchWrite {
  private val Seq(function, plan) = planned.blobs
  private val shuffle = Option(planned.json.get("shuffle"))
  // After an attempt to commit, only the planner may delete files: the commit may have succeeded.
  private var mayBeCommitted = false
  // The metrics of the committed version.
  private var metrics: Array[CustomTaskMetric] = Array.empty

  override def description(): String = s"${Provider.Name} ${options.get("path")}"

  override def requiredDistribution(): Distribution = shuffle match {
    case Some(distribution) => Distributions.clustered(
      distribution.get("columns").asScala.map(column => Columns.reference(column.asText): Expression).toArray)
    case None => Distributions.unspecified()
  }

  override def distributionStrictlyRequired(): Boolean = shuffle.exists(_.get("strict").asBoolean)

  override def advisoryPartitionSizeInBytes(): Long = shuffle.map(_.get("bytes").asLong).getOrElse(0L)

  override def requiredOrdering(): Array[SortOrder] = Array.empty

  override def toBatch: BatchWrite = {
    SessionOptions.check(info.options, "write")
    this
  }

  /** A stream into a table of a catalog; one into a path is a [[TableSink]]. */
  override def toStreaming: StreamingWrite = new StreamingWrite {
    override def createStreamingWriterFactory(physical: PhysicalWriteInfo): StreamingDataWriterFactory = writers
    override def commit(epoch: Long, messages: Array[WriterCommitMessage]): Unit =
      IndexWrite.this.commit(messages, Some(StreamBatch(info.queryId, epoch)))
    override def abort(epoch: Long, messages: Array[WriterCommitMessage]): Unit = IndexWrite.this.abort(messages)
  }

  private def writers: RowWriters =
    new RowWriters(Rpc.source, function, info.schema, JobArtifactSet.getCurrentJobArtifactState.map(_.uuid))

  override def createBatchWriterFactory(physical: PhysicalWriteInfo): DataWriterFactory = writers

  override def commit(messages: Array[WriterCommitMessage]): Unit = commit(messages, batch)

  private def commit(messages: Array[WriterCommitMessage], stream: Option[StreamBatch]): Unit = {
    mayBeCommitted = true
    val table = options.get("path")
    val parallelism = Executors.cores
    val reply = Rpc("commit", Json.obj(
      "options" -> options,
      "parallelism" -> parallelism,
      "stream" -> stream.map(_.json),
      "writes" -> MergeOnWrite.count(table)), plan +: bytes(messages): _*).json
    metrics = TaskMetric.all(reply.get("metrics"))
    Option(reply.get("maintenance")).foreach { maintenance =>
      MergeOnWrite.start(table, options, parallelism, maintenance)
    }
  }

  override def abort(messages: Array[WriterCommitMessage]): Unit =
    if (!mayBeCommitted) Rpc("abort", Json.obj("options" -> options), bytes(messages): _*)

  private def bytes(messages: Array[WriterCommitMessage]): Seq[Array[Byte]] =
    messages.toSeq.collect { case written: TaskCommit => written.message }

  override def supportedCustomMetrics(): Array[CustomMetric] = WriteMetrics.all

  override def reportDriverMetrics(): Array[CustomTaskMetric] = metrics
}
