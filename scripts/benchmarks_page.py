"""Write the tables of docs/benchmarks.md from docs/benchmarks.json, or check that they are the same.

A table is between two comments, `<!-- figures: <part> -->` and `<!-- end of figures -->`; the rest of the
page is written by hand. `python -m bench <part> --json docs/benchmarks.json` stores the figures of a part.
"""

import argparse
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.report import render

DOCS = Path(__file__).parents[1] / "docs"
PAGE, FIGURES = DOCS / "benchmarks.md", DOCS / "benchmarks.json"
_TABLE = re.compile(r"<!-- figures: (?P<part>[a-z-]+) -->\n.*?<!-- end of figures -->", re.DOTALL)


def page(text: str, figures: Mapping[str, Any]) -> str:
    """The page with the tables of these figures.

    Raises:
        ValueError: The page names a part without figures, or figures of a part are on no page.
    """
    parts: set[str] = set()

    def table(match: re.Match[str]) -> str:
        part = match["part"]
        if part not in figures["parts"]:
            raise ValueError(
                f"docs/benchmarks.md has a table of '{part}', but docs/benchmarks.json no figures"
            )
        parts.add(part)
        return f"<!-- figures: {part} -->\n\n{render(figures['parts'][part])}\n\n<!-- end of figures -->"

    written = _TABLE.sub(table, text)
    if missing := sorted(set(figures["parts"]) - parts):
        raise ValueError(f"docs/benchmarks.md has no table of {', '.join(missing)}")
    return written


def main() -> int:
    """Write or check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether the tables are up to date")
    check = parser.parse_args().check
    now = PAGE.read_text()
    try:
        written = page(now, json.loads(FIGURES.read_text()))
    except ValueError as error:
        print(f"{error}; see scripts/benchmarks_page.py", file=sys.stderr)
        return 1
    if not check:
        PAGE.write_text(written)
    elif now != written:
        print(
            "the tables of docs/benchmarks.md are not those of docs/benchmarks.json; run `make docs`",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
