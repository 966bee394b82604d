"""The original's splits: read, and searched after they were indexed anew."""
