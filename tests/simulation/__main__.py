"""Run seeds: `python -m simulation SEED`, or `python -m simulation FIRST LAST`, from the folder `tests`."""

import logging
import sys
import time
from collections import Counter

from simulation.run import run
from simulation.seams import installed


def main(arguments: list[str]) -> int:
    """Print the history of one seed, or the seeds of a range that fail."""
    logging.disable(logging.WARNING)
    first = int(arguments[0])
    with installed():
        if len(arguments) == 1:
            result = run(first)
            print(result)  # noqa: T201
            return 1 if result.violation else 0
        started, found, steps = time.monotonic(), Counter[str](), 0
        for seed in range(first, int(arguments[1])):
            result = run(seed)
            steps += result.steps
            if result.violation is not None:
                found["failed"] += 1
                print(seed, result.violation.splitlines()[0][:300], flush=True)  # noqa: T201
    seconds = time.monotonic() - started
    number = int(arguments[1]) - first
    print(f"{number} seeds, {found['failed']} failed, {steps} calls, {number / seconds:.1f} seeds/s")  # noqa: T201
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
