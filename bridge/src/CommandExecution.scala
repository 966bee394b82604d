package org.apache.spark.sql.indextables

import java.util
import java.util.concurrent.{ConcurrentHashMap, Semaphore, TimeoutException}
import java.util.concurrent.atomic.AtomicInteger

import scala.annotation.tailrec
import scala.concurrent.Await
import scala.concurrent.duration._
import scala.jdk.CollectionConverters._
import scala.util.Try
import scala.util.control.NonFatal

import org.apache.spark.{FutureAction, JobArtifactSet, SparkEnv}
import org.apache.spark.internal.Logging
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.classic.{Dataset, SparkSession => ClassicSession}
import org.apache.spark.sql.connector.catalog.{SupportsRead, Table, TableCapability}
import org.apache.spark.sql.connector.read._
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
import org.apache.spark.sql.execution.datasources.v2.python.PythonInputPartition
import org.apache.spark.sql.types.{BinaryType, StringType, StructType}
import org.apache.spark.sql.util.CaseInsensitiveStringMap
import org.apache.spark.util.Utils

/** Runs a command from its plan to its result; background work runs in a separate thread. */
class CommandExecution(
    session: ClassicSession, request: util.Map[String, Any], settings: Boolean = false, empties: Option[String] = None) {
  def result(): Array[Byte] = {
    val plan = new util.LinkedHashMap[String, Any](request)
    plan.put("process_metrics", PlannerMetrics.all)
    if (settings) plan.put("settings", allSettings)
    // The planner process of this call empties its own cache; the others are emptied here.
    empties.foreach(cache => plan.put("removed_values", Rpc.empty(cache)))
    val planned = Rpc("command_plan", plan)
    if (planned.json.has("background")) {
      val rest = Reply(planned.json, planned.blobs.tail)
      Background.start(session, planned.json.get("background").asInt)(finish(rest))
      planned.blobs.head
    } else finish(planned)
  }

  /** The settings of Spark and of Hadoop, for a command that lists them; secrets are masked as in Spark. */
  private def allSettings: util.Map[String, Any] = {
    val conf = session.sparkContext.conf
    val hadoop = session.sparkContext.hadoopConfiguration.iterator.asScala.map(entry => (entry.getKey, entry.getValue)).toSeq
    def redact(values: Seq[(String, String)]) = Json.obj(Utils.redact(conf, values).toSeq.sorted: _*)
    Json.obj("spark" -> redact(session.conf.getAll.toSeq), "hadoop" -> redact(hadoop))
  }

  /** Run tasks, and those that the finish step adds, until there is a result. */
  @tailrec private def finish(reply: Reply): Array[Byte] =
    if (reply.json.get("done").asBoolean) reply.blobs.head else finish(next(reply))

  private def next(reply: Reply): Reply = {
    val job = Option(reply.json.get("job")).map(_.asText)
    try {
      val Seq(function, state) = reply.blobs.take(2)
      val preferred = Option(reply.json.get("preferred")).map(_.asScala.map(name => Option(name.textValue)).toSeq)
      // A command that waits does not occupy a planner process meanwhile.
      Option(reply.json.get("pause")).foreach(pause => Thread.sleep(pause.asLong))
      val tasks = reply.blobs.drop(2)
      val done = if (tasks.isEmpty) Nil else Tasks.run(session, function, tasks, preferred.getOrElse(Nil), job)
      val results = new util.LinkedHashMap[String, Any](request)
      results.put("task_executors", done.map(_._1).toArray)
      Rpc("command_finish", results, state +: done.map(_._2): _*)
    } catch {
      case problem: Throwable =>
        for (id <- job) Try(Rpc("job_progress", Json.obj("job" -> id, "error" -> String.valueOf(problem.getMessage))))
        throw problem
    }
  }
}

/** Work that continues after its statement has returned. */
object Background {
  private val gates = new ConcurrentHashMap[Int, Semaphore]

