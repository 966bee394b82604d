"""The planner process: a function for each operation of bridge/PROTOCOL.md."""
