package org.apache.spark.sql.indextables

import scala.util.control.NonFatal

import org.apache.spark.internal.Logging

/** What follows a commit: the write stands and must not look failed, so an error is logged and not raised. */
object AfterCommit extends Logging {
  def run(what: String)(body: => Unit): Unit =
    try body catch {
      case error: InterruptedException =>
        warn(what, error)
        Thread.currentThread.interrupt()
      // Where no thread can be started, the error is one of memory.
      case error @ (NonFatal(_) | _: OutOfMemoryError) => warn(what, error)
    }

  def warn(what: String, error: Throwable): Unit = logWarning(s"$what failed; the write stands", error)
}
