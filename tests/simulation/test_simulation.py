"""Seeds of the simulator: whatever fails and in whatever order, no committed data is lost."""

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest

from tests import ROOT
from tests.simulation.batches import SOAK_SECONDS, first_failure, run_range, until, workers
from tests.simulation.run import run
from tests.simulation.seams import installed

SEEDS = 2000
REAL_SEEDS = 20
STREAM_START = 200_000
STREAM_SEEDS = 300
FORMATS_START = 300_000
FORMATS_SEEDS = 300


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    with workers() as pool:
        yield pool


def test_two_thousand_seeds_keep_every_invariant(
    request: pytest.FixtureRequest, pool: ProcessPoolExecutor
) -> None:
    seed = request.config.getoption("seed", None)
    found = first_failure(pool, 0, SEEDS) if seed is None else run_range(seed, seed + 1)
    assert found is None, f"{found}\nreplay: python -m pytest tests/simulation --seed {found.seed}"


def test_streams_lose_and_double_nothing_beside_other_operations(pool: ProcessPoolExecutor) -> None:
    found = first_failure(pool, STREAM_START, STREAM_START + STREAM_SEEDS, streams=True)
    assert found is None, str(found)


def test_seeds_with_avro_and_json_states_keep_every_invariant(pool: ProcessPoolExecutor) -> None:
    found = first_failure(pool, FORMATS_START, FORMATS_START + FORMATS_SEEDS, formats=True)
    assert found is None, f"{found}\nreplay: python -m tests.simulation --formats {found.seed}"


def test_seeds_with_real_splits_keep_every_invariant(pool: ProcessPoolExecutor) -> None:
    found = first_failure(pool, 100_000, 100_000 + REAL_SEEDS, real_splits=True)
    assert found is None, str(found)


def test_a_seed_has_the_same_history_in_every_process() -> None:
    seeds = (3, 4, 5)
    with installed():
        expected = "\n".join(line for seed in seeds for line in run(seed).history)
    script = (
        "from tests.simulation.run import run\nfrom tests.simulation.seams import installed\n"
        f"with installed():\n    print('\\n'.join(line for seed in {seeds} for line in run(seed).history))"
    )
    again = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": ":".join(filter(None, sys.path)), "PYTHONHASHSEED": "7"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert again.stdout.rstrip("\n") == expected


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_new_seeds_keep_every_invariant_for_as_long_as_asked(pool: ProcessPoolExecutor) -> None:
    """Each run takes other seeds: those of its start's second."""
    first = int(time.time()) * 1000
    found, ran = until(pool, first, SOAK_SECONDS)
    print(f"{ran} seeds from {first} on")  # noqa: T201
    assert found is None, f"{found}\nreplay: python -m pytest tests/simulation --seed {found.seed}"


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_new_seeds_with_streams_for_as_long_as_asked(pool: ProcessPoolExecutor) -> None:
    first = int(time.time()) * 1000
    found, ran = until(pool, first, SOAK_SECONDS, streams=True)
    print(f"{ran} seeds from {first} on")  # noqa: T201
    assert found is None, str(found)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_new_seeds_with_avro_and_json_states_for_as_long_as_asked(pool: ProcessPoolExecutor) -> None:
    first = int(time.time()) * 1000
    found, ran = until(pool, first, SOAK_SECONDS, streams=True, formats=True)
    print(f"{ran} seeds from {first} on")  # noqa: T201
    assert found is None, str(found)
