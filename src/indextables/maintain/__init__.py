"""Maintenance of a table: merge, purge, restore, repair, convert and prewarm."""
