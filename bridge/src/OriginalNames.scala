// The class names of IndexTables for Scala for the data source, the extensions and the catalog.

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

package io.indextables.catalog {
  class IndexTablesCatalog extends org.apache.spark.sql.indextables.CompanionCatalog
}
