"""Column types: Spark's, Arrow's, and how values are written in the log."""
