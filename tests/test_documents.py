"""What the pages say is true: examples run, JSON decodes, cited headings and files exist."""

import doctest
import re
from importlib import import_module
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

import indextables
from indextables.log.format import actions, version_file
from indextables.log.format.checkpoint_files import Pointer
from indextables.options.declare import all_declarations
from indextables.predicate import parse_condition, to_sql
from indextables.split.footer import FORMAT_VERSION, IndexFile
from scripts import site_pages
from tests import ROOT
from tests.page_examples import Example, examples, table_below
from tests.simulation.reintroduced import BUGS

GUIDES = [
    *("README.md", "docs/guide/start.md", "docs/guide/streaming.md", "docs/guide/companion.md"),
    *("docs/indexing.md", "docs/query-language.md", "docs/operations/storage.md"),
]

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "bridge").glob("*.md")])
TEXTS = [
    *PAGES,
    *(
        path
        for folder in ("src", "tests", "bench", "scripts", "bridge/src")
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in (".py", ".scala", ".sh") and path != Path(__file__)
    ),
]
CHANGES = [
    "option",
    "tokenizer",
    "command",
    "pushed aggregate",
    "storage backend",
    "deletion vectors",
    "companion source",
    "streaming source",
    "column type",
    "predicate operator",
    "report chart",
    "manifest field",
]

# Pages with examples, by language: this module, tests/commands/test_commands_page.py and
# tests/spark/test_spark_pages.py run them.
RUN = {
    "python": {*GUIDES, "docs/operations/maintenance.md"},
    "py": {"README.md", "docs/guide/spark.md", "docs/guide/streaming.md", "docs/spark.md", "docs/sql.md"},
    "sql": {"docs/commands.md", "docs/operations/maintenance.md", "docs/sql.md"},
    "sh": {"docs/guide/command-line.md"},
}


def _blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def test_every_action_in_the_protocol_page_decodes() -> None:
    seen = set()
    for block in _blocks(ROOT / "PROTOCOL.md", "json"):
        if '"formatVersion"' in block:
            said = msgspec.json.decode(block)
            assert said["chunks"] == [[1804289383, 0, 2]]
            assert [IndexFile.from_json(file).to_json() for file in said["index"]] == [
                {"name": "meta.json", "pieces": [[None, 840, 377, 312, 907060870, (312,)]]}
            ]
            continue
        if '"pieces"' in block:
            file = IndexFile.from_json(msgspec.json.decode(block))
            assert [piece.field for piece in file.pieces] == ["s:level", "t:message", None]
            assert all(sum(piece.blocks) in (0, piece.length) for piece in file.pieces)
            continue
        for line in block.splitlines():
            if '"stateDir"' in line:
                assert msgspec.json.decode(line, type=Pointer, strict=True).is_state
                continue
            assert len(version_file.decode(line.encode(), "PROTOCOL.md")) == 1, line
            seen |= set(msgspec.json.decode(line))
    assert seen == {"protocol", "metaData", "add", "remove", "mergeskip", "commitInfo", "txn"}


