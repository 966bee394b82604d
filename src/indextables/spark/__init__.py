"""IndexTables in Spark: getting into a session, and what its planner and its tasks do."""
