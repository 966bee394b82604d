"""An environment with PyPaimon: it needs an older Arrow than this package, so it has one of its own."""

import subprocess
import sys
import venv
from pathlib import Path

from bench.measure import ROOT

REQUIREMENT = "pypaimon[full-text]==2.1.0"
_SECONDS = 600


def python(folder: Path = ROOT / ".bench" / "pypaimon") -> Path | None:
    """The interpreter of the environment, which is made if there is none; None if it cannot be made."""
    interpreter, complete = folder / "bin" / "python", folder / "complete"
    if complete.exists() and complete.read_text() == REQUIREMENT:
        return interpreter
    print(f"installing {REQUIREMENT} into {folder}", file=sys.stderr)
    try:
        venv.create(folder, clear=True, with_pip=True)
        subprocess.run(
            [interpreter, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", REQUIREMENT],
            check=True,
            timeout=_SECONDS,
        )
    except (OSError, subprocess.SubprocessError) as error:
        print(f"PyPaimon cannot be installed ({error}): its figures are left out", file=sys.stderr)
        return None
    complete.write_text(REQUIREMENT)
    return interpreter
