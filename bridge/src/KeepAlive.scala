package org.apache.spark.sql.indextables

import java.io.File
import java.nio.file.{Files, Path, Paths}
import java.nio.file.attribute.PosixFilePermissions
import java.util.concurrent.TimeUnit
import java.util.concurrent.atomic.AtomicLong

import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.util.Try

import org.apache.spark.SparkEnv
import org.apache.spark.api.python.PythonWorkerFactory
import org.apache.spark.util.Utils

/**
 * Keeps idle Python workers of indextables alive while they are in use; workers of users' functions are left to Spark.
 *
 * Spark ends idle workers after a minute. A new worker has to import libraries and open indexes again.
 */
object KeepAlive {
  val PlannerModule = "pyspark_indextables.worker"
  /** The environment of workers that run tasks of indextables has this variable. */
  val Mark = "INDEXTABLES_TASKS"

  private val keepFor = TimeUnit.MINUTES.toNanos(30)
  private val lastUse = new AtomicLong(Long.MinValue)

  /** Record that a worker is about to be used. */
  def recordUse(): Unit = {
    SocketFolder.use()
    if (lastUse.getAndSet(System.nanoTime()) == Long.MinValue) {
      val thread = new Thread(
        () => while (true) { Thread.sleep(15000); Try(touch()); Try(SocketFolder.sweep()) }, "indextables-keep-alive")
      thread.setDaemon(true)
      thread.start()
    }
  }

  private def touch(): Unit = {
    val env = SparkEnv.get
    if (env != null && System.nanoTime() - lastUse.get < keepFor) {
      val setter = classOf[PythonWorkerFactory].getMethods.find(_.getName.endsWith("lastActivityNs_$eq")).get
      factories(env).foreach(f => f.synchronized(setter.invoke(f, java.lang.Long.valueOf(System.nanoTime()))))
    }
  }

  /** The factories of our workers. These members of Spark are private; without them, Spark ends idle workers as usual. */
  private[indextables] def factories(env: SparkEnv): Seq[PythonWorkerFactory] = {
    val field = classOf[SparkEnv].getDeclaredField("pythonWorkers")
    field.setAccessible(true)
    env.synchronized(field.get(env).asInstanceOf[mutable.Map[Product, PythonWorkerFactory]].toList).collect {
      case (key, factory) if key.productIterator.exists {
        case module: String => module == PlannerModule
        case environment: scala.collection.Map[_, _] => environment.asInstanceOf[scala.collection.Map[Any, Any]].contains(Mark)
        case _ => false
      } => factory
    }
  }
}

/**
 * A folder for the sockets of Python workers that only this user can enter, one for each JVM.
 *
 * Spark puts them into the shared temporary folder, and leaves those of workers that were killed.
 */
object SocketFolder {
  private val Enabled = "spark.python.unix.domain.socket.enabled"
  private val Setting = "spark.python.unix.domain.socket.dir"
  // The path of a socket has 104 characters at most, 43 of them its name.
  private val MaxLength = 61

  private var environment: Option[SparkEnv] = None
  private var folder: Option[Path] = None

  /** Set the folder for the sockets of workers that start from now on, unless the session has set one. */
  def use(): Unit = synchronized {
    val env = SparkEnv.get
    if (env != null && !environment.exists(_ eq env)) {
      environment = Some(env)
      folder = None
      if (env.conf.getBoolean(Enabled, false) && !env.conf.contains(Setting)) {
        // Spark deletes such a folder when the JVM ends.
        val roots = Seq(System.getProperty("java.io.tmpdir"), "/tmp").filter(root => root.length <= MaxLength - 45)
        folder = roots.headOption.flatMap(root => Try(Utils.createTempDir(root, "ixt").toPath).toOption)
          .filter(_.toString.length <= MaxLength)
        folder.foreach { at =>
          Files.setPosixFilePermissions(at, PosixFilePermissions.fromString("rwx------"))
          env.conf.set(Setting, at.toString)
        }
      }
    }
  }

  /** Delete sockets of processes that have ended. */
  def sweep(): Unit = synchronized {
    val table = Paths.get("/proc/net/unix")
    folder.filter(_ => Files.isReadable(table)).foreach { at =>
      val before = Option(at.toFile.listFiles()).toSeq.flatten.filter(_.getName.endsWith(".sock"))
      val bound = Files.readAllLines(table).asScala.map(_.split(' ').last).toSet
      before.filterNot((file: File) => bound(file.getPath)).foreach(_.delete())
    }
  }
}
