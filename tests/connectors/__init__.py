"""Tests beside lake connectors, which Spark fetches from Maven; run by `make matrix`."""
