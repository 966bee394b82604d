package org.apache.spark.sql.indextables

/** Declarations that the bridge needs before it can call the planner. Written by scripts/build_bridge.py. */
object Declarations {
  // Before the keys of options and of Hadoop (options/declare.py), and of indexing (options/writing.py).
  val OptionPrefix = "spark.indextables."
  val HadoopPrefix = "spark.hadoop."
  val IndexingPrefix = "indexing."
  // Beginnings of the keys of Hadoop's file systems that have a counterpart (options/cloud.py).
  val HadoopKeys = Seq("fs.s3a.", "fs.azure.", "fs.gs.", "fs.defaultFS", "spark.indextables.", "dfs.ha.namenodes.", "dfs.namenode.rpc-address.", "dfs.client.use.datanode.hostname", "dfs.client.socket-timeout", "dfs.data.transfer.protection")
  // Spark's own pattern of names of secrets, extended (spark/session.py).
  val Secrets = "secret|password|token(?!izer)|access[.]?key|account[.]?key|encryption[.]?key|private[.]?key|connection[.]?string|fs[.]azure[.]sas|[.]credential$|iceberg[.]uri$"
  // Options that name a table and its version (spark/planner/tables.py).
  val LocationOptions = Set("path", "timestampasof", "versionasof")
  val ReadChanges = "readChanges"
  // Words of which one is among the first ones of a command, and among how many (commands/grammar.py).
  val CommandWords = Set("indexfiles", "indextable", "indextables", "splits", "tantivy4spark")
  val CommandWordPositions = 3
  // Commands without such a word: those of Delta, too.
  val SharedOpenings = Seq(
    Seq("desc", "history"),
    Seq("describe", "history"),
    Seq("restore", "table"),
    Seq("optimize"),
    Seq("restore"),
    Seq("vacuum"))
}
