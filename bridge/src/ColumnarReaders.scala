package org.apache.spark.sql.execution.python.indextables

import java.io.ByteArrayInputStream

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import org.apache.arrow.memory.BufferAllocator
import org.apache.arrow.vector._
import org.apache.arrow.vector.complex.StructVector
import org.apache.arrow.vector.ipc.ArrowStreamReader

import org.apache.hadoop.fs.{FileSystem, LocalFileSystem}

import org.apache.spark.TaskContext
import org.apache.spark.api.python.ChainedPythonFunctions
import org.apache.spark.sql.Row
import org.apache.spark.sql.catalyst.{CatalystTypeConverters, InternalRow}
import org.apache.spark.sql.connector.metric.CustomTaskMetric
import org.apache.spark.sql.connector.read.{InputPartition, PartitionReader, PartitionReaderFactory}
import org.apache.spark.sql.execution.datasources.v2.python.{PythonCustomMetric, UserDefinedPythonDataSource}
import org.apache.spark.sql.indextables.{AnswerPartition, Json, KeepAlive, StreamTaskPartition, TaskFailure, TaskMetric, TaskPartition}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.{Decimal, StructField, StructType}
import org.apache.spark.sql.util.ArrowUtils
import org.apache.spark.sql.vectorized.{ArrowColumnVector, ColumnVector, ColumnarArray, ColumnarBatch, ColumnarMap}
import org.apache.spark.unsafe.Platform
import org.apache.spark.unsafe.types.UTF8String

/** Reads the partitions of a scan in batches of Arrow vectors. */
class ColumnarReaders(
    source: UserDefinedPythonDataSource,
    function: Array[Byte],
    projection: StructType,
    hasSmallLimit: Boolean,
    artifacts: Option[String])
    extends PartitionReaderFactory {
  override def supportColumnarReads(partition: InputPartition): Boolean = true

  override def createReader(partition: InputPartition): PartitionReader[InternalRow] =
    throw new UnsupportedOperationException("scans of indextables are columnar")

  override def createColumnarReader(partition: InputPartition): PartitionReader[ColumnarBatch] = partition match {
    case AnswerPartition(stream) => new AnswerReader(stream)
    case StreamTaskPartition(batchFunction, task, _) => new TaskReader(source, batchFunction, task, projection, artifacts)
    case TaskPartition(task, _) =>
      val reader = new TaskReader(source, function, task, projection, artifacts)
      if (hasSmallLimit) new BufferedReader(reader) else reader
  }
}

/**
 * A column of a batch, valid until its reader loads the next batch.
 *
 * Spark assumes that the memory of an `ArrowColumnVector` is never reused: it passes such batches to Python UDFs through a
 * queue, reads them after later batches were loaded, and does not free them. The memory of other vectors may be reused, as
 * Spark's own readers of files do. So this class is not an `ArrowColumnVector`.
 */
private final class ScanColumn(vector: ArrowColumnVector) extends ColumnVector(vector.dataType) {
  def this(vector: ValueVector) = this(new ArrowColumnVector(vector))

  private val values = vector.getValueVector
  private val anyNull = vector.hasNull
  // Values of these types are read from memory: the accessors of Arrow check bounds and nulls for each value, and
  // those for decimals create two objects.
  private val isFlat = values match {
    case _: TinyIntVector | _: SmallIntVector | _: IntVector | _: BigIntVector | _: Float4Vector | _: Float8Vector => true
    case _: DateDayVector | _: TimeStampMicroVector | _: TimeStampMicroTZVector | _: VarCharVector => true
    // Decimals that fit into 64 bits.
    case decimals: DecimalVector => decimals.getPrecision <= Decimal.MAX_LONG_DIGITS
    case _ => false
  }
  private val validity = if (isFlat) values.getValidityBuffer.memoryAddress else 0L
  private val data = if (isFlat) values.getDataBuffer.memoryAddress else 0L
  private val offsets = values match {
    case texts: VarCharVector => texts.getOffsetBuffer.memoryAddress
    case _ => 0L
  }

