package org.apache.spark.sql.indextables

import java.util
import java.util.Locale
import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.security.alias.CredentialProviderFactory

import org.apache.spark.SparkContext
import org.apache.spark.sql.connector.catalog.TableCatalog
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/**
 * Options of all origins; of equal keys the last applies: Hadoop's configuration, session confs, options of a catalog table,
 * options of the call.
 */
object SessionOptions {
  import Declarations.{HadoopPrefix, IndexingPrefix, LocationOptions, OptionPrefix}

  // The prefix of the keys of options of a catalog table, which are not options of the read or write itself.
  val Stored = "option."

  def merge(properties: util.Map[String, String], options: util.Map[String, String]): util.Map[String, String] = {
    val all = new util.LinkedHashMap[String, String]()
    HadoopOptions.of(SQLConf.get).foreach { case (key, value) => all.put(plain(key), value) }
    SQLConf.get.getAllConfs.foreach { case (key, value) => if (key.startsWith(OptionPrefix)) all.put(plain(key), value) }
    all.putAll(catalogOptions(properties))
    val (storedValues, explicit) = options.asScala.partition(_._1.startsWith(Stored))
    storedValues.foreach { case (key, value) => all.put(plain(key.stripPrefix(Stored)), value) }
    explicit.foreach { case (key, value) => all.put(plain(key), value) }
    all
  }

  /** The same for options of which Spark has not separated those of a catalog table: a catalog sets the property `provider`. */
  def merge(options: CaseInsensitiveStringMap): util.Map[String, String] = {
    val own = options.asCaseSensitiveMap
    val (properties, explicit) =
      if (options.containsKey(TableCatalog.PROP_PROVIDER)) (own, util.Collections.emptyMap[String, String]())
      else (util.Collections.emptyMap[String, String](), own)
    merge(properties, explicit)
  }

  /** Refuse options that were given to one read or one write and have no effect there. */
  def check(options: CaseInsensitiveStringMap, scope: String): Unit = {
    val explicit = if (options.containsKey(TableCatalog.PROP_PROVIDER)) Set.empty[String] else options.keySet.asScala.toSet
    val keys = explicit.filterNot(key => key.startsWith(Stored) || LocationOptions(plain(key)))
    if (keys.nonEmpty) Rpc("options", Json.obj("keys" -> keys.toSeq.sorted.asJava, "scope" -> scope))
  }

  /** The options of a catalog table: its OPTIONS, its properties with the prefix of indextables, and its location. */
  def catalogOptions(properties: util.Map[String, String]): util.Map[String, String] = {
    val options = new util.LinkedHashMap[String, String]()
    val all = properties.asScala
    all.foreach { case (key, value) => if (isOption(key)) options.put(plain(key), value) }
    all.foreach { case (key, value) => if (key.startsWith(Stored)) options.put(plain(key.stripPrefix(Stored)), value) }
    all.get("path").orElse(all.get("location")).foreach(options.put("path", _))
    options
  }

  /** The keys of the options of a table and of a call, without those of the session: their columns have to exist. */
  def own(properties: util.Map[String, String], options: util.Map[String, String]): Array[String] =
    (catalogOptions(properties).keySet.asScala ++ options.keySet.asScala.map(key => plain(key.stripPrefix(Stored)))).toArray

  /** Whether a property of a table is an option of indextables. */
  private def isOption(key: String): Boolean = key.startsWith(OptionPrefix) || key.toLowerCase(Locale.ROOT).startsWith(IndexingPrefix)

  /** The key in lower case, without prefixes; as `plain_key` in options/declare.py. */
  def plain(key: String): String = key.toLowerCase(Locale.ROOT).stripPrefix(OptionPrefix).stripPrefix(HadoopPrefix)
}

/**
 * Keys of Hadoop's file systems that are set: in files such as core-site.xml, as `spark.hadoop.*`, in a credential store, or
 * in the session, without Hadoop's defaults. The planner uses those that have a counterpart.
 */
object HadoopOptions {
  private val CredentialStores = "hadoop.security.credential.provider.path"
  private val CredentialsMillis = 60000L

  // The entries of credential stores, by the paths of the stores, with the time when they were read.
  private val credentials = new ConcurrentHashMap[String, (Long, Seq[(String, String)])]

  def of(session: SQLConf): Iterable[(String, String)] = {
    val shared = SparkContext.getActive.toSeq.flatMap(context => set(context.hadoopConfiguration))
    val own = session.getAllConfs.map { case (key, value) => (key.stripPrefix(Declarations.HadoopPrefix), value) }
    shared ++ own.filter { case (key, _) => isFileSystem(key) }
  }

  private def isFileSystem(key: String): Boolean = Declarations.HadoopKeys.exists(prefix => key.startsWith(prefix))

  private def set(conf: Configuration): Seq[(String, String)] = {
    val keys = conf.iterator.asScala.map(_.getKey).filter(key => isFileSystem(key) && !isDefault(conf, key)).toSeq
    val values = keys.flatMap(key => Option(conf.get(key)).map(key -> _))
    val stores = conf.getTrimmed(CredentialStores, "")
    if (stores.isEmpty) values else values ++ storedValues(conf, stores)
  }

  private def isDefault(conf: Configuration, key: String): Boolean =
    Option(conf.getPropertySources(key)).exists(sources => sources.nonEmpty && sources.forall(_.endsWith("-default.xml")))

  private def storedValues(conf: Configuration, stores: String): Seq[(String, String)] = {
    val now = System.currentTimeMillis
    val cached = credentials.get(stores)
    if (cached != null && now - cached._1 < CredentialsMillis) cached._2
    else {
      val current = for {
        provider <- CredentialProviderFactory.getProviders(conf).asScala.toSeq
        alias <- provider.getAliases.asScala if isFileSystem(alias)
        entry <- Option(provider.getCredentialEntry(alias))
      } yield alias -> new String(entry.getCredential)
      credentials.put(stores, (now, current))
      current
    }
  }
}
