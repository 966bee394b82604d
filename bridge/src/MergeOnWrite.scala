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
  private class Merging(val thread: Thread, var patience: Long, var again: Option[PostCommitWork])

  private val writes = mutable.Map.empty[String, Int]
  private val running = mutable.Map.empty[String, Merging]
  private var listened: Option[SparkContext] = None

  /** How many writes this application has made to a table, with the one that is to be committed. */
  def count(table: String): Int = synchronized {
    writes(table) = writes.getOrElse(table, 0) + 1
    writes(table)
  }

  /** Starts what the planner decided. The write is committed, so nothing is raised here. */
  def start(table: String, options: util.Map[String, String], parallelism: Int, maintenance: JsonNode): Unit =
    AfterCommit.run(s"the maintenance after a write to $table") {
      start(table, new PostCommitWork(SparkSession.active, options, parallelism, maintenance))
    }

  private def start(table: String, work: PostCommitWork): Unit = {
    if (work.merges) {
      if (work.background) inBackground(table, work)
      else {
        val before = synchronized(running.get(table).map(_.thread))
        before.foreach(_.join())
        work.merge()
      }
    }
    if (work.purges) work.purge()
  }

  private def inBackground(table: String, work: PostCommitWork): Unit = synchronized {
    running.get(table) match {
      case Some(current) =>
        current.again = Some(work)
        current.patience = work.patience
      case None =>
        listen(work.session.sparkContext)
        val thread = new Thread(() => run(table, work), "indextables-merge-on-write")
        thread.setDaemon(true)
        // After the start, which may fail; the thread looks for itself here only when this is done.
        thread.start()
        running(table) = new Merging(thread, work.patience, None)
    }
  }

  private def run(table: String, first: PostCommitWork): Unit = {
    var next = Option(first)
    while (next.nonEmpty) {
      // After any error later writes can start merges of this table.
      try next.get.alone() catch { case error: Throwable => AfterCommit.warn(s"the merge after a write to $table", error) }
      synchronized {
        next = running(table).again
        running(table).again = None
        if (next.isEmpty) running.remove(table)
      }
    }
  }

  /** An application that ends waits for its merges: its planner lives until its listeners are done. */
  private def listen(context: SparkContext): Unit = if (!listened.exists(_ eq context)) {
    listened = Some(context)
    context.addSparkListener(new SparkListener {
      override def onApplicationEnd(end: SparkListenerApplicationEnd): Unit = {
        val started = System.nanoTime()
        val left = MergeOnWrite.synchronized(running.values.toList)
        left.foreach { one =>
          val millis = one.patience - (System.nanoTime() - started) / 1000000
          if (millis > 0) one.thread.join(millis)
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
  def patience: Long = maintenance.get("patience").asLong
  def purges: Boolean = maintenance.get("purge").asBoolean

  /** Merge in a thread of its own. */
  def alone(): Unit = {
    // The thread inherited the execution of the write, and perhaps a group of jobs that is cancelled.
    session.sparkContext.setLocalProperties(new Properties)
    JobArtifactSet.withActiveJobArtifactState(artifacts)(session.withActive(merge()))
  }

  def merge(): Unit =
    try run("merge") catch {
      case NonFatal(_) if session.sparkContext.isStopped =>
        logged("merge")(Rpc("merge_here", Json.obj("options" -> options, "parallelism" -> parallelism)))
      case NonFatal(error) => warn("merge", error)
    }

  def purge(): Unit = logged("purge")(run("purge"))

  private def run(name: String): Unit = new CommandExecution(session, Json.obj(
    "maintenance" -> name,
    "options" -> options,
    "parallelism" -> parallelism,
    "executors" -> Executors.names)).result()

  private def logged(what: String)(body: => Any): Unit =
    try body catch { case NonFatal(error) => warn(what, error) }

  private def warn(what: String, error: Throwable): Unit =
    AfterCommit.warn(s"the $what after a write to ${options.get("path")}", error)
}
