"""IndexTables in Spark: sessions, the planner on the driver, and the functions of tasks."""
