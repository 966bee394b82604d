"""Examples on pages: blocks of code, each with what the page says that it prints.

A block of `text` right after a block of code is what the code prints; `...` stands for anything. A block of code
without one has only to run.
"""

import contextlib
import doctest
import io
import re
from collections.abc import Callable
from dataclasses import dataclass

from tests import ROOT

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```[ ]*$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Example:
    """A block of code; `printed` is None where the page shows no output."""

    place: str
    language: str
    code: str
    printed: str | None

    def check(self, printed: str) -> None:
        """What was printed is what the page shows, if it shows something."""
        if self.printed is None:
            return
        wanted, found = _lines(self.printed), _lines(printed)
        if not doctest.OutputChecker().check_output(wanted, found, doctest.ELLIPSIS):
            raise AssertionError(f"{self.place} shows\n{wanted}\nbut printed is\n{found}")

    def run(self, names: dict[str, object]) -> None:
        """Run Python code with the names of the examples before, and check what it prints."""
        self.check(printed_by(lambda: exec(compile(self.code, self.place, "exec"), names)))


def printed_by(act: Callable[[], object]) -> str:
    """What a call writes to standard output."""
    with contextlib.redirect_stdout(io.StringIO()) as output:
        act()
    return output.getvalue()


def examples(page: str, *languages: str) -> list[Example]:
    """The examples of a page in these languages, in order. Every output on the page must belong to one."""
    text = (ROOT / page).read_text()
    found: list[Example] = []
    end = 0
    for block in _BLOCK.finditer(text):
        language, code = block.groups()
        place = f"{page}:{text.count(chr(10), 0, block.start()) + 1}"
        if language == "text":
            assert found, f"{place}: an output without code before it"
            assert not text[end : block.start()].strip(), f"{place}: an output that does not follow its code"
            before = found[-1]
            assert before.printed is None, f"{place}: a second output"
            found[-1] = Example(before.place, before.language, before.code, code)
        elif language:
            found.append(Example(place, language, code, None))
        end = block.end()
    return [example for example in found if example.language in languages]


def _lines(text: str) -> str:
    """Without blanks at the ends of lines and of the text."""
    return "\n".join(line.rstrip() for line in text.strip().splitlines()) + "\n"


def table_below(page: str, line: str) -> list[list[str]]:
    """The cells of the first table after a line of a page, without its head."""
    below = (ROOT / page).read_text().split(f"\n{line}\n", 1)[1].splitlines()
    start = next(number for number, text in enumerate(below) if text.startswith("|"))
    rows = []
    for text in below[start:]:
        if not text.startswith("|"):
            break
        rows.append([cell.strip() for cell in text.strip("|").split(" | ")])
    return rows[2:]
