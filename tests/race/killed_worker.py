"""One process of a run in which processes are killed: it works until then, and notes what it was told.

`python -m tests.race.killed_worker ROLE WHO URL OPTIONS NOTES`: notes are lines of JSON, appended to a file before an
operation begins and after it ended; what has no end when the process is killed may or may not have happened.
"""

import itertools
import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

import indextables
from indextables.errors import CommitUnknownError, CorruptLogError, IndexTablesError

PARTITION = "part"


class Notes:
    """What the process was told, for whoever reads it after its death."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def add(self, **facts: object) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(facts) + "\n")


def write_forever(url: str, who: str, options: dict[str, str], notes: Notes, dice: random.Random) -> None:
    """Append to the partition of this process, and sometimes replace all of its rows."""
    for number in itertools.count():
        row = f"{who}-{time.time_ns()}-{number}"
        replaces = dice.random() < 0.2
        extra = {"partitionOverwriteMode": "dynamic"} if replaces else {}
        notes.add(row=row, replaces=replaces, event="begins")
        told = _outcome(
            lambda row=row, replaces=replaces, extra=extra: indextables.write(
                url,
                [{"id": row, PARTITION: who}],
                mode="overwrite" if replaces else "append",
                partition_by=[PARTITION],
                options={**options, **extra},
            )
        )
        notes.add(row=row, replaces=replaces, event=told)


def maintain_forever(url: str, who: str, options: dict[str, str], notes: Notes, dice: random.Random) -> None:
    """Merge, checkpoint, truncate and purge."""
    while True:
        kind = dice.choice(("merge", "checkpoint", "truncate", "purge"))
        notes.add(maintenance=kind, event="begins")
        notes.add(
            maintenance=kind,
            event=_outcome(lambda kind=kind: getattr(indextables.open(url, options=options), kind)()),
        )


def read_forever(url: str, who: str, options: dict[str, str], notes: Notes, dice: random.Random) -> None:
    """Read the newest version; versions never go back, and a row is never there twice."""
    newest = -1

    def read() -> None:
        nonlocal newest
        if dice.random() < 0.3:
            indextables.invalidate_log_cache()
        table = indextables.open(url, options=options)
        if table.version < newest:
            notes.add(problem=f"version {table.version} was read after version {newest}")
        newest = max(newest, table.version)
        rows = table.scan(["id"])["id"].to_pylist()
        if len(set(rows)) != len(rows):
            notes.add(problem=f"version {table.version} has rows twice")

    while True:
        notes.add(event=_outcome(read))


def _outcome(call: Callable[[], object]) -> str:
    try:
        call()
    except CommitUnknownError:
        return "unknown"
    except CorruptLogError as error:
        return f"corrupt: {error}"
    except IndexTablesError as error:
        return f"failed: {type(error).__name__}: {error}"
    return "done"


_ROLES = {"write": write_forever, "maintain": maintain_forever, "read": read_forever}


def main(role: str, who: str, url: str, options: str, notes: str) -> None:
    _ROLES[role](url, who, json.loads(options), Notes(notes), random.Random())


if __name__ == "__main__":
    main(*sys.argv[1:])
