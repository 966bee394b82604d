package org.apache.spark.sql.indextables

import scala.util.control.NonFatal

import org.apache.spark.internal.Logging

/** Runs work after a commit. The write has succeeded, so an error is logged and not raised. */
object AfterCommit extends Logging {
  def run(what: String)(body: => Unit): Unit =
    try body catch {
      case error: InterruptedException =>
        warn(what, error)
        Thread.currentThread.interrupt()
      // If no thread can be started, the error is an OutOfMemoryError.
      case error @ (NonFatal(_) | _: OutOfMemoryError) => warn(what, error)
    }

  def warn(what: String, error: Throwable): Unit = logWarning(s"$what failed; the write was committed", error)
}
