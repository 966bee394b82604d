"""Rules of the project that no linter checks."""

import ast
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.build_bridge import DECLARATIONS, declarations

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
LIMIT = 700
PACKAGES = {"indextables", "pyspark_indextables", "bench", "scripts"}
# A package per noun or verb; a module that exists only because of a line limit is merged into another one.
# Every file of Python counts, with those that only describe a package.
MOST_MODULES = 200
# Participles say nothing as names: a noun says what a thing is, a verb what a function does.
PARTICIPLES = {
    *("answered", "asked", "carried", "dealt", "drawn", "found", "given", "heard", "held", "kept", "known"),
    *("made", "meant", "noted", "placed", "said", "seen", "settled", "spoilt", "taken", "told", "touched"),
    *("waited", "wanted"),
}
# Compounds with such a word that are names of public results: what a purge found.
PUBLIC_COMPOUNDS = {"orphans_found", "bytes_found", "log_files_found", "states_found"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_module_is_short_and_says_what_it_is(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= LIMIT, "split it by job"
    docstring = ast.get_docstring(ast.parse(text))
    assert docstring, "say in one line what the module is for"
    assert docstring.splitlines()[0].endswith("."), "the first line is a sentence"


def test_there_are_not_too_many_modules() -> None:
    assert len(SOURCES) <= MOST_MODULES, "put it into the module whose job it is"


def names_in(tree: ast.AST) -> Iterator[str]:
    """The names that a module gives: definitions, parameters and variables."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.arg():
                yield node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.attr
            case _:
                pass


def words_of(name: str) -> set[str]:
    """The words of a name, split at underscores."""
    return set(name.lower().split("_"))


@pytest.mark.parametrize(
    "path", [*SOURCES, *sorted((ROOT / "scripts").glob("*.py"))], ids=lambda p: str(p.relative_to(ROOT))
)
def test_names_are_nouns_and_verbs(path: Path) -> None:
    names = {path.stem, *names_in(ast.parse(path.read_text()))} - PUBLIC_COMPOUNDS
    assert [name for name in sorted(names) if not PARTICIPLES.isdisjoint(words_of(name))] == []


# Words that end like a participle, but are verbs or nouns.
NO_PARTICIPLES = {"exceed", "feed", "need", "seed"}


def functions_named_by_participles(tree: ast.AST) -> Iterator[str]:
    """Functions and classes whose name is a participle alone; a property may be an adjective."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            word = node.name.strip("_").lower()
            is_participle = word in PARTICIPLES or (word.endswith("ed") and word not in NO_PARTICIPLES)
            is_property = any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
            if "_" not in word and is_participle and not is_property:
                yield node.name


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_functions_are_named_by_verbs_and_results(path: Path) -> None:
    """`_joined` may join or say what is joined, `_replaced` may be an error: `_join_names`, `_conflict`."""
    assert list(functions_named_by_participles(ast.parse(path.read_text()))) == []
    example = ast.parse("def _joined(): ...\ndef need(): ...\n@property\ndef indexed(): ...")
    assert list(functions_named_by_participles(example)) == ["_joined"]


def test_functions_of_the_bridge_are_named_by_verbs_and_results() -> None:
    """Those of Spark that the bridge overrides have Spark's names."""
    defined = re.compile(
        r"^ *(?!.*\boverride\b)(?:@?[a-z]+(?:\[\w+\])? )*(?:def|class|object|trait) (\w+)", re.MULTILINE
    )
    names = {
        f"{path.name}: {name}"
        for path in (ROOT / "bridge").rglob("*.scala")
        for name in defined.findall(path.read_text())
        if name.lower() in PARTICIPLES or re.fullmatch(r"[A-Za-z]?[a-z]+ed", name)
    }
    assert names == set()


def test_no_function_of_the_tests_is_named_by_a_participle_alone() -> None:
    names = {
        f"{path.relative_to(ROOT)}: {node.name}"
        for path in (ROOT / "tests").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in PARTICIPLES
    }
    assert names == set()


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def private_names_of_others(tree: ast.AST) -> Iterator[str]:
    """The private names of other modules of the project that a module imports or uses."""
    imported = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in PACKAGES:
            for alias in node.names:
                imported[alias.asname or alias.name] = node.module
                if is_private(alias.name):
                    yield f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Attribute) and is_private(node.attr) and isinstance(node.value, ast.Name):
            owner = imported.get(node.value.id)
            yield from () if owner is None else [f"{owner}.{node.value.id}.{node.attr}"]


@pytest.mark.parametrize("folder", ["src", "bench", "scripts"])
def test_private_names_are_used_in_their_module_only(folder: str) -> None:
    used = {
        str(path.relative_to(ROOT)): names
        for path in sorted((ROOT / folder).rglob("*.py"))
        if (names := list(private_names_of_others(ast.parse(path.read_text()))))
    }
    assert used == {}
    example = ast.parse("from indextables.log import _hidden, commit\ncommit._secret()")
    assert list(private_names_of_others(example)) == [
        "indextables.log._hidden",
        "indextables.log.commit._secret",
    ]


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_types_are_distinguished_by_the_type_table(path: Path) -> None:
    """A column type that is added is then missed by no code, for `match` over its kind is complete."""
    tests = re.findall(r"\b(?:pyarrow\.types|pa\.types|types\.is_\w+)", path.read_text())
    assert tests == [], "use kind_of, storage_kind_of or another function of schema/type_info.py"


def test_no_module_is_a_landfill() -> None:
    names = {path.stem for path in SOURCES}
    assert names.isdisjoint({"utils", "util", "helpers", "common", "misc", "constants"})


def requirements(project: dict[str, Any], *extras: str) -> list[str]:
    """The packages that the project needs, with those of some extras."""
    own = [each for extra in extras for each in project["optional-dependencies"][extra]]
    return [*project["dependencies"], *(each for each in own if not each.startswith("indextables["))]


def test_every_runtime_dependency_earns_its_line() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = (ROOT / "docs" / "dependencies.md").read_text()
    for requirement in requirements(project, *project["optional-dependencies"]):
        name = re.split(r"[\[<>=~!]", requirement)[0]
        assert f"`{name}`" in listed, f"say in docs/dependencies.md why {name} is needed"


def test_constraints_pin_every_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = {
        re.sub(r"[-_.]+", "-", line.split("==")[0].strip().lower())
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if line.strip() and not line.startswith("#")
    }
    for requirement in requirements(project, "dev", "test", "spark"):
        name = re.sub(r"[-_.]+", "-", re.split(r"[\[<>=~!]", requirement)[0].lower())
        assert name in pinned, f"pin {name} in constraints.txt"


def test_every_line_of_the_constraints_is_a_plain_pin() -> None:
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!_-]+", line), line


