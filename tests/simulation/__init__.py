"""A deterministic simulator of tables under concurrency and faults; `simulation.run` runs one seed."""
