"""A table of many small splits, cheap to make: one split under many names."""

import os
from pathlib import Path
from typing import Any

import msgspec

import indextables
from indextables.log.format import version_file
from indextables.log.format.actions import Add, Remove
from indextables.log.format.names import version_file as version_path

ROWS = 20
# In every split: rows with `beta`, and with both `beta` and `word3`.
BETA = sum(i % 3 == 0 for i in range(ROWS))


def rows() -> list[Any]:
    return [{"id": i, "m": f"word{i % 7} {'alpha' if i % 3 else 'beta'}", "x": float(i)} for i in range(ROWS)]


def many_splits(folder: Path, count: int) -> None:
    """A table of `count` splits with the same rows each."""
    indextables.write(folder, rows(), options={"indexing.typemap.m": "text"})
    log = folder / "_transaction_log"
    newest = max(path.name for path in log.glob("*.json"))
    actions = version_file.decode((log / newest).read_bytes(), newest)
    (add,) = (action for action in actions if isinstance(action, Add))
    names = [f"part-{number:05}.split" for number in range(count)]
    for name in names:
        os.link(folder / add.path, folder / name)
    gone = Remove(path=add.path, deletion_timestamp=add.modification_time, size=add.size)
    following = version_path(int(newest.partition(".")[0]) + 1)
    adds = [msgspec.structs.replace(add, path=name) for name in names]
    (log / following).write_bytes(version_file.encode([gone, *adds]))
