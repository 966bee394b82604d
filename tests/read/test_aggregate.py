"""Aggregates: exact wherever they come from, with every group, and Spark's types."""

import collections
import datetime as dt
import decimal
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import indextables
from indextables import read
from indextables.errors import PredicateError, SchemaError
from indextables.predicate import And, Column, Compare, IsNull, Not, Op, Or, Search, SearchKind
from indextables.read import Aggregate, Bucket, DateHistogram, Function, Histogram, RangeBuckets
from indextables.read.split_reader import SplitReader
from indextables.read.table_context import plan_splits
from indextables.split.query.index_aggregation import GroupKey, Measure, index_groups
from indextables.split.query.searcher import IndexSearcher
from tests.read.read_oracle import holds, order_key
from tests.read.read_tables import Opened, generated, opened

NUMBERS = ["n", "f", "g", "d"]
ORDERED = [*NUMBERS, "big", "s", "day", "ts", "flag", "part", "wide", "h"]
KINDS = ["single", "partitioned", "bundled", "merged"]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[Any, Any]:
    return {kind: generated(tmp_path_factory.mktemp(kind), kind, seed=3) for kind in KINDS}


def answer(table: Any, aggregates: list[Any], group_by: Sequence[Any] = (), where: Any = None) -> Any:
    return read.aggregate(
        table.snapshot, table.store, table.options, aggregates=aggregates, group_by=group_by, where=where
    )


# --- the oracle -------------------------------------------------------------------------------------


def hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((k, hashable(v)) for k, v in value.items())
    if isinstance(value, list):
        return ("list", *map(hashable, value))
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def group_of(group: Any, row: Any) -> Any:
    if isinstance(group, str):
        return hashable(row[group])
    value = row[group.column]
    if value is None:
        return None
    if isinstance(group, Histogram):
        return (
            hashable(float(value))
            if math.isnan(value) or math.isinf(value)
            else math.floor((float(value) - group.offset) / group.interval) * group.interval + group.offset
        )
    if isinstance(group, DateHistogram):
        micros = round(
            (
                dt.datetime.combine(value, dt.time(), dt.UTC) if not isinstance(value, dt.datetime) else value
            ).timestamp()
            * 10**6
        )
        start = (micros - group.offset_us) // group.interval_us * group.interval_us + group.offset_us
        return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=start)
    for bucket in group.buckets:
        low = bucket.start is None or value >= bucket.start
        if low and (bucket.end is None or value < bucket.end):
            return bucket.name
    return None


def result_of(aggregate: Any, rows: list[Any]) -> Any:
    if aggregate.column is None:
        return len(rows)
    values = [row[aggregate.column] for row in rows if row[aggregate.column] is not None]
    match aggregate.function:
        case Function.COUNT:
            return len(values)
        case Function.COUNT_DISTINCT:
            return len({hashable(v) for v in values})
        case _:
            pass
    if not values:
        return None
    match aggregate.function:
        case Function.MIN:
            return min(values, key=order_key)
        case Function.MAX:
            return max(values, key=order_key)
        case Function.SUM:
            return sum(values)
        case _:
            total = sum(values) / len(values)
            return (
                total.quantize(decimal.Decimal("0.000001"), decimal.ROUND_HALF_UP)
                if isinstance(total, decimal.Decimal)
                else total
            )


def close(found: Any, wanted: Any) -> Any:
    if isinstance(wanted, float) and isinstance(found, float):
        both = math.isnan(found) and math.isnan(wanted)
        return both or found == wanted or math.isclose(found, wanted, rel_tol=1e-9, abs_tol=1e-9)
    return found == wanted


