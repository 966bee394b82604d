"""Column types of Spark and Arrow, statistics, and the texts of values in the log."""
