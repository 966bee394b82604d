"""Aggregates and groups: their specification, partial results, and where those come from."""
