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
 * Spark does this for batch scans only. The rule runs once for each micro-batch, after Spark has pushed filters down to
 * the scans.
 */
object BindStreams extends Rule[LogicalPlan] with PredicateHelper {
  override def apply(plan: LogicalPlan): LogicalPlan = plan.transformDown {
    case Project(list, Filter(condition, StreamScan(relation, stream, read))) =>
      val (rest, scan) = pushDown(relation, stream, read, condition, Some(AttributeSet(list.flatMap(_.references))))
      Project(list, withFilter(rest, scan))
    case Filter(condition, StreamScan(relation, stream, read)) =>
      val (rest, scan) = pushDown(relation, stream, read, condition, None)
      withFilter(rest, scan)
    case Project(list, StreamScan(relation, stream, read)) =>
      Project(list, pushDown(relation, stream, read, Literal.TrueLiteral, Some(AttributeSet(list.flatMap(_.references))))._2)
    case StreamScan(relation, stream, read) => pushDown(relation, stream, read, Literal.TrueLiteral, None)._2
  }

  private def withFilter(rest: Seq[Expression], scan: LogicalPlan): LogicalPlan =
    rest.reduceOption(And).map(Filter(_, scan)).getOrElse(scan)

  /** The filters that Spark evaluates, and the scan with the others; without `columns` it returns all. */
  private def pushDown(
      relation: StreamingDataSourceV2ScanRelation, stream: IndexStream, read: IndexBatch.Read, condition: Expression,
      columns: Option[AttributeSet]): (Seq[Expression], LogicalPlan) = {
    val parts = splitConjunctivePredicates(condition).filterNot(_ == Literal.TrueLiteral)
    val translated = parts.map(part =>
      if (part.deterministic && !SubqueryExpression.hasSubquery(part)) DataSourceV2Strategy.translateFilterV2(part) else None)
    val (start, end) = (relation.startOffset.get, relation.endOffset.get)
    val pushed = translated.flatten.toArray
    val texts = if (pushed.isEmpty && read.virtual.isEmpty) Nil else new IndexBatch(stream, read).accept(start, end, pushed)
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
    (rest, StreamScan.withRead(relation, stream, chosen, output))
  }
}

/** A scan of a micro-batch of an indextables table, before filters are pushed into it. */
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

  /** The columns of an output, with the types of the table. */
  def schema(stream: IndexStream, output: Seq[Attribute]): StructType = StructType(output.map { column =>
    stream.table.schema.find(_.name == column.name).getOrElse(StructField(column.name, column.dataType, column.nullable))
  })

  def withRead(
      relation: StreamingDataSourceV2ScanRelation, stream: IndexStream, read: IndexBatch.Read,
      output: Seq[AttributeReference]): StreamingDataSourceV2ScanRelation = {
    val batch = new IndexBatch(stream, read)
    relation.copy(scan = new IndexBatchScan(batch), output = output, stream = batch)
  }
}

/** Plans the scans of micro-batches, as Spark plans its own. */
object PlanStreams extends SparkStrategy {
  override def apply(plan: LogicalPlan): Seq[SparkPlan] = plan match {
    case PhysicalOperation(columns, filters, relation: StreamingDataSourceV2ScanRelation) =>
      (relation.stream, relation.startOffset, relation.endOffset) match {
        case (batch: IndexBatch, Some(start), Some(end)) =>
          val scan = new IndexBatchExec(relation.output, relation.scan, batch.stream, start, end, None, None)
          val plan = filters.reduceOption(And).map(FilterExec(_, scan)).getOrElse(scan)
          Seq(if (plan.output == columns) plan else ProjectExec(columns, plan))
        case _ => Nil
      }
    case _ => Nil
  }
}
