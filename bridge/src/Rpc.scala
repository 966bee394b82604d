package org.apache.spark.sql.indextables

import java.io.{DataInputStream, DataOutputStream, IOException}
import java.util
import java.util.concurrent.{ConcurrentHashMap, CountDownLatch, ExecutionException, Executors => ThreadPools, ExecutorService, Semaphore, TimeUnit}
import java.util.concurrent.atomic.AtomicInteger

import scala.annotation.tailrec
import scala.util.Try

import com.fasterxml.jackson.databind.JsonNode
import net.razorvine.pickle.Pickler

import org.apache.spark.internal.Logging
import org.apache.spark.api.python.{PythonFunction, PythonWorkerUtils, SpecialLengths}
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource
import org.apache.spark.sql.execution.python.PythonPlannerRunner
import org.apache.spark.sql.internal.SQLConf

/** A reply of the planner: JSON, and byte arrays. */
case class Reply(json: JsonNode, blobs: Seq[Array[Byte]])

/**
 * Calls operations of the planner (bridge/PROTOCOL.md).
 *
 * The planner is a small, fixed number of Python processes on the driver. A call waits until one of them is free. Operations
 * that may take long have separate processes, so that queries do not wait for them.
 */
object Rpc {
  private val Processes = 4
  // Each process uses one core and opens the splits of a table for itself. So there are no more processes for queries than
  // cores, but at least two, since a call may wait for an object store.
  private val QueryProcesses = math.max(2, math.min(Processes, Runtime.getRuntime.availableProcessors))

  // Operations that change a table or do the work of a command.
  private val Work = Set("abort", "command_finish", "command_plan", "commit", "delete", "merge_here", "write")
  // Those among them that can be repeated.
  private val Repeatable = Set("abort", "merge_here", "write")
  // The maximum number of attempts of a call whose process ends during the call.
  private val Attempts = 3
  // The maximum number of idle processes that may have ended unnoticed; a call to one of them has not begun.
  private val IdleProcesses = 2 * Processes

  private val forQueries = new Semaphore(QueryProcesses, true)
  private val forWork = new Semaphore(Processes, true)
  private val threads: ExecutorService = ThreadPools.newCachedThreadPool { (task: Runnable) =>
    val thread = new Thread(task, "indextables-planner")
    thread.setDaemon(true)
    thread
  }

  /** The number of calls that a process is working on. */
  def busyProcesses: Int = QueryProcesses + Processes - forQueries.availablePermits - forWork.availablePermits

  // How often all processes were to close their splits, and to drop their cached logs. Both numbers are sent with each call:
  // a process with lower numbers closes or drops first.
  private val closings = new AtomicInteger
  private val invalidations = new AtomicInteger
  // Processes that have replied to a call.
  private val processes = ConcurrentHashMap.newKeySet[Long]()
  private val MaxWaitSeconds = 30

  /** Close the open splits of all processes; returns the number of splits that idle processes closed. */
  def closeSplits(): Long = { closings.incrementAndGet(); renewIdle("closed") }

  /** Drop the cached logs of all processes; returns the number of values that idle processes dropped. */
  def dropLogs(): Long = { invalidations.incrementAndGet(); renewIdle("dropped") }

  /** Empty a cache of all processes, by its name in the protocol. */
  def empty(cache: String): Long = cache match {
    case "splits" => closeSplits()
    case "logs" => dropLogs()
  }

  /** Makes one call to each idle process. A call ends only after all of them have begun, so that each has another process. */
  private def renewIdle(figure: String): Long = {
    processes.removeIf(pid => !ProcessHandle.of(pid).filter(_.isAlive).isPresent)
    val all = new CountDownLatch(math.max(0, processes.size - busyProcesses))
    val calls = Seq.fill(all.getCount.toInt)(new Call(function, "renew", "{}", Nil, Some(all)))
    val running = calls.map(call => threads.submit(() => SQLConf.withExistingConf(new SQLConf)(call.runInPython())))
    // A process that has ended has no open splits.
    running.map(each => Try(each.get().json.get(figure).asLong).getOrElse(0L)).sum
  }

  private lazy val function: PythonFunction = PythonInterpreter.function(onDriver = true, Map.empty)

  /** Runs functions of indextables on executors, in worker processes that are not shared with users' functions. */
  lazy val source: UserDefinedPythonDataSource =
    UserDefinedPythonDataSource(PythonInterpreter.function(onDriver = false, Map(KeepAlive.Mark -> "1")))

  def apply(op: String, request: Any, blobs: Array[Byte]*): Reply = {
    KeepAlive.recordUse()
    val reply = callRepeatedly(op, Json.text(request), blobs, Attempts, IdleProcesses)
    Option(reply.json.get("warnings")).foreach(_.forEach(sentence => Warnings.show(sentence.asText)))
    Option(reply.json.get("process_metrics")).foreach(PlannerMetrics.add)
    val error = reply.json.get("error")
    if (error != null) throw new Failure(error.asText)
    reply
  }

