package org.apache.spark.sql.indextables

import scala.collection.mutable

import org.apache.spark.sql.catalyst.expressions.{VirtualColumn => _, _}
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression
import org.apache.spark.sql.catalyst.plans.logical.{Command, _}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.datasources.v2.{DataSourceV2Relation, StreamingDataSourceV2ScanRelation}
import org.apache.spark.sql.types.DecimalType

/**
 * Replaces expressions that only a scan can compute (searches, scores, fragments, buckets) by virtual columns of the table.
 *
 * Spark then treats such a column like any other: filters on it are pushed down, and joins, unions and subqueries need no
 * code here. An expression above an operator through which this rule cannot add a column (an aggregate) is first moved below
 * it by rules of Spark. So this is a rule of the optimizer's batch, which is repeated until the plan does not change.
 */
object BindToTable extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan =
    if (!plan.exists(hasIndexExpression)) plan
    else plan.transformUp { case node if node.children.nonEmpty && hasIndexExpression(node) && !node.isInstanceOf[Command] => bind(node) }

  def hasIndexExpression(node: LogicalPlan): Boolean = node.expressions.exists(_.exists(_.isInstanceOf[IndexExpression]))

  def bind(original: LogicalPlan): LogicalPlan = {
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
        val matches = children.indices.flatMap(place => addColumn(children(place), ColumnRequest(expression)).map(place -> _))
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
      val withColumns = node.withNewChildren(children).transformExpressions {
        case expression: IndexExpression if columns.contains(expression.canonicalized) => columns(expression.canonicalized)
      }
      val added = AttributeSet(columns.values.flatMap(_.references))
      val rewritten = withColumns.transformExpressions {
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

  // Arrow and Spark may convert a decimal to different doubles.
  private def bindable(expression: IndexExpression): Boolean = expression match {
    case buckets: Buckets => !buckets.column.dataType.isInstanceOf[DecimalType]
    case _ => true
  }

  /** A request for a virtual column: of the table of a column, or without a column of the only table of the plan. */
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

  /** The plan with the virtual column in its output; None if the plan has no such table. */
  private def addColumn(plan: LogicalPlan, request: ColumnRequest): Option[(LogicalPlan, Attribute)] = plan match {
    case _ if request.expression.subject.nonEmpty && request.subject.forall { case (column, _) => !plan.outputSet.contains(column) } => None
    // A scan computes buckets of columns; buckets of a field within a column are evaluated row by row.
    case _: DataSourceV2Relation if isOfField(request) => None
    case relation: DataSourceV2Relation => relation.table match {
      case IndexTables(table, virtual) => Some(withColumn(relation, table, virtual, request))
      case _ => None
    }
    // Spark replaces a table by a relation without rows if no row can satisfy the condition.
    case relation: LocalRelation if relation.data.isEmpty =>
      val column = AttributeReference("indextables_no_rows", request.expression.dataType, request.expression.nullable)()
      Some((relation.copy(output = relation.output :+ column), column))
    case StreamScan(relation, stream, read) if !isOfField(request) => Some(withColumn(relation, stream, read, request))
    case project @ Project(list, child) =>
      inputRequest(list, request).flatMap(addColumn(child, _)).map { case (rewritten, column) =>
        val more = if (list.exists(_.exprId == column.exprId)) list else list :+ column
        (Project(more, rewritten), column)
      }
    case join: Join =>
      val matches = join.children.indices.flatMap(place => addColumn(join.children(place), request).map(place -> _))
      if (matches.size > 1) throw ambiguous(request.expression)
      matches.headOption.flatMap { case (place, (rewritten, column)) =>
        // An outer join makes columns nullable; a semi join has no columns of its right side.
        val joined = join.withNewChildren(join.children.updated(place, rewritten))
        joined.output.find(_.exprId == column.exprId).map((joined, _))
      }
    case union: Union =>
      val place = request.subject.map { case (column, _) => union.output.indexWhere(_.exprId == column.exprId) }
      val parts = union.children.flatMap { child =>
        val own = request.subject.map { case (_, path) => (child.output(place.get), path) }
        addColumn(child, request.copy(subject = own)).map { case (rewritten, column) =>
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
      addColumn(plan.children.head, request).flatMap { case (rewritten, column) =>
        val above = plan.withNewChildren(Seq(rewritten))
        above.output.find(_.exprId == column.exprId).map((above, _))
      }
    case _ => None
  }

  private def isOfField(request: ColumnRequest): Boolean =
    request.expression.isInstanceOf[Buckets] && request.subject.exists(_._2.nonEmpty)

  /** The request for the input of a projection. */
  private def inputRequest(list: Seq[NamedExpression], request: ColumnRequest): Option[ColumnRequest] = request.subject match {
    case None => Some(request)
    case Some((column, path)) => list.find(_.exprId == column.exprId).flatMap {
      case _: Attribute => Some(request)
      case Alias(TableColumn(inner, outer), _) => Some(request.copy(subject = Some((inner, outer ++ path))))
      case _ => None
    }
  }

  private def withColumn(
      relation: DataSourceV2Relation, table: IndexTable, virtual: Seq[VirtualColumn], request: ColumnRequest)
      : (LogicalPlan, Attribute) = {
    val (name, added) = definition(relation.output, request)
    relation.output.find(_.name == name).map(existing => (relation: LogicalPlan, existing: Attribute)).getOrElse {
      val column = attribute(name, request)
      val withColumn = added.map(more => VirtualTable(table, virtual :+ more)).getOrElse(relation.table)
      (relation.copy(table = withColumn, output = relation.output :+ column), column)
    }
  }

  private def withColumn(
      relation: StreamingDataSourceV2ScanRelation, stream: IndexStream, read: IndexBatch.Read, request: ColumnRequest)
      : (LogicalPlan, Attribute) = {
    val (name, added) = definition(relation.output, request)
    relation.output.find(_.name == name).map(existing => (relation: LogicalPlan, existing: Attribute)).getOrElse {
      val column = attribute(name, request)
      val output = relation.output :+ column
      val withColumn = read.copy(columns = StreamScan.schema(stream, output), virtual = read.virtual ++ added)
      (StreamScan.withRead(relation, stream, withColumn, output), column)
    }
  }

  /** The name of a virtual column, and its definition; columns that every table has need none. */
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

  /** Rejects virtual columns outside of aggregate functions and groups: a group has many rows. */
  private def check(node: LogicalPlan, columns: AttributeSet): Unit = node match {
    case Aggregate(grouping, results, _, _) =>
      def isUngrouped(expression: Expression): Boolean = expression match {
        case _: AggregateExpression => false
        case group if grouping.exists(_.semanticEquals(group)) => false
        case column: Attribute => columns.contains(column)
        case other => other.children.exists(isUngrouped)
      }
      if (results.exists(isUngrouped)) throw new Failure(
        "a search, a score or a fragment has a value for each row, but here rows are grouped; put it into the condition, into " +
          "GROUP BY, or into an aggregate function, as count_if(message INDEXQUERY 'words')")
    case _ =>
  }

  private def ambiguous(expression: IndexExpression): Failure = new Failure(
    s"${expression.describe} is ambiguous here, as there are several tables; name a column with its table, as " +
      (if (expression.isInstanceOf[Score]) "t._score" else "t.message INDEXQUERY 'words' or t._indexall INDEXQUERY 'words'"))
}
