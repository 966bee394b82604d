"""What is imported when: the program and the package start without the libraries that only work needs."""

import subprocess
import sys

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
        "; import sys; print('\\n'.join({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code + report, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return set(done.stderr.split())


def test_importing_the_package_imports_no_heavy_library() -> None:
    assert imported("import indextables").isdisjoint({*HEAVY, "click"})


def test_every_public_name_is_imported_when_it_is_used() -> None:
    assert set(it.__all__) <= set(dir(it))
    for name in it.__all__:
        assert getattr(it, name) is getattr(it, name)
    with pytest.raises(AttributeError, match="no attribute 'opne'"):
        it.opne  # noqa: B018
    assert "pyarrow" in imported("import indextables; indextables.Table")