def test_the_python_versions_of_the_metadata_are_those_that_ci_tests() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    claimed = [
        classifier.rpartition(" ")[2]
        for classifier in project["classifiers"]
        if re.search(r":: Python :: 3\.\d+$", classifier)
    ]
    tested = re.search(r"python: \[(.*)\]", (ROOT / ".github" / "workflows" / "ci.yml").read_text())
    assert tested is not None
    assert claimed == re.findall(r"3\.\d+", tested[1])


def test_links_between_pages_lead_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"


def test_the_declarations_in_scala_are_those_of_python() -> None:
    assert DECLARATIONS.read_text() == declarations(), "run python scripts/build_bridge.py"


def test_pre_commit_runs_what_make_check_runs() -> None:
    target = re.search(r"^check:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert target is not None
    checks = {line.strip().replace("$(PY)", ".venv/bin/python") for line in target[1].splitlines()}
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    hooks = {hook["entry"] for repo in config["repos"] for hook in repo["hooks"]}
    assert {check.removesuffix(" .") for check in checks} == hooks


@pytest.mark.parametrize(("exit_code", "says"), [(0, ""), (1, "PYTHON is")])
def test_the_environment_has_the_python_that_is_named(tmp_path: Path, exit_code: int, says: str) -> None:
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "setup.sh", tmp_path / "scripts")
    python = tmp_path / "chosen"
    python.write_text(
        f"#!/bin/sh\n[ $1 = -c ] && exit {exit_code}\n"
        "mkdir -p .venv/bin && printf '#!/bin/sh\\nexit 7\\n' > .venv/bin/python && chmod +x .venv/bin/python\n"
    )
    python.chmod(0o755)
    command = [str(tmp_path / "scripts" / "setup.sh"), "runtime"]
    run = subprocess.run(
        command, env={**os.environ, "PYTHON": str(python)}, capture_output=True, text=True, check=False
    )
    # The environment of this interpreter ends every command with 7, at first the installation of packages.
    assert run.returncode == (7 if exit_code == 0 else 1)
    assert says in run.stderr
