package org.apache.spark.sql.indextables

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.expressions.{Alias, Attribute, GetStructField, InputFileName}
import org.apache.spark.sql.catalyst.plans.logical.{CTERelationDef, CTERelationRef, LogicalPlan, Project, Union}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2
import org.apache.spark.sql.classic
import org.apache.spark.sql.connector.catalog.{SupportsRead, Table, TableCapability}
import org.apache.spark.sql.connector.read.ScanBuilder
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** `input_file_name()` over indextables tables: the path of the row's split. */
object InputFiles extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = {
    val nodes = WholePlan.nodes(plan)
    if (!nodes.exists(node => !node.analyzed && hasFileName(node))) plan
    else {
      val definitions = WholePlan.definitions(nodes)
      WholePlan.rewrite(plan) {
        case node if hasFileName(node) && isOverTables(node, definitions) =>
          node.transformExpressions { case _: InputFileName => GetStructField(FileMetadata(), 0, Some("file_path")) }
      }
    }
  }

  private def hasFileName(node: LogicalPlan): Boolean = node.expressions.exists(_.exists(_.isInstanceOf[InputFileName]))

  /** Whether rows come from one indextables table, or a union of several; `above` are enclosing common table expressions. */
  private def isOverTables(node: LogicalPlan, definitions: Map[Long, CTERelationDef], above: Set[Long] = Set.empty): Boolean = {
    val leaves = node.collectLeaves()
    val combined = node.collect { case several if several.children.size > 1 => several }
    leaves.nonEmpty && combined.forall(_.isInstanceOf[Union]) && leaves.forall {
      case relation: DataSourceV2Relation => IndexTables.unapply(relation.table).nonEmpty
      case stream: StreamingRelationV2 => IndexTables.unapply(stream.table).nonEmpty
      case reference: CTERelationRef if !above(reference.cteId) => definitions.get(reference.cteId).exists(definition =>
        isOverTables(definition.child, definitions, above + reference.cteId))
      case _ => false
    }
  }
}

/** Several tables that are read as one: `load([path, path])`. `SeveralPaths` replaces it by their union. */
class SeveralTables(override val schema: StructType, val paths: Seq[String], val options: java.util.Map[String, String])
    extends Table with SupportsRead {
  override def name(): String = s"${Provider.Name} ${paths.mkString(", ")}"
  override def capabilities(): java.util.Set[TableCapability] = java.util.EnumSet.of(TableCapability.BATCH_READ)
  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder =
    throw new Failure("several tables are read through their union; this is a defect of indextables")
}

object SeveralTables {
  private val Option = "paths"

  /** The paths of a read of several tables. */
  def paths(options: java.util.Map[String, String]): Seq[String] = {
    val settings = new CaseInsensitiveStringMap(options)
    if (settings.containsKey("path") || !settings.containsKey(Option)) Nil
    else {
      val paths = Seq.newBuilder[String]
      Json.parse(settings.get(Option).getBytes("UTF-8")).forEach(path => paths += path.asText)
      paths.result()
    }
  }

  /** The options of a read without its paths, and with one. */
  def withPath(options: java.util.Map[String, String], path: String): java.util.Map[String, String] = {
    val one = new java.util.HashMap[String, String]()
    options.forEach((key, value) => if (!key.equalsIgnoreCase(Option)) one.put(key, value))
    one.put("path", path)
    one
  }
}

case class SeveralPaths(session: SparkSession) extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan.resolveOperatorsUp {
    case relation: DataSourceV2Relation if relation.table.isInstanceOf[SeveralTables] =>
      val table = relation.table.asInstanceOf[SeveralTables]
      val parts = table.paths.map(path => (path, load(SeveralTables.withPath(table.options, path))))
      parts.tail.find { case (_, part) => columns(part) != columns(parts.head._2) }.foreach { case (path, _) =>
        throw new Failure(s"the table at $path has other columns than the one at ${parts.head._1}; load them one by one, " +
          "and combine them by unionByName")
      }
      val first = Project(
        select(relation.output, parts.head).map { case (column, own) => Alias(own, column.name)(exprId = column.exprId) },
        parts.head._2)
      val others = parts.tail.map(part => Project(select(relation.output, part).map(_._2), part._2))
      if (others.isEmpty) first else Union(first +: others)
  }

  /** The columns of a schema, which may be that of `schema(...)`, with the columns of a table that have their names. */
  private def select(schema: Seq[Attribute], part: (String, LogicalPlan)): Seq[(Attribute, Attribute)] = schema.map { column =>
    val own = part._2.output.find(own => conf.resolver(own.name, column.name))
    own.filter(_.dataType.asNullable == column.dataType.asNullable).map(column -> _).getOrElse(throw new Failure(
      s"the schema has a column ${column.name} ${column.dataType.sql}, but the table at ${part._1} has " +
        s"${own.map(found => s"${found.name} ${found.dataType.sql}").getOrElse(part._2.output.map(_.name).mkString("the columns ", ", ", ""))}; " +
        "leave the schema out, or give columns as the tables have them"))
  }

  private def columns(plan: LogicalPlan) = plan.output.map((column: Attribute) => (column.name, column.dataType))

  private def load(options: java.util.Map[String, String]): LogicalPlan =
    session.asInstanceOf[classic.SparkSession].read.format(Provider.Name).options(options).load()
      .asInstanceOf[classic.Dataset[_]].logicalPlan
}
