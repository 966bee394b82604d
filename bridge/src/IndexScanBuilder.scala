package org.apache.spark.sql.indextables

import java.util

import org.apache.spark.JobArtifactSet
import org.apache.spark.sql.connector.read._
import org.apache.spark.sql.execution.datasources.v2.python.{PythonInputPartition, PythonPartitionReaderFactory}
import org.apache.spark.sql.types.StructType

/** Collects what a query wants of a table. */
class IndexScanBuilder(table: IndexTable, options: util.Map[String, String])
    extends ScanBuilder with SupportsPushDownRequiredColumns {
  private var wanted: StructType = table.schema

  override def pruneColumns(required: StructType): Unit = wanted = required

  override def build(): Scan = new IndexScan(wanted, options)
}

class IndexScan(wanted: StructType, options: util.Map[String, String]) extends Scan with Batch {
  private lazy val planned: Reply =
    Rpc("plan", Json.obj("options" -> options, "columns" -> wanted.fieldNames, "schema" -> wanted.json))

  override def readSchema(): StructType = wanted

  override def description(): String = s"${Provider.Name} ${options.get("path")}"

  override def toBatch: Batch = this

  override def planInputPartitions(): Array[InputPartition] =
    planned.blobs.tail.zipWithIndex.map { case (task, number) => PythonInputPartition(number, task) }.toArray

  override def createReaderFactory(): PartitionReaderFactory = new PythonPartitionReaderFactory(
    Rpc.source, planned.blobs.head, wanted, JobArtifactSet.getCurrentJobArtifactState.map(_.uuid), None)
}
