package org.apache.spark.sql.indextables

import java.io.{DataInputStream, DataOutputStream}

import com.fasterxml.jackson.databind.JsonNode
import net.razorvine.pickle.Pickler

import org.apache.spark.api.python.{PythonFunction, PythonUtils, PythonWorkerUtils, SpecialLengths}
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource
import org.apache.spark.sql.execution.python.PythonPlannerRunner

/** What the planner answered: JSON, and bytes that JSON is no good for. */
case class Reply(json: JsonNode, blobs: Seq[Array[Byte]])

/** Calls of the planner, the Python process on the driver that decides everything (bridge/PROTOCOL.md). */
object Rpc {
  // Asking for it starts an interpreter once, to learn its version.
  private lazy val function: PythonFunction = PythonUtils.createPythonFunction(Array.emptyByteArray)

  /** What Spark's own Python readers and writers run on executors. */
  lazy val source: UserDefinedPythonDataSource = UserDefinedPythonDataSource(function)

  def apply(op: String, request: Any, blobs: Array[Byte]*): Reply = {
    KeepAlive.used()
    val reply = new Call(function, op, Json.text(request), blobs).runInPython()
    val error = reply.json.get("error")
    if (error != null) throw new Failure(error.asText)
    reply
  }

  private class Call(function: PythonFunction, op: String, request: String, blobs: Seq[Array[Byte]])
      extends PythonPlannerRunner[Reply](function) {

    // pyspark.daemon loads modules only whose names start with "pyspark".
    override val workerModule: String = "pyspark_indextables.worker"

    override protected def writeToPython(out: DataOutputStream, pickler: Pickler): Unit = {
      PythonWorkerUtils.writeUTF(op, out)
      PythonWorkerUtils.writeUTF(request, out)
      out.writeInt(blobs.size)
      blobs.foreach(PythonWorkerUtils.writeBytes(_, out))
    }

    override protected def receiveFromPython(in: DataInputStream): Reply = {
      val length = in.readInt()
      if (length == SpecialLengths.PYTHON_EXCEPTION_THROWN) {
        val trace = PythonWorkerUtils.readUTF(in)
        throw new Failure(s"the planner of indextables failed at '$op', which is a defect of indextables:\n$trace")
      }
      val json = Json.parse(PythonWorkerUtils.readBytes(length, in))
      Reply(json, Seq.fill(in.readInt())(PythonWorkerUtils.readBytes(in)))
    }
  }
}
