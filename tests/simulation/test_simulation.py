"""Seeds of the simulator: whatever fails and in whatever order, no committed data is lost."""

import subprocess
import sys
from pathlib import Path

from simulation.run import run
from simulation.seams import installed


def test_a_seed_has_the_same_history_in_every_process():
    seeds = (3, 4, 5)
    with installed():
        expected = "\n".join(line for seed in seeds for line in run(seed).history)
    script = (
        "from simulation.run import run\nfrom simulation.seams import installed\n"
        f"with installed():\n    print('\\n'.join(line for seed in {seeds} for line in run(seed).history))"
    )
    tests = Path(__file__).parent.parent
    again = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": ":".join([str(tests), *filter(None, sys.path)]), "PYTHONHASHSEED": "7"},
        cwd=tests,
        capture_output=True,
        text=True,
        check=True,
    )
    assert again.stdout.rstrip("\n") == expected
