"""Time and memory of a function, measured in a process of its own.

The function is named as `module:function`. Called with its arguments it returns `prepare`; `prepare()` sets
up, untimed, and returns the function to measure. Memory, caches and threads of one measurement cannot
influence another one.
"""

import gc
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

Prepare: TypeAlias = Callable[[], Callable[[], object]]

ROOT = Path(__file__).parents[1]
_STATUS = Path("/proc/self/status")


@dataclass(frozen=True, slots=True)
class Measured:
    """The result of a measurement: median, minimum and maximum of the runs, the first run, and memory.

    `cpu_ms` is the median of the processor's time, all threads together, which other work on the machine
    changes less. `first_ms` is the first run in the process; it warms libraries and is not among the runs.
    `peak_mb` is how far the memory of the process rose during it, above what it had, imports and all, just
    before.
    """

    runs: int
    median_ms: float
    least_ms: float
    most_ms: float
    cpu_ms: float
    first_ms: float
    peak_mb: float


def measure(
    work: str, *arguments: object, runs: int, warm_seconds: float = 0, python: str | Path = sys.executable
) -> Measured:
    """Measure a function in a new process.

    Args:
        work: `module:function`.
        arguments: its arguments, as JSON values.
        runs: the number of runs of which the median is taken.
        warm_seconds: how long it is repeated between the first run and the measured ones.
        python: the interpreter; another one may have other libraries.
    """
    figures = [json.dumps(arguments), str(runs), str(warm_seconds)]
    command = [str(python), "-m", "bench.measure", work, *figures]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{work} failed, see above; exit code {done.returncode}")
    return Measured(**json.loads(done.stdout.splitlines()[-1]))


def measure_command(*command: str, runs: int) -> Measured:
    """Measure a command from its start to its end; its memory is not measured."""
    # Without compiled modules, each run would compile everything that it imports.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    took: list[float] = []
    cpu: list[float] = []
    for _ in range(runs + 1):
        start = time.perf_counter()
        child = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            raise RuntimeError(f"{' '.join(command)} failed, see above; exit code {child.returncode}")
        took.append((time.perf_counter() - start) * 1000)
        cpu.append((usage.ru_utime + usage.ru_stime) * 1000)
    first, *rest = took
    return Measured(
        runs=runs,
        median_ms=statistics.median(rest),
        least_ms=min(rest),
        most_ms=max(rest),
        cpu_ms=statistics.median(cpu[1:]),
        first_ms=first,
        peak_mb=0.0,
    )


def scaled(measured: Measured, factor: float) -> Measured:
    """An estimate for so many times the work, if it takes so many times as long."""
    return replace(
        measured,
        median_ms=measured.median_ms * factor,
        least_ms=measured.least_ms * factor,
        most_ms=measured.most_ms * factor,
        cpu_ms=measured.cpu_ms * factor,
        first_ms=measured.first_ms * factor,
    )


def ratio(ours: Measured, other: Measured) -> float:
    """Return our time as a multiple of the other."""
    return ours.median_ms / other.median_ms


def _measure_here(work: str, arguments: list[Any], runs: int, warm_seconds: float) -> Measured:
    module, _, function = work.partition(":")
    prepare: Prepare = getattr(importlib.import_module(module), function)(*arguments)
    act = prepare()
    gc.collect()
    idle = _reset_peak()
    first, _ = _milliseconds(act)
    peak = _memory("VmHWM") - idle
    warm = time.perf_counter() + warm_seconds
    while time.perf_counter() < warm:
        prepare()()
    times, cpu = zip(*(_milliseconds(prepare()) for _ in range(runs)), strict=True)
    return Measured(
        runs, statistics.median(times), min(times), max(times), statistics.median(cpu), first, peak
    )


def _milliseconds(act: Callable[[], object]) -> tuple[float, float]:
    """What a run took by the clock and by the processor."""
    start, start_cpu = time.perf_counter(), time.process_time()
    result = act()
    taken, cpu = time.perf_counter() - start, time.process_time() - start_cpu
    del result  # only now, so that freeing it is not part of the time
    return taken * 1000, cpu * 1000


def _reset_peak() -> float:
    """Forget the highest memory so far; the memory now."""
    Path("/proc/self/clear_refs").write_text("5")
    return _memory("VmRSS")


def _memory(name: str) -> float:
    """A figure of this process's memory, in megabytes."""
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    _, _work, _arguments, _runs, _warm = sys.argv
    _found = _measure_here(_work, json.loads(_arguments), int(_runs), float(_warm))
    print(json.dumps({name: getattr(_found, name) for name in Measured.__slots__}))
