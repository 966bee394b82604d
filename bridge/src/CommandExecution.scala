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

/** Runs a command from its plan to its result; work in the background has a thread of its own. */
class CommandExecution(
    session: ClassicSession, request: util.Map[String, Any], settings: Boolean = false, empties: Option[String] = None) {
  def result(): Array[Byte] = {
    val plan = new util.LinkedHashMap[String, Any](request)
    plan.put("recorded", PlannerMetrics.all)
    if (settings) plan.put("settings", allSettings)
    // What a command empties in the process that runs it, it empties in all of them.
    empties.foreach(cache => plan.put("elsewhere", Rpc.empty(cache)))
    val planned = Rpc("command_plan", plan)
    if (planned.json.has("background")) {
      val rest = Reply(planned.json, planned.blobs.tail)
      Background.start(session, planned.json.get("background").asInt)(finished(rest))
      planned.blobs.head
    } else finished(planned)
  }

  /** The settings of Spark and of Hadoop, for a command that lists them; values that Spark hides are hidden. */
  private def allSettings: util.Map[String, Any] = {
    val conf = session.sparkContext.conf
    val hadoop = session.sparkContext.hadoopConfiguration.iterator.asScala.map(entry => (entry.getKey, entry.getValue)).toSeq
    def hidden(values: Seq[(String, String)]) = Json.obj(Utils.redact(conf, values).toSeq.sorted: _*)
    Json.obj("spark" -> hidden(session.conf.getAll.toSeq), "hadoop" -> hidden(hadoop))
  }

  /** Run tasks, and those that the finish step adds, until there is a result. */
  @tailrec private def finished(reply: Reply): Array[Byte] =
    if (reply.json.get("done").asBoolean) reply.blobs.head else finished(next(reply))

  private def next(reply: Reply): Reply = {
    val job = Option(reply.json.get("job")).map(_.asText)
    try {
      val Seq(function, state) = reply.blobs.take(2)
      val preferred = Option(reply.json.get("preferred")).map(_.asScala.map(name => Option(name.textValue)).toSeq)
      // A command that waits leaves its planner process to others meanwhile.
      Option(reply.json.get("pause")).foreach(pause => Thread.sleep(pause.asLong))
      val tasks = reply.blobs.drop(2)
      val done = if (tasks.isEmpty) Nil else Tasks.run(session, function, tasks, preferred.getOrElse(Nil), job)
      val finish = new util.LinkedHashMap[String, Any](request)
      finish.put("ran", done.map(_._1).toArray)
      Rpc("command_finish", finish, state +: done.map(_._2): _*)
    } catch {
      case problem: Throwable =>
        for (id <- job) Try(Rpc("job_progress", Json.obj("job" -> id, "error" -> String.valueOf(problem.getMessage))))
        throw problem
    }
  }
}

/** Work that outlives its statement. */
object Background {
  private val gates = new ConcurrentHashMap[Int, Semaphore]

  /** At most `atOnce` pieces of work run at a time; others wait. An error is recorded in the job. */
  def start(session: ClassicSession, atOnce: Int)(work: => Unit): Unit = {
    val gate = gates.computeIfAbsent(atOnce, new Semaphore(_))
    val artifacts = JobArtifactSet.getCurrentJobArtifactState
    val thread = new Thread(() => {
      // The statement has ended: neither cancelling it nor its place in the user interface is ours any more.
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
    val planned = new Planned(function, tasks, preferred)
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
      // Otherwise tasks would go on and write what nobody commits.
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
        // Progress is only shown: the work does not end because it cannot be recorded.
        try Rpc("job_progress", Json.obj("job" -> id, "done" -> reported, "tasks" -> tasks))
        catch { case NonFatal(error) => logWarning(s"the progress of the job $id was not recorded", error) }
      }
      try Await.ready(running, ReportInterval) catch { case _: TimeoutException => }
    }
    running.value.foreach(_.fold(aborted => throw TaskFailure.in(aborted).getOrElse(aborted), identity))
  }

  private class Preferring(index: Int, task: Array[Byte], executor: Option[String])
      extends PythonInputPartition(index, task) {
    override def preferredLocations(): Array[String] = executor.toArray
  }

  private class Planned(function: Array[Byte], tasks: Seq[Array[Byte]], preferred: Seq[Option[String]])
      extends Table with SupportsRead {
    override def name(): String = s"${Provider.Name} tasks"
    override def schema(): StructType = Result
    override def capabilities(): util.Set[TableCapability] = util.EnumSet.of(TableCapability.BATCH_READ)
    override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder = () => new Scan with Batch {
      override def readSchema(): StructType = Result
      override def toBatch: Batch = this
      override def planInputPartitions(): Array[InputPartition] =
        tasks.zipWithIndex.map { case (task, number) =>
          new Preferring(number, task, preferred.lift(number).flatten): InputPartition
        }.toArray
      override def createReaderFactory(): PartitionReaderFactory = Compat.readerFactory(
        Rpc.source, function, Result, JobArtifactSet.getCurrentJobArtifactState.map(_.uuid))
    }
  }
}
