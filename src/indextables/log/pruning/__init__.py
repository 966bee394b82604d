"""Which files of a table a condition or an order can skip, by the statistics in the log."""
