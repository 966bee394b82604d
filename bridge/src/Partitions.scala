package org.apache.spark.sql.indextables

import org.apache.spark.sql.connector.read.InputPartition

/** Rows that the planner has read, as an Arrow stream. */
case class AnswerPartition(stream: Array[Byte]) extends InputPartition

/** Splits that a task reads, and executors that have read them before. */
case class TaskPartition(task: Array[Byte], executors: Seq[String]) extends InputPartition {
  override def preferredLocations(): Array[String] = executors.toArray
}

/** Splits that a task of a stream reads; each micro-batch has its own function. */
case class StreamTaskPartition(function: Array[Byte], task: Array[Byte], executors: Seq[String]) extends InputPartition {
  override def preferredLocations(): Array[String] = executors.toArray
}
