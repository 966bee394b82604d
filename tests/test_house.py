"""The rules of the house that no linter states."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
LIMIT = 700


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_module_is_short_and_says_what_it_is(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= LIMIT, "split it by job"
    docstring = ast.get_docstring(ast.parse(text))
    assert docstring, "say in one line what the module is for"
    assert docstring.splitlines()[0].endswith("."), "the first line is a sentence"


def test_no_module_is_a_landfill() -> None:
    names = {path.stem for path in SOURCES}
    assert names.isdisjoint({"utils", "util", "helpers", "common", "misc", "constants"})


def test_every_runtime_dependency_earns_its_line() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = (ROOT / "docs" / "dependencies.md").read_text()
    wanted = [
        *project["dependencies"],
        *(d for group in project["optional-dependencies"].values() for d in group),
    ]
    for requirement in wanted:
        name = re.split(r"[\[<>=~!]", requirement)[0]
        assert f"`{name}`" in listed, f"say in docs/dependencies.md why {name} is needed"


def test_constraints_pin_every_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = {
        re.sub(r"[-_.]+", "-", line.split("==")[0].strip().lower())
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if line.strip() and not line.startswith("#")
    }
    groups = project["optional-dependencies"]
    for requirement in [*project["dependencies"], *groups["dev"], *groups["spark"]]:
        name = re.sub(r"[-_.]+", "-", re.split(r"[\[<>=~!]", requirement)[0].lower())
        assert name in pinned, f"pin {name} in constraints.txt"


def test_every_line_of_the_constraints_is_a_plain_pin() -> None:
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!_-]+", line), line


def test_links_between_pages_lead_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"
