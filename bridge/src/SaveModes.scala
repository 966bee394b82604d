package org.apache.spark.sql.indextables

import java.util

import scala.jdk.CollectionConverters._
import scala.util.Try

import org.apache.spark.sql.{DataFrame, SaveMode, SQLContext}
import org.apache.spark.sql.catalyst.plans.logical.AppendData
import org.apache.spark.sql.classic.{Dataset, SparkSession}
import org.apache.spark.sql.execution.QueryExecution
import org.apache.spark.sql.execution.datasources.DataSourceUtils
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
import org.apache.spark.sql.sources.BaseRelation
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** `df.write.save(path)` with any of the four modes: one append, with the mode in its request to the planner. */
object SaveModes {
  private val PartitionBy = DataSourceUtils.PARTITIONING_COLUMNS_KEY

  def save(
      context: SQLContext, mode: SaveMode, parameters: Map[String, String], data: DataFrame,
      batch: Option[StreamBatch] = None): BaseRelation = {
    val session = data.sparkSession.asInstanceOf[SparkSession]
    if (parameters.contains(DataSourceUtils.CLUSTERING_COLUMNS_KEY)) {
      throw new Failure("clusterBy is not offered by indextables; leave it out, or use partitionBy")
    }
    val partitionBy = parameters.get(PartitionBy).map(DataSourceUtils.decodePartitioningColumns(_).map(Columns.partitionColumn).toArray)
    val options = new util.HashMap[String, String]((parameters - PartitionBy).asJava)
    if (mode == SaveMode.Overwrite) {
      // The default of the option is Spark's setting.
      options.asScala.keys.find(_.equalsIgnoreCase("partitionOverwriteMode")).getOrElse {
        options.put("partitionOverwriteMode", session.sessionState.conf.partitionOverwriteMode.toString.toLowerCase)
      }
    }
    val exists = mode == SaveMode.Ignore && TableInfo.of(SessionOptions.merge(util.Collections.emptyMap(), options)).nonEmpty
    if (!exists) {
      val table = new IndexTable(
        data.schema.asNullable,
        partitionBy.getOrElse(Array.empty[String]).map(Columns.partitioning),
        util.Map.of(),
        None,
        Some(mode.toString.toLowerCase),
        partitionBy,
        isWriteTarget = true,
        batch)
      val relation = DataSourceV2Relation.create(table, None, None, new CaseInsensitiveStringMap(options))
      val append = AppendData.byName(relation, data.asInstanceOf[Dataset[_]].logicalPlan, options.asScala.toMap)
      new QueryExecution(session, append).assertCommandExecuted()
      // With the options of the call, as a read has them.
      refreshCache(session, parameters - PartitionBy)
    }
    new BaseRelation {
      override def sqlContext: SQLContext = context
      override def schema: StructType = data.schema
    }
  }

  /**
   * Refreshes cached results of the table. Spark finds those of reads with equal options only: they are looked up without
   * options, with all options of the write, and with those that a read accepts.
   */
  private def refreshCache(session: SparkSession, written: Map[String, String]): Unit = {
    val cache = session.sharedState.cacheManager
    val path = written.collectFirst { case (key, value) if key.equalsIgnoreCase("path") => value }
    for (at <- path if !cache.isEmpty) AfterCommit.run(s"refreshing cached results of $at after a write") {
      val all = written.filterNot { case (key, _) => key.equalsIgnoreCase("path") }
      val accepted = all.filter { case (key, _) => isOfReads(key) }
      def read(options: Map[String, String]) =
        session.read.format(Provider.Name).options(options).load(at).asInstanceOf[Dataset[_]].logicalPlan
      cache.recacheByPlan(session, read(all))
      // Without some of the options the table may not be accessible; then there are no results without them.
      for (fewer <- Set(accepted, Map.empty[String, String]) - all) {
        Try(read(fewer)).foreach(cache.recacheByPlan(session, _))
      }
    }
  }

  private def isOfReads(key: String): Boolean =
    Try(SessionOptions.check(new CaseInsensitiveStringMap(util.Map.of(key, "")), "read")).isSuccess
}
