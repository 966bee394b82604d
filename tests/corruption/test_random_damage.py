"""Damage anywhere in a table or in the cache is an error that names the file, or changes nothing.

Every run takes another seed, which a failure prints; DAMAGE_SEED runs the same trials again.
"""

import contextlib
import json
import os
import secrets
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import ROOT
from tests.corruption.trials import make_table

# A trial takes a part of a second; one that takes so long hangs, on a busy machine, too.
SECONDS = 120


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    make_table(folder / "t")
    return folder


def _exit_code(process: subprocess.Popen[bytes], output: Path) -> int | str:
    """The exit code of a process, which is killed if its output does not grow for a while."""
    try:
        size, last = -1, 0.0
        while True:
            if output.stat().st_size != size:
                size, last = output.stat().st_size, time.monotonic()
            elif time.monotonic() - last > SECONDS:
                return "none: it hangs"
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(0.2)
    finally:
        process.kill()
        process.wait()


def run(model: Path, work: Path, count: int) -> None:
    seed = int(os.environ.get("DAMAGE_SEED", secrets.randbelow(10**9)))
    command = [
        sys.executable,
        "-m",
        "tests.corruption.trials",
        str(model),
        str(work),
        str(seed),
        "0",
        str(count),
    ]
    output, errors = work / "output", work / "errors"
    # In a process of its own, which damage could kill.
    with output.open("w") as out, errors.open("w") as err:
        code = _exit_code(subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=err), output)
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    last = next((line for line in reversed(lines) if line.startswith("run ")), f"seed {seed}, no trial")
    assert code == 0, f"the process ended with {code} at {last}\n{errors.read_text()[-2000:]}"
    problems = [line for line in lines if line.startswith("problem ")]
    assert not problems, f"seed {seed}\n" + "\n".join(problems)
    assert sum(line.startswith("run ") for line in lines) == count


def test_random_damage_is_never_a_wrong_answer(model: Path, tmp_path: Path) -> None:
    run(model, tmp_path, 200)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_thousand_random_damages_are_never_a_wrong_answer(model: Path, tmp_path: Path) -> None:
    run(model, tmp_path, 1500)
