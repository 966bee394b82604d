"""A table as a stream: which splits lie between two offsets, whatever happens to the table meanwhile."""

import shutil
from itertools import chain
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import indextables as it
from indextables import read
from indextables.errors import OptionError, SchemaError
from indextables.log import segment, transaction_log
from indextables.log.snapshot_cache import invalidate
from indextables.log.transaction_log import TransactionLog
from indextables.options import Options
from indextables.read.stream import Offset, StreamError, TableStream
from indextables.store import Store, open_store
from tests.log_tables.build import a_log
from tests.log_tables.watched import WatchedStore


def append(path: Path, *ids: int, **options: object) -> None:
    """One version with a split for each row."""
    rows = [{"id": n, "text": f"row {n}"} for n in ids]
    it.write(path, rows, partition_by=["id"], options={"indexing.typemap.text": "text", **options})


def overwrite(path: Path, *ids: int) -> None:
    rows = pa.table({"id": pa.array(ids, pa.int64()), "text": [f"row {n}" for n in ids]})
    it.write(path, rows.cast(it.open(path).schema), mode="overwrite", partition_by=["id"])


def stream(path: Path, schema: str | None = None, **options: object) -> TableStream:
    checked = Options.parse(options)
    return TableStream(TransactionLog(open_store(str(path)), checked, engine="test"), checked, schema)


def ids(source: TableStream, start: Offset, end: Offset) -> list[int]:
    """The rows between two offsets, in the order of versions."""
    found = read.scan(source.snapshot(start, end), source._log.store, Options()).read_all()
    result: list[int] = found["id"].to_pylist()
    return result


def batches(source: TableStream, start: Offset) -> list[list[int]]:
    """The rows of micro-batches until nothing is left; each place is read from its text."""
    found = []
    while (end := source.latest(start)) != start:
        assert Offset.from_json(end.to_json()) == end
        found.append(sorted(ids(source, start, end)))
        start = end
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t"


def test_a_stream_starts_with_the_table_and_goes_on_with_changes(path: Path) -> None:
    append(path, 1, 2)
    append(path, 3)
    source = stream(path)
    start = source.start(None)
    first = source.latest(start)
    assert sorted(ids(source, start, first)) == [1, 2, 3]
    assert source.latest(first) == first, "nothing new"
    append(path, 4)
    second = source.latest(first)
    assert ids(source, first, second) == [4]
    assert sorted(ids(source, start, first)) == [1, 2, 3], "the same after a restart"
    assert sorted(ids(source, start, second)) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"maxFilesPerTrigger": 2}, [[1, 2], [3, 4], [5, 6], [7, 8]]),
        ({"maxFilesPerTrigger": 3}, [[1, 2, 3], [4, 5, 6], [7, 8]]),
        ({"maxBytesPerTrigger": 1}, [[1], [2], [3], [4], [5], [6], [7], [8]]),
        ({"maxVersionsPerTrigger": 1}, [[1, 2, 3], [4, 5], [6, 7, 8]]),
        ({"maxVersionsPerTrigger": 2}, [[1, 2, 3, 4, 5], [6, 7, 8]]),
        ({"maxVersionsPerTrigger": 1, "maxFilesPerTrigger": 2}, [[1, 2], [3], [4, 5], [6, 7], [8]]),
        ({}, [[1, 2, 3, 4, 5, 6, 7, 8]]),
    ],
)
def test_limits_divide_snapshots_and_versions(path: Path, options: Any, expected: list[list[int]]) -> None:
    """The same for the initial snapshot and for versions from the start; a restart after each batch."""
    append(path, 1, 2, 3)
    initial = stream(path, **options).start(None)
    append(path, 4, 5)
    append(path, 6, 7, 8)
    found = batches(stream(path, **options), initial)
    assert [len(batch) for batch in found] == [len(batch) for batch in expected]
    assert sorted(chain.from_iterable(found)) == list(range(1, 9))
    assert sorted(chain.from_iterable(batches(stream(path, **options), stream(path).start(1)))) == list(
        range(1, 9)
    )


