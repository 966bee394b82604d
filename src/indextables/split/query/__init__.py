"""Filters and searches on the index of a split."""
