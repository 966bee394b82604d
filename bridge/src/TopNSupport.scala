package org.apache.spark.sql.indextables

import org.apache.spark.sql.types._

/** Columns by which the planner orders rows as Spark does. */
object TopNSupport {
  def can(name: String, schema: StructType): Boolean = schema.find(_.name == name).map(_.dataType) match {
    case Some(text: StringType) => text.isUTF8BinaryCollation
    case Some(_: NumericType | BooleanType | BinaryType | DateType | TimestampType | TimestampNTZType) => true
    case Some(_) => false
    case None => name == VirtualColumn.Score
  }
}
