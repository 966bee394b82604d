"""Iceberg tables as sources; imported only when one is opened, since it needs pyiceberg."""
