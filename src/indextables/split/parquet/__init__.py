"""The rows of a split: Parquet, down to single pages."""
