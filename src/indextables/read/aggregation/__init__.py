"""Aggregation: partial results from the log, from an index or from rows, and their combination."""
