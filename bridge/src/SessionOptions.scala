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
 * Options from everywhere, the nearest wins: Hadoop's configuration, session confs, then what a catalog table keeps, then
 * the call's.
 */
object SessionOptions {
  import Declarations.{HadoopPrefix, IndexingPrefix, LocationOptions, OptionPrefix}

  // Before the key of an option that a catalog table keeps, and that was not given to this one read or write.
  val Stored = "option."

  def merged(properties: util.Map[String, String], options: util.Map[String, String]): util.Map[String, String] = {
    val all = new util.LinkedHashMap[String, String]()
    HadoopOptions.of(SQLConf.get).foreach { case (key, value) => all.put(plain(key), value) }
    SQLConf.get.getAllConfs.foreach { case (key, value) => if (key.startsWith(OptionPrefix)) all.put(plain(key), value) }
    all.putAll(catalogOptions(properties))
    val (stored, explicit) = options.asScala.partition(_._1.startsWith(Stored))
    stored.foreach { case (key, value) => all.put(plain(key.stripPrefix(Stored)), value) }
    explicit.foreach { case (key, value) => all.put(plain(key), value) }
    all
  }

  /** A catalog hands a table's properties over as options, its own among them; they say who made them. */
  def merged(options: CaseInsensitiveStringMap): util.Map[String, String] = {
    val own = options.asCaseSensitiveMap
    val (properties, explicit) =
      if (options.containsKey(TableCatalog.PROP_PROVIDER)) (own, util.Collections.emptyMap[String, String]())
      else (util.Collections.emptyMap[String, String](), own)
    merged(properties, explicit)
  }

  /** Refuse options that were given to one read or one write and have no effect there. */
  def check(options: CaseInsensitiveStringMap, scope: String): Unit = {
    val explicit = if (options.containsKey(TableCatalog.PROP_PROVIDER)) Set.empty[String] else options.keySet.asScala.toSet
    val keys = explicit.filterNot(key => key.startsWith(Stored) || LocationOptions(plain(key)))
    if (keys.nonEmpty) Rpc("options", Json.obj("keys" -> keys.toSeq.sorted.asJava, "scope" -> scope))
  }

  /** What a catalog keeps of ours: the table's OPTIONS, properties of our name, and where the table is. */
  def catalogOptions(properties: util.Map[String, String]): util.Map[String, String] = {
    val ours = new util.LinkedHashMap[String, String]()
    val all = properties.asScala
    all.foreach { case (key, value) => if (isOurs(key)) ours.put(plain(key), value) }
    all.foreach { case (key, value) => if (key.startsWith(Stored)) ours.put(plain(key.stripPrefix(Stored)), value) }
    all.get("path").orElse(all.get("location")).foreach(ours.put("path", _))
    ours
  }

  /** The options that a table keeps and a call gives, without those of the session: their columns have to exist. */
  def own(properties: util.Map[String, String], options: util.Map[String, String]): Array[String] =
    (catalogOptions(properties).keySet.asScala ++ options.keySet.asScala.map(key => plain(key.stripPrefix(Stored)))).toArray

  /** Whether a property of a table is an option; other properties are the user's own. */
  private def isOurs(key: String): Boolean = key.startsWith(OptionPrefix) || key.toLowerCase(Locale.ROOT).startsWith(IndexingPrefix)

  /** Two spellings of one key are one option; `plain_key` in options/declare.py does the same. */
  def plain(key: String): String = key.toLowerCase(Locale.ROOT).stripPrefix(OptionPrefix).stripPrefix(HadoopPrefix)
}

/**
 * Keys of Hadoop's file systems that somebody has set: in files such as core-site.xml, as `spark.hadoop.*`, in a credential
 * store, or in the session. Hadoop's own defaults are left out; the planner says which keys have a counterpart.
 */
object HadoopOptions {
  private val CredentialStores = "hadoop.security.credential.provider.path"
  private val CredentialsMillis = 60000L

  // The entries of credential stores, by the paths of those, with the time they were read.
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
    if (stores.isEmpty) values else values ++ stored(conf, stores)
  }

  private def isDefault(conf: Configuration, key: String): Boolean =
    Option(conf.getPropertySources(key)).exists(sources => sources.nonEmpty && sources.forall(_.endsWith("-default.xml")))

  private def stored(conf: Configuration, stores: String): Seq[(String, String)] = {
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
