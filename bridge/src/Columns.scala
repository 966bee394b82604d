package org.apache.spark.sql.indextables

import scala.util.Try

import org.apache.spark.sql.connector.expressions.{FieldReference, IdentityTransform, NamedReference, Transform}
import org.apache.spark.sql.types.StructType

/** References to columns for Spark's interfaces. Spark's own functions for these would parse a name as SQL. */
object Columns {
  def reference(name: String): NamedReference = FieldReference(Seq(name))

  /** The column of `partitionBy`. Spark has quoted names that need it, so they are parsed as SQL. */
  def partitionColumn(text: String): String = Try(FieldReference(text).fieldNames).toOption.collect { case Array(name) => name }.getOrElse(text)

  /** Columns with the comments that a catalog has for them. */
  def withComments(columns: StructType, catalog: StructType): StructType = StructType(columns.map { column =>
    catalog.find(_.name.equalsIgnoreCase(column.name)).flatMap(_.getComment()).map(column.withComment).getOrElse(column)
  })

  /** The partition column that a clause names; other layouts are refused. */
  def partitionName(transform: Transform): String = transform match {
    case IdentityTransform(FieldReference(Seq(column))) => column
    case other if layouts(other.name) => throw new Failure(
      s"a table of indextables has neither buckets nor clusters, as ${other.describe} describes; leave CLUSTERED BY or CLUSTER BY " +
        "out: splits are skipped by the minimum and maximum of every column, so write sorted rows, or partition by a column")
    case other => throw new Failure(
      s"a table of indextables is partitioned by columns as they are, not by ${other.describe}; " +
        "add a column with that value and partition by it")
  }

  private val layouts = Set("bucket", "sorted_bucket", "cluster_by")

  def partitioning(name: String): Transform = IdentityTransform(FieldReference(Seq(name)))
}