def test_the_conditions_that_open_the_page_on_queries_are_conditions() -> None:
    text = (ROOT / "docs" / "query-language.md").read_text()
    shown = re.search(r"^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert shown is not None
    columns = pa.schema([("message", pa.string()), ("status", pa.int32()), ("host", pa.string())])
    for line in shown[1].splitlines():
        assert "INDEXQUERY" in to_sql(parse_condition(line, columns))


@pytest.mark.parametrize("page", GUIDES)
def test_python_examples_run_and_print_what_the_page_shows(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All python blocks of a page, one after the other, as a reader would type them."""
    monkeypatch.chdir(tmp_path)
    found = examples(page, "python")
    assert found
    names: dict[str, object] = {}
    for example in found:
        example.run(names)


def test_every_example_on_a_page_is_run_by_a_test() -> None:
    """Whoever adds an example to another page adds the page to the test that runs it."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    for language, run in RUN.items():
        shown = {str(page.relative_to(ROOT)) for page in pages if f"\n```{language}\n" in page.read_text()}
        assert shown == run, language


def test_examples_in_docstrings_run_and_return_what_they_show() -> None:
    source = ROOT / "src"
    attempted = 0
    for path in sorted((source / "indextables").rglob("*.py")):
        if ">>> " in path.read_text("utf-8"):
            name = ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")
            found = doctest.testmod(import_module(name))
            assert not found.failed, name
            attempted += found.attempted
    assert attempted > 100


def test_the_page_on_sql_tells_every_figure_of_a_scan() -> None:
    source = (ROOT / "bridge" / "src" / "ScanMetrics.scala").read_text()
    kept = re.findall(r'SumMetric\("\w+", "([^"]+)"\)', source)
    told = [name for name, _ in table_below("docs/sql.md", "Spark's SQL page shows for each scan:")]
    assert told == kept


def test_the_map_for_contributors_is_that_of_the_tree() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text().split("## The map\n")[1].split("## ")[0]
    lines = [line for line in text.split("```")[1].splitlines() if line]
    inner: dict[str, set[str]] = {}
    for line in lines:
        name = line.split()[0].rstrip("/")
        if line.startswith("    "):
            inner[list(inner)[-1]].add(name)
        elif line.startswith("  "):
            inner[name] = set()
    package = ROOT / "src" / "indextables"
    there = {
        path.name for path in package.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()
    }
    assert inner.keys() == there - {"__init__.py"}
    for name in ("log", "split"):
        assert inner[name] == {path.parent.name for path in (package / name).glob("*/__init__.py")}
    outer = {line.split()[0].rstrip("/") for line in lines if not line.startswith("  ")}
    generated = {"build", "dist", "__pycache__"}
    folders = {path.name for path in ROOT.iterdir() if path.is_dir() and path.name.isidentifier()} - generated
    assert outer == (folders - {"src"}) | {"src/indextables", "src/pyspark_indextables"}


def _page(name: str, citing: Path) -> Path | None:
    """The page that a file names: by its path in the repository, beside it, or below docs."""
    places = (ROOT / name, citing.parent / name, ROOT / "docs" / name)
    return next((place for place in places if place.is_file()), None)


def _headings(page: Path) -> set[str]:
    return {
        heading.replace("`", "")
        for heading in re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    }


def test_every_heading_that_is_cited_exists() -> None:
    """`PAGE.md, "Heading"` and `PAGE.md ("One", "Other")`, in code, comments, tests and pages."""
    cited = []
    for path in TEXTS:
        # Comments and docstrings break lines within a citation.
        text = re.sub(r"\n\s*(?:#|//|\*|--)?\s*", " ", path.read_text("utf-8"))
        for name, first, rest in re.findall(r'([\w./-]+\.md),? \(?"([^"]+)"((?:(?:,| and) "[^"]+")*)', text):
            page = _page(name, path)
            where = str(path.relative_to(ROOT))
            assert page is not None, f"{where} cites {name}, which does not exist"
            cited += [(where, page, heading) for heading in (first, *re.findall(r'"([^"]+)"', rest))]
    assert len(cited) > 20
    assert [(where, heading) for where, page, heading in cited if heading not in _headings(page)] == []


def test_every_page_that_is_named_exists() -> None:
    for path in (path for path in TEXTS if path.relative_to(ROOT).parts[0] not in ("tests", "scripts")):
        for name in re.findall(r"(?<![\w{}*/.-])((?:[\w.-]+/)*[\w-]+\.md)\b", path.read_text("utf-8")):
            assert _page(name, path) is not None, (
                f"{path.relative_to(ROOT)} names {name}, which does not exist"
            )


def test_every_module_that_a_page_names_exists() -> None:
    homes = (ROOT, ROOT / "src" / "indextables", ROOT / "tests")
    for page in PAGES:
        for name in re.findall(r"`((?:\w+/)+(?:\w+\.(?:py|scala|sh))?)`", page.read_text("utf-8")):
            if name.split("/")[0] in {home.name for top in homes for home in top.iterdir()}:
                there = any((home / name).exists() for home in homes)
                assert there, f"{page.relative_to(ROOT)} names {name}, which does not exist"


# Names in code spans of pages that belong to Spark, Parquet or a provider of storage, or are examples of a form.
FOREIGN_NAMES = {
    *(
        "AZURE_CLIENT_ID",
        "CacheManager",
        "MapInBatchEvaluator",
        "OffsetIndex",
        "ParquetUtils",
    ),
    *(
        "SessionCatalog",
        "SessionState",
        "cancelJobGroup",
        "cancelJobGroupAndFutureJobs",
        "indextables_spark",
        "injectPreOperatorOptimizationRule",
    ),
    *("interruptOperation", "lastActivityNs", "ngram_2_3"),
}


def test_every_code_name_on_a_page_exists() -> None:
    """Whoever renames a function, class, method or field renames it on the pages too."""
    texts = [
        path.read_text("utf-8")
        for folder, pattern in (
            ("src", "*.py"),
            ("bridge", "*.scala"),
            ("scripts", "*.py"),
            ("tests", "*.py"),
        )
        for path in (ROOT / folder).rglob(pattern)
        if path != Path(__file__)
    ]
    words = {word for text in texts for word in re.findall(r"\w+", text)}
    # Fields of the log are in camel case on storage and in snake case in the code.
    words |= {re.sub(r"_([a-z])", lambda match: match[1].upper(), word) for word in words}
    unknown = []
    for page in PAGES:
        if page.name == "CHANGELOG.md":
            continue
        prose = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
        for span in re.findall(r"`([^`\n]+)`", prose):
            name = re.fullmatch(r"([A-Za-z_][\w.]*)(\([^()]*\))?", span)
            if name is None or not ("_" in name[1] or name[2] or re.search(r"[a-z][A-Z]", name[1])):
                continue
            parts = {part for part in name[1].split(".") if part and part not in words}
            unknown += [(str(page.relative_to(ROOT)), span)] if parts - FOREIGN_NAMES else []
    assert unknown == []


def resolves(name: str, home: Path) -> bool:
    """Whether a dotted name is a module of the package, or a name in one, from the root or beside a module."""
    parts = name.removeprefix("indextables.").split(".")
    package = ROOT / "src" / "indextables"
    for count in range(len(parts), 0, -1):
        for top in (package, home, home.parent):
            place = top.joinpath(*parts[:count])
            module = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
            if module.is_file():
                rest = parts[count:]
                return (
                    not rest
                    or re.search(rf"^(?:class |def )?{rest[0]}\b", module.read_text(), re.MULTILINE)
                    is not None
                )
    return False


def test_every_name_of_a_module_in_a_docstring_or_comment_exists() -> None:
    """Names such as `log.changes`: whoever moves a module or renames its content is told the places."""
    package = ROOT / "src" / "indextables"
    packages = {path.name for path in package.iterdir() if path.is_dir()}
    keys = {declaration.key for declaration in all_declarations()}
    unknown = []
    for path in sorted(package.rglob("*.py")):
        for name in re.findall(r"`((?:indextables\.)?[a-z_]+(?:\.\w+)+)`", path.read_text("utf-8")):
            is_option = name in keys or any(key.startswith(f"{name}.") for key in keys)
            if name.removeprefix("indextables.").split(".")[0] in packages and not is_option:
                unknown += [] if resolves(name, path.parent) else [f"{path.relative_to(ROOT)}: {name}"]
    assert unknown == []
    assert not resolves("log.files.FILES", package / "log")


def test_the_compatibility_page_names_the_formats_that_are_read() -> None:
    page = (ROOT / "docs" / "compatibility.md").read_text()
    assert f"protocol versions 1 to {actions.FEATURES}, split formats 1 to {FORMAT_VERSION}," in page


def test_the_places_for_changes_exist() -> None:
    section = (ROOT / "CONTRIBUTING.md").read_text().split("## Where a change goes\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    assert [row.split(" | ")[0].strip("| ") for row in rows] == CHANGES
    for row in rows:
        files = re.findall(r"`([\w/]+(?:/|\.py|\.md))`", row)
        assert files, row
        for file in files:
            home = ROOT if file.endswith(".md") else ROOT / "src" / "indextables"
            assert (home / file).exists(), f"{file} does not exist: {row}"
        for name, file in re.findall(r"`(\w+)` in `([\w/]+(?:/|\.py))`", row):
            place = ROOT / "src" / "indextables" / file
            modules = place.glob("*.py") if place.is_dir() else [place]
            defined = re.compile(rf"^(?:(?:class|def) {name}\b|{name}(?::| =))", re.MULTILINE)
            assert any(defined.search(module.read_text()) for module in modules), f"{name} is not in {file}"


def test_the_api_reference_has_every_public_name() -> None:
    shown = [name for _, _, names in site_pages.API for name in names]
    modules = {"functions", "errors", "query"}
    # The class of all errors is in the module of errors.
    assert sorted(set(shown) - modules) == sorted(
        {*indextables.__all__} - {"IndexTablesError", "__version__"}
    )
    assert len(shown) == len(set(shown))


def test_the_tests_of_each_behaviour_exist() -> None:
    section = (ROOT / "CONTRIBUTING.md").read_text().split("## What the tests protect\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (.+) \| `(.+)` \|$", section, re.MULTILINE)
    assert len(rows) > 30
    assert len({behaviour for behaviour, _ in rows}) == len(rows)
    for behaviour, module in rows:
        path = ROOT / module
        assert path.is_file(), f"{module} does not exist: {behaviour}"
        assert re.search(r"^ *def test_", path.read_text(), re.MULTILINE), (
            f"{module} has no test: {behaviour}"
        )


def test_the_simulator_page_has_the_seeds_that_find_each_bug() -> None:
    section = (ROOT / "CONTRIBUTING.md").read_text().split("## The simulator\n")[1].split("\n## ")[0]
    seeds = re.findall(r"^\| `(.+?)` \| .+ \| ([\d,]+) \|$", section, re.MULTILINE)
    assert {name: int(seed.replace(",", "")) for name, seed in seeds} == {
        name: bug.found_at for name, bug in BUGS.items() if bug.found_at is not None
    }


def test_lines_of_pages_are_short_enough_to_review() -> None:
    """Rows of tables and code are as long as they need to be."""
    for page in PAGES:
        code = False
        for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
            code ^= line.lstrip().startswith("```")
            if not code and not line.lstrip().startswith("|"):
                assert len(line) <= 200, f"{page.relative_to(ROOT)}:{number}"


def test_an_output_that_is_not_the_one_shown_is_noticed() -> None:
    Example("page:1", "python", "print('one\\ntwo\\nthree')", "one\n...three\n").run({})
    Example("page:1", "python", "print('anything')", None).run({})
    with pytest.raises(AssertionError, match=r"(?s)page:1 shows.*one.*but printed is.*two"):
        Example("page:1", "python", "print('two')", "one\n").run({})
