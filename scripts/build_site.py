"""Build the documentation site into build/site; anything that mkdocs warns of is an error.

Print only warnings and errors. The option `--quiet` of mkdocs is not used: it hides warnings from `--strict`.
A page that loads a script, style, font or image from another host is an error, too.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
SITE = ROOT / "build" / "site"
_LOADED = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?(?P<src>(?:https?:)?//[^"'\s>]+)"""
    r"""|<link\b(?=[^>]*\brel=["']?(?:stylesheet|preload|preconnect|icon))"""
    r"""[^>]*\bhref=["']?(?P<href>(?:https?:)?//[^"'\s>]+)"""
    r"""|@import\s+["'](?P<css>(?:https?:)?//[^"']+)"""
)


def main() -> int:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if built.returncode:
        lines = (built.stdout + built.stderr).splitlines()
        print("\n".join(line for line in lines if not line.startswith("INFO")), file=sys.stderr)
        return built.returncode
    foreign = sorted(loaded_from_elsewhere())
    for page, address in foreign:
        print(f"build_site: {page} loads {address}; pages must work offline", file=sys.stderr)
    return 1 if foreign else 0


def loaded_from_elsewhere() -> set[tuple[str, str]]:
    """Return the pages and styles that load something from another host, with its address."""
    files = [*SITE.rglob("*.html"), *SITE.rglob("*.css")]
    return {
        (str(file.relative_to(SITE)), match["src"] or match["href"] or match["css"])
        for file in files
        for match in _LOADED.finditer(file.read_text("utf-8"))
    }


if __name__ == "__main__":
    sys.exit(main())
