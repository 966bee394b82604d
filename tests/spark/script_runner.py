"""Runs a script of a test in a process of its own: one process has one JVM."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from typing import Any

from tests import ROOT


def run_script(script: str, *arguments: object, timeout: int = 540, **environment: str) -> dict[str, Any]:
    """What a module beside this one says in the last line of its output, which is JSON."""
    run = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", f"tests.spark.{script}", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", **environment},
        start_new_session=True,
    )
    try:
        out, err = run.communicate(timeout=timeout)
    finally:
        # Whatever a script that failed or hung had started ends with it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
    assert run.returncode == 0, f"{script} failed:\n{out[-4000:]}\n{err[-6000:]}"
    assert "BrokenPipeError" not in err, f"{script} did not end quietly:\n{err[-6000:]}"
    results: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
    return results
