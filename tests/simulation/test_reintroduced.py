"""Bugs of the past, put back one at a time: the simulator finds each of them."""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest

from tests.simulation.batches import first_failure, run_range, workers
from tests.simulation.reintroduced import BUGS
from tests.simulation.seams import installed

# Those that were found at once are looked for by every run of the tests.
QUICK = 60
MOST = 20_000


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    with workers() as pool:
        yield pool


@pytest.mark.parametrize(
    "name", [name for name, bug in BUGS.items() if bug.found_at is not None and bug.found_at < QUICK]
)
def test_a_bug_that_is_put_back_is_found_at_once(pool: ProcessPoolExecutor, name: Any) -> None:
    seed = BUGS[name].found_at
    assert seed is not None
    found = run_range(seed, seed + 1, name)
    if found is None:  # A change of code or simulator gave the seeds other histories: look further.
        found = first_failure(pool, 0, 10 * QUICK, bug=name)
    assert found is not None, f"{BUGS[name].description} No seed below {10 * QUICK} finds that"


@pytest.mark.parametrize("name", list(BUGS))
def test_a_bug_can_be_put_back_into_the_code_of_today(name: Any) -> None:
    with installed() as patch:
        BUGS[name].put_back(patch)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", list(BUGS))
def test_a_bug_that_is_put_back_is_found_within_20000_seeds(pool: ProcessPoolExecutor, name: Any) -> None:
    found = first_failure(pool, 0, MOST, bug=name)
    assert found is not None, f"{BUGS[name].description} No seed below {MOST} finds that"
    print(f"{name}: seed {found.seed}: {found.violation}")  # noqa: T201
