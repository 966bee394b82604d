"""Run seeds: `python -m tests.simulation SEED`, or `python -m tests.simulation FIRST LAST [BUG]`.

`--formats` and `--streams` are those of `run.run`.
"""

import logging
import sys
import time

from tests.simulation.reintroduced import BUGS
from tests.simulation.run import make_images, run
from tests.simulation.seams import installed


def main(arguments: list[str]) -> int:
    """Print the history of one seed, or the seeds of a range that fail; with a bug put back, the first one."""
    logging.disable(logging.WARNING)
    kinds = {kind: f"--{kind}" in arguments for kind in ("formats", "streams")}
    arguments = [argument for argument in arguments if not argument.startswith("--")]
    first, last = int(arguments[0]), int(arguments[1]) if len(arguments) > 1 else None
    bug = arguments[2] if len(arguments) > 2 else None
    with installed() as patch:
        if bug is not None:
            make_images()
            BUGS[bug].put_back(patch)
            kinds["formats"] = kinds["formats"] or BUGS[bug].formats
        if last is None:
            result = run(first, **kinds)
            print(result)  # noqa: T201
            return 1 if result.violation else 0
        started, failed, calls, seed = time.monotonic(), 0, 0, first
        for seed in range(first, last):
            result = run(seed, **kinds)
            calls += result.steps
            if result.violation is not None:
                failed += 1
                print(seed, result.violation.splitlines()[0][:300], flush=True)  # noqa: T201
                if bug is not None:
                    break
    number, seconds = seed + 1 - first, time.monotonic() - started
    print(f"{number} seeds, {failed} failed, {calls} calls, {number / seconds:.1f} seeds/s")  # noqa: T201
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
