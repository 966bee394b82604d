"""Keep a table fast and small."""
