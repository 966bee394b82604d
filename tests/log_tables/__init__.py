"""Tables for tests of the log: built by the engine, by hand in the forms of older writers, or by a model."""
