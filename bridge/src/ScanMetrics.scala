package org.apache.spark.sql.indextables

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.connector.metric.{CustomMetric, CustomSumMetric, CustomTaskMetric}

/** One metric of a task or of the driver, for Spark's SQL page. */
case class TaskMetric(override val name: String, override val value: Long) extends CustomTaskMetric

object TaskMetric {
  def all(metrics: JsonNode): Array[CustomTaskMetric] = metrics.properties.asScala
    .map(entry => TaskMetric(entry.getKey, entry.getValue.asLong): CustomTaskMetric).toArray
}

// Spark creates metrics by their classes when it shows them, so each metric has a class.
abstract class SumMetric(override val name: String, override val description: String) extends CustomSumMetric
class SplitsConsidered extends SumMetric("splitsConsidered", "splits considered")
class SplitsPrunedByPartition extends SumMetric("splitsPrunedByPartition", "splits pruned by partition")
class SplitsPrunedByStatistics extends SumMetric("splitsPrunedByStatistics", "splits pruned by statistics")
class SplitsRead extends SumMetric("splitsRead", "splits read")
class RowsRead extends SumMetric("rowsRead", "rows returned by splits")
class BytesRead extends SumMetric("bytesRead", "bytes returned by splits")
class StorageBytes extends SumMetric("storageBytes", "bytes fetched from storage")
class IndexTime extends SumMetric("indexTime", "time to open and search indexes (ms)")
class RowTime extends SumMetric("rowTime", "time to read rows (ms)")
class CacheHits extends SumMetric("cacheHits", "indexes at hand")
class CacheMisses extends SumMetric("cacheMisses", "indexes fetched")
class PlanningTime extends SumMetric("planningTime", "planning time (ms)")

object ScanMetrics {
  def all: Array[CustomMetric] = Array(
    new SplitsConsidered, new SplitsPrunedByPartition, new SplitsPrunedByStatistics, new SplitsRead, new RowsRead,
    new BytesRead, new StorageBytes, new IndexTime, new RowTime, new CacheHits, new CacheMisses, new PlanningTime)
}