def test_available_now_ends_at_its_version_and_once_ignores_limits(path: Path) -> None:
    append(path, 1, 2, 3)
    source = stream(path, maxFilesPerTrigger=1)
    start = source.start(None)
    until = source.end().version - 1
    append(path, 4)
    end = source.latest(start, unlimited=True, until=until)
    assert sorted(ids(source, start, end)) == [1, 2, 3]
    assert source.latest(end, until=until) == end
    assert source.backlog(end).splits == 1
    assert source.backlog(start).versions == 2
    assert source.backlog(source.end()) == type(source.backlog(end))()


def test_available_now_reads_the_version_that_it_starts_with(path: Path) -> None:
    """A version that is committed after the last one was looked up, and before the start is."""
    append(path, 1, 2)
    source = stream(path, maxFilesPerTrigger=2)
    until = source.end().version - 1
    append(path, 3)
    start = source.start(None)
    first = source.latest(start, until=until)
    second = source.latest(first, until=until)
    assert sorted(ids(source, start, first)) == [1, 2]
    assert ids(source, first, second) == [3]
    append(path, 4)
    assert source.latest(second, until=until) == second


def test_merges_and_checkpoints_produce_nothing(path: Path) -> None:
    append(path, 1)
    append(path, 1)
    source = stream(path)
    start = source.latest(source.start(None))
    it.open(path).merge()
    it.open(path).checkpoint()
    end = source.latest(start)
    assert end.version > start.version, "the merge need not be looked at again"
    assert ids(source, start, end) == []


def test_the_initial_snapshot_stays_the_same_while_the_table_is_merged_and_checkpointed(path: Path) -> None:
    for n in range(4):
        append(path, n % 2, 10 + n)
    source = stream(path, maxFilesPerTrigger=3)
    start = source.start(None)
    first = source.latest(start)
    before = ids(source, start, first)
    it.open(path).merge()
    it.open(path).checkpoint()
    invalidate()
    assert ids(stream(path), start, first) == before
    assert sorted(chain.from_iterable(batches(source, start))) == [0, 0, 1, 1, 10, 11, 12, 13]


def test_rows_before_a_version_that_deletes_are_read_first(path: Path) -> None:
    append(path, 1)
    source = stream(path)
    start = source.latest(source.start(None))
    append(path, 2)
    it.open(path).drop_partitions("id = 1")
    end = source.latest(start)
    assert ids(source, start, end) == [2]
    with pytest.raises(StreamError, match=r"version 3 \(DROP PARTITIONS\).*deleted rows.*ignoreDeletes=true"):
        source.latest(end)
    assert source.backlog(end).versions == 1, "the backlog can be counted though the stream stands"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"ignoreDeletes": True}, None),
        ({"ignoreChanges": True}, [1, 2, 3, 4, 5, 6]),
        ({"skipChangeCommits": True}, [1, 2, 6]),
        ({"ignoreDeletes": True, "skipChangeCommits": True}, [1, 2, 6]),
        ({"readChanges": True}, [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6]),
    ],
)
def test_deletes_and_overwrites_stop_the_stream_unless_an_option_allows_them(
    path: Path, options: dict[str, Any], expected: list[int] | None
) -> None:
    append(path, 1, 2)
    source = stream(path, **options)
    start = source.start(None)
    it.open(path).drop_partitions("id = 1")
    overwrite(path, 3, 4, 5)
    overwrite(path)
    append(path, 6)
    if expected is None:
        end = source.latest(start)
        assert sorted(ids(source, start, end)) == [1, 2]
        with pytest.raises(StreamError, match=r"replaced rows.*ignoreChanges=true .*skipChangeCommits=true"):
            source.latest(end)
    else:
        assert sorted(chain.from_iterable(batches(source, start))) == expected


