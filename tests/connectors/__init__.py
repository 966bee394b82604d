"""Tests of `make matrix`: beside lake connectors, which Spark fetches from Maven, and of the wheel."""
