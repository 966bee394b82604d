package org.apache.spark.sql.indextables

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.planning.PhysicalOperation
import org.apache.spark.sql.catalyst.plans.logical.{Filter, LogicalPlan, Project}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.{FilterExec, ProjectExec, SparkPlan, SparkStrategy}
import org.apache.spark.sql.execution.datasources.v2.{DataSourceV2Strategy, StreamingDataSourceV2ScanRelation}
import org.apache.spark.sql.types.{StructField, StructType}

/**
 * Moves filters and columns into the scans of micro-batches.
 *
 * Spark does so for batch scans only. The rule runs once for each micro-batch, when Spark has brought filters down to
 * the scans.
 */
object BindStreams extends Rule[LogicalPlan] with PredicateHelper {
  override def apply(plan: LogicalPlan): LogicalPlan = plan.transformDown {
    case Project(list, Filter(condition, StreamScan(relation, stream, read))) =>
      val (rest, scan) = bound(relation, stream, read, condition, Some(AttributeSet(list.flatMap(_.references))))
      Project(list, filtered(rest, scan))
    case Filter(condition, StreamScan(relation, stream, read)) =>
      val (rest, scan) = bound(relation, stream, read, condition, None)
      filtered(rest, scan)
    case Project(list, StreamScan(relation, stream, read)) =>
      Project(list, bound(relation, stream, read, Literal.TrueLiteral, Some(AttributeSet(list.flatMap(_.references))))._2)
    case StreamScan(relation, stream, read) => bound(relation, stream, read, Literal.TrueLiteral, None)._2
  }

  private def filtered(rest: Seq[Expression], scan: LogicalPlan): LogicalPlan =
    rest.reduceOption(And).map(Filter(_, scan)).getOrElse(scan)

  /** The filters that are left to Spark, and the scan with the others; None of the columns means all. */
  private def bound(
      relation: StreamingDataSourceV2ScanRelation, stream: IndexStream, read: IndexBatch.Read, condition: Expression,
      columns: Option[AttributeSet]): (Seq[Expression], LogicalPlan) = {
    val parts = splitConjunctivePredicates(condition).filterNot(_ == Literal.TrueLiteral)
    val translated = parts.map(part =>
      if (part.deterministic && !SubqueryExpression.hasSubquery(part)) DataSourceV2Strategy.translateFilterV2(part) else None)
    val (start, end) = (relation.startOffset.get, relation.endOffset.get)
    val pushed = translated.flatten.toArray
    val texts = if (pushed.isEmpty && read.virtual.isEmpty) Nil else new IndexBatch(stream, read).accepted(start, end, pushed)
    val answers = texts.iterator
    val decided = parts.zip(translated).map { case (part, predicate) => (part, predicate.filter(_ => answers.next().nonEmpty)) }
    val rest = decided.collect { case (part, None) => part }
    val output = columns.fold(relation.output)(needed =>
      relation.output.filter((needed ++ AttributeSet(rest.flatMap(_.references))).contains))
    val chosen = read.copy(
      columns = StreamScan.schema(stream, output),
      filters = decided.flatMap(_._2).toArray,
      texts = texts.flatten,
      complete = true)
    (rest, StreamScan.replaced(relation, stream, chosen, output))
  }
}

/** A scan of a micro-batch of ours that has no filters yet. */
object StreamScan {
  def unapply(plan: LogicalPlan): Option[(StreamingDataSourceV2ScanRelation, IndexStream, IndexBatch.Read)] = plan match {
    case relation: StreamingDataSourceV2ScanRelation if relation.startOffset.isDefined && relation.endOffset.isDefined =>
      relation.stream match {
        case stream: IndexStream => Some((relation, stream, IndexBatch.Read(schema(stream, relation.output))))
        case batch: IndexBatch if !batch.read.complete => Some((relation, batch.stream, batch.read))
        case _ => None
      }
    case _ => None
  }

  /** The columns of an output as the table has them. */
  def schema(stream: IndexStream, output: Seq[Attribute]): StructType = StructType(output.map { column =>
    stream.table.schema.find(_.name == column.name).getOrElse(StructField(column.name, column.dataType, column.nullable))
  })

  def replaced(
      relation: StreamingDataSourceV2ScanRelation, stream: IndexStream, read: IndexBatch.Read,
      output: Seq[AttributeReference]): StreamingDataSourceV2ScanRelation = {
    val batch = new IndexBatch(stream, read)
    relation.copy(scan = new IndexBatchScan(batch), output = output, stream = batch)
  }
}

/** Plans the scans that have got their filters and columns, as Spark plans its own. */
object PlanStreams extends SparkStrategy {
  override def apply(plan: LogicalPlan): Seq[SparkPlan] = plan match {
    case PhysicalOperation(columns, filters, relation: StreamingDataSourceV2ScanRelation) =>
      (relation.stream, relation.startOffset, relation.endOffset) match {
        case (batch: IndexBatch, Some(start), Some(end)) =>
          val scan = new IndexBatchExec(relation.output, relation.scan, batch.stream, start, end, None, None)
          val filtered = filters.reduceOption(And).map(FilterExec(_, scan)).getOrElse(scan)
          Seq(if (filtered.output == columns) filtered else ProjectExec(columns, filtered))
        case _ => Nil
      }
    case _ => Nil
  }
}
