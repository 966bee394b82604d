"""Column types of Spark and Arrow, statistics, and the text form of values in the log."""
