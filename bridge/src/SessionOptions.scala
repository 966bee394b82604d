package org.apache.spark.sql.indextables

import java.util
import java.util.Locale

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** Options from everywhere, the nearest wins: session confs, then what a catalog table keeps, then the call's. */
object SessionOptions {
  private val Prefix = "spark.indextables."
  private val Stored = "option."

  def merged(properties: util.Map[String, String], options: util.Map[String, String]): util.Map[String, String] = {
    val all = new util.LinkedHashMap[String, String]()
    // Two spellings of one key are one option, so the prefix goes.
    def put(key: String, value: String): Unit = all.put(key.toLowerCase(Locale.ROOT).stripPrefix(Prefix), value)
    SQLConf.get.getAllConfs.foreach { case (key, value) => if (key.startsWith(Prefix)) put(key, value) }
    val kept = properties.asScala
    kept.foreach { case (key, value) => if (key.startsWith(Prefix)) put(key, value) }
    kept.foreach { case (key, value) => if (key.startsWith(Stored)) put(key.stripPrefix(Stored), value) }
    kept.get("path").orElse(kept.get("location")).foreach(put("path", _))
    options.asScala.foreach { case (key, value) => put(key, value) }
    all
  }

  def merged(options: CaseInsensitiveStringMap): util.Map[String, String] =
    merged(util.Collections.emptyMap(), options.asCaseSensitiveMap)
}
