"""The tests: folders mirror those of `src/indextables`; modules without `test_` in their name are shared by tests."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
"""The checkout; programs that tests start as `python -m tests...` run here."""