def test_changes_as_a_stream_have_their_columns(path: Path) -> None:
    append(path, 1)
    source = stream(path, readChanges=True)
    start = source.start(None)
    overwrite(path, 2)
    rows = read.scan(source.snapshot(start, source.latest(start)), source._log.store, Options()).read_all()
    found = sorted(
        zip(*(rows[n].to_pylist() for n in ("_commit_version", "_change_type", "id")), strict=True)
    )
    assert found == [(1, "insert", 1), (2, "delete", 1), (2, "insert", 2)]


def test_history_that_is_gone_stops_the_stream_or_is_skipped(path: Path) -> None:
    append(path, 1)
    source = stream(path)
    start = source.latest(source.start(None))
    for n in range(2, 6):
        append(path, n)
    it.open(path).truncate()
    invalidate()
    with pytest.raises(StreamError, match=r"changes of version 2 .*failOnDataLoss=false.*startingVersion=6"):
        source.latest(start)
    lenient = stream(path, failOnDataLoss=False)
    assert batches(lenient, start) == [[]], "no version is left whose changes can be read"
    append(path, 6, **{"checkpoint.enabled": False})
    assert batches(lenient, start)[-1][-1] == 6


def test_more_versions_than_are_read_at_once_can_be_gone(path: Path) -> None:
    """The first version that can be read is behind all that one look at the log covers."""
    append(path, 0)
    source = stream(path)
    start = source.latest(source.start(None))
    for n in range(1, 130):
        append(path, n, **{"checkpoint.interval": 50})
    before = source.latest(start)
    it.open(path).truncate()
    invalidate()
    for n in range(130, 133):
        append(path, n, **{"checkpoint.enabled": False})
    with pytest.raises(StreamError, match=r"changes of version 2 .*startingVersion=131"):
        source.latest(start)
    lenient = stream(path, failOnDataLoss=False)
    end = lenient.latest(start)
    assert end.version == 134
    assert ids(lenient, start, end) == [130, 131, 132]
    assert lenient.backlog(start).splits == 3
    assert lenient.backlog(start).versions == 3
    assert ids(lenient, start, before) == [], "a batch that was planned before its versions were gone"
    assert batches(source, source.start(131)) == [[130, 131, 132]], "what the error advises"
    limited = stream(path, failOnDataLoss=False, maxFilesPerTrigger=2)
    assert batches(limited, start) == [[130, 131], [132]]
    assert lenient.latest(start, until=100).version > 100, "the end of a stream that reads to version 100"


def test_an_initial_snapshot_that_is_gone_stops_the_stream_or_is_left_out(path: Path) -> None:
    append(path, 1, 2, 3)
    source = stream(path, maxFilesPerTrigger=1)
    start = source.start(None)
    first = source.latest(start)
    assert (first.index, first.initial) == (1, True)
    append(path, 4)
    it.open(path).truncate()
    invalidate()
    append(path, 5, **{"checkpoint.enabled": False})
    with pytest.raises(StreamError) as problem:
        stream(path).latest(first)
    for part in ("version 1 of the table at", "startingVersion=4", "failOnDataLoss=false", "checkpoint"):
        assert part in str(problem.value)
    with pytest.raises(StreamError, match="cannot be read any more"):
        stream(path).snapshot(start, first)
    lenient = stream(path, failOnDataLoss=False)
    assert batches(lenient, first) == [[4, 5]], "the changes after that version"
    assert lenient.backlog(first).splits == 2
    assert ids(lenient, start, first) == []


def test_new_columns_stop_the_stream_until_it_starts_again(path: Path) -> None:
    append(path, 1)
    schema = it.open(path)._snapshot.metadata.schema_string
    source = stream(path, schema)
    start = source.start(None)
    append(path, 2)
    it.write(path, [{"id": 3, "text": "x", "more": 1}], options={"mergeSchema": True})
    end = source.latest(start)
    assert sorted(ids(source, start, end)) == [1, 2]
    with pytest.raises(SchemaError, match=r"by version 3: the column more was added; start the query again"):
        source.latest(end)
    again = stream(path, it.open(path)._snapshot.metadata.schema_string)
    assert ids(again, end, again.latest(end)) == [3]


