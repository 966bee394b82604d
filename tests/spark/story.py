"""Runs a script of a test in a process of its own: one process has one JVM."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def told(script: str, *arguments: object, timeout: int = 240, **environment: str) -> dict[str, Any]:
    """What a script beside this file says in the last line of its output, which is JSON."""
    run = subprocess.run(
        [sys.executable, "-W", "ignore", str(HERE / script), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", **environment},
    )
    assert run.returncode == 0, f"{script} failed:\n{run.stdout[-4000:]}\n{run.stderr[-6000:]}"
    heard: dict[str, Any] = json.loads(run.stdout.strip().splitlines()[-1])
    return heard
