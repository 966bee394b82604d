"""One immutable, searchable file: rows and their index."""
