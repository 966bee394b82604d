"""What is imported when: the program and the package start without the libraries that only work needs."""

import importlib
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import indextables as it
from indextables.cli import imports

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


def test_no_module_of_the_engine_imports_pandas() -> None:
    code = (
        "import importlib, pkgutil, indextables as it; "
        "names = [m.name for m in pkgutil.walk_packages(it.__path__, 'indextables.') if '__main__' not in m.name]; "
        "[importlib.import_module(n) for n in names if not n.startswith(('indextables.spark', 'indextables.functions'))]"
    )
    packages = imported(code)
    assert {"tantivy", "obstore", "pyiceberg"} <= packages
    assert "pandas" not in packages


CHEAP = "from indextables.cli.imports import use_cheap_imports; use_cheap_imports(); "


def modules_after(code: str) -> set[str]:
    """All modules that a new interpreter of the program has imported after running the code."""
    code = CHEAP + code + "; import sys; print('\\n'.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    return set(done.stdout.split())


def test_the_program_prepares_functions_of_arrow_when_they_are_used() -> None:
    code = (
        "import numpy as np, pyarrow as pa, pyarrow.compute as pc; array = pa.array(np.array([3, 1, 2])); "
        "assert array.cast(pa.string()).to_pylist() == ['3', '1', '2']; "
        "assert array.take(pc.sort_indices(array)).to_pylist() == [1, 2, 3]; "
        "assert pc.and_(pc.greater(array, 1), pc.is_in(array, pa.array([3]))).to_pylist() == [True, False, False]; "
        "assert pa.array([None, 1]).fill_null(5).to_pylist() == [5, 1]; "
        "assert pc.round(pa.array([1.25]), 1, round_mode='up').to_pylist() == [1.3]; "
        "assert pc.sum(array).as_py() == 6"
    )
    imported_modules = modules_after(code)
    assert imported_modules.isdisjoint({"pyarrow.vendored.docscrape", "numpy.ma.core", "pandas"})


def test_the_program_loads_the_content_of_a_module_for_other_names() -> None:
    code = (
        "import numpy as np, pyarrow as pa, pyarrow.compute as pc; pc.sum(pa.array([1])); "
        "assert str(pc.field('a') > 3) == '(a > 3)'; assert pc.index(pa.array([1, 2]), 2).as_py() == 1; assert pc.sum(pa.array([1, 2])).as_py() == 3; "
        "masked = np.ma.array([1, 2], mask=[False, True]); assert pa.array(masked).to_pylist() == [1, None]; "
        "assert not hasattr(pc, 'no_such_function')"
    )
    assert {"pyarrow.vendored.docscrape", "numpy.ma.core"} <= modules_after(code)


SLOW_MODULE = """
import builtins
small = "of the content"
builtins.slow_module_begins.set()
assert builtins.slow_module_may_end.wait(60)
large = "of the content"
"""


def test_threads_use_a_module_of_the_program_while_one_loads_its_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow_module.py").write_text(SLOW_MODULE)
    prepared = {"small": "prepared"}
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(imports._CHEAP_NAMES, "slow_module", prepared.get)
    monkeypatch.setattr(sys, "meta_path", [imports._Finder(), *sys.meta_path])
    begins, may_end = threading.Event(), threading.Event()
    monkeypatch.setattr("builtins.slow_module_begins", begins, raising=False)
    monkeypatch.setattr("builtins.slow_module_may_end", may_end, raising=False)
    try:
        module = importlib.import_module("slow_module")
        assert module.small == "prepared"
        with ThreadPoolExecutor(3) as pool:
            loaded = [pool.submit(getattr, module, "large") for _ in range(2)]
            absent = pool.submit(hasattr, module, "absent")
            assert begins.wait(60)
            assert module.small == "prepared"
            assert not any(each.done() for each in (*loaded, absent))
            may_end.set()
            assert [each.result(60) for each in loaded] == ["of the content"] * 2
            assert absent.result(60) is False
        assert module.small == "of the content"
    finally:
        may_end.set()
        sys.modules.pop("slow_module", None)


def test_every_public_name_is_imported_when_it_is_used() -> None:
    assert set(it.__all__) <= set(dir(it))
    for name in it.__all__:
        assert getattr(it, name) is getattr(it, name)
    with pytest.raises(AttributeError, match="no attribute 'opne'"):
        it.opne  # noqa: B018
    assert "pyarrow" in imported("import indextables; indextables.Table")