def test_columns_of_another_type_cannot_be_passed(path: Path) -> None:
    append(path, 1)
    start = stream(path).start(1)
    it.write(path, [{"id": "a"}], mode="overwrite", options={"overwriteSchema": True})
    now = it.open(path)._snapshot.metadata.schema_string
    again = stream(path, now, ignoreChanges=True)
    with pytest.raises(SchemaError, match="the column id was long and is string now; start with another"):
        again.latest(start)


def test_another_table_at_the_same_place_is_recognised(path: Path) -> None:
    append(path, 1)
    append(path, 2)
    source = stream(path)
    start = source.latest(source.start(None))
    shutil.rmtree(path)
    invalidate()
    append(path, 1)
    with pytest.raises(StreamError, match="deleted and created again"):
        source.latest(start)
    with pytest.raises(StreamError, match="older state of it"):
        source.latest(Offset.start(it.open(path)._snapshot.metadata.id, 9))


@pytest.mark.parametrize("first", [None, "latest", 1])
def test_the_first_batch_has_the_same_rows_when_it_is_repeated(path: Path, first: int | str | None) -> None:
    """Spark does not keep where the first micro-batch began; it asks again, and the table has changed."""
    append(path, 1, 2)
    source = stream(path)

    def start() -> Offset:
        version: Any = source.end().version if first == "latest" else first
        return source.start(version)

    before = start()
    append(path, 3)
    end = source.latest(before)
    rows = ids(source, before, end)
    append(path, 4)
    overwrite(path, 5)
    assert ids(stream(path), start(), end) == rows
    assert 3 in rows


def test_starts_and_offsets_that_are_none_are_refused(path: Path) -> None:
    append(path, 1)
    source = stream(path)
    assert source.start(2) == source.end()
    with pytest.raises(OptionError, match="cannot start at version 3"):
        source.start(3)
    good = source.end().to_json()
    for text in (
        "",
        "[]",
        "7",
        '{"version": 1}',
        good.replace("2", '"2"'),
        good.replace("2", "-2"),
        good[:-1],
    ):
        with pytest.raises(StreamError, match="no offset of a stream"):
            Offset.from_json(text)


def test_a_look_for_new_versions_lists_the_log_a_few_times_and_never_whole(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many versions there are; of each listing only what follows the stream's place is looked at."""
    append(path, 0)
    source = stream(path)
    place = source.latest(source.start(None))
    for n in range(1, 25):
        append(path, n)
    place = source.latest(place)
    append(path, 25)
    store = WatchedStore(open_store(str(path)))
    watched = TableStream(a_log(store), Options())
    for module in (segment, transaction_log):
        monkeypatch.setattr(module, "full_listing", lambda *_: pytest.fail("the whole log is listed"))
    latest, end, backlog = watched.progress(place)
    assert (latest.version, end.version, backlog.versions) == (27, 27, 0)
    assert len(store.watch.of("list")) <= 4
    assert watched.snapshot(place, latest).files().num_rows == 1


def test_the_backlog_of_a_stream_far_behind_reads_each_version_once(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(12):
        append(path, n)
    monkeypatch.setattr("indextables.read.stream._WINDOW", 2)
    store = WatchedStore(open_store(str(path)))
    options = Options.parse({"maxFilesPerTrigger": 1, "transaction.cache.version.capacity": 0})
    source = TableStream(TransactionLog(cast("Store", store), options, engine="test"), options)
    place = stream(path).start(1)
    for number in range(4):
        store.watch.forget()
        place, _, backlog = source.progress(place)
        versions = [name for name in store.watch.of("get") if name.endswith(".json")]
        assert len(versions) >= 12 if number == 0 else len(versions) <= 4
        assert (place.version, backlog.splits, backlog.versions) == (number + 2, 11 - number, 11 - number)
        files = it.open(path).files()
        later = files.filter(pc.greater_equal(files["addedAtVersion"], place.version))
        assert backlog.size == pc.sum(later["size"]).as_py()
