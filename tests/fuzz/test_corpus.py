"""Inputs that parsers once did not survive, and some that they should read: every one is read or refused."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.fuzz import targets

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
FUZZED = tuple(targets.TARGETS)
# How long one target is fuzzed by `make soak`.
SECONDS = int(os.environ.get("FUZZ_SECONDS", "60"))


def inputs(target: str) -> list[Path]:
    return sorted((CORPUS / target).iterdir())


def test_every_target_has_inputs_and_every_input_a_target() -> None:
    assert sorted(path.name for path in CORPUS.iterdir()) == sorted(FUZZED)
    assert all(inputs(target) for target in FUZZED)


@pytest.mark.parametrize("target", FUZZED)
def test_every_input_is_read_or_refused_by_an_error_of_ours(target: str) -> None:
    for path in inputs(target):
        targets.run(target, path.read_bytes())


def test_no_input_takes_much_memory_or_time() -> None:
    """All of them in one process, whose memory and processor time are limited."""
    program = f"""
import json, resource, sys
from tests.fuzz import targets
from pathlib import Path
for target in targets.TARGETS:
    targets.run(target, b"")
before = resource.getrusage(resource.RUSAGE_SELF)
for path in sorted(Path({str(CORPUS)!r}).glob("*/*")):
    targets.run(path.parent.name, path.read_bytes())
after = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({{"mb": (after.ru_maxrss - before.ru_maxrss) // 1024, "s": after.ru_utime - before.ru_utime}}))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    took = json.loads(done.stdout)
    assert took["mb"] < 500, took
    assert took["s"] < 60, took


@pytest.mark.soak
@pytest.mark.parametrize("target", FUZZED)
def test_no_new_input_is_found_that_a_parser_does_not_survive(target: str, tmp_path: Path) -> None:
    """What is found is named in the output: keep it in the corpus, and fix the parser."""
    learnt = tmp_path / "learnt"
    learnt.mkdir()
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.fuzz.fuzz", target),
            *(f"-max_total_time={SECONDS}", "-rss_limit_mb=3000", "-timeout=20", "-max_len=4096"),
            *(f"-artifact_prefix={tmp_path}/found-", str(learnt), str(CORPUS / target)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=SECONDS + 300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
