"""Puts the bridge into the wheel: the jar, if it can be made here, and the Scala sources."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BridgeHook(BuildHookInterface[Any]):
    """Runs when hatchling builds a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Say what belongs into the wheel beyond the Python files."""
        if version == "editable":  # a checkout has its sources, and scripts/build_bridge.py
            return
        root = Path(self.root)
        sources = sorted((root / "bridge" / "src").glob("*.scala"))
        for source in sources:
            build_data["force_include"][str(source)] = f"indextables/spark/scala/{source.name}"
        jar = self._jar(_compiler(root), root, sources)
        if jar is None:
            self.app.display_warning(
                "no PySpark here: the wheel has no bridge jar, which is then compiled on first use"
            )
        else:
            build_data["force_include"][str(jar)] = f"indextables/spark/jars/{jar.name}"

    def _jar(self, compiler: ModuleType, root: Path, sources: list[Path]) -> Path | None:
        jars = root / "src" / "indextables" / "spark" / "jars"
        for jar in jars.glob("indextables-bridge-*.jar"):
            if compiler.origin_of(jar) == compiler.origin(jar.stem.rpartition("-")[2], sources):
                return jar
        found = importlib.util.find_spec("pyspark")
        if found is None or found.origin is None:
            return None
        pyspark = importlib.import_module("pyspark")
        made: Path = jars / compiler.jar_name(pyspark.__version__)
        compiler.compile_bridge(sources, Path(found.origin).parent, pyspark.__version__, made)
        return made


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
