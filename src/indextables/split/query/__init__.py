"""Conditions and searches, answered by the index of a split."""
