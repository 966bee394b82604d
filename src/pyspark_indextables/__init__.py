"""What Spark looks for by name: packages that start with `pyspark` are found by its Python workers."""
