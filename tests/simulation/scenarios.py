"""Runs that aim at one interleaving: programs and faults that meet where a rare order of calls is dangerous.

Random programs with random faults reach these orders too, but not within thousands of seeds. Each scenario leaves
the details to the seed: which operations, how long the pauses are, and in which order the processes run.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

from tests.simulation.faults import Fault, Trigger
from tests.simulation.operations import Author, Checkpoint, Operation, Purge, Restore


@dataclass
class Scenario:
    """The programs of the processes p0, p1, ... and the faults that hit them."""

    programs: list[list[Operation]]
    triggers: list[Trigger]
    # Whether a deletion whose answer was lost may take effect later.
    late_deletes: bool = False


def unknown_then_refused(author: Author, source: random.Random) -> Scenario:
    """The creation of a version stays without an answer, and its repetition is refused."""
    kinds = ("append", "append", "append batch", "overwrite", "merge", "drop partition")
    first = source.choice((Fault.LATE, Fault.LATE, Fault.LATE, Fault.MAYBE, Fault.LOST))
    second = source.choice((Fault.DENIED, Fault.ERROR, Fault.NO_HANDLES))
    return Scenario(
        [[author.operation(source.choice(kinds))], [author.operation("read")]],
        [
            Trigger([first], 1, call="create version", only="p0"),
            Trigger([second], 1, call="create version", only="p0"),
        ],
    )


def restore_during_purge(author: Author, source: random.Random) -> Scenario:
    """A restore waits before it commits; meanwhile a purge forgets the version and deletes its splits."""
    pause = source.choice((Fault.PAUSE, Fault.LONG_PAUSE))
    purge = Purge("purge", log_hours=0)
    return Scenario(
        [
            [Restore("restore", back=source.randrange(1, 6))],
            [Checkpoint("checkpoint", compact=source.random() < 0.5), purge],
        ],
        [
            Trigger([pause], 1, call="create version", only="p0"),
            # The restore has read its version before the purge begins.
            Trigger([Fault.PAUSE], source.randrange(1, 4), call="list", only="p1"),
        ],
    )


def pointer_goes_back(author: Author, source: random.Random) -> Scenario:
    """An old pointer replaces that of a truncation, while a commit waits before it creates its version."""
    commits = source.choices(("append", "drop partition", "overwrite"), k=source.randrange(1, 3))
    late = source.choice((Fault.REPEATED, Fault.LATE, Fault.PAUSE))
    slow = source.choice(("append", "append", "drop partition", "merge"))
    return Scenario(
        [
            [author.operation(slow)],
            [*map(author.operation, commits), author.operation("truncate")],
            [author.operation("checkpoint")],
        ],
        [
            Trigger([source.choice((Fault.PAUSE, Fault.LONG_PAUSE))], 1, call="create version", only="p0"),
            Trigger([late], 1, call="put pointer", only="p2"),
        ],
    )


def truncation_of_another_table(author: Author, source: random.Random) -> Scenario:
    """The table is deleted and made anew while a truncation or a purge of its log decides what to delete."""
    cleaning = source.choice(("truncate", "truncate", "truncate", "purge"))
    call = source.choice(("head", "head", "put", "list", "delete", "create state"))
    return Scenario(
        [[author.operation(cleaning)], [author.operation(source.choice(("read", "append")))]],
        [Trigger([Fault.TABLE_REPLACED], source.randrange(1, 4), call=call, only="p0")],
    )


def slow_checkpoint(author: Author, source: random.Random) -> Scenario:
    """A checkpoint waits for hours before its state appears; a purge cleans the log meanwhile, maybe slowly."""
    before = [author.operation("append")] if source.random() < 0.7 else []
    for operation in before:
        operation.options = {**operation.options, "checkpoint.enabled": "false"}
    pause = source.choice((Fault.PAUSE, Fault.LONG_PAUSE, Fault.LONG_PAUSE))
    return Scenario(
        [
            [*before, Checkpoint("checkpoint", compact=source.random() < 0.7)],
            [Purge("purge", log_hours=0)],
        ],
        [
            Trigger([Fault.LONG_PAUSE], 1, call="create state", only="p0"),
            # The purge begins late, so that the manifests are old, and waits when it has read for the last time
            # what states refer to: it deletes no manifest of a state that appeared before.
            Trigger([Fault.LONG_PAUSE], 1, call="list", only="p1"),
            Trigger([pause], 1, call=source.choice(("delete", *["delete manifests"] * 3)), only="p1"),
        ],
    )


def checkpoint_during_truncation(author: Author, source: random.Random) -> Scenario:
    """The state that a checkpoint extends is deleted before the new one appears, its manifests after that."""
    before = [author.operation("append")] if source.random() < 0.7 else []
    commit = author.operation(source.choice(("append", "append", "overwrite", "merge")))
    return Scenario(
        [[*before, Checkpoint("checkpoint", compact=False)], [commit, author.operation("truncate")]],
        [
            Trigger([Fault.LONG_PAUSE], 1, call="create state", only="p0"),
            # The first deletion is that of the object that tells the time, then states go, then manifests.
            Trigger([Fault.LONG_PAUSE], source.choice((2, 3, 3, 3)), call="delete", only="p1"),
        ],
    )


def deletions_arrive_late(author: Author, source: random.Random) -> Scenario:
    """Deletions of cleaners, of failed writes and of states that are taken back take effect later, or twice."""
    slow = source.choice(("append", "drop partition", "checkpoint", "checkpoint", "overwrite"))
    cleanings = source.choices(
        ("truncate", "truncate", "checkpoint", "purge", "append"), k=source.randrange(1, 4)
    )
    late = source.choice((Fault.LATE, Fault.LATE, Fault.REPEATED, Fault.CRASH_LATE))
    process = source.choice(("p0", "p1", "p2"))
    return Scenario(
        [
            [author.operation(slow), author.operation(source.choice(("checkpoint", "append")))],
            [author.operation("append"), *map(author.operation, cleanings)],
            [author.operation(source.choice(("truncate", "checkpoint", "append")))],
        ],
        [
            Trigger([late] * source.randrange(1, 3), source.randrange(1, 4), call="delete", only=process),
            Trigger(
                [source.choice((Fault.PAUSE, Fault.LONG_PAUSE))],
                1,
                call=source.choice(("create version", "create state", "delete")),
                only="p0",
            ),
        ],
        late_deletes=True,
    )


def state_of_the_same_version_again(author: Author, source: random.Random) -> Scenario:
    """A state is given up, a deletion of it may arrive late, and another one of the same version replaces history."""
    late = source.choice((Fault.LATE, Fault.LATE, Fault.REPEATED))
    again = [author.operation("checkpoint"), author.operation("truncate")]
    return Scenario(
        [
            [author.operation("append"), Checkpoint("checkpoint"), *(again if source.random() < 0.5 else ())],
            [author.operation("read"), *again],
        ],
        [
            Trigger([Fault.LONG_PAUSE], 1, call="create state", only="p0"),
            Trigger([Fault.LONG_PAUSE], 1, call="list", only="p1"),
            Trigger([late], 1, call="delete", only="p0"),
        ],
        late_deletes=True,
    )


def commit_after_json_checkpoint(author: Author, source: random.Random) -> Scenario:
    """A commit comes when its version was cleaned up, and a JSON checkpoint is all that is left of that.

    Only for runs with different formats of states: it is not among those that every run draws from.
    """
    slow = source.choice(("append", "append", "drop partition", "overwrite", "merge"))
    checkpoint = Checkpoint("checkpoint", {"state.format": "json"})
    after = map(author.operation, source.choices(("append", "append", "read"), k=source.randrange(1, 3)))
    return Scenario(
        [
            [author.operation(slow)],
            [author.operation("append"), checkpoint, *after, Purge("purge", log_hours=0)],
            [author.operation("read")],
        ],
        [Trigger([source.choice((Fault.PAUSE, Fault.LONG_PAUSE))], 1, call="create version", only="p0")],
    )


SCENARIOS: tuple[Callable[[Author, random.Random], Scenario], ...] = (
    unknown_then_refused,
    restore_during_purge,
    pointer_goes_back,
    truncation_of_another_table,
    slow_checkpoint,
    checkpoint_during_truncation,
    deletions_arrive_late,
    state_of_the_same_version_again,
)
