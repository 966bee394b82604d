"""Random histories of a folder of Parquet files: files come, go and are replaced; syncs and merges run at once.

Expected rows are those that were written. A failure names its seed, and `INDEXTABLES_QUERY_SEED` repeats it; the
order of threads is not repeated.
"""

import os
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import indextables
from indextables.errors import CommitConflictError, SourceChangedError

WORDS = ["disk", "full", "slow", "login"]
STEPS = 12
LATEST = {"companion.freshness": "latest"}
SEED = int(os.environ.get("INDEXTABLES_QUERY_SEED") or random.SystemRandom().randrange(1_000_000))

Row = tuple[int, str | None, str]


class Folder:
    """A partitioned folder of Parquet files that random operations change."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path = path
        self.random = random.Random(seed)
        self.files: dict[str, pa.Table] = {}
        self.next = 0
        self.add(0)

    def add(self, step: int) -> None:
        self.write(f"day={self.random.choice('abc')}/part-{step}.parquet", self.random.randint(1, 9))

    def write(self, name: str, count: int) -> None:
        numbers = range(self.next, self.next + count)
        self.next += count
        messages = [
            None if self.random.random() < 0.1 else " ".join(self.random.choices(WORDS, k=3)) for _ in numbers
        ]
        rows = pa.table({"id": pa.array(numbers, pa.int64()), "message": pa.array(messages, pa.string())})
        (self.path / name).parent.mkdir(parents=True, exist_ok=True)
        beside = self.path.parent / "unfinished"
        pq.write_table(rows, beside, row_group_size=self.random.choice([2, 1000]))
        beside.rename(self.path / name)
        self.files[name] = rows

    def change(self, step: int) -> str:
        operation = self.random.choice(["add", "add", "replace", "delete"])
        name = self.random.choice(list(self.files))
        if operation == "replace":
            self.write(name, self.files[name].num_rows)
        elif operation == "delete" and len(self.files) > 1:
            (self.path / name).unlink()
            del self.files[name]
        else:
            self.add(step)
        return f"{operation} {name}"

    def rows(self) -> list[Row]:
        return sorted(
            (row["id"], row["message"], name.partition("/")[0].removeprefix("day="))
            for name, table in self.files.items()
            for row in table.to_pylist()
        )


def check(index: Path, expected: list[Row], words: random.Random, label: str, **options: str) -> None:
    table = indextables.open(index, options=options)

    def rows(where: str | None = None) -> list[Row]:
        return sorted((row["id"], row["message"], row["day"]) for row in table.scan(where=where).to_pylist())

    assert rows() == expected, label
    word = words.choice(WORDS)
    having = [row for row in expected if row[1] and word in row[1].split()]
    assert table.count(f"message INDEXQUERY '{word}'") == len(having), label
    assert rows(f"message INDEXQUERY '{word}' AND day <> 'b'") == [row for row in having if row[2] != "b"], (
        label
    )
    (whole,) = table.aggregate({"n": "count(*)", "last": "max(id)"}).to_pylist()
    assert whole == {"n": len(expected), "last": max(row[0] for row in expected)}, label


def together(*works: Callable[[], object]) -> None:
    """Run functions at once; one that another one overtakes again and again may give up."""
    with ThreadPoolExecutor(len(works)) as threads:
        for error in [each.exception() for each in [threads.submit(work) for work in works]]:
            assert error is None or isinstance(error, CommitConflictError), repr(error)


@pytest.mark.parametrize("number", [0, 1])
def test_random_histories_of_folders(number: int, tmp_path: Path) -> None:
    # Test processes have seeds of their own, so a seed cannot be part of the test's name.
    seed = number and SEED
    folder, at = Folder(tmp_path / "source", seed), tmp_path / "index"

    def sync() -> None:
        size = folder.random.choice([1, 3000, 1 << 20])
        indextables.companion(folder.path, at=at, modes={"message": "text"}, target_size=size)

    def merge() -> None:
        # It reads files of the version that was synced, which may be gone.
        with suppress(SourceChangedError):
            indextables.open(at).merge()

    sync()
    history: list[str] = []
    for step in range(1, STEPS + 1):
        history.append(folder.change(step))
        label = f"seed {seed}, step {step}: {', '.join(history)}"
        check(at, folder.rows(), folder.random, f"latest, {label}", **LATEST)
        if folder.random.random() < 0.5:
            works: list[Callable[[], object]] = [sync] * folder.random.choice([1, 3])
            if folder.random.random() < 0.4:
                works.append(merge)
            history.append(f"{len(works)} at once")
            together(*works)
            # The last one may have given up.
            sync()
            check(at, folder.rows(), folder.random, f"synced, {label}")
