"""Simulated processes, simulated time, and who runs next: all decided by one random source.

Each simulated process is a thread, but only one of them runs at any moment: a process hands over to the next one
inside `Scheduler.step`, which it calls before every call of the store, and inside `sleep`.
"""

import heapq
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

DAY_MS = 24 * 3_600_000
# Every run begins at this time of the simulated clock, in milliseconds since 1970.
START_MS = 1_775_000_000_000
MOST_STEPS = 6000


class Crash(BaseException):
    """The process is killed: none of its later calls reaches the store."""


class Stop(BaseException):
    """The run is over; every process unwinds without touching the store."""


class ViolationError(Exception):
    """An invariant does not hold."""


@dataclass
class Process:
    """One simulated process: a thread that waits for its turn."""

    name: str
    work: Callable[["Process"], None]
    random: random.Random
    skew_ms: int = 0
    wake_at: float = 0.0
    finished: bool = False
    crashed: bool = False
    starts: int = 1
    priority: float = 0.0
    # The operation that runs now, for the history; and how many faults hit it.
    operation: object | None = None
    faults: int = 0
    turn: threading.Lock = field(default_factory=threading.Lock)

    @property
    def alias(self) -> str:
        """The name under which this start of the process opens the store: caches of processes stay apart."""
        return f"{self.name}-{self.starts}"


@dataclass
class Strategy:
    """How the next process is chosen.

    `stay` is the chance that the running process goes on. With `change_points`, processes have priorities
    instead, the highest runs, and at each of these steps the running one becomes the lowest.
    """

    stay: float
    change_points: frozenset[int] = frozenset()
    by_priority: bool = False

    @classmethod
    def choose(cls, source: random.Random) -> "Strategy":
        """A strategy for a run."""
        if source.random() < 0.4:
            points = frozenset(source.randrange(5, 250) for _ in range(source.randrange(1, 6)))
            return cls(0.0, points, by_priority=True)
        return cls(source.choice((0.0, 0.5, 0.8, 0.93)))


class Scheduler:
    """Runs processes one at a time, and moves the clock."""

    def __init__(self, source: random.Random, strategy: Strategy) -> None:
        self.now: float = START_MS
        self.steps = 0
        self.current: Process | None = None
        self.stopping = False
        self._random = source
        self._strategy = strategy
        self._processes: list[Process] = []
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = 0
        self._ended = threading.Lock()

    def run(self, processes: list[Process], on_error: Callable[[Process, BaseException], None]) -> None:
        """Run all processes to their end."""
        self._processes = processes
        for process in processes:
            process.turn.acquire()
            process.priority = self._random.random()
        self._ended.acquire()
        threads = [
            threading.Thread(target=self._body, args=(process, on_error), daemon=True)
            for process in processes
        ]
        for thread in threads:
            thread.start()
        self._resume(self._pick(None))
        self._ended.acquire()
        for thread in threads:
            thread.join()
        self.current = None

    def step(self) -> None:
        """A moment at which another process may go on first."""
        process = self.current
        if self.stopping:
            raise Stop
        self.steps += 1
        self.advance(self._random.random() * 20)
        if process is None:
            return
        if self.steps > MOST_STEPS:
            raise ViolationError(f"the run does not end: {MOST_STEPS} calls of the store were made")
        if self.steps in self._strategy.change_points:
            process.priority = -self.steps
        self._hand_over(process)

    def sleep(self, seconds: float) -> None:
        """Let time pass for the running process; others go on meanwhile."""
        process = self.current
        if process is None:
            self.advance(seconds * 1000)
            return
        process.wake_at = self.now + seconds * 1000
        if self.stopping:
            raise Stop
        self._hand_over(process)

    def advance(self, milliseconds: float) -> None:
        """Move the clock; what was to happen until then happens."""
        until = self.now + milliseconds
        while self._later and self._later[0][0] <= until:
            due, _, effect = heapq.heappop(self._later)
            self.now = max(self.now, due)
            effect()
        self.now = until

    def later(self, milliseconds: float, effect: Callable[[], None]) -> None:
        """Let something happen on its own, after a while."""
        self._numbers += 1
        heapq.heappush(self._later, (self.now + milliseconds, self._numbers, effect))

    def finish_later(self) -> None:
        """Let everything happen that is still to happen."""
        while self._later:
            self.advance(max(self._later[0][0] - self.now, 0))

    def _body(self, process: Process, on_error: Callable[[Process, BaseException], None]) -> None:
        process.turn.acquire()
        try:
            if not self.stopping:
                process.work(process)
        except Stop:
            pass
        except BaseException as error:  # noqa: BLE001 - the run reports it
            on_error(process, error)
        process.finished = True
        if all(each.finished for each in self._processes):
            self._ended.release()
        else:
            self._resume(self._pick(None))

    def _hand_over(self, process: Process) -> None:
        chosen = self._pick(process)
        if chosen is process:
            return
        self._resume(chosen)
        process.turn.acquire()
        if self.stopping:
            raise Stop

    def _resume(self, process: Process) -> None:
        self.current = process
        process.turn.release()

    def _pick(self, running: Process | None) -> Process:
        left = [process for process in self._processes if not process.finished]
        if self.stopping:
            return left[0]
        ready = [process for process in left if process.wake_at <= self.now]
        if not ready:
            soonest = min(left, key=lambda process: process.wake_at)
            self.advance(soonest.wake_at - self.now)
            return soonest
        strategy = self._strategy
        if strategy.by_priority:
            return max(ready, key=lambda process: process.priority)
        if running is not None and running.wake_at <= self.now and self._random.random() < strategy.stay:
            return running
        return ready[int(self._random.random() * len(ready))]
