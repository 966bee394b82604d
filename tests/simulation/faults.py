"""What goes wrong in a run, and when: a few faults at chosen calls, not a rate of errors."""

import random
from dataclasses import dataclass, field
from enum import StrEnum

HOUR_MS = 3_600_000


class Fault(StrEnum):
    """What can happen to one call of the store."""

    ERROR = "error, nothing done"
    DENIED = "refused: credentials expired"
    NO_HANDLES = "too many open files, nothing done"
    MAYBE = "connection broke before the request arrived"
    LOST = "done, but the answer is lost"
    LATE = "no answer; the request arrives later"
    REPEATED = "done; an earlier attempt of the same request arrives once more, later"
    PARTLY = "half of it is done, then an error"
    CRASH_BEFORE = "the process is killed before the call"
    CRASH_AFTER = "the process is killed after the call"
    CRASH_LATE = "the process is killed; the request arrives later"
    CRASH_PARTLY = "the process is killed half way"
    PAUSE = "the process is suspended for a moment"
    LONG_PAUSE = "the process is suspended for hours"
    CLOCK = "the clock of the process is set"
    STORE_CLOCK = "the clock of the store is set"
    TABLE_REPLACED = "the table is deleted and another one is made in its place"


CRASHES = frozenset({Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.CRASH_LATE, Fault.CRASH_PARTLY})
PAUSES = frozenset({Fault.PAUSE, Fault.LONG_PAUSE, Fault.CLOCK, Fault.STORE_CLOCK, Fault.TABLE_REPLACED})
_ERRORS = (Fault.ERROR, Fault.DENIED, Fault.NO_HANDLES, Fault.MAYBE, Fault.LOST, Fault.LATE, Fault.PARTLY)
# Where faults are placed: some calls matter more than others.
_CALLS = (
    "create version",
    "create version",
    "create state",
    "create",
    "put",
    "put pointer",
    "delete",
    "list",
    "get",
    "upload",
    "head",
)


@dataclass
class Trigger:
    """When a fault begins: at the n-th call, of a kind or after a version was created; then call by call."""

    faults: list[Fault]
    countdown: int
    call: str | None = None
    after_version: bool = False
    # Only calls of this process count.
    only: str | None = None
    # The process that it hit.
    process: str | None = None

    def fires(self, process: str, call: str, *, created_version: bool) -> Fault | None:
        """The fault of this call, if it is time."""
        if self.process is not None:
            if self.process != process or not self.faults:
                return None
            return self.faults.pop(0)
        if self.only not in (None, process):
            return None
        if not call.startswith(self.call or "") or (self.after_version and not created_version):
            return None
        self.countdown -= 1
        if self.countdown > 0 or not self.faults:
            return None
        self.process = process
        return self.faults.pop(0)


@dataclass
class FaultPlan:
    """All faults of a run."""

    triggers: list[Trigger] = field(default_factory=list)

    def choose(self, process: str, call: str, *, created_version: bool) -> Fault | None:
        """The fault of a call, if there is one."""
        for trigger in self.triggers:
            found = trigger.fires(process, call, created_version=created_version)
            if found is not None:
                return found
        return None

    def delay(self, process: str, source: random.Random) -> None:
        """Let one process wait, most likely right before it creates a version."""
        calls = ("create version", "create version", "create state", "put", "delete", "list", "get")
        fault = source.choice((Fault.PAUSE, Fault.LONG_PAUSE, Fault.LONG_PAUSE))
        call = source.choice(calls)
        countdown = 1 if call.startswith("create") else source.randrange(1, 4)
        self.triggers.append(Trigger([fault], countdown, call=call, only=process))

    @classmethod
    def random(cls, source: random.Random, *, replacement: bool) -> "FaultPlan":
        """None, one or some faults; `replacement` allows that the table is replaced by another one."""
        plan = cls()
        for _ in range(source.choice((0, 1, 1, 2, 2, 3, 4))):
            plan.triggers.append(_trigger(source))
        for _ in range(source.choice((0, 1, 2))):
            plan.triggers.append(_pause(source))
        if replacement:
            plan.triggers.append(Trigger([Fault.TABLE_REPLACED], source.randrange(2, 60)))
        return plan


def _trigger(source: random.Random) -> Trigger:
    faults = [source.choice(_ERRORS)]
    while source.random() < 0.4:
        faults.append(faults[-1] if source.random() < 0.6 else source.choice(_ERRORS))
    kind = source.random()
    if kind < 0.2:
        faults = [source.choice(sorted(CRASHES))]
    elif kind < 0.3:
        faults = [Fault.REPEATED]
    place = source.random()
    if place < 0.35:
        return Trigger(faults, source.randrange(1, 8), after_version=True)
    if place < 0.7:
        return Trigger(faults, source.randrange(1, 12), call=source.choice(_CALLS))
    return Trigger(faults, source.randrange(1, 150))


def _pause(source: random.Random) -> Trigger:
    fault = source.choices(
        (Fault.PAUSE, Fault.LONG_PAUSE, Fault.CLOCK, Fault.STORE_CLOCK), weights=(4, 2, 1, 2)
    )[0]
    place = source.random()
    if place < 0.3:
        return Trigger([fault], source.randrange(1, 6), after_version=True)
    if place < 0.5:
        return Trigger([fault], source.randrange(1, 5), call="create version")
    if place < 0.7:
        return Trigger([fault], source.randrange(1, 15), call=source.choice(_CALLS))
    return Trigger([fault], source.randrange(1, 150))
