"""The page that maps the specification's tests to ours names tests that exist."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_every_section_of_the_specification_is_mapped() -> None:
    page = (TESTS.parent / "docs/test-map.md").read_text()
    assert re.findall(r"^## (\d+)", page, re.MULTILINE) == [
        "1",
        "2",
        "3",
        "4",
        "5",
        "6",
        "7",
        "8",
        "9",
        "11",
        "13",
    ]


def test_every_test_that_the_map_names_exists() -> None:
    defined = {
        name for path in TESTS.rglob("test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text())
    }
    page = (TESTS.parent / "docs/test-map.md").read_text()
    named = re.findall(r"(?:`|::)(test_\w+)(?!\w|\.py)", page)
    assert len(named) > 100
    assert sorted(set(named) - defined) == []