def agree(table: Any, aggregates: Any, group_by: Any, where: Any) -> None:
    rows = [row for row in table.rows if where is None or holds(where, row) is True]
    groups = collections.defaultdict(list)
    for row in rows:
        groups[tuple(group_of(g, row) for g in group_by)].append(row)
    if not group_by:
        groups[()] = rows
    found = answer(table, aggregates, group_by, where)
    names = found.column_names
    keyed = {tuple(hashable(r[n]) for n in names[: len(group_by)]): r for r in found.to_pylist()}
    assert len(keyed) == found.num_rows
    assert keyed.keys() == groups.keys()
    for key, row in keyed.items():
        for aggregate, name in zip(aggregates, names[len(group_by) :], strict=True):
            wanted = result_of(aggregate, groups[key])
            assert close(row[name], wanted), (key, aggregate, row[name], wanted)


AGGREGATES = st.lists(
    st.one_of(
        st.just(Aggregate(Function.COUNT)),
        st.builds(
            Aggregate,
            st.sampled_from([Function.COUNT, Function.COUNT_DISTINCT]),
            st.sampled_from([*ORDERED, "t", "ip"]),
        ),
        st.builds(Aggregate, st.sampled_from([Function.MIN, Function.MAX]), st.sampled_from([*ORDERED, "t"])),
        st.builds(Aggregate, st.sampled_from([Function.SUM, Function.AVG]), st.sampled_from(NUMBERS)),
    ),
    min_size=1,
    max_size=3,
    unique=True,
)
GROUPS = st.lists(
    st.one_of(
        st.sampled_from(["s", "n", "f", "g", "d", "day", "ts", "flag", "part", "big", "h", "st", "l", "t"]),
        st.builds(
            Histogram,
            st.sampled_from(["n", "f", "d"]),
            st.sampled_from([1.0, 2.5]),
            st.sampled_from([0.0, 0.5]),
        ),
        st.builds(
            DateHistogram,
            st.sampled_from(["ts", "day"]),
            st.sampled_from([86_400_000_000, 3_600_000_000, 7]),
            st.sampled_from([0, 5]),
        ),
        st.just(RangeBuckets("n", (Bucket("low", None, 0), Bucket("mid", 0, 3)))),
    ),
    max_size=2,
    unique_by=lambda g: g if isinstance(g, str) else g.column,
)
WHERE = st.sampled_from(
    [
        None,
        Search(SearchKind.INDEXQUERY, Column(("t",)), "alpha OR beta"),
        Compare(Op.GT, Column(("n",)), pa.scalar(0, pa.int32())),
        And((Search(SearchKind.INDEXQUERY, None, "alpha"), Not(IsNull(Column(("s",)))))),
        Compare(Op.EQ, Column(("part",)), pa.scalar("north")),
        Or(
            (
                Compare(Op.EQ, Column(("part",)), pa.scalar("north")),
                Search(SearchKind.INDEXQUERY, Column(("t",)), "run"),
            )
        ),
        Compare(Op.EQ, Column(("plain",)), pa.scalar("a")),
        Search(SearchKind.INDEXQUERY, Column(("t",)), "nowhere_to_be_found"),
    ]
)


@pytest.mark.parametrize("kind", KINDS)
@given(aggregates=AGGREGATES, group_by=GROUPS, where=WHERE)
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_aggregates_equal_those_over_a_plain_reading(
    tables: dict[Any, Any], kind: str, aggregates: Any, group_by: Any, where: Any
) -> None:
    agree(tables[kind], aggregates, group_by, where)


# --- by name ----------------------------------------------------------------------------------------


