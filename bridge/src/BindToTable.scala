package org.apache.spark.sql.indextables

import scala.collection.mutable

import org.apache.spark.sql.catalyst.expressions.{VirtualColumn => _, _}
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression
import org.apache.spark.sql.catalyst.plans.logical.{Command, _}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.datasources.v2.{DataSourceV2Relation, StreamingDataSourceV2ScanRelation}
import org.apache.spark.sql.types.DecimalType

/**
 * Makes a column of a table of whatever only its scan can tell: searches, scores, fragments, buckets.
 *
 * From then on Spark treats it like any column: it is pushed in conditions, read where it is selected, and joins,
 * unions and subqueries need no care. Spark's own rules bring conditions down to the table first where this rule cannot
 * look through (an aggregate), so it runs along with them until nothing is left to do.
 */
object BindToTable extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan =
    if (!plan.exists(asks)) plan
    else plan.transformUp { case node if node.children.nonEmpty && asks(node) && !node.isInstanceOf[Command] => bound(node) }

  def asks(node: LogicalPlan): Boolean = node.expressions.exists(_.exists(_.isInstanceOf[IndexExpression]))

  def bound(original: LogicalPlan): LogicalPlan = {
    val node = original.transformExpressions {
      case MovementBarrier(expression) => expression
      // Spark replaces the columns of a side of an outer join that has no rows by nulls.
      case expression: IndexExpression if expression.subject.exists(isNull) =>
        Literal(expression.outerJoinDefault.orNull, expression.dataType)
    }
    var children = node.children
    val columns = mutable.Map.empty[Expression, Expression]
    node.expressions.flatMap(_.collect { case expression: IndexExpression => expression }).foreach { expression =>
      if (!columns.contains(expression.canonicalized) && bindable(expression)) {
        val matches = children.indices.flatMap(place => supply(children(place), ColumnRequest(expression)).map(place -> _))
        if (matches.size > 1) throw ambiguous(expression)
        matches.foreach { case (place, (child, column)) =>
          children = children.updated(place, child)
          val seen = child.output.find(_.exprId == column.exprId).get
          columns(expression.canonicalized) = expression.outerJoinDefault match {
            case Some(value) if seen.nullable => Coalesce(Seq(seen, Literal(value)))
            case _ => seen
          }
        }
      }
    }
    if (columns.isEmpty) node
    else {
      val replaced = node.withNewChildren(children).transformExpressions {
        case expression: IndexExpression if columns.contains(expression.canonicalized) => columns(expression.canonicalized)
      }
      val added = AttributeSet(columns.values.flatMap(_.references))
      val rewritten = replaced.transformExpressions {
        // A subquery lists the columns that it takes from outside.
        case subquery: SubqueryExpression if !missing(subquery, added).isEmpty =>
          subquery.withNewOuterAttrs(Compat.outerAttributes(subquery) ++ missing(subquery, added))
      }
      check(rewritten, added)
      if (rewritten.output.map(_.exprId) == node.output.map(_.exprId)) rewritten
      else Project(node.output.map(was => rewritten.output.find(_.exprId == was.exprId).get), rewritten)
    }
  }

  private def missing(subquery: SubqueryExpression, columns: AttributeSet): Seq[Attribute] =
    AttributeSet(subquery.children.flatMap(_.references)).filter(columns.contains)
      .filterNot(AttributeSet(Compat.outerAttributes(subquery)).contains).toSeq

  private def isNull(expression: Expression): Boolean = expression.foldable && expression.eval() == null

  // A decimal may become another double in Arrow than it does in Spark.
  private def bindable(expression: IndexExpression): Boolean = expression match {
    case buckets: Buckets => !buckets.column.dataType.isInstanceOf[DecimalType]
    case _ => true
  }

  /** A virtual column that a plan has to provide: one of a column of the plan, or of its only table. */
  private case class ColumnRequest(expression: IndexExpression, subject: Option[(Attribute, Seq[String])])

  private object ColumnRequest {
    def apply(expression: IndexExpression): ColumnRequest = ColumnRequest(expression, expression.subject.flatMap(TableColumn.unapply))
  }

  /** A column, or a field within a struct. */
  private object TableColumn {
    def unapply(expression: Expression): Option[(Attribute, Seq[String])] = expression match {
      case column: Attribute => Some((column, Nil))
      case GetStructField(TableColumn(column, path), place, name) =>
        val struct = expression.asInstanceOf[GetStructField].childSchema
        Some((column, path :+ name.getOrElse(struct(place).name)))
      case _ => None
    }
  }

  /** The plan with the virtual column in its output; None if it has no such table. */
  private def supply(plan: LogicalPlan, request: ColumnRequest): Option[(LogicalPlan, Attribute)] = plan match {
    case _ if request.expression.subject.nonEmpty && request.subject.forall { case (column, _) => !plan.outputSet.contains(column) } => None
    // A scan makes buckets of whole columns; those of a field within one are evaluated row by row.
    case _: DataSourceV2Relation if inField(request) => None
    case relation: DataSourceV2Relation => relation.table match {
      case IndexTables(table, virtual) => Some(extended(relation, table, virtual, request))
      case _ => None
    }
    // Spark replaces a table by a relation without rows if no row can satisfy the condition.
    case relation: LocalRelation if relation.data.isEmpty =>
      val column = AttributeReference("indextables_no_rows", request.expression.dataType, request.expression.nullable)()
      Some((relation.copy(output = relation.output :+ column), column))
    case StreamScan(relation, stream, read) if !inField(request) => Some(extended(relation, stream, read, request))
    case project @ Project(list, child) =>
      below(list, request).flatMap(supply(child, _)).map { case (rewritten, column) =>
        val more = if (list.exists(_.exprId == column.exprId)) list else list :+ column
        (Project(more, rewritten), column)
      }
    case join: Join =>
      val matches = join.children.indices.flatMap(place => supply(join.children(place), request).map(place -> _))
      if (matches.size > 1) throw ambiguous(request.expression)
      matches.headOption.flatMap { case (place, (rewritten, column)) =>
        // An outer join makes columns nullable, and a semi join leaves those of its right side out.
        val joined = join.withNewChildren(join.children.updated(place, rewritten))
        joined.output.find(_.exprId == column.exprId).map((joined, _))
      }
    case union: Union =>
      val place = request.subject.map { case (column, _) => union.output.indexWhere(_.exprId == column.exprId) }
      val parts = union.children.flatMap { child =>
        val own = request.subject.map { case (_, path) => (child.output(place.get), path) }
        supply(child, request.copy(subject = own)).map { case (rewritten, column) =>
          Project(child.output :+ Alias(column, column.name)(), rewritten)
        }
      }
      if (parts.size < union.children.size) None
      else {
        val whole = union.withNewChildren(parts)
        Some((whole, whole.output.last))
      }
    case _: Filter | _: Sort | _: GlobalLimit | _: LocalLimit | _: Offset | _: Tail | _: Sample | _: SubqueryAlias |
        _: RepartitionOperation | _: RebalancePartitions | _: Window | _: Generate | _: ResolvedHint | _: View | _: DomainJoin =>
      supply(plan.children.head, request).flatMap { case (rewritten, column) =>
        val above = plan.withNewChildren(Seq(rewritten))
        above.output.find(_.exprId == column.exprId).map((above, _))
      }
    case _ => None
  }

  private def inField(request: ColumnRequest): Boolean =
    request.expression.isInstanceOf[Buckets] && request.subject.exists(_._2.nonEmpty)

  /** The request for the input of a projection. */
  private def below(list: Seq[NamedExpression], request: ColumnRequest): Option[ColumnRequest] = request.subject match {
    case None => Some(request)
    case Some((column, path)) => list.find(_.exprId == column.exprId).flatMap {
      case _: Attribute => Some(request)
      case Alias(TableColumn(inner, outer), _) => Some(request.copy(subject = Some((inner, outer ++ path))))
      case _ => None
    }
  }

  private def extended(
      relation: DataSourceV2Relation, table: IndexTable, virtual: Seq[VirtualColumn], request: ColumnRequest)
      : (LogicalPlan, Attribute) = {
    val (name, added) = definition(relation.output, request)
    relation.output.find(_.name == name).map(existing => (relation: LogicalPlan, existing: Attribute)).getOrElse {
      val column = attribute(name, request)
      val extended = added.map(more => VirtualTable(table, virtual :+ more)).getOrElse(relation.table)
      (relation.copy(table = extended, output = relation.output :+ column), column)
    }
  }

  private def extended(
      relation: StreamingDataSourceV2ScanRelation, stream: IndexStream, read: IndexBatch.Read, request: ColumnRequest)
      : (LogicalPlan, Attribute) = {
    val (name, added) = definition(relation.output, request)
    relation.output.find(_.name == name).map(existing => (relation: LogicalPlan, existing: Attribute)).getOrElse {
      val column = attribute(name, request)
      val output = relation.output :+ column
      val extended = read.copy(columns = StreamScan.schema(stream, output), virtual = read.virtual ++ added)
      (StreamScan.replaced(relation, stream, extended, output), column)
    }
  }

  /** The name of a column, and its definition if it is not one that every table has. */
  private def definition(output: Seq[Attribute], request: ColumnRequest): (String, Option[VirtualColumn]) = {
    val path = request.subject.map { case (column, inner) => output.find(_.exprId == column.exprId).get.name +: inner }
    request.expression match {
      case _: Score => (VirtualColumn.Score, None)
      case _: FileMetadata => (VirtualColumn.FileMetadata, None)
      case expression =>
        val column = VirtualColumn(expression.definition(path))
        (column.name, Some(column))
    }
  }

  private def attribute(name: String, request: ColumnRequest): AttributeReference =
    AttributeReference(
      name, request.expression.dataType, request.expression.nullable && !request.expression.isInstanceOf[Score])()

  /** A group has no search of its own: it is of many rows. */
  private def check(node: LogicalPlan, columns: AttributeSet): Unit = node match {
    case Aggregate(grouping, results, _, _) =>
      def lone(expression: Expression): Boolean = expression match {
        case _: AggregateExpression => false
        case group if grouping.exists(_.semanticEquals(group)) => false
        case column: Attribute => columns.contains(column)
        case other => other.children.exists(lone)
      }
      if (results.exists(lone)) throw new Failure(
        "a search, a score or a fragment speaks of one row, but here rows are grouped; put it into the condition, into " +
          "GROUP BY, or into an aggregate function, as count_if(message INDEXQUERY 'words')")
    case _ =>
  }

  private def ambiguous(expression: IndexExpression): Failure = new Failure(
    s"${expression.shown} could speak of several tables here; name a column with its table, as " +
      (if (expression.isInstanceOf[Score]) "t._score" else "t.message INDEXQUERY 'words' or t._indexall INDEXQUERY 'words'"))
}
