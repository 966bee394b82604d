"""Pruning: which files a filter or an order can skip, by the statistics in the log."""
