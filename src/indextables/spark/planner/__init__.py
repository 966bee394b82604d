"""What the planner process answers: a pure function for each operation of bridge/PROTOCOL.md."""
