"""Adds the bridge to the wheel: the jars for the versions of Spark, and the Scala sources.

`make wheel` compiles all jars first (scripts/build_bridge.py --all). Other builds, such as `pip install` of
a checkout, compile only the one for the installed PySpark, if there is one; the rest are compiled on first
use.
"""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BridgeHook(BuildHookInterface[Any]):
    """Runs when hatchling builds a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """List the files of the wheel beyond the Python files."""
        if version == "editable":  # a checkout has its sources, and scripts/build_bridge.py
            return
        root = Path(self.root)
        compiler = _compiler(root)
        folder = root / "bridge"
        included = build_data["force_include"]
        for source in folder.rglob("*.scala"):
            included[str(source)] = f"indextables/spark/scala/{source.relative_to(folder).as_posix()}"
        jars = root / "src" / "indextables" / "spark" / "jars"
        _compile_for_installed(compiler, folder, jars)
        missing = []
        for minor in compiler.MINORS:
            jar = jars / compiler.jar_name(minor)
            if compiler.origin_of(jar) == compiler.origin(minor, compiler.sources_for(folder, minor)):
                included[str(jar)] = f"indextables/spark/jars/{jar.name}"
            else:
                missing.append(minor)
        if missing:
            self.app.display_warning(
                f"the wheel has no bridge for Spark {', '.join(missing)}; it is then compiled on first "
                "use. `make wheel` builds a wheel with all of them"
            )


def _compile_for_installed(compiler: ModuleType, folder: Path, jars: Path) -> None:
    """Compile the bridge for the installed PySpark, if there is one and its jar is not up to date."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        return
    version = importlib.import_module("pyspark").__version__
    sources = compiler.sources_for(folder, version)
    target = jars / compiler.jar_name(version)
    if sources and compiler.origin_of(target) != compiler.origin(version, sources):
        compiler.compile_bridge(sources, Path(found.origin).parent, version, target)


def _compiler(root: Path) -> ModuleType:
    """The compiler's module, by its path: the package itself is not installed where it is built."""
    path = root / "src" / "indextables" / "spark" / "compiler.py"
    spec = importlib.util.spec_from_file_location("indextables_compiler", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