  /**
   * Makes a call, and repeats it, where that is safe, if its process has ended.
   *
   * @param attempts the remaining attempts of calls that a process has begun
   * @param idle the remaining attempts of calls that no process has begun
   */
  @tailrec private def callRepeatedly(op: String, request: String, blobs: Seq[Array[Byte]], attempts: Int, idle: Int): Reply = {
    val call = new Call(function, op, request, blobs)
    val result =
      try Right(callOnce(op, call))
      catch { case error: Exception if hasProcessEnded(error) => Left(error) }
    result match {
      case Right(reply) => reply
      case Left(_) if isRepeatable(op) && !call.began && idle > 0 => callRepeatedly(op, request, blobs, attempts, idle - 1)
      case Left(_) if isRepeatable(op) && attempts > 1 => callRepeatedly(op, request, blobs, attempts - 1, idle)
      case Left(error) if processes.isEmpty =>
        throw new Failure(
          s"'${function.pythonExec}' ends before it runs the planner of indextables; the reason is in the log of the driver. If it " +
            "has no indextables, set the environment variable PYSPARK_PYTHON to a Python that has it, before the session starts", Some(error))
      case Left(error) =>
        val outcome = if (isRepeatable(op)) "" else "; whether it took effect is unknown: check the table's history first"
        throw new Failure(s"the planner process of indextables ended during '$op'$outcome; run the statement again", Some(error))
    }
  }

  private def isRepeatable(op: String): Boolean = !Work(op) || Repeatable(op)

  private def hasProcessEnded(error: Throwable): Boolean =
    Iterator.iterate(error)(_.getCause).takeWhile(_ != null).take(10).exists(_.isInstanceOf[IOException])

  /** Makes one call in a separate thread, so that the waiting thread can be interrupted; then the process of the call is ended. */
  private def callOnce(op: String, call: Call): Reply = {
    val gate = if (Work(op)) forWork else forQueries
    gate.acquire()
    val running =
      try threads.submit { () =>
        // With settings of the session, Spark would start separate processes for it.
        try SQLConf.withExistingConf(new SQLConf)(call.runInPython()) finally gate.release()
      } catch { case error: Throwable => gate.release(); throw error }
    try running.get()
    catch {
      case error: InterruptedException => call.cancel(); throw error
      case error: ExecutionException => throw error.getCause
    }
  }

  private class Call(
      function: PythonFunction, op: String, request: String, blobs: Seq[Array[Byte]], barrier: Option[CountDownLatch] = None)
      extends PythonPlannerRunner[Reply](function) {
    private var process: Option[Long] = None
    private var cancelled = false

    /** Whether a process has replied that it works on the call. */
    @volatile var began = false

    // pyspark.daemon loads modules only whose names start with "pyspark".
    override val workerModule: String = KeepAlive.PlannerModule

    /** End the process that works on the call, now or as soon as it has sent its id. */
    def cancel(): Unit = synchronized {
      cancelled = true
      process.foreach(end)
    }

    private def recordStart(pid: Long): Unit = synchronized {
      began = true
      process = Some(pid)
      processes.add(pid)
      if (cancelled) end(pid)
    }

    private def recordEnd(): Unit = synchronized { process = None }

    private def end(pid: Long): Unit = ProcessHandle.of(pid).ifPresent(handle => handle.destroyForcibly())

    override protected def writeToPython(out: DataOutputStream, pickler: Pickler): Unit = {
      barrier.foreach { all => all.countDown(); all.await(MaxWaitSeconds, TimeUnit.SECONDS) }
      out.writeInt(closings.get)
      out.writeInt(invalidations.get)
      PythonWorkerUtils.writeUTF(op, out)
      PythonWorkerUtils.writeUTF(request, out)
      out.writeInt(blobs.size)
      blobs.foreach(PythonWorkerUtils.writeBytes(_, out))
    }

    override protected def receiveFromPython(in: DataInputStream): Reply = {
      recordStart(length(in).toLong)
      val json = Json.parse(PythonWorkerUtils.readBytes(length(in), in))
      val reply = Reply(json, Seq.fill(in.readInt())(PythonWorkerUtils.readBytes(in)))
      recordEnd()
      reply
    }

    private def length(in: DataInputStream): Int = {
      val number = in.readInt()
      if (number == SpecialLengths.PYTHON_EXCEPTION_THROWN) {
        val trace = PythonWorkerUtils.readUTF(in)
        throw new Failure(s"the planner of indextables failed at '$op', which is a defect of indextables:\n$trace")
      }
      number
    }
  }
}

/** The metrics of all planner processes: of each name the last value, the total and the number of observations. */
object PlannerMetrics {
  private val totals = new util.TreeMap[String, Array[Double]]

  def add(recorded: JsonNode): Unit = synchronized {
    recorded.fields.forEachRemaining { entry =>
      val Seq(last, total, count) = Seq(0, 1, 2).map(entry.getValue.get(_).asDouble)
      totals.merge(entry.getKey, Array(last, total, count), (old, more) => Array(more(0), old(1) + more(1), old(2) + more(2)))
    }
  }

  def all: util.Map[String, Array[Double]] = synchronized(new util.TreeMap(totals))
}

/** Logs warnings of the planner processes, each once in an application. */
private object Warnings extends Logging {
  private val seen = ConcurrentHashMap.newKeySet[String]()

  def show(sentence: String): Unit = if (seen.add(sentence)) logWarning(sentence)
}