  // The reader frees the memory.
  override def close(): Unit = ()
  override def closeIfFreeable(): Unit = ()
  override def hasNull: Boolean = anyNull
  override def numNulls(): Int = vector.numNulls()
  override def isNullAt(row: Int): Boolean =
    anyNull && (if (isFlat) (Platform.getByte(null, validity + (row >> 3)) >> (row & 7) & 1) == 0 else vector.isNullAt(row))
  override def getBoolean(row: Int): Boolean = vector.getBoolean(row)
  override def getByte(row: Int): Byte = if (isFlat) Platform.getByte(null, data + row) else vector.getByte(row)
  override def getShort(row: Int): Short = if (isFlat) Platform.getShort(null, data + row * 2L) else vector.getShort(row)
  override def getInt(row: Int): Int = if (isFlat) Platform.getInt(null, data + row * 4L) else vector.getInt(row)
  override def getLong(row: Int): Long = if (isFlat) Platform.getLong(null, data + row * 8L) else vector.getLong(row)
  override def getFloat(row: Int): Float = if (isFlat) Platform.getFloat(null, data + row * 4L) else vector.getFloat(row)
  override def getDouble(row: Int): Double = if (isFlat) Platform.getDouble(null, data + row * 8L) else vector.getDouble(row)
  override def getArray(row: Int): ColumnarArray = vector.getArray(row)
  override def getMap(row: Int): ColumnarMap = vector.getMap(row)
  override def getDecimal(row: Int, precision: Int, scale: Int): Decimal =
    if (!isFlat) vector.getDecimal(row, precision, scale)
    else if (isNullAt(row)) null
    // A number with so few digits is in the lower half of the 16 bytes, in the byte order of this machine.
    else Decimal.createUnsafe(Platform.getLong(null, data + row.toLong * DecimalVector.TYPE_WIDTH), precision, scale)
  override def getUTF8String(row: Int): UTF8String =
    if (offsets == 0L) vector.getUTF8String(row)
    else if (isNullAt(row)) null
    else {
      val start = Platform.getInt(null, offsets + row * 4L)
      UTF8String.fromAddress(null, data + start, Platform.getInt(null, offsets + row * 4L + 4) - start)
    }
  override def getBinary(row: Int): Array[Byte] = vector.getBinary(row)
  override def getChild(ordinal: Int): ColumnVector = vector.getChild(ordinal)
}

/** The memory of all batches of the readers of this JVM. */
object ScanMemory {
  val allocator: BufferAllocator = ArrowUtils.rootAllocator.newChildAllocator("indextables", 0, Long.MaxValue)

  def newAllocator(): BufferAllocator = allocator.newChildAllocator("indextables-reader", 0, Long.MaxValue)
}

/** Rows from an Arrow stream in memory. */
private class AnswerReader(stream: Array[Byte]) extends PartitionReader[ColumnarBatch] {
  private val allocator = ScanMemory.newAllocator()
  private val reader = new ArrowStreamReader(new ByteArrayInputStream(stream), allocator)

  def schema: StructType = ArrowUtils.fromArrowSchema(reader.getVectorSchemaRoot.getSchema)

  override def next(): Boolean = reader.loadNextBatch()

  override def get(): ColumnarBatch = {
    val root = reader.getVectorSchemaRoot
    val columns = root.getFieldVectors.asScala.map(new ScanColumn(_): ColumnVector).toArray
    new ColumnarBatch(columns, root.getRowCount)
  }

  override def close(): Unit = {
    reader.close(false)
    allocator.close()
  }
}

/** Converts an Arrow stream in memory to external or internal rows of Spark. */
object ArrowAnswer {
  def internalRows(stream: Array[Byte], schema: StructType): Seq[InternalRow] = {
    val convert = CatalystTypeConverters.createToCatalystConverter(schema)
    rows(stream).map(row => convert(row).asInstanceOf[InternalRow])
  }

  def rows(stream: Array[Byte]): Seq[Row] = {
    val reader = new AnswerReader(stream)
    try {
      val convert = CatalystTypeConverters.createToScalaConverter(reader.schema)
      Iterator.continually(reader).takeWhile(_.next())
        .flatMap(_.get().rowIterator.asScala.map(row => convert(row).asInstanceOf[Row])).toList
    } finally reader.close()
  }
}

/**
 * Reads all batches of a Python task before it returns the first one, as far as they fit into a buffer.
 *
 * A query with a limit stops when it has enough rows. If the output of a Python worker was not read to its end, Spark ends
 * the worker, whose open indexes would be lost.
 */
