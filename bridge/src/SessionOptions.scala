package org.apache.spark.sql.indextables

import java.util
import java.util.Locale

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.connector.catalog.TableCatalog
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** Options from everywhere, the nearest wins: session confs, then what a catalog table keeps, then the call's. */
object SessionOptions {
  private val Prefix = "spark.indextables."
  // Before the key of an option that a catalog table keeps, and that was not given to this one read or write.
  val Stored = "option."
  // What says where a table is, and which version of it; the planner takes them for no options.
  private val Address = Set("path", "versionasof", "timestampasof")

  def merged(properties: util.Map[String, String], options: util.Map[String, String]): util.Map[String, String] = {
    val all = new util.LinkedHashMap[String, String]()
    SQLConf.get.getAllConfs.foreach { case (key, value) => if (key.startsWith(Prefix)) all.put(plain(key), value) }
    all.putAll(kept(properties))
    val (stored, given) = options.asScala.partition(_._1.startsWith(Stored))
    stored.foreach { case (key, value) => all.put(plain(key.stripPrefix(Stored)), value) }
    given.foreach { case (key, value) => all.put(plain(key), value) }
    all
  }

  /** A catalog hands a table's properties over as options, its own among them; they say who made them. */
  def merged(options: CaseInsensitiveStringMap): util.Map[String, String] = {
    val given = options.asCaseSensitiveMap
    val (kept, asked) =
      if (options.containsKey(TableCatalog.PROP_PROVIDER)) (given, util.Collections.emptyMap[String, String]())
      else (util.Collections.emptyMap[String, String](), given)
    merged(kept, asked)
  }

  /** Refuse options that were given to one read or one write and have no effect there. */
  def check(options: CaseInsensitiveStringMap, scope: String): Unit = {
    val given = if (options.containsKey(TableCatalog.PROP_PROVIDER)) Set.empty[String] else options.keySet.asScala.toSet
    val keys = given.filterNot(key => key.startsWith(Stored) || Address(plain(key)))
    if (keys.nonEmpty) Rpc("options", Json.obj("keys" -> keys.toSeq.sorted.asJava, "scope" -> scope))
  }

  /** What a catalog keeps of ours: the table's OPTIONS, properties of our name, and where the table is. */
  def kept(properties: util.Map[String, String]): util.Map[String, String] = {
    val ours = new util.LinkedHashMap[String, String]()
    val all = properties.asScala
    all.foreach { case (key, value) => if (key.startsWith(Prefix)) ours.put(plain(key), value) }
    all.foreach { case (key, value) => if (key.startsWith(Stored)) ours.put(plain(key.stripPrefix(Stored)), value) }
    all.get("path").orElse(all.get("location")).foreach(ours.put("path", _))
    ours
  }

  /** Two spellings of one key are one option. */
  private def plain(key: String): String = key.toLowerCase(Locale.ROOT).stripPrefix(Prefix)
}
