"""Rows that versions inserted and deleted, compared with the table itself at every version."""

import math
import random
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import indextables as it
from indextables.errors import (
    HistoryExpiredError,
    IndexTablesError,
    OptionError,
    SchemaError,
    TableReplacedError,
    VersionNotFoundError,
)
from indextables.log.format import version_file
from indextables.log.format.actions import Add, CommitInfo, Remove
from indextables.log.format.names import version_file as version_path
from indextables.log.snapshot_cache import invalidate
from indextables.table import Table

OPTIONS = {"indexing.typemap.message": "text", "checkpoint.interval": 3}


def rows(*numbers: int, day: str = "a") -> list[dict[str, Any]]:
    return [{"id": n, "message": f"row {n} of day {day}", "day": day} for n in numbers]


def write(
    path: Path, *numbers: int, day: str = "a", mode: str = "append", options: Mapping[str, object] = OPTIONS
) -> it.Table:
    merged = {**OPTIONS, **options}
    return it.write(path, rows(*numbers, day=day), mode=mode, partition_by=["day"], options=merged)


def counted(table: pa.Table) -> Counter[Any]:
    """Rows of the table's own columns, with how often each is there."""
    own = table.drop_columns([n for n in table.column_names if n.startswith("_")])
    return Counter(tuple(row.items()) for row in own.to_pylist())


def applied(changes: pa.Table, to: Counter[Any] | None = None) -> Counter[Any]:
    """A table after changes."""
    after = Counter(to or ())
    for (kind, row), n in Counter(
        zip(
            changes["_change_type"].to_pylist(),
            (tuple(r.items()) for r in changes.select(["id", "message", "day"]).to_pylist()),
            strict=True,
        )
    ).items():
        after[row] += n if kind == "insert" else -n
    assert min(after.values(), default=0) >= 0, "a row was deleted that was not there"
    return +after


