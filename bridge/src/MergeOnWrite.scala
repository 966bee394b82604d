package org.apache.spark.sql.indextables

import java.util
import java.util.Properties

import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.{JobArtifactSet, SparkContext}
import org.apache.spark.scheduler.{SparkListener, SparkListenerApplicationEnd}
import org.apache.spark.sql.classic.SparkSession

/**
 * Runs the maintenance that a write starts: the planner decides what is merged and purged, and whether the write waits.
 *
 * An error is logged; it never fails the write.
 */
object MergeOnWrite {
  private class RunningMerge(val thread: Thread, var shutdownTimeout: Long, var next: Option[PostCommitWork])

  private val writes = mutable.Map.empty[String, Int]
  private val running = mutable.Map.empty[String, RunningMerge]
  private var application: Option[SparkContext] = None

  /** Counts a write to a table; returns the number of writes of this application, this one included. */
  def count(table: String): Int = synchronized {
    writes(table) = writes.getOrElse(table, 0) + 1
    writes(table)
  }

  /** Starts the maintenance in the planner's reply. The write is committed, so no error is raised here. */
  def start(table: String, options: util.Map[String, String], parallelism: Int, maintenance: JsonNode): Unit =
    AfterCommit.run(s"the maintenance after a write to $table") {
      start(table, new PostCommitWork(SparkSession.active, options, parallelism, maintenance))
    }

  private def start(table: String, work: PostCommitWork): Unit = {
    if (work.merges) {
      if (work.background) startInBackground(table, work)
      else {
        val before = synchronized(running.get(table).map(_.thread))
        before.foreach(_.join())
        work.merge()
      }
    }
    if (work.purges) work.purge()
  }

  private def startInBackground(table: String, work: PostCommitWork): Unit = synchronized {
    running.get(table) match {
      case Some(current) =>
        current.next = Some(work)
        current.shutdownTimeout = work.shutdownTimeout
      case None =>
        listen(work.session.sparkContext)
        val thread = new Thread(() => run(table, work), "indextables-merge-on-write")
        thread.setDaemon(true)
        // Registered after the start, which may fail. The thread needs the lock of this object to read its entry.
        thread.start()
        running(table) = new RunningMerge(thread, work.shutdownTimeout, None)
    }
  }

  private def run(table: String, first: PostCommitWork): Unit = {
    var next = Option(first)
    while (next.nonEmpty) {
      // After an error, later writes must be able to start merges of this table.
      try next.get.mergeInThread() catch { case error: Throwable => AfterCommit.warn(s"the merge after a write to $table", error) }
      synchronized {
        next = running(table).next
        running(table).next = None
        if (next.isEmpty) running.remove(table)
      }
    }
  }

  /** Waits for merges when the application ends: its planner processes run until its listeners have returned. */
  private def listen(context: SparkContext): Unit = if (!application.exists(_ eq context)) {
    application = Some(context)
    context.addSparkListener(new SparkListener {
      override def onApplicationEnd(end: SparkListenerApplicationEnd): Unit = {
        val started = System.nanoTime()
        val merges = MergeOnWrite.synchronized(running.values.toList)
        merges.foreach { merge =>
          val millis = merge.shutdownTimeout - (System.nanoTime() - started) / 1000000
          if (millis > 0) merge.thread.join(millis)
        }
      }
    })
  }
}

/** The maintenance that one write starts. */
class PostCommitWork(
    val session: SparkSession, base: util.Map[String, String], parallelism: Int, maintenance: JsonNode) {
  private val options = new util.HashMap[String, String](base)
  maintenance.get("options").properties.asScala.foreach(entry => options.put(entry.getKey, entry.getValue.asText))
  private val artifacts = JobArtifactSet.getCurrentJobArtifactState.orNull

  def merges: Boolean = maintenance.get("merge").asBoolean
  def background: Boolean = maintenance.get("background").asBoolean
  def shutdownTimeout: Long = maintenance.get("shutdown_timeout").asLong
  def purges: Boolean = maintenance.get("purge").asBoolean

  /** Merge in a separate thread. */
  def mergeInThread(): Unit = {
    // The thread inherited the execution of the write, and perhaps a group of jobs that is cancelled.
    session.sparkContext.setLocalProperties(new Properties)
    JobArtifactSet.withActiveJobArtifactState(artifacts)(session.withActive(merge()))
  }

  def merge(): Unit =
    try run("merge") catch {
      case NonFatal(_) if session.sparkContext.isStopped =>
        logErrors("merge")(Rpc("merge_here", Json.obj("options" -> options, "parallelism" -> parallelism)))
      case NonFatal(error) => warn("merge", error)
    }

  def purge(): Unit = logErrors("purge")(run("purge"))

  private def run(name: String): Unit = new CommandExecution(session, Json.obj(
    "maintenance" -> name,
    "options" -> options,
    "parallelism" -> parallelism,
    "executors" -> Executors.names)).result()

  private def logErrors(what: String)(body: => Any): Unit =
    try body catch { case NonFatal(error) => warn(what, error) }

  private def warn(what: String, error: Throwable): Unit =
    AfterCommit.warn(s"the $what after a write to ${options.get("path")}", error)
}
