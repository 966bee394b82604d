"""What is imported when: the program and the package start without the libraries that only work needs."""

import subprocess
import sys
from pathlib import Path

import pytest

import indextables as it

HEAVY = (
    "numpy",
    "pyarrow",
    "pandas",
    "datafusion",
    "tantivy",
    "obstore",
    "msgspec",
    "rich",
    "jinja2",
    "pyspark",
)


def imported(code: str, *arguments: str) -> set[str]:
    """The top-level packages that a new interpreter has imported after running the code."""
    report = (
        "import atexit, sys; atexit.register(lambda: "
        "print('\\n'.join({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)); "
    )
    done = subprocess.run(
        [sys.executable, "-c", report + code, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return set(done.stderr.split())


def test_importing_the_package_imports_no_heavy_library() -> None:
    assert imported("import indextables").isdisjoint({*HEAVY, "click"})


PROGRAM = "import sys; from indextables.cli import main; main.main(sys.argv[1:])"


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["merge", "--help"], ["completion", "zsh"]])
def test_the_program_starts_without_heavy_libraries(arguments: list[str]) -> None:
    assert imported(PROGRAM, *arguments).isdisjoint(HEAVY)


def test_a_search_imports_what_it_needs_and_no_more(tmp_path: Path) -> None:
    for number in range(12):
        rows = {"message": [f"timeout {number}"]}
        it.write(tmp_path / "t", rows, options={"indexing.typemap.message": "text"})
    found = imported(
        "from indextables.cli import main; main.run()",
        "search", str(tmp_path / "t"), "timeout", "--field", "message",
    )  # fmt: skip
    assert found.isdisjoint({"pandas", "datafusion", "rich", "jinja2", "pyspark", "obstore", "asyncio"})
    assert "tantivy" in found


def test_every_public_name_is_imported_when_it_is_used() -> None:
    assert set(it.__all__) <= set(dir(it))
    for name in it.__all__:
        assert getattr(it, name) is getattr(it, name)
    with pytest.raises(AttributeError, match="no attribute 'opne'"):
        it.opne  # noqa: B018
    assert "pyarrow" in imported("import indextables; indextables.Table")
