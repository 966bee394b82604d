// The names under which users of IndexTables for Scala know the data source and the extensions.

package io.indextables.provider {
  class IndexTablesProvider extends org.apache.spark.sql.indextables.Provider
}

package io.indextables.spark.core {
  class IndexTables4SparkTableProvider extends org.apache.spark.sql.indextables.Provider
}

package io.indextables.extensions {
  class IndexTablesSparkExtensions extends org.apache.spark.sql.indextables.Extensions
}

package io.indextables.spark.extensions {
  class IndexTables4SparkExtensions extends org.apache.spark.sql.indextables.Extensions
}
