package org.apache.spark.sql.indextables

import java.util
import java.util.Properties

import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.{JobArtifactSet, SparkContext}
import org.apache.spark.internal.Logging
import org.apache.spark.scheduler.{SparkListener, SparkListenerApplicationEnd}
import org.apache.spark.sql.classic.SparkSession

/**
 * Runs the commands that a write starts by itself. The planner says which, and whether the write waits for them.
 *
 * What fails here never fails the write.
 */
object MergeOnWrite extends Logging {
  private class Merging(val thread: Thread, var patience: Long, var again: Option[PostCommitWork])

  private val writes = mutable.Map.empty[String, Int]
  private val running = mutable.Map.empty[String, Merging]
  private var listened: Option[SparkContext] = None

  /** How many writes this application has made to a table, with the one that is to be committed. */
  def count(table: String): Int = synchronized {
    writes(table) = writes.getOrElse(table, 0) + 1
    writes(table)
  }

  def start(table: String, wanted: PostCommitWork): Unit = {
    if (wanted.merges) {
      if (wanted.background) inBackground(table, wanted)
      else {
        val before = synchronized(running.get(table).map(_.thread))
        before.foreach(_.join())
        wanted.merge()
      }
    }
    if (wanted.purges) wanted.purge()
  }

  private def inBackground(table: String, wanted: PostCommitWork): Unit = synchronized {
    running.get(table) match {
      case Some(busy) =>
        busy.again = Some(wanted)
        busy.patience = wanted.patience
      case None =>
        listen(wanted.session.sparkContext)
        val thread = new Thread(() => work(table, wanted), "indextables-merge-on-write")
        thread.setDaemon(true)
        running(table) = new Merging(thread, wanted.patience, None)
        thread.start()
    }
  }

  private def work(table: String, first: PostCommitWork): Unit = {
    var next = Option(first)
    while (next.nonEmpty) {
      next.get.alone()
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

/** What one write starts. */
class PostCommitWork(val session: SparkSession, options: util.Map[String, String], parallelism: Int, wanted: JsonNode)
    extends Logging {
  private val artifacts = JobArtifactSet.getCurrentJobArtifactState.orNull

  def merges: Boolean = wanted.has("merge")
  def background: Boolean = wanted.get("background").asBoolean
  def patience: Long = wanted.get("patience").asLong
  def purges: Boolean = wanted.get("purges").asBoolean

  /** Merge in a thread that is nobody else's. */
  def alone(): Unit = {
    // What the thread inherited is of the write: its execution, and perhaps a group of jobs that is cancelled.
    session.sparkContext.setLocalProperties(new Properties)
    JobArtifactSet.withActiveJobArtifactState(artifacts)(session.withActive(merge()))
  }

  /** Merge round by round until nothing is left, then purge if the planner wants that. */
  def merge(): Unit = {
    val given = new util.HashMap[String, String](options)
    wanted.get("options").properties.asScala.foreach(entry => given.put(entry.getKey, entry.getValue.asText))
    val statement = wanted.get("merge").asText
    try {
      var merged = false
      while (groups(statement, given) > 0) merged = true
      if (merged && wanted.get("purges_after_merge").asBoolean) purge()
    } catch {
      case NonFatal(_) if session.sparkContext.isStopped =>
        quietly("merge")(Rpc("merge_here", Json.obj("options" -> options, "parallelism" -> parallelism)))
      case NonFatal(error) => warn("merge", error)
    }
  }

  private def groups(statement: String, given: util.Map[String, String]): Long =
    Command.execute(session, statement, given).head.getStruct(1).getAs[Long]("merge_groups")

  def purge(): Unit = quietly("purge")(Command.execute(session, wanted.get("purge").asText, options))

  private def quietly(what: String)(body: => Any): Unit =
    try body catch { case NonFatal(error) => warn(what, error) }

  private def warn(what: String, error: Throwable): Unit =
    logWarning(s"the $what after a write to ${options.get("path")} failed; the write stands", error)
}