private class BufferedReader(inner: TaskReader) extends PartitionReader[ColumnarBatch] {
  private val allocator = ScanMemory.newAllocator()
  private val buffer = mutable.Queue.empty[OwnedBatch]
  private var current: Option[OwnedBatch] = None
  private var filled = false
  // Whether the task has more batches than those in the buffer.
  private var more = true

  private class OwnedBatch(vectors: Seq[ValueVector], rows: Int) {
    val batch = new ColumnarBatch(vectors.map(new ScanColumn(_): ColumnVector).toArray, rows)
    def close(): Unit = vectors.foreach(_.close())
  }

  private def fill(): Unit = {
    filled = true
    while (more && allocator.getAllocatedMemory < BufferedReader.MaxBytes) {
      more = inner.next()
      if (more) buffer += new OwnedBatch(inner.vectors.map { vector =>
        val pair = vector.getTransferPair(allocator)
        pair.transfer()
        pair.getTo
      }, inner.get().numRows)
    }
  }

  override def next(): Boolean = {
    if (!filled) fill()
    current.foreach(_.close())
    current = if (buffer.isEmpty) None else Some(buffer.dequeue())
    current.nonEmpty || (more && {
      more = inner.next()
      more
    })
  }

  override def get(): ColumnarBatch = current.fold(inner.get())(_.batch)

  override def close(): Unit = {
    current.foreach(_.close())
    buffer.foreach(_.close())
    inner.close()
    allocator.close()
  }

  override def currentMetricsValues(): Array[CustomTaskMetric] = inner.currentMetricsValues()
}

private object BufferedReader {
  private val MaxBytes = 16L << 20
}

/** Rows from a Python task; its last batch is one row with the metrics of the task. */
private class TaskReader(
    source: UserDefinedPythonDataSource,
    function: Array[Byte],
    task: Array[Byte],
    projection: StructType,
    artifacts: Option[String])
    extends PartitionReader[ColumnarBatch] {
  KeepAlive.recordUse()
  private val metrics = PythonCustomMetric.pythonMetrics
  private var last: Array[CustomTaskMetric] = Array.empty
  private var current: ColumnarBatch = _
  /** The vectors of the current batch; the stream reuses them for the next one. */
  var vectors: Seq[ValueVector] = Nil

  private val batches: Iterator[ColumnarBatch] = {
    val conf = SQLConf.get
    val context = TaskContext.get()
    val input = StructType(Array(StructField("struct", UserDefinedPythonDataSource.readInputSchema)))
    val functions = Seq((ChainedPythonFunctions(Seq(source.createPythonFunction(function))), 0L))
    val runner = ArrowRunner(functions, input, conf, metrics, artifacts)
    runner.compute(Iterator(Iterator(InternalRow(InternalRow(task)))), context.partitionId(), context)
  }

  override def next(): Boolean = batches.hasNext && {
    val batch = batches.next()
    val struct = batch.column(0).asInstanceOf[ArrowColumnVector].getValueVector.asInstanceOf[StructVector]
    def vector(place: Int): ValueVector = struct.getChildByOrdinal(place).asInstanceOf[ValueVector]
    val status = new ScanColumn(vector(projection.size))
    if (batch.numRows == 1 && !status.isNullAt(0)) {
      val metrics = Json.parse(status.getUTF8String(0).toString)
      Option(metrics.get("error")).foreach(error => throw new TaskFailure(error.asText))
      last = TaskMetric.all(metrics)
      // Spark takes the bytes that a task has read from the statistics of Hadoop's file systems.
      FileSystem.getStatistics("file", classOf[LocalFileSystem]).incrementBytesRead(metrics.get("storageBytes").asLong)
      next()
    } else {
      vectors = projection.indices.map(vector)
      current = new ColumnarBatch(vectors.map(new ScanColumn(_): ColumnVector).toArray, batch.numRows)
      true
    }
  }

  override def get(): ColumnarBatch = current

  override def close(): Unit = ()

  override def currentMetricsValues(): Array[CustomTaskMetric] =
    last ++ source.createPythonTaskMetrics(metrics.map { case (name, metric) => name -> metric.value })
}