def shown(changes: pa.Table) -> list[tuple[Any, ...]]:
    names = ["_commit_version", "_change_type", "id"]
    return sorted(zip(*(changes[name].to_pylist() for name in names), strict=True))


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Versions 1 to 3: appends; 4: merge; 5: a partition is dropped; 6: overwrite; 7: restore of version 4."""
    path = tmp_path_factory.mktemp("changes") / "t"
    write(path, 1, 2)
    write(path, 3, day="b")
    table = write(path, 4)
    table.merge()
    table.drop_partitions("day = 'b'")
    write(path, 9, mode="overwrite")
    table.restore(version=4)
    return table.refresh()


def test_each_kind_of_commit_has_its_changes(table: Table) -> None:
    operations = dict(zip(*(table.history()[n].to_pylist() for n in ("version", "operation")), strict=True))
    assert [operations[v] for v in range(8)] == [
        *("CREATE TABLE", "WRITE", "WRITE", "WRITE", "MERGE SPLITS", "DROP PARTITIONS"),
        *("OVERWRITE", "RESTORE"),
    ]
    assert shown(table.changes(-1)) == sorted(
        [
            *((1, "insert", 1), (1, "insert", 2), (2, "insert", 3), (3, "insert", 4)),
            (5, "delete", 3),
            *((6, "delete", 1), (6, "delete", 2), (6, "delete", 4), (6, "insert", 9)),
            *((7, "delete", 9), (7, "insert", 1), (7, "insert", 2), (7, "insert", 3), (7, "insert", 4)),
        ]
    )


def test_a_range_excludes_its_start_and_includes_its_end(table: Table) -> None:
    assert shown(table.changes(2, 5)) == [(3, "insert", 4), (5, "delete", 3)]
    assert shown(table.changes(3, 4)) == [], "a merge changes nothing"
    assert shown(table.changes(7)) == []
    older = it.open(table.url, version=3)
    assert {v for v, _, _ in shown(older.changes(1))} == {2, 3}, "no further than the version that is open"


def test_times_stand_for_versions(table: Table) -> None:
    stamps = dict(zip(*(table.history()[n].to_pylist() for n in ("version", "timestamp")), strict=True))
    assert shown(table.changes(stamps[2], stamps[3])) == [(3, "insert", 4)]
    just_before = stamps[3] - timedelta(milliseconds=1)
    assert shown(table.changes(just_before, 3)) == [(3, "insert", 4)]
    assert shown(table.changes("1999-01-01")) == shown(table.changes(-1))
    assert shown(table.changes(datetime.now(UTC) + timedelta(days=1))) == []
    times = table.changes(2, 3)["_commit_timestamp"]
    assert times.type == pa.timestamp("us", tz="UTC")
    assert times.to_pylist() == [stamps[3]]


def test_conditions_searches_and_columns_work_on_changes(table: Table) -> None:
    found = table.changes(-1, where="_change_type = 'delete' AND message INDEXQUERY 'row'", columns=["ID"])
    assert sorted(found["id"].to_pylist()) == [1, 2, 3, 4, 9]
    assert found.column_names == ["id"]
    assert table.changes(-1, where="_commit_version = 6 AND id = 9").num_rows == 1
    assert table.changes(-1, where="indexqueryall('insert')").num_rows == 0, (
        "a change is no text of the table"
    )
    with pytest.raises(it.IndexTablesError, match="no column 'nope'"):
        table.changes(-1, columns=["nope"])


@pytest.mark.parametrize(("since", "until"), [(-2, None), (8, None), (5, 3)])
def test_a_range_that_is_none_is_refused(table: Table, since: int, until: int | None) -> None:
    with pytest.raises(OptionError, match="changes cannot start after version"):
        table.changes(since, until)


def test_a_version_that_never_was_is_refused(table: Table) -> None:
    with pytest.raises(VersionNotFoundError, match=r"version 8 .*versions 0 to 7 can be read"):
        table.changes(0, 8)
    with pytest.raises(VersionNotFoundError, match="the version of 1999-01-01"):
        table.changes(-1, "1999-01-01")


def test_an_end_after_the_version_that_is_open_is_refused(table: Table) -> None:
    with pytest.raises(OptionError, match=r"cannot end at version 4: .*was opened at version 3"):
        it.open(table.url, version=3).changes(1, 4)


@pytest.mark.parametrize("time", [date(2026, 5, 1), 2.5, None])
def test_a_start_that_is_neither_a_version_nor_a_time_is_refused(table: Table, time: Any) -> None:
    with pytest.raises(OptionError, match="is no time: give a datetime"):
        table.changes(time)


def test_changes_are_never_those_of_another_table(tmp_path: Path) -> None:
    """A table was opened, and another one with as many versions took its place."""
    path = tmp_path / "t"
    write(path, 0)
    write(path, 1)
    opened = write(path, 2)
    for n in range(5):
        write(tmp_path / "other", 20 + n)
    assert len(opened.changes(-1)) == 3
    path.rename(tmp_path / "gone")
    (tmp_path / "other").rename(path)
    for since in (-1, 1):
        with pytest.raises(TableReplacedError, match="opened at version 3 was deleted and created again"):
            opened.changes(since)
    assert len(it.open(path).changes(-1)) == 5


def test_changes_add_up_to_every_version(tmp_path: Path) -> None:
    """Random operations; the changes up to each version, applied to nothing, are the table at it."""
    dice = random.Random(16)
    path = tmp_path / "t"
    table = write(path, 0)
    for number in range(1, 25):
        day = dice.choice("ab")
        match dice.randrange(8):
            case 0 | 1 | 2:
                write(path, number, day=day)
            case 3:
                write(path, number, day=day, mode="overwrite", options={"partitionOverwriteMode": "dynamic"})
            case 4:
                write(path, number, day=day, mode="overwrite")
            case 5:
                table.merge()
            case 6:
                table.drop_partitions(f"day = '{day}'")
            case _:
                table.restore(version=dice.randrange(1, table.refresh().version + 1))
    table = table.refresh()
    assert table.version > 12
    content: Counter[Any] = Counter()
    for version in range(table.version + 1):
        content = applied(table.changes(version - 1, version), content)
        assert content == counted(it.open(path, version=version).scan()), version
    assert applied(table.changes(-1)) == counted(table.scan())


def test_history_that_is_gone_is_an_error_that_says_where_to_start(tmp_path: Path) -> None:
    path = tmp_path / "t"
    for number in range(1, 5):
        write(path, number)
    it.open(path).truncate()
    invalidate()
    table = write(path, 5, options={"checkpoint.enabled": False})
    with pytest.raises(HistoryExpiredError, match=r"changes of version 1 .*continue after version 5") as gone:
        table.changes(0)
    assert gone.value.earliest == 5
    with pytest.raises(HistoryExpiredError, match="versions 5 to 5 can be read"):
        table.changes("1999-01-01")
    assert shown(table.changes(4)) == [(5, "insert", 5)]
    write(path, 6, mode="overwrite")
    assert {(kind, n) for v, kind, n in shown(table.refresh().changes(5))} == {
        *(("delete", n) for n in range(1, 6)),
        ("insert", 6),
    }


def test_rows_of_removed_splits_are_kept_by_a_purge_as_long_as_their_version_can_be_read(
    tmp_path: Path,
) -> None:
    path = tmp_path / "t"
    write(path, 1)
    table = write(path, 2, mode="overwrite")
    before = shown(table.changes(-1))
    unsafe = {"purge.retentionCheckEnabled": False}
    it.open(path, options=unsafe).purge(older_than=timedelta(0))
    assert shown(table.changes(-1)) == before


def test_columns_that_came_later_are_null_in_earlier_rows(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write(path, 1)
    table = it.write(path, [{"id": 2, "day": "a", "more": 7}], options={"mergeSchema": True})
    found = table.changes(-1)
    assert sorted(zip(found["id"].to_pylist(), found["more"].to_pylist(), strict=True)) == [(1, None), (2, 7)]


def test_columns_of_another_type_cannot_be_read_as_one_table(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write(path, 1)
    table = it.write(path, [{"id": "one", "day": "a"}], mode="overwrite", options={"overwriteSchema": True})
    with pytest.raises(SchemaError, match="the column id was long and is string now"):
        table.changes(-1)
    with pytest.raises(SchemaError, match="the column id was long"):
        table.changes(1)
    assert table.changes(-1, 1)["id"].to_pylist() == [1]
    assert table.changes(2).num_rows == 0


def test_a_column_of_the_name_of_a_change_is_refused(tmp_path: Path) -> None:
    table = it.write(tmp_path / "t", [{"_change_type": "mine"}])
    with pytest.raises(SchemaError, match="has a column _change_type"):
        table.changes(-1)


def test_actions_of_other_engines_that_change_no_rows_are_no_changes(tmp_path: Path) -> None:
    """A path that is added again, and one that is removed and added in one version."""
    path = tmp_path / "t"
    table = write(path, 1, 2, options={"checkpoint.enabled": False})
    log = path / "_transaction_log"
    actions = version_file.decode((log / version_path(1)).read_bytes(), "")
    (add,) = [a for a in actions if isinstance(a, Add)]
    plain = [a for a in actions if not isinstance(a, CommitInfo | Add)]
    for version, more in (
        (2, [add]),
        (3, [Remove(path=add.path, data_change=True), msgspec.structs.replace(add, size=add.size)]),
        (4, [Remove(path=add.path)]),
        (5, [msgspec.structs.replace(add, data_change=None)]),
    ):
        (log / version_path(version)).write_bytes(version_file.encode([*plain, *more]))
    assert shown(table.refresh().changes(1)) == [
        *((4, "delete", 1), (4, "delete", 2), (5, "insert", 1), (5, "insert", 2))
    ]


def test_follow_yields_the_rows_of_new_versions(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = write(path, 1, 2)
    assert list(table.follow(timeout=0)) == []
    write(path, 3)
    write(path, 13, day="b")
    table.merge()
    write(path, 4, mode="overwrite")
    (found,) = table.follow(timeout=0, columns=["id", "_commit_version"])
    assert found.to_pydict() == {"id": [3, 13, 4], "_commit_version": [2, 3, 5]}
    (found,) = table.follow("3 OR 4", field="message", highlight=["message"], since=-1, timeout=0)
    assert found["id"].to_pylist() == [3, 4]
    assert found["_highlight_message"].to_pylist() == ["row <b>3</b> of day a", "row <b>4</b> of day a"]
    assert list(table.follow("nothing", timeout=0)) == []
    table.truncate()
    with pytest.raises(HistoryExpiredError):
        list(table.follow(since=0, timeout=0))


@pytest.mark.parametrize("versions", [2, 9])
def test_following_ends_when_another_table_takes_the_place(tmp_path: Path, versions: int) -> None:
    """The other one has fewer versions than were read, or more."""
    table = write(tmp_path / "t", 1)
    for n in range(4):
        write(tmp_path / "t", 10 + n)
    for n in range(versions):
        write(tmp_path / "other", 20 + n)
    following = table.refresh().follow(since=-1, timeout=5, interval=0.01)
    watching = table.refresh().watch({"any": "row"}, timeout=5, interval=0.01)
    assert len(next(following)) == 5
    (tmp_path / "t").rename(tmp_path / "gone")
    (tmp_path / "other").rename(tmp_path / "t")
    invalidate()
    for rows in (following, watching):
        with pytest.raises(TableReplacedError, match=r"deleted and created again.*open it again"):
            next(rows)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"query": "row AND ("}, "row AND"),
        ({"query": "nope:row"}, "nope"),
        ({"query": "row", "field": "nope"}, "nope"),
        ({"where": "nope = 1"}, "nope"),
        ({"where": "message INDEXQUERY '(('"}, r"\(\("),
        ({"columns": ["nope"]}, "nope"),
        ({"query": "row", "highlight": ["id"]}, "id"),
    ],
)
def test_following_refuses_what_no_row_can_be_found_with_before_it_waits(
    tmp_path: Path, arguments: dict[str, Any], problem: str
) -> None:
    table = write(tmp_path / "t", 1)
    with pytest.raises(IndexTablesError, match=problem):
        table.follow(**arguments)
    with pytest.raises(SchemaError, match="nope"):
        table.watch({"any": "row"}, columns=["nope"])
    assert table.follow("row", columns=["id", "_commit_version"]) is not None


def test_following_starts_at_a_version_of_the_table_only(tmp_path: Path) -> None:
    table = write(tmp_path / "t", 1)
    for since in (-2, 2):
        for rows in (
            table.follow(since=since, timeout=0),
            table.watch({"any": "row"}, since=since, timeout=0),
        ):
            with pytest.raises(OptionError, match=f"after version {since}: .*from -1 to the last one, 1"):
                next(rows)
    behind = it.open(tmp_path / "t", version=0)
    assert list(behind.follow(since=1, timeout=0)) == [], "a version after the one that is open exists"
    for interval in (-1, 0, math.inf, math.nan):
        with pytest.raises(OptionError, match=f"interval is {interval} seconds"):
            next(table.follow(interval=interval, timeout=1))
    with pytest.raises(OptionError, match="the timeout is not a number"):
        next(table.follow(timeout=math.nan))