def table_of(
    tmp_path: Path,
    columns: dict[Any, Any],
    *,
    splits: int = 1,
    partition_by: Sequence[Any] = (),
    options: dict[Any, Any] | None = None,
) -> Opened:
    data = pa.table(columns)
    size = -(-data.num_rows // splits)
    for n in range(splits):
        indextables.write(
            tmp_path / "t", data.slice(n * size, size), partition_by=partition_by, options=options
        )
    return opened(tmp_path / "t", data.to_pylist(), tmp_path / "cache")


def test_no_group_is_lost_however_many_there_are(tmp_path: Path) -> None:
    table = table_of(
        tmp_path, {"k": [f"key{i % 70_000}" for i in range(70_500)]}, options={"indexing.typemap.k": "string"}
    )
    found = answer(table, [Aggregate(Function.COUNT)], ["k"])
    assert found.num_rows == 70_000
    assert sum(found["count(*)"].to_pylist()) == 70_500
    assert answer(table, [Aggregate(Function.COUNT_DISTINCT, "k")])["count_distinct(k)"].to_pylist() == [
        70_000
    ]


def test_the_index_does_not_count_groups_that_are_surely_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[Any] = []
    aggregate = IndexSearcher.aggregate

    def record(self: IndexSearcher, query: Any, request: dict[str, Any]) -> dict[str, Any]:
        requests.append(request)
        return aggregate(self, query, request)

    monkeypatch.setattr(IndexSearcher, "aggregate", record)
    count = 500_000
    ids = pa.array(range(count), pa.int64())
    few = pc.bit_wise_and(pc.multiply(ids, 2654435761), 65_535 >> 1)
    times = pc.multiply(ids, 1_000_000).cast(pa.timestamp("us", "UTC"))
    rows = pa.table({"id": ids, "few": few, "pair": pc.shift_right(ids, 1), "time": times})
    table = indextables.write(tmp_path / "t", rows)
    for groups, is_counted, sizes in (
        (["few"], True, {15, 16}),
        (["id"], False, {1}),
        (["pair"], False, {2}),
        (["few", "id"], False, {1}),
        ([indextables.DateHistogram("time", 100_000_000)], True, {100}),
        ([indextables.DateHistogram("time", 2_000_000)], False, {2}),
    ):
        requests.clear()
        found = table.aggregate({"n": "count(*)"}, group_by=groups)
        assert bool(requests) == is_counted, groups
        assert sum(found["n"].to_pylist()) == count
        assert set(found["n"].to_pylist()) <= sizes, groups


def test_count_of_a_column_leaves_nulls_out_and_count_of_rows_does_not(tmp_path: Path) -> None:
    table = table_of(tmp_path, {"a": [1, None, 3, None]}, splits=2)
    found = answer(table, [Aggregate(Function.COUNT), Aggregate(Function.COUNT, "a")])
    assert found.to_pylist() == [{"count(*)": 4, "count(a)": 2}]


def test_a_result_name_that_cannot_be_encoded_is_refused(tmp_path: Path) -> None:
    table = indextables.write(tmp_path / "t", [{"a": 1.5}])
    for groups in ([], [indextables.Histogram("a", 1, name="x\udfff")]):
        with pytest.raises(PredicateError, match=r"not valid Unicode: '(n|x)?\\ud"):
            table.aggregate({"n" if groups else "n\ud800": "count(*)"}, group_by=groups)


def test_the_null_group_is_kept(tmp_path: Path) -> None:
    table = table_of(tmp_path, {"a": ["x", None, "x", None, "y"]}, splits=2)
    found = answer(table, [Aggregate(Function.COUNT)], ["a"])
    assert {r["a"]: r["count(*)"] for r in found.to_pylist()} == {"x": 2, None: 2, "y": 1}


def test_sums_of_large_whole_numbers_are_exact(tmp_path: Path) -> None:
    table = table_of(tmp_path, {"a": [2**62, 2**62 - 1, 1, -5]})
    assert answer(table, [Aggregate(Function.SUM, "a")])["sum(a)"].to_pylist() == [2**63 - 5]


def test_a_sum_that_does_not_fit_is_an_error_and_not_another_number(tmp_path: Path) -> None:
    table = table_of(tmp_path, {"a": [2**62, 2**62, 2**62]})
    with pytest.raises(PredicateError, match="sum of 'a' does not fit"):
        answer(table, [Aggregate(Function.SUM, "a")])


def test_decimals_are_summed_exactly_in_sparks_types(tmp_path: Path) -> None:
    values = pa.array([decimal.Decimal("0.10")] * 3 + [decimal.Decimal("99999999.99")], pa.decimal128(10, 2))
    table = table_of(tmp_path, {"d": values}, splits=2)
    found = answer(table, [Aggregate(Function.SUM, "d"), Aggregate(Function.AVG, "d")])
    assert found.schema.types == [pa.decimal128(20, 2), pa.decimal128(14, 6)]
    assert found.to_pylist() == [
        {"sum(d)": decimal.Decimal("100000000.29"), "avg(d)": decimal.Decimal("25000000.072500")}
    ]


def test_a_sum_of_38_digits_fits(tmp_path: Path) -> None:
    most = decimal.Decimal("9" * 38)
    table = table_of(tmp_path, {"d": pa.array([most, None], pa.decimal128(38, 0))})
    assert answer(table, [Aggregate(Function.SUM, "d")]).to_pylist() == [{"sum(d)": most}]


def wide(*values: str, scale: int = 0) -> pa.Array:
    return pa.array(list(map(decimal.Decimal, values)), pa.decimal128(38, scale))


def test_the_largest_decimals_are_summed_exactly(tmp_path: Path) -> None:
    table = table_of(tmp_path, {"d": wide("9" * 38, "1", "-" + "9" * 38, "9" * 38, "-1")}, splits=2)
    found = answer(table, [Aggregate(Function.SUM, "d"), Aggregate(Function.MAX, "d")])
    assert found.to_pylist() == [{"sum(d)": decimal.Decimal("9" * 38), "max(d)": decimal.Decimal("9" * 38)}]


@pytest.mark.parametrize("function", [Function.SUM, Function.AVG])
@pytest.mark.parametrize("groups", [[], ["g"]])
def test_sums_of_decimals_beyond_128_bits_do_not_wrap_around(
    tmp_path: Path, function: Function, groups: list[str]
) -> None:
    table = table_of(tmp_path, {"d": wide(*["9" + "0" * 37] * 3), "g": [1, 1, 1]})
    with pytest.raises(PredicateError, match="of 'd' does not fit into decimal128"):
        answer(table, [Aggregate(function, "d")], groups)


def test_an_average_that_does_not_fit_is_an_error_that_names_the_column(tmp_path: Path) -> None:
    table = table_of(tmp_path, {"d": wide("12345678901234567890.5", "1", scale=18)})
    with pytest.raises(PredicateError, match="the average of 'd' does not fit into decimal128"):
        answer(table, [Aggregate(Function.AVG, "d")])


def test_averages_of_wide_decimals_have_all_digits_of_their_type(tmp_path: Path) -> None:
    table = table_of(tmp_path, {"d": wide("1", "2", "2", scale=18)})
    found = answer(table, [Aggregate(Function.AVG, "d")])["avg(d)"]
    assert str(found[0].as_py()) == "1.6666666666666666666667"


def test_nan_is_the_greatest_and_one_group(tmp_path: Path) -> None:
    table = table_of(tmp_path, {"f": [1.0, math.nan, math.inf, -0.0, 0.0]}, splits=2)
    found = answer(
        table,
        [Aggregate(Function.MAX, "f"), Aggregate(Function.MIN, "f"), Aggregate(Function.COUNT_DISTINCT, "f")],
    )
    assert math.isnan(found["max(f)"][0].as_py())
    assert found["min(f)"].to_pylist() == [0.0]
    assert found["count_distinct(f)"].to_pylist() == [4]


def test_nested_values_that_are_equal_in_sql_are_one_group(tmp_path: Path) -> None:
    late = pa.array([9 * 10**18] * 6).cast(pa.timestamp("us", "UTC"))
    floats = pa.array([0.0, -0.0, math.nan, -math.nan, None, 1.0])
    columns = {
        "s": pa.StructArray.from_arrays([floats, late], ["f", "at"]),
        "l": pa.array([[0.0], [-0.0], [math.nan], [-math.nan], None, [1.0, None]]),
    }
    data = pa.table(columns)
    indextables.write(tmp_path / "t", data.slice(0, 3))
    table = indextables.write(tmp_path / "t", data.slice(3))
    for name in columns:
        found = table.aggregate({"n": "count(*)", "values": f"count({name})"}, group_by=[name])
        assert sorted(found["n"].to_pylist()) == [1, 1, 2, 2]
        distinct = table.aggregate({"n": f"count(distinct {name})"})
        assert distinct["n"].to_pylist() == [4 if name == "s" else 3]


def test_counts_by_partition_come_from_the_log_alone(tmp_path: Path) -> None:
    table = table_of(tmp_path, {"p": ["a", "a", "b", None], "v": [1, None, 3, 4]}, partition_by=["p"])
    for split in (tmp_path / "t").rglob("*.split"):
        split.unlink()
    found = answer(
        table,
        [Aggregate(Function.COUNT), Aggregate(Function.COUNT, "v"), Aggregate(Function.MAX, "v")],
        ["p"],
    )
    assert {r["p"]: (r["count(*)"], r["count(v)"], r["max(v)"]) for r in found.to_pylist()} == {
        "a": (2, 1, 1),
        "b": (1, 1, 3),
        None: (1, 1, 4),
    }


def test_groups_with_a_text_filter_come_from_the_index(tmp_path: Path) -> None:
    table = table_of(
        tmp_path,
        {"k": ["a", "b", None, "a"], "v": [1, 2, 3, None], "t": ["x y", "x", "x", "y"]},
        options={"indexing.typemap.t": "text"},
    )
    where = Search(SearchKind.INDEXQUERY, Column(("t",)), "x")
    plan = plan_splits(table.snapshot, where, table.options)
    context, splits = plan.table, plan.splits
    reader = SplitReader(table.store, splits[0], context)
    groups = index_groups(
        reader.index,
        reader.view,
        reader.filter_plan(where).candidates,
        [GroupKey("k")],
        [Measure("v", numbers=True)],
    )
    assert {g.keys: (g.rows, g.measures[0].total) for g in groups} == {
        ("a",): (1, 1),
        ("b",): (1, 2),
        (None,): (1, 3),
    }


def test_groups_by_partition_with_a_data_filter_are_not_answered_from_the_log(tmp_path: Path) -> None:
    table = table_of(tmp_path, {"p": ["a", "a", "b"], "v": [1, 2, 3]}, partition_by=["p"])
    where = Compare(Op.EQ, Column(("v",)), pa.scalar(2))
    assert answer(table, [Aggregate(Function.COUNT)], ["p"], where).to_pylist() == [{"p": "a", "count(*)": 1}]


def test_a_partition_without_a_matching_row_is_no_group(tmp_path: Path) -> None:
    table = table_of(
        tmp_path,
        {"p": ["a", "b"], "t": ["x", "y"]},
        partition_by=["p"],
        options={"indexing.typemap.t": "text"},
    )
    where = Search(SearchKind.INDEXQUERY, Column(("t",)), "y")
    assert answer(table, [Aggregate(Function.COUNT)], ["p"], where).to_pylist() == [{"p": "b", "count(*)": 1}]


@pytest.mark.parametrize("aggregates", [[Aggregate(Function.COUNT)], [Aggregate(Function.SUM, "v")]])
def test_the_zeros_of_a_partition_column_are_one_group(tmp_path: Path, aggregates: list[Aggregate]) -> None:
    values = {"p": [0.0, -0.0, 1.5, 0.0, math.nan], "v": [1, 1, 1, 1, 1]}
    table = table_of(tmp_path, values, partition_by=["p"])
    found = answer(table, aggregates, ["p"])
    assert found.num_rows == 3
    assert {str(row["p"]): row[found.column_names[-1]] for row in found.to_pylist()} == {
        "0.0": 3,
        "1.5": 1,
        "nan": 1,
    }


def test_a_struct_that_is_always_null_does_not_disturb(tmp_path: Path) -> None:
    table = table_of(tmp_path, {"a": [1, 2], "st": pa.array([None, None], pa.struct([("x", pa.int32())]))})
    assert answer(table, [Aggregate(Function.SUM, "a")], ["st"]).to_pylist() == [{"st": None, "sum(a)": 3}]


def test_range_buckets_are_named_and_rows_outside_are_null(tmp_path: Path) -> None:
    table = table_of(tmp_path, {"v": [1, 5, 50, None]}, splits=2)
    buckets = RangeBuckets("v", (Bucket("small", None, 5), Bucket("medium", 5, 10)), name="size")
    found = answer(table, [Aggregate(Function.COUNT, name="n")], [buckets])
    assert {r["size"]: r["n"] for r in found.to_pylist()} == {"small": 1, "medium": 1, None: 2}


def test_a_date_histogram_leaves_no_trace_in_the_next_aggregate(tmp_path: Path) -> None:
    days = [dt.datetime(2024, 1, d, tzinfo=dt.UTC) for d in (1, 1, 2)]
    table = table_of(tmp_path, {"p": ["a", "b", "b"], "ts": days}, partition_by=["p"])
    steps = answer(table, [Aggregate(Function.COUNT)], [DateHistogram("ts", 86_400_000_000)])
    assert sorted(steps["count(*)"].to_pylist()) == [1, 2]
    assert {r["p"]: r["count(*)"] for r in answer(table, [Aggregate(Function.COUNT)], ["p"]).to_pylist()} == {
        "a": 1,
        "b": 2,
    }


def test_an_aggregate_over_no_rows_is_one_row(tmp_path: Path) -> None:
    table = table_of(tmp_path, {"a": [1]})
    where = Compare(Op.GT, Column(("a",)), pa.scalar(9))
    found = answer(
        table,
        [Aggregate(Function.COUNT), Aggregate(Function.SUM, "a"), Aggregate(Function.COUNT_DISTINCT, "a")],
        where=where,
    )
    assert found.to_pylist() == [{"count(*)": 0, "sum(a)": None, "count_distinct(a)": 0}]
    assert answer(table, [Aggregate(Function.COUNT)], ["a"], where).num_rows == 0


@pytest.mark.parametrize(
    ("aggregates", "group_by", "error", "words"),
    [
        ([Aggregate(Function.SUM, "t")], [], PredicateError, "needs numbers"),
        ([Aggregate(Function.SUM)], [], PredicateError, "needs a column"),
        ([Aggregate(Function.COUNT)], ["missing"], SchemaError, "no column 'missing'"),
        (
            [Aggregate(Function.COUNT), Aggregate(Function.COUNT)],
            [],
            PredicateError,
            "two result columns have the same name",
        ),
        ([Aggregate(Function.MAX, "st")], [], PredicateError, "needs values with an order"),
        ([Aggregate(Function.COUNT)], [Histogram("t", 1.0)], PredicateError, "buckets need numbers"),
        ([Aggregate(Function.COUNT)], [DateHistogram("n", 1)], PredicateError, "date or timestamp"),
    ],
)
def test_what_cannot_be_aggregated_is_refused(
    tables: dict[Any, Any], aggregates: list[Any], group_by: Any, error: Any, words: str
) -> None:
    with pytest.raises(error, match=words):
        answer(tables["single"], aggregates, group_by)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Histogram("n", 0.0),
        lambda: DateHistogram("ts", 0),
        lambda: RangeBuckets("n", ()),
        lambda: RangeBuckets("n", (Bucket("x", None, None),)),
        lambda: RangeBuckets("n", (Bucket("x", 0, 5), Bucket("y", 4, 9))),
        lambda: RangeBuckets("n", (Bucket("x", 5, 5),)),
    ],
)
def test_steps_and_ranges_that_make_no_sense_are_refused(make: Any) -> None:
    with pytest.raises(PredicateError):
        make()
