"""What each process of a race does; a module of its own, so that spawned processes can import it."""

import random
from collections.abc import Mapping
from multiprocessing.synchronize import Barrier

from indextables.errors import CommitAttemptsError, CommitConflictError
from indextables.log.conflict import Draft
from indextables.log.format.actions import Txn
from indextables.log.transaction_log import TransactionLog
from tests.log_tables.build import a_log, append, gone, merge, overwrite, paths_of, split

# Enough attempts for eight writers at once, and waits that suit a test.
PATIENT = {
    "transaction.retry.maxAttempts": "200",
    "transaction.retry.baseDelayMs": "2",
    "transaction.retry.maxDelayMs": "60",
    "checkpoint.enabled": "true",
    "checkpoint.interval": "10",
}


_start: list[Barrier] = []


def meet(barrier: Barrier) -> None:
    """Called in each new process: where all wait for each other before a race."""
    _start.append(barrier)


def open_log(url: str, options: Mapping[str, str], who: int) -> TransactionLog:
    log = a_log(url, {**PATIENT, **options})
    # So that the work is really done by as many processes, and they start together.
    _start[0].wait(timeout=300)
    # Real waits with real dice: the point is to race.
    return TransactionLog(log.store, log.options, engine=f"writer-{who}")


def appends(url: str, options: Mapping[str, str], who: int, commits: int) -> list[int]:
    """So many appends; the versions they got."""
    log = open_log(url, options, who)
    got = []
    for n in range(commits):
        draft = Draft(
            operation="WRITE",
            adds=(split(f"{who}-{n}.split", size=1000 * who + n),),
            txns=(Txn(app_id=f"writer-{who}", version=n),),
        )
        got.append(log.commit(draft, log.snapshot()).version)
    return got


def mixed(url: str, options: Mapping[str, str], who: int, commits: int) -> list[tuple[int, str]]:
    """Appends, merges, dropped partitions, overwrites and checkpoints; versions and what was committed there."""
    log = open_log(url, options, who)
    dice = random.Random(who)
    got: list[tuple[int, str]] = []
    for n in range(commits):
        kind = dice.choices(["append", "merge", "drop", "overwrite", "checkpoint"], [10, 6, 4, 1, 2])[0]
        name = f"{who}-{n}.split"
        base = log.snapshot()
        live = paths_of(base)
        try:
            if kind == "append" or (kind in ("merge", "drop") and len(live) < 3):
                got.append((append(log, name, base=base).version, "append"))
            elif kind == "merge":
                got.append((merge(log, dice.sample(live, 2), name, base).version, "merge"))
            elif kind == "drop":
                draft = Draft(operation="DROP PARTITIONS", removes=(gone(dice.choice(live)),))
                got.append((log.commit(draft, base).version, "drop"))
            elif kind == "overwrite":
                got.append((overwrite(log, name, base=base).version, "overwrite"))
            else:
                log.checkpoint(compact=bool(n % 2))
        except (CommitConflictError, CommitAttemptsError):
            continue
    return got