  /** At most `limit` works run at the same time; others wait. An error is recorded in the job. */
  def start(session: ClassicSession, limit: Int)(work: => Unit): Unit = {
    val gate = gates.computeIfAbsent(limit, new Semaphore(_))
    val artifacts = JobArtifactSet.getCurrentJobArtifactState
    val thread = new Thread(() => {
      // The statement has ended: this work is neither cancelled with it nor shown as a part of it.
      val context = session.sparkContext
      Seq("spark.sql.execution.id", "spark.sql.execution.root.id").foreach(context.setLocalProperty(_, null))
      context.clearJobGroup()
      context.clearJobTags()
      gate.acquire()
      try session.withActive {
        artifacts.fold(work)(JobArtifactSet.withActiveJobArtifactState(_)(work))
      } catch { case NonFatal(_) => } finally gate.release()
    }, "indextables-background")
    thread.setDaemon(true)
    thread.start()
  }
}

/** Tasks that Python planned, run on executors: bytes in, bytes out. */
object Tasks extends Logging {
  private val Result = new StructType().add("result", BinaryType).add("error", StringType)

  // How often the progress of a job is recorded.
  private val ReportInterval = 500.milliseconds

  /** The executor and the result of each task, in the order of the tasks; the progress of `job` is recorded. */
  def run(
      session: ClassicSession,
      function: Array[Byte],
      tasks: Seq[Array[Byte]],
      preferred: Seq[Option[String]],
      job: Option[String]): Seq[(String, Array[Byte])] = {
    val planned = new TaskTable(function, tasks, preferred)
    val relation = DataSourceV2Relation.create(planned, None, None, CaseInsensitiveStringMap.empty)
    val rows = Dataset.ofRows(session, relation).queryExecution.toRdd
    val results = new Array[Seq[(String, Array[Byte])]](tasks.size)
    val done = new AtomicInteger
    val running = session.sparkContext.submitJob[InternalRow, Seq[(String, Array[Byte])], Unit](
      rows,
      (rows: Iterator[InternalRow]) => rows.map(row => (SparkEnv.get.executorId, result(row))).toList,
      tasks.indices,
      (task, rows) => { results(task) = rows; done.incrementAndGet() },
      ())
    try await(running, done, tasks.size, job) catch {
      // Otherwise tasks would continue to write files that are never committed.
      case problem: Throwable => running.cancel(); throw problem
    }
    results.toSeq.flatten
  }

  private def result(row: InternalRow): Array[Byte] = {
    if (!row.isNullAt(1)) throw new TaskFailure(row.getUTF8String(1).toString)
    row.getBinary(0)
  }

  private def await(running: FutureAction[Unit], done: AtomicInteger, tasks: Int, job: Option[String]): Unit = {
    var reported = -1
    while (!running.isCompleted) {
      for (id <- job if done.get != reported) {
        reported = done.get
        // Progress is only displayed: the work continues if it cannot be recorded.
        try Rpc("job_progress", Json.obj("job" -> id, "done" -> reported, "tasks" -> tasks))
        catch { case NonFatal(error) => logWarning(s"the progress of the job $id was not recorded", error) }
      }
      try Await.ready(running, ReportInterval) catch { case _: TimeoutException => }
    }
    running.value.foreach(_.fold(aborted => throw TaskFailure.of(aborted).getOrElse(aborted), identity))
  }

  private class TaskInput(index: Int, task: Array[Byte], executor: Option[String])
      extends PythonInputPartition(index, task) {
    override def preferredLocations(): Array[String] = executor.toArray
  }

  private class TaskTable(function: Array[Byte], tasks: Seq[Array[Byte]], preferred: Seq[Option[String]])
      extends Table with SupportsRead {
    override def name(): String = s"${Provider.Name} tasks"
    override def schema(): StructType = Result
    override def capabilities(): util.Set[TableCapability] = util.EnumSet.of(TableCapability.BATCH_READ)
    override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder = () => new Scan with Batch {
      override def readSchema(): StructType = Result
      override def toBatch: Batch = this
      override def planInputPartitions(): Array[InputPartition] =
        tasks.zipWithIndex.map { case (task, number) =>
          new TaskInput(number, task, preferred.lift(number).flatten): InputPartition
        }.toArray
      override def createReaderFactory(): PartitionReaderFactory = Compat.readerFactory(
        Rpc.source, function, Result, JobArtifactSet.getCurrentJobArtifactState.map(_.uuid))
    }
  }
}
