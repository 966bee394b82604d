"""Write docs/options.md from the declarations, or check that it is what they say."""

import argparse
import sys
from pathlib import Path
from typing import Any

from indextables.options import PREFIX, Alias, FieldOption, IgnoredOption, Option, all_declarations

PAGE = Path(__file__).parent.parent / "docs" / "options.md"

HEAD = f"""# Options

Every option is a key `{PREFIX}<key>` with a value. Give it as a Spark session configuration, as
an option of a Spark reader or writer, or in `options=` of the Python functions; the prefix may be left out in
the last two. What is given closer to the call wins: reader and writer options over the session's. Keys are
read in any case. A key that is not on this page is refused, with a suggestion. An option that is given to one
call is refused where it has no effect (the column "where"); a session's settings hold for all that it does.
`open` takes options of reads and commands, as a table has methods for both, and `write` those of writes and
reads, as it gives the table back.

This page is printed from the declarations in `src/indextables/options/` by `make docs`.
"""

SCALA_KEYS = """A configuration of IndexTables for Scala starts a session here. Most of its keys are in the
table above, with the same meaning. Some set an option of another name; if both are given, the option's own
name wins. Some tune what does not exist here: they are accepted, and one warning says what applies instead.
A value is refused only where ignoring it would change an answer or weaken safety.
"""


def page() -> str:
    """The whole page."""
    lines = [HEAD, "## Accepted", "", "| key | value | default | where | meaning |", "|---|---|---|---|---|"]
    declarations = list(all_declarations())
    lines += [_row(d) for d in declarations if isinstance(d, (Option, FieldOption))]
    lines += ["", "## Keys of IndexTables for Scala", "", SCALA_KEYS]
    lines += ["### Other names", "", "| key | sets | value |", "|---|---|---|"]
    lines += [
        f"| `{d.key}` | `{d.target.key}` | {_cell(d.unit)} |" for d in declarations if isinstance(d, Alias)
    ]
    lines += ["", "### Without effect", "", "| key | because |", "|---|---|"]
    lines += [f"| `{d.key}` | {_cell(d.reason)} |" for d in declarations if isinstance(d, IgnoredOption)]
    return "\n".join(lines) + "\n"


def _row(declaration: Option[Any] | FieldOption) -> str:
    where = ", ".join(sorted(declaration.where))
    if isinstance(declaration, FieldOption):
        key = f"{declaration.key}.{declaration.suffix}"
        return f"| `{key}` | {_cell(declaration.expects)} | | {where} | {_cell(declaration.help)} |"
    secret = " Secret: never shown." if declaration.secret else ""
    return (
        f"| `{declaration.key}` | {_cell(declaration.expects)} | {_cell(declaration.default_text)} | {where} "
        f"| {_cell(declaration.help)}{secret} |"
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> int:
    """Write or check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether the page is up to date")
    if not parser.parse_args().check:
        PAGE.write_text(page())
        return 0
    if PAGE.exists() and PAGE.read_text() == page():
        return 0
    print("docs/options.md is not what the declarations say; run `make docs`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
