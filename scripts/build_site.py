"""Build the documentation site into build/site; anything that mkdocs warns of is an error.

Print only warnings and errors. The option `--quiet` of mkdocs is not used: it hides warnings from `--strict`.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def main() -> int:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", *sys.argv[1:]]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if built.returncode:
        lines = (built.stdout + built.stderr).splitlines()
        print("\n".join(line for line in lines if not line.startswith("INFO")), file=sys.stderr)
    return built.returncode


if __name__ == "__main__":
    sys.exit(main())
