"""Damage anywhere in a table or in the cache is an error that names the file, or changes nothing.

Every run takes another seed, which a failure prints; DAMAGE_SEED runs the same trials again.
"""

import json
import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.corruption.trials import make_table

# A trial takes a part of a second; one that takes so long hangs.
SECONDS = 60


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    make_table(folder / "t")
    return folder


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
    # In a process of its own, which damage could kill.
    limit = SECONDS + count
    code: object
    try:
        done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=limit)
        output, code, errors = done.stdout, done.returncode, done.stderr
    except subprocess.TimeoutExpired as late:
        output, code, errors = (late.stdout or b"").decode(), "none: it hangs", ""
    lines = [json.loads(line) for line in output.splitlines()]
    last = next((line for line in reversed(lines) if line.startswith("run ")), f"seed {seed}, no trial")
    assert code == 0, f"the process ended with {code} at {last}\n{errors[-2000:]}"
    problems = [line for line in lines if line.startswith("problem ")]
    assert not problems, f"seed {seed}\n" + "\n".join(problems)
    assert sum(line.startswith("run ") for line in lines) == count


def test_random_damage_is_never_a_wrong_answer(model: Path, tmp_path: Path) -> None:
    run(model, tmp_path, 200)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_thousand_random_damages_are_never_a_wrong_answer(model: Path, tmp_path: Path) -> None:
    run(model, tmp_path, 1500)
