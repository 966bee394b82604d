"""Trials: a small table is damaged at random, and queries must not notice, or say what is damaged."""

import datetime as dt
import decimal
import json
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

import indextables
from indextables import diagnostics
from tests.corruption.damage import damaged

WORDS = ["alpha", "beta", "gamma", "delta", "error", "timeout", "retry", "server7"]
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("p", pa.string()),
        ("s", pa.string()),
        ("u", pa.string()),
        ("m", pa.string()),
        ("x", pa.float64()),
        ("d", pa.decimal128(10, 2)),
        ("ts", pa.timestamp("us", "UTC")),
        ("b", pa.bool_()),
        ("st", pa.struct([("a", pa.int32()), ("t", pa.string())])),
        ("l", pa.list_(pa.string())),
    ]
)
OPTIONS = {"indexing.typemap.m": "text", "write.rowGroupSize": "16K", "write.pageSize": "2K"}
ROWS = 150
PLAIN = {"transaction.compression.enabled": "false"}


def _rows(start: int, count: int) -> pa.Table:
    random = Random(start)
    begin = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    return pa.Table.from_pylist(
        [
            {
                "id": i,
                "p": "ab"[i % 2],
                "s": random.choice(WORDS),
                "u": f"{random.getrandbits(64):016x}",
                "m": " ".join(random.choices(WORDS, k=6)),
                "x": random.random() * 100,
                "d": decimal.Decimal(random.randint(0, 9999)).scaleb(-2),
                "ts": begin + dt.timedelta(seconds=random.randint(0, 10**6)),
                "b": random.random() < 0.5,
                "st": {"a": random.randint(0, 9), "t": random.choice(WORDS)},
                "l": random.choices(WORDS, k=random.randint(0, 3)),
            }
            for i in range(start, start + count)
        ],
        SCHEMA,
    )


def make_table(folder: Path) -> None:
    """A table of several versions in both forms, with two states, of which the last has a filter bundle."""
    for number, more in enumerate((PLAIN, PLAIN, {}, {})):
        rows = _rows(number * ROWS, ROWS).slice(0, ROWS if number else 1)
        indextables.write(folder, rows, partition_by=["p"], options={**OPTIONS, **more})
        if number in (0, 2):
            indextables.sql(f"CHECKPOINT INDEXTABLES '{folder}'")
    (bundle,) = indextables.open(folder)._log.snapshot().filter_bundles
    assert bundle.splits == 5


# A value that one row has.
RARE = _rows(ROWS, ROWS)["u"][7].as_py()
CONDITIONS = {
    # Filter bundles exclude splits for these.
    "rare": f"u = '{RARE}'",
    "absent": f"m TEXTSEARCH 'nowhere' OR u IN ('{RARE}', 'nothing')",
    "search": "m TEXTSEARCH 'alpha AND \"error timeout\"'",
    "compare": "s = 'gamma' AND x < 30 AND ts >= TIMESTAMP '2024-01-05 00:00:00'",
    "nested": "st.a = 3 OR l INDEXQUERY 'retry'",
    "like": "s LIKE '%el%' AND NOT b",
    "range": "id BETWEEN 290 AND 320",
    "partition": "p = 'a' AND d > 50",
}


def questions() -> dict[str, Callable[[indextables.Table], Any]]:
    """What is asked of the table; each gives something that can be compared."""
    asked: dict[str, Callable[[indextables.Table], Any]] = {
        "all": lambda table: sorted(map(str, table.scan().to_pylist())),
        "few": lambda table: sorted(map(str, table.scan(where="id IN (0, 222, 299, 444)").to_pylist())),
        "count": lambda table: table.count(),
        "first version": lambda table: indextables.open(table._snapshot.url, version=1).count(),
        "sum": lambda table: sorted(
            map(
                str,
                table.aggregate(
                    {"n": "count(*)", "a": "sum(d)", "low": "min(x)"},
                    group_by=["s"],
                    where="m TEXTSEARCH 'beta'",
                ).to_pylist(),
            )
        ),
        "best": lambda table: table.search("error timeout", field="m", limit=20)["id"].to_pylist(),
    }
    for name, where in CONDITIONS.items():
        asked[name] = lambda table, where=where: sorted(
            table.scan(columns=["id"], where=where)["id"].to_pylist()
        )
    return asked


def opened(folder: Path) -> indextables.Table:
    return indextables.open(folder / "t", options={"cache.disk.path": str(folder / "cache")})


def answers(folder: Path) -> dict[str, Any]:
    """The answer to every question; an error of ours stands as the answer itself."""
    try:
        table = opened(folder)
    except indextables.IndexTablesError as error:
        return dict.fromkeys(questions(), error)
    found: dict[str, Any] = {}
    for name, ask in questions().items():
        try:
            found[name] = ask(table)
        except indextables.IndexTablesError as error:
            found[name] = error
    return found


@dataclass(frozen=True)
class Trial:
    """What was damaged, and how."""

    seed: int
    number: int
    file: str
    kind: str

    def __str__(self) -> str:
        return f"seed {self.seed}, trial {self.number}: {self.kind} of {self.file}"


def _problems(folder: Path, trial: Trial, right: dict[str, Any], *, heals: bool) -> Iterator[str]:
    for name, answer in answers(folder).items():
        if isinstance(answer, indextables.IndexTablesError):
            if heals:
                yield f"{trial}: {name} failed, though the split could answer: {answer}"
            elif Path(trial.file).name not in str(answer):
                yield f"{trial}: the error of {name} does not name the file: {answer}"
        elif answer != right[name]:
            yield f"{trial}: {name} gave a wrong answer"


def run_trials(model: Path, work: Path, seed: int, numbers: range) -> Iterator[str]:
    """Damage a copy of the table, once in each trial; gives what went wrong, and the trial before it is run."""
    right = answers(model)
    assert not any(isinstance(answer, Exception) for answer in right.values()), right
    for number in numbers:
        random = Random(f"{seed}-{number}")
        folder = work / f"trial-{number}"
        shutil.copytree(model / "t", folder / "t")
        in_cache = random.random() < 0.25
        if in_cache or random.random() < 0.3:
            # The process has opened everything before it is damaged.
            answers(folder)
            if in_cache and random.random() < 0.7:
                diagnostics.flush_searchers()
        part = (
            folder / "cache" / "entries"
            if in_cache
            else folder / "t" / random.choice(("", "_transaction_log"))
        )
        files = sorted(
            path
            for path in part.rglob("*")
            if path.is_file()
            and path.stat().st_size
            and (in_cache or "_transaction_log" in str(part) or path.suffix == ".split")
        )
        path = random.choice(files)
        data, kind = damaged(path.read_bytes(), random)
        trial = Trial(seed, number, str(path.relative_to(folder)), kind)
        yield f"run {trial}"
        path.write_bytes(data)
        try:
            for problem in _problems(folder, trial, right, heals=in_cache):
                yield f"problem {problem}"
        except BaseException as error:  # noqa: BLE001 - a panic of a library is no Exception
            last = traceback.format_tb(error.__traceback__)[-1].strip()
            yield f"problem {trial}: {type(error).__name__}: {error}\n{last}"
        diagnostics.flush_searchers()
        shutil.rmtree(folder)


if __name__ == "__main__":
    model, work, seed, first, last = sys.argv[1:]
    for line in run_trials(Path(model), Path(work), int(seed), range(int(first), int(last))):
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
