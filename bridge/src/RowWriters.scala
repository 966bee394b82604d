package org.apache.spark.sql.indextables

import java.util

import scala.jdk.CollectionConverters._

import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.metric.CustomMetric
import org.apache.spark.sql.connector.write.{DataWriter, DataWriterFactory, WriterCommitMessage}
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource
import org.apache.spark.sql.types._

/** The commit message of a task, in the planner's format. */
case class TaskCommit(message: Array[Byte]) extends WriterCommitMessage

/** Passes the rows of a task to a Python function, whose result is the task's commit message. */
class RowWriters(source: UserDefinedPythonDataSource, function: Array[Byte], schema: StructType, artifacts: Option[String])
    extends DataWriterFactory with StreamingDataWriterFactory {
  override def createWriter(partition: Int, task: Long, epoch: Long): DataWriter[InternalRow] = createWriter(partition, task)

  override def createWriter(partition: Int, task: Long): DataWriter[InternalRow] = new DataWriter[InternalRow] {
    private var message: Option[TaskCommit] = None

    override def writeAll(rows: util.Iterator[InternalRow]): Unit = {
      KeepAlive.recordUse()
      val evaluators = Compat.evaluatorFactory(source, function, TransportTypes(schema), RowWriters.Result, artifacts)
      evaluators.createEvaluator().eval(0, rows.asScala).foreach { row =>
        if (!row.isNullAt(1)) throw new TaskFailure(row.getUTF8String(1).toString)
        message = Some(TaskCommit(row.getBinary(0)))
        Option(TaskContext.get()).foreach { context =>
          context.taskMetrics().outputMetrics.setRecordsWritten(row.getLong(2))
          context.taskMetrics().outputMetrics.setBytesWritten(row.getLong(3))
        }
      }
    }

    override def write(row: InternalRow): Unit = throw new UnsupportedOperationException("rows are written all at once")

    override def commit(): WriterCommitMessage =
      message.getOrElse(throw new IllegalStateException("the task of a write returned no message"))

    override def abort(): Unit = ()

    override def close(): Unit = ()
  }
}

object RowWriters {
  private val Result = new StructType()
    .add("message", BinaryType).add("error", StringType).add("rows", LongType).add("bytes", LongType)
}

/** The types in which rows are sent to Python: an interval of months is an integer, because Arrow in Python has no such type. */
object TransportTypes {
  def apply(schema: StructType): StructType = of(schema).asInstanceOf[StructType]

  private def of(dataType: DataType): DataType = dataType match {
    case _: YearMonthIntervalType => IntegerType
    case StructType(fields) => StructType(fields.map(field => field.copy(dataType = of(field.dataType), nullable = true)))
    case ArrayType(element, _) => ArrayType(of(element), containsNull = true)
    case MapType(key, value, _) => MapType(of(key), of(value), valueContainsNull = true)
    case other => other
  }
}

class RowsWritten extends SumMetric("rowsWritten", "rows written")
class SplitsWritten extends SumMetric("splitsWritten", "splits written")
class BytesWritten extends SumMetric("bytesWritten", "bytes written")
class PartitionsWritten extends SumMetric("partitionsWritten", "partitions written to")

object WriteMetrics {
  def all: Array[CustomMetric] = Array(new RowsWritten, new SplitsWritten, new BytesWritten, new PartitionsWritten)
}
