"""The page that maps the specification's tests to ours names tests that exist."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_every_test_that_the_map_names_exists() -> None:
    defined = {
        name for path in TESTS.rglob("test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text())
    }
    named = re.findall(r"`(test_\w+)`", (TESTS.parent / "docs/test-map-log.md").read_text())
    assert len(named) > 50
    assert sorted(set(named) - defined) == []
