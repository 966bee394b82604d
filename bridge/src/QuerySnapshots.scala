package org.apache.spark.sql.indextables

import java.util
import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.sql.catalyst.QueryPlanningTracker
import org.apache.spark.sql.internal.SQLConf

/**
 * The snapshots that queries read: all scans of one query read one version of a table.
 *
 * Spark builds the scans of a query, those of its subqueries among them, while it optimizes the query, and every query
 * has a tracker of its own in that thread. The first scan of a table reads the newest version, and the others read the same one.
 */
object QuerySnapshots {
  private type Snapshot = util.Map[String, Any]

  // The options that select the version or the changes to read.
  private val Choice = Seq("versionasof", "timestampasof", "readchanges", "startingversion", "startingtimestamp",
    "endingversion", "endingtimestamp", "companion.freshness")

  private val queries = new util.WeakHashMap[QueryPlanningTracker, ConcurrentHashMap[String, Snapshot]]

  /** Whether Spark optimizes a query in this thread. */
  def isQueryOptimized: Boolean = QueryPlanningTracker.get.nonEmpty

  /** The snapshot that a scan with these options reads. */
  def of(options: util.Map[String, String], isInCatalog: Boolean): Snapshot = QueryPlanningTracker.get match {
    case None => newest(options, isInCatalog)._2
    case Some(query) =>
      val snapshots = queries.synchronized(queries.computeIfAbsent(query, _ => new ConcurrentHashMap[String, Snapshot]))
      val moment = Choice.map(key => String.valueOf(options.get(key))).mkString("\n", "\n", "")
      val spelling = s"path ${options.get("path")}$moment"
      Option(snapshots.get(spelling)).getOrElse {
        // One table may have several spellings of its path.
        val (url, current) = newest(options, isInCatalog)
        val chosen = Option(snapshots.putIfAbsent(s"url $url$moment", current)).getOrElse(current)
        snapshots.put(spelling, chosen)
        chosen
      }
  }

  private def newest(options: util.Map[String, String], isInCatalog: Boolean): (String, Snapshot) = {
    val reply = Rpc("snapshot", Json.obj(
      "options" -> options, "zone" -> SQLConf.get.sessionLocalTimeZone, "in_catalog" -> isInCatalog)).json
    val identity = Option(reply.get("identity")).map(_.asText)
    (reply.get("url").asText, Json.obj("version" -> reply.get("version").asLong, "identity" -> identity))
  }
}
