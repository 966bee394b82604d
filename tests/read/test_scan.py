"""Scans: every row and no other, streamed, with what the log knows put in."""

import datetime as dt
import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indextables
from indextables import read
from indextables.errors import OptionError, SchemaError
from indextables.options import Options
from indextables.predicate import (
    And,
    Column,
    Compare,
    In,
    Like,
    Not,
    Op,
    Or,
    TextMatch,
    TextMatchKind,
    parse_condition,
)
from indextables.read.parallel import in_order
from indextables.read.spec import ScanSpec, SortKey
from indextables.read.table_context import plan_splits
from tests.read.read_tables import Opened, generated, opened

TEXT = {"indexing.typemap.t": "text"}
FIXTURES = Path(__file__).parents[3] / "shared" / "fixtures" / "original-0.5.4"


def table_of(
    tmp_path: Path,
    rows: list[Any],
    *,
    splits: int = 1,
    partition_by: Sequence[Any] = (),
    options: dict[Any, Any] | None = None,
) -> Opened:
    data = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(rows)
    size = -(-data.num_rows // splits)
    for n in range(splits):
        indextables.write(
            tmp_path / "t", data.slice(n * size, size), partition_by=partition_by, options=options
        )
    return opened(tmp_path / "t", data.to_pylist(), tmp_path / "cache")


def scan(table: Any, where: Any = None, **given: Any) -> Any:
    condition = parse_condition(where, table.snapshot.schema) if isinstance(where, str) else where
    return read.scan(table.snapshot, table.store, table.options, where=condition, **given).read_all()


def count(table: Any, where: str) -> Any:
    return table.count(parse_condition(where, table.snapshot.schema))


# --- wrong answers of the original, each by its number in the list of known faults ------------------


def test_1_no_row_is_cut_without_a_limit(tmp_path: Path) -> None:
    table = table_of(tmp_path, [{"id": n, "t": f"w{n % 2}"} for n in range(1000)], options=TEXT)
    assert scan(table).num_rows == 1000
    assert scan(table, "t INDEXQUERY 'w1'").num_rows == 500
    for mode in ("fast", "complete"):
        limited = indextables.open(tmp_path / "t", options={"read.mode": mode, "read.defaultLimit": 250})
        assert limited.scan().num_rows == 1000
    with pytest.raises(OptionError, match=r"read\.mode.*complete, fast"):
        Options.parse({"read.mode": "some"})


def test_4_a_range_on_strings_is_answered_and_not_dropped(tmp_path: Path) -> None:
    table = table_of(tmp_path, [{"s": s} for s in ("a", "b", "bb", "c", None)])
    assert scan(table, "s > 'b'")["s"].to_pylist() == ["bb", "c"]
    assert scan(table, "NOT (s > 'b')")["s"].to_pylist() == ["a", "b"]
    assert scan(table, "s > 'b' OR s = 'a'")["s"].to_pylist() == ["a", "bb", "c"]


def test_5_two_bounds_of_the_same_side_both_count(tmp_path: Path) -> None:
    table = table_of(tmp_path, [{"x": n} for n in range(10)])
    assert scan(table, "x > 5 AND x > 3")["x"].to_pylist() == [6, 7, 8, 9]
    assert scan(table, "x > 3 AND x > 5")["x"].to_pylist() == [6, 7, 8, 9]


def test_6_null_comparisons_keep_three_valued_logic(tmp_path: Path) -> None:
    table = table_of(tmp_path, pa.table({"x": pa.array([1, 2, None], pa.int64()), "id": [0, 1, 2]}))
    null = pa.scalar(None, pa.int64())
    x = Column(("x",))
    assert table.ids(Compare(Op.NULL_SAFE, x, null)) == [2]
    assert table.ids(Compare(Op.EQ, x, null)) == []
    assert table.ids(In(x, (pa.scalar(1), null))) == [0]
    assert table.ids(Not(In(x, (pa.scalar(1), null)))) == []
    other = Compare(Op.EQ, Column(("id",)), pa.scalar(0))
    assert table.ids(Or((Not(Compare(Op.EQ, x, pa.scalar(1))), other))) == [0, 1]


def test_7_wildcard_characters_in_patterns_are_letters(tmp_path: Path) -> None:
    table = table_of(
        tmp_path,
        [{"id": n, "s": s} for n, s in enumerate(["a*b", "axb", "a?b", "ab"])],
        options={"indexing.typemap.s": "string"},
    )
    assert table.ids(TextMatch(TextMatchKind.CONTAINS, Column(("s",)), "*")) == [0]
    assert table.ids(TextMatch(TextMatchKind.STARTS, Column(("s",)), "a?")) == [2]
    assert table.ids(Like(Column(("s",)), "a_b")) == [0, 1, 2]


def test_8_or_of_an_operator_and_a_predicate_that_the_index_cannot_answer(tmp_path: Path) -> None:
    rows = [
        {"id": 0, "t": "fox", "b": b"x"},
        {"id": 1, "t": "dog", "b": b"y"},
        {"id": 2, "t": "cat", "b": b"z"},
    ]
    table = table_of(tmp_path, rows, options=TEXT)
    assert sorted(scan(table, "t INDEXQUERY 'fox' OR b = X'79'")["id"].to_pylist()) == [0, 1]
    assert scan(table, "t INDEXQUERY 'fox' AND b = X'79'").num_rows == 0
    assert sorted(scan(table, "NOT (t INDEXQUERY 'fox' AND b = X'78')")["id"].to_pylist()) == [1, 2]


def test_9_quotes_within_queries(tmp_path: Path) -> None:
    table = table_of(
        tmp_path, [{"s": "it's", "t": "say 'hi' now"}, {"s": "its", "t": "now hi say"}], options=TEXT
    )
    assert scan(table, """t INDEXQUERY '"say hi"'""")["s"].to_pylist() == ["it's"]
    assert scan(table, "s INDEXQUERY '\"it''s\"'").num_rows + scan(table, "s = 'it\\'s'").num_rows == 2


# --- telling behaviours ------------------------------------------------------------------------------


def test_a_partition_condition_ored_with_another_does_not_prune(tmp_path: Path) -> None:
    table = table_of(tmp_path, [{"p": "a", "t": "x"}, {"p": "b", "t": "y"}], partition_by=["p"], options=TEXT)
    assert scan(table, "p = 'a' OR t INDEXQUERY 'y'").num_rows == 2
    assert scan(table, "p = 'a' AND t INDEXQUERY 'y'").num_rows == 0


def test_numeric_partitions_compare_as_numbers(tmp_path: Path) -> None:
    table = table_of(tmp_path, [{"p": n, "v": n} for n in (1, 9, 10, 11)], partition_by=["p"])
    assert sorted(scan(table, "p > 9")["p"].to_pylist()) == [10, 11]
    assert table.snapshot.schema.field("p").type == scan(table)["p"].type


def test_partition_values_come_back_typed_escaped_and_null(tmp_path: Path) -> None:
    rows = [{"p": "a/b=c%", "d": dt.date(2024, 2, 29), "v": 1}, {"p": None, "d": None, "v": 2}]
    table = table_of(tmp_path, rows, partition_by=["p", "d"])
    assert sorted(scan(table).to_pylist(), key=lambda r: r["v"]) == rows
    assert scan(table, columns=["p"])["p"].to_pylist().count(None) == 1
    assert scan(table, "p IS NULL")["v"].to_pylist() == [2]


def test_backslashes_quotes_and_colons_are_found_as_they_are(tmp_path: Path) -> None:
    values = ["C:\\Users\\x", 'say "hi"', "http://a:80/b?c=d", "50%", "a_b", "", " "]
    table = table_of(
        tmp_path, [{"id": n, "s": v} for n, v in enumerate(values)], options={"indexing.typemap.s": "string"}
    )
    for n, value in enumerate(values):
        assert table.ids(Compare(Op.EQ, Column(("s",)), pa.scalar(value))) == [n]


def test_microseconds_compare_exactly(tmp_path: Path) -> None:
    moments = [dt.datetime(2024, 1, 1, 0, 0, 0, n, tzinfo=dt.UTC) for n in (0, 1, 2)]
    table = table_of(tmp_path, [{"id": n, "ts": m} for n, m in enumerate(moments)])
    assert table.ids(Compare(Op.EQ, Column(("ts",)), pa.scalar(moments[1], pa.timestamp("us", "UTC")))) == [1]
    assert count(table, "ts > TIMESTAMP '2024-01-01 00:00:00.000001Z'") == 1


def test_ip_blocks_in_sets_and_the_whole_net(tmp_path: Path) -> None:
    rows = [{"id": n, "a": a} for n, a in enumerate(["10.0.0.1", "192.168.1.1", "2001:db8::5", "junk", None])]
    table = table_of(tmp_path, rows, options={"indexing.typemap.a": "ip"})

    def ids(query: str) -> Any:
        return scan(table, f"a INDEXQUERY '{query}'")["id"].to_pylist()

    assert ids('a: IN [10.0.0.0/8 "2001:db8::/32"]') == [0, 2]
    assert ids("0.0.0.0/0") == [0, 1]
    assert ids("192.168.*.*") == [1]
    assert ids("a:[10.0.0.0 TO 10.0.0.9]") == [0]
    assert count(table, "a = '10.0.0.1'") == 1
    with pytest.raises(Exception, match="not an IP address"):
        ids("10.*.0.1")


def test_columns_that_came_later_are_null_in_older_splits(tmp_path: Path) -> None:
    indextables.write(tmp_path / "t", [{"id": 0, "t": "fox"}], options=TEXT)
    indextables.write(
        tmp_path / "t",
        [{"id": 1, "t": "dog", "extra": "new fox"}],
        options={**TEXT, "mergeSchema": True, "indexing.typemap.extra": "text"},
    )
    table = opened(tmp_path / "t", [], tmp_path / "cache")
    assert sorted(scan(table)["extra"].to_pylist(), key=str) == [None, "new fox"]
    assert scan(table, "extra IS NULL")["id"].to_pylist() == [0]
    assert scan(table, "extra INDEXQUERY 'fox'")["id"].to_pylist() == [1]
    assert sorted(scan(table, "t INDEXQUERY 'fox OR extra:new'")["id"].to_pylist()) == [0, 1]
    assert scan(table, "NOT extra INDEXQUERY 'fox'")["id"].to_pylist() == [0]
    assert scan(table, "NOT (extra = 'new fox')").num_rows == 0


def test_names_of_columns_are_case_insensitive(tmp_path: Path) -> None:
    table = table_of(
        tmp_path,
        [{"Name": "x", "Text": "Quick fox"}],
        options={"indexing.typemap.text": "text"} | {"indexing.typemap.Text": "text"},
    )
    assert scan(table, "NAME = 'x' AND text INDEXQUERY 'TEXT:fox'", columns=["name"]).column_names == ["Name"]


def test_an_unknown_column_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    table = table_of(tmp_path, [{"a": 1}])
    with pytest.raises(SchemaError, match="no column 'b'; the columns are: a"):
        scan(table, columns=["b"])


# --- streaming ---------------------------------------------------------------------------------------


def test_a_limit_stops_early_and_is_exact(tmp_path: Path) -> None:
    table = table_of(tmp_path, [{"id": n, "t": "x"} for n in range(100)], splits=4, options=TEXT)
    for limit in (0, 1, 30, 100, 500):
        assert scan(table, limit=limit).num_rows == min(limit, 100)
        assert scan(table, "t INDEXQUERY 'x' AND id >= 10", limit=limit).num_rows == min(limit, 90)


def test_a_limit_does_not_open_more_splits_than_it_needs(tmp_path: Path) -> None:
    table = table_of(tmp_path, [{"id": n} for n in range(100)], splits=4)
    paths = table.snapshot.files()["path"].to_pylist()
    for path in paths[1:]:
        (tmp_path / "t" / path).unlink()
    assert scan(table, limit=25).num_rows == 25


def test_rows_keep_their_order_with_several_splits_at_once(tmp_path: Path) -> None:
    table = table_of(tmp_path, [{"id": n} for n in range(400)], splits=8)
    four = Options.parse({"read.parallelism": 4, "read.batchSize": 7}).over(table.options)
    reader = read.scan(table.snapshot, table.store, four)
    batches = list(reader)
    assert [x for b in batches for x in b.column("id").to_pylist()] == list(range(400))
    assert max(b.num_rows for b in batches) <= 7


def test_an_error_in_one_split_reaches_the_reader(tmp_path: Path) -> None:
    table = table_of(tmp_path, [{"id": n} for n in range(40)], splits=4)
    (tmp_path / "t" / table.snapshot.files()["path"].to_pylist()[2]).write_bytes(b"junk")
    with pytest.raises(Exception, match="split"):
        scan(table)


def test_a_reader_that_stops_ends_the_works() -> None:
    asked = []

    def work(number: Any) -> Iterator[int]:
        for item in range(1000):
            asked.append((number, item))
            yield item

    results: Any = in_order([partial(work, n) for n in range(5)], 2)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    results.close()
    assert len(asked) < 100


def test_a_scan_and_its_splits_are_pickled_without_secrets(tmp_path: Path) -> None:
    table = table_of(
        tmp_path, [{"id": n, "p": n % 2, "t": f"w{n}"} for n in range(20)], partition_by=["p"], options=TEXT
    )
    secret = Options.parse({"aws.secretKey": "hush-hush"}).over(table.options)
    where = parse_condition("t INDEXQUERY 'w1 OR w2' AND p = 1", table.snapshot.schema)
    plan = plan_splits(table.snapshot, where, secret)
    context, splits = plan.table, plan.splits
    data = pickle.dumps((ScanSpec(context, ("id",), where), splits))
    assert b"hush-hush" not in data
    spec, refs = pickle.loads(data)
    rows = [batch.to_pylist() for batch in read.execute(spec, refs, table.store)]
    assert rows == [[{"id": 1}]]


def test_a_search_that_a_condition_repeats_is_ranked_like_a_single_one(tmp_path: Path) -> None:
    table = table_of(tmp_path, [{"id": n, "t": "w " * n} for n in range(1, 6)], options=TEXT)
    search = parse_condition("t INDEXQUERY 'w'", table.snapshot.schema)
    plan = plan_splits(table.snapshot, search, table.options)
    order = (SortKey("_score", ascending=False, nulls_first=False),)
    results = [
        [
            batch.to_pylist()
            for batch in read.execute(
                ScanSpec(plan.table, ("id",), where, limit=2, order=order), plan.splits, table.store
            )
        ]
        for where in (search, And((search, search)))
    ]
    assert results[0] == results[1] != []


def test_patterns_give_the_same_rows_whether_or_not_the_index_answers(tmp_path: Path) -> None:
    table = generated(tmp_path, "single")
    off = Options.parse({"filter.stringPattern.pushdown": False}).over(table.options)
    where = TextMatch(TextMatchKind.CONTAINS, Column(("s",)), "a")
    with_index = read.scan(table.snapshot, table.store, table.options, columns=["id"], where=where).read_all()
    without = read.scan(table.snapshot, table.store, off, columns=["id"], where=where).read_all()
    assert with_index.equals(without)
    assert with_index.num_rows > 0


# --- the original's tables ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Opened]:
    if not FIXTURES.is_dir():
        pytest.skip(f"the fixtures are not at {FIXTURES}")

    def open_fixture(name: Any) -> Opened:
        return opened(FIXTURES / name, [], tmp_path_factory.mktemp("original"))

    return open_fixture


@pytest.mark.parametrize("name", ["01_single_write", "02_five_appends", "04_partitioned", "10_large_batch"])
def test_splits_of_the_original_give_their_rows_and_answer_conditions(
    original: Callable[..., Any], name: str
) -> None:
    table = original(name)
    rows = scan(table)
    assert rows.num_rows == sum(table.snapshot.files()["numRecords"].to_pylist())
    for column in rows.schema:
        values = [v for v in rows[column.name].unique().to_pylist() if v is not None][:3]
        for value in values:
            where = Compare(Op.EQ, Column((column.name,)), pa.scalar(value, column.type))
            wanted = rows[column.name].to_pylist().count(value)
            assert scan(table, where).num_rows == wanted
            assert table.count(where) == wanted
            if pa.types.is_string(column.type):
                query = f"{column.name} INDEXQUERY '\"{value}\"'"
                assert count(table, query) == wanted


def test_batches_are_bounded_in_bytes(tmp_path: Path) -> None:
    rows = [{"id": n, "t": f"w{n % 3} " + "x" * 50_000} for n in range(100)]
    indextables.write(tmp_path / "t", rows, options={"indexing.typemap.t": "text"})
    table = indextables.open(tmp_path / "t", options={"read.batchBytes": "300K"})
    for where in (None, "t TEXTSEARCH 'w1'", "id < 90"):
        batches = list(table.stream(where=where))
        assert max(batch.nbytes for batch in batches) <= 300 << 10
        assert sum(batch.num_rows for batch in batches) == {None: 100, "id < 90": 90}.get(where, 33)
