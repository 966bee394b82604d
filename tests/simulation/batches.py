"""Many seeds at once, in processes of their own."""

import logging
import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

from tests.simulation.reintroduced import BUGS
from tests.simulation.run import Result, make_images, run
from tests.simulation.seams import installed

WORKERS = 2
CHUNK = 50
# How long each long run takes, unless this variable says so: in seconds.
SOAK_SECONDS = int(os.environ.get("INDEXTABLES_SOAK_SECONDS", "1800"))


def run_range(
    first: int,
    last: int,
    bug: str | None = None,
    *,
    real_splits: bool = False,
    streams: bool = False,
    formats: bool = False,
) -> Result | None:
    """The first seed of a range that breaks an invariant; `bug` is put back into the code before."""
    logging.disable(logging.WARNING)
    try:
        with installed(real_splits=real_splits) as patch:
            if bug is not None:
                # Tables that runs begin with are made by the right code.
                make_images()
                BUGS[bug].put_back(patch)
                formats = formats or BUGS[bug].formats
            for seed in range(first, last):
                result = run(seed, streams=streams, formats=formats)
                if result.violation is not None:
                    return result
    finally:
        logging.disable(logging.NOTSET)
    return None


@contextmanager
def workers() -> Iterator[ProcessPoolExecutor]:
    """Processes that run seeds."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(WORKERS, context) as pool:
        yield pool


def first_failure(
    pool: ProcessPoolExecutor,
    first: int,
    last: int,
    *,
    bug: str | None = None,
    real_splits: bool = False,
    streams: bool = False,
    formats: bool = False,
) -> Result | None:
    """The lowest seed of a range that breaks an invariant, as far as the processes have looked."""
    starts = iter(range(first, last, CHUNK))
    return _search(
        pool,
        ((start, min(start + CHUNK, last)) for start in starts),
        lambda pool, piece: pool.submit(
            run_range, *piece, bug, real_splits=real_splits, streams=streams, formats=formats
        ),
    )


def until(
    pool: ProcessPoolExecutor, first: int, seconds: float, *, streams: bool = False, formats: bool = False
) -> tuple[Result | None, int]:
    """Seeds from the first one on, for so long; the one that fails, if any, and how many ran."""
    end = time.monotonic() + seconds
    ran = 0

    def pieces() -> Iterator[tuple[int, int]]:
        nonlocal ran
        start = first
        while time.monotonic() < end:
            yield start, start + CHUNK
            start += CHUNK
            ran = start - first

    found = _search(
        pool,
        pieces(),
        lambda pool, piece: pool.submit(run_range, *piece, streams=streams, formats=formats),
    )
    return found, ran


def _search(
    pool: ProcessPoolExecutor, pieces: Iterable[tuple[int, int]], submit: Callable[..., object]
) -> Result | None:
    waiting = iter(pieces)
    running: list[object] = []
    while True:
        while len(running) < 2 * WORKERS and (piece := next(waiting, None)) is not None:
            running.append(submit(pool, piece))
        if not running:
            return None
        found: Result | None = running.pop(0).result()  # type: ignore[attr-defined]
        if found is not None:
            for other in running:
                other.cancel()  # type: ignore[attr-defined]
            return found
