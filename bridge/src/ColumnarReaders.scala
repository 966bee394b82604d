package org.apache.spark.sql.execution.python.indextables

import java.io.ByteArrayInputStream

import scala.jdk.CollectionConverters._

import org.apache.arrow.vector.ValueVector
import org.apache.arrow.vector.complex.StructVector
import org.apache.arrow.vector.ipc.ArrowStreamReader

import org.apache.spark.TaskContext
import org.apache.spark.api.python.{ChainedPythonFunctions, PythonEvalType}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.metric.CustomTaskMetric
import org.apache.spark.sql.connector.read.{InputPartition, PartitionReader, PartitionReaderFactory}
import org.apache.spark.sql.execution.datasources.v2.python.{PythonCustomMetric, UserDefinedPythonDataSource}
import org.apache.spark.sql.execution.python.{ArrowPythonRunner, BatchedPythonArrowInput}
import org.apache.spark.sql.indextables.{AnswerPartition, Json, KeepAlive, TaskFailure, TaskMetric, TaskPartition}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.{StructField, StructType}
import org.apache.spark.sql.util.ArrowUtils
import org.apache.spark.sql.vectorized.{ArrowColumnVector, ColumnVector, ColumnarBatch}

/** Reads the partitions of a scan: Arrow vectors go to Spark as they are. */
class ColumnarReaders(
    source: UserDefinedPythonDataSource,
    function: Array[Byte],
    wanted: StructType,
    few: Boolean,
    artifacts: Option[String])
    extends PartitionReaderFactory {
  override def supportColumnarReads(partition: InputPartition): Boolean = true

  override def createReader(partition: InputPartition): PartitionReader[InternalRow] =
    throw new UnsupportedOperationException("scans of indextables are columnar")

  override def createColumnarReader(partition: InputPartition): PartitionReader[ColumnarBatch] = partition match {
    case AnswerPartition(stream) => new AnswerReader(stream)
    case TaskPartition(task, _) =>
      val reader = new TaskReader(source, function, task, wanted, artifacts)
      if (few) new WholeReader(reader) else reader
  }
}

/** A column of a stream, which the stream uses again for its next batch; Spark would close it with each batch. */
private class StreamColumn(vector: ValueVector) extends ArrowColumnVector(vector) {
  override def close(): Unit = ()
  override def closeIfFreeable(): Unit = ()
}

/** Rows from an Arrow stream in memory. */
private class AnswerReader(stream: Array[Byte]) extends PartitionReader[ColumnarBatch] {
  private val allocator = ArrowUtils.rootAllocator.newChildAllocator("indextables", 0, Long.MaxValue)
  private val reader = new ArrowStreamReader(new ByteArrayInputStream(stream), allocator)

  override def next(): Boolean = reader.loadNextBatch()

  override def get(): ColumnarBatch = {
    val root = reader.getVectorSchemaRoot
    val columns = root.getFieldVectors.asScala.map(new StreamColumn(_): ColumnVector).toArray
    new ColumnarBatch(columns, root.getRowCount)
  }

  override def close(): Unit = {
    reader.close(false)
    allocator.close()
  }
}

/**
 * All batches of another reader, read at once.
 *
 * A query with a limit stops when it has enough rows. Spark ends a Python worker that was not read to its end, and with
 * it would go the indexes that it holds open.
 */
private class WholeReader(inner: TaskReader) extends PartitionReader[ColumnarBatch] {
  private val allocator = ArrowUtils.rootAllocator.newChildAllocator("indextables", 0, Long.MaxValue)
  private var current: ColumnarBatch = _

  private lazy val batches: Iterator[ColumnarBatch] = Iterator.continually(inner.next()).takeWhile(identity)
    .map(_ => taken(inner.get())).toList.iterator

  private def taken(batch: ColumnarBatch): ColumnarBatch = new ColumnarBatch(
    (0 until batch.numCols).map { place =>
      val pair = batch.column(place).asInstanceOf[ArrowColumnVector].getValueVector.getTransferPair(allocator)
      pair.transfer()
      new ArrowColumnVector(pair.getTo): ColumnVector
    }.toArray, batch.numRows)

  override def next(): Boolean = batches.hasNext && {
    current = batches.next()
    true
  }

  override def get(): ColumnarBatch = current

  // Spark closes a batch when it goes on to the next one, but not those that it never asked for.
  override def close(): Unit = {
    if (current != null) current.close()
    batches.foreach(_.close())
    inner.close()
    allocator.close()
  }

  override def currentMetricsValues(): Array[CustomTaskMetric] = inner.currentMetricsValues()
}

/** Rows from a Python task; its last batch is one row that says what the task read. */
private class TaskReader(
    source: UserDefinedPythonDataSource,
    function: Array[Byte],
    task: Array[Byte],
    wanted: StructType,
    artifacts: Option[String])
    extends PartitionReader[ColumnarBatch] {
  KeepAlive.used()
  private val figures = PythonCustomMetric.pythonMetrics
  private var last: Array[CustomTaskMetric] = Array.empty
  private var current: ColumnarBatch = _

  private val batches: Iterator[ColumnarBatch] = {
    val conf = SQLConf.get
    val context = TaskContext.get()
    val input = StructType(Array(StructField("struct", UserDefinedPythonDataSource.readInputSchema)))
    val runner = new ArrowPythonRunner(
      Seq((ChainedPythonFunctions(Seq(source.createPythonFunction(function))), 0L)),
      PythonEvalType.SQL_MAP_ARROW_ITER_UDF,
      Array(Array(0)),
      input,
      conf.sessionLocalTimeZone,
      conf.arrowUseLargeVarTypes,
      ArrowPythonRunner.getPythonRunnerConfMap(conf),
      figures,
      artifacts,
      None) with BatchedPythonArrowInput
    runner.compute(Iterator(Iterator(InternalRow(InternalRow(task)))), context.partitionId(), context)
  }

  override def next(): Boolean = batches.hasNext && {
    val batch = batches.next()
    val struct = batch.column(0).asInstanceOf[ArrowColumnVector].getValueVector.asInstanceOf[StructVector]
    def column(place: Int): ColumnVector = new StreamColumn(struct.getChildByOrdinal(place).asInstanceOf[ValueVector])
    val said = column(wanted.size)
    if (batch.numRows == 1 && !said.isNullAt(0)) {
      val figures = Json.parse(said.getUTF8String(0).toString)
      Option(figures.get("error")).foreach(error => throw new TaskFailure(error.asText))
      last = TaskMetric.all(figures)
      next()
    } else {
      current = new ColumnarBatch(wanted.indices.map(column).toArray, batch.numRows)
      true
    }
  }

  override def get(): ColumnarBatch = current

  override def close(): Unit = ()

  override def currentMetricsValues(): Array[CustomTaskMetric] =
    last ++ source.createPythonTaskMetrics(figures.map { case (name, metric) => name -> metric.value })
}
