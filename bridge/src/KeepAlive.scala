package org.apache.spark.sql.indextables

import java.util.concurrent.TimeUnit
import java.util.concurrent.atomic.AtomicLong

import scala.collection.mutable
import scala.util.Try

import org.apache.spark.SparkEnv
import org.apache.spark.api.python.PythonWorkerFactory

/**
 * Keeps idle Python workers of this JVM while indextables is in use.
 *
 * Spark ends them after a minute, and with them go the imported libraries and the indexes they hold open.
 */
object KeepAlive {
  private val keepFor = TimeUnit.MINUTES.toNanos(30)
  private val lastUse = new AtomicLong(Long.MinValue)

  /** Say that a worker was used just now. */
  def used(): Unit = if (lastUse.getAndSet(System.nanoTime()) == Long.MinValue) {
    val thread = new Thread(() => while (true) { Thread.sleep(15000); Try(touch()) }, "indextables-keep-alive")
    thread.setDaemon(true)
    thread.start()
  }

  private def touch(): Unit = {
    val env = SparkEnv.get
    if (env != null && System.nanoTime() - lastUse.get < keepFor) {
      // Both are private, and there is no setting: what cannot be found leaves Spark as it is.
      val workers = classOf[SparkEnv].getDeclaredField("pythonWorkers")
      workers.setAccessible(true)
      val setter = classOf[PythonWorkerFactory].getMethods.find(_.getName.endsWith("lastActivityNs_$eq")).get
      val factories = env.synchronized(workers.get(env).asInstanceOf[mutable.Map[_, PythonWorkerFactory]].values.toList)
      factories.foreach(f => f.synchronized(setter.invoke(f, java.lang.Long.valueOf(System.nanoTime()))))
    }
  }
}
