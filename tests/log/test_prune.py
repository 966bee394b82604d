"""Pruning skips what it can, and keeps what it cannot evaluate_metrics."""

import time
from datetime import UTC as ZULU
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from indextables.log import column_metrics, pruning
from indextables.log.pruning import (
    bounds_may_match,
    evaluate_metrics,
    prune,
    split_partition_conjuncts,
)
from indextables.predicate import (
    Always,
    And,
    Column,
    Compare,
    In,
    IsNull,
    Like,
    Not,
    Op,
    Or,
    Search,
    SearchKind,
    TextMatch,
    TextMatchKind,
)
from indextables.schema.values import parse_values
from tests.log.prunable import UTC, File, column, table_of


def files_to_scan(
    values: list[Any],
    arrow: Any,
    predicate: Any,
    *,
    maker: str = "ours",
    options: Any = None,
    certain: bool = False,
) -> list[Any]:
    """The numbers of the files that are kept, each with some values of a column c."""
    schema = pa.schema([("c", arrow)])
    files = [File([{"c": v} for v in held], {}, maker).entry(options, schema, ()) for held in values]
    evaluation = evaluate_metrics(table_of(files), predicate, schema, ())
    return [
        n
        for n, flag in enumerate((evaluation.strict if certain else evaluation.inclusive).to_pylist())
        if flag
    ]


def partitioned(values: list[Any], arrow: Any, predicate: Compare) -> list[Any]:
    schema = pa.schema([("c", arrow), ("x", pa.int64())])
    files = [File([{"x": 1}], {"c": v}).entry(None, schema, ("c",)) for v in values]
    mask = prune(table_of(files), predicate, schema, ("c",))
    return [n for n, flag in enumerate(mask.to_pylist()) if flag]


def c(op: Op, value: Any, arrow: Any = None) -> Compare:
    return Compare(op, column("c"), value if isinstance(value, pa.Scalar) else pa.scalar(value, arrow))


C = column("c")
INTS = [[1, 5], [6, 9], [10, 12], [None, 20]]


@pytest.mark.parametrize(
    ("predicate", "found"),
    [
        (c(Op.EQ, 6), [1]),
        (c(Op.EQ, 100), []),
        (c(Op.LT, 6), [0]),
        (c(Op.LE, 6), [0, 1]),
        (c(Op.GT, 9), [2, 3]),
        (c(Op.GE, 9), [1, 2, 3]),
        (c(Op.NULL_SAFE, 11), [2]),
        (Not(c(Op.NULL_SAFE, 20)), [0, 1, 2, 3]),
        (Not(c(Op.EQ, 20)), [0, 1, 2]),
        (In(C, (pa.scalar(0), pa.scalar(7), pa.scalar(20))), [1, 3]),
        (Not(In(C, (pa.scalar(20),))), [0, 1, 2]),
        (Not(In(C, (pa.scalar(1), pa.scalar(None, pa.int64())))), []),
        (In(C, ()), []),
        (IsNull(C), [3]),
        (Not(IsNull(C)), [0, 1, 2, 3]),
        (And((c(Op.GT, 5), c(Op.LT, 10))), [1]),
        (Or((c(Op.LT, 2), c(Op.GT, 12))), [0, 3]),
        (Not(Or((c(Op.LT, 6), c(Op.GT, 9)))), [1]),
        (Not(And((c(Op.GE, 6), c(Op.LE, 9)))), [0, 2, 3]),
        (c(Op.EQ, None, pa.int64()), []),
        (Always(value=False), []),
        (Always(value=None), []),
        (Always(value=True), [0, 1, 2, 3]),
    ],
    ids=repr,
)
def test_bounds_skip_files_of_integers(predicate: Any, found: Any) -> None:
    assert files_to_scan(INTS, pa.int64(), predicate) == found


def test_numbers_compare_as_numbers_in_partitions_and_in_bounds() -> None:
    assert partitioned([9, 10, 100, None], pa.int32(), c(Op.GT, 9, pa.int32())) == [1, 2]
    assert files_to_scan([[9], [10], [100]], pa.int32(), c(Op.GT, 9, pa.int32())) == [1, 2]
    assert bounds_may_match(
        c(Op.GT, 9), {"c": ("2", "10")}, pa.schema([("c", pa.int32())]), ["c"], ordered=False
    )
    assert not bounds_may_match(
        c(Op.GT, 10), {"c": ("2", "10")}, pa.schema([("c", pa.int32())]), ["c"], ordered=False
    )


def test_strings_that_look_like_numbers_compare_as_strings() -> None:
    assert partitioned(["9", "10"], pa.string(), c(Op.GT, "5")) == [0]
    assert files_to_scan([["9"], ["10"]], pa.string(), c(Op.GT, "5")) == [0]


@pytest.mark.parametrize(
    ("predicate", "found"),
    [
        (IsNull(C), [1, 2]),
        (Not(IsNull(C)), [0]),
        (c(Op.EQ, "a"), [0]),
        (Not(c(Op.EQ, "a")), []),
        (Not(c(Op.EQ, "b")), [0]),
        (c(Op.NULL_SAFE, None, pa.string()), [1, 2]),
        (Not(c(Op.NULL_SAFE, "a")), [1, 2]),
        (TextMatch(TextMatchKind.ENDS, C, "a"), [0]),
        (TextMatch(TextMatchKind.CONTAINS, C, "z"), []),
        (Like(C, "_"), [0]),
        (Like(C, "_a%"), []),
    ],
    ids=repr,
)
def test_null_partitions_are_null_by_either_name(predicate: Any, found: Any) -> None:
    schema = pa.schema([("c", pa.string()), ("x", pa.int64())])
    files = [
        File([{"x": 1}], {"c": value}, maker)
        for value, maker in (("a", "ours"), (None, "ours"), (None, "rust"))
    ]
    mask = prune(table_of([f.entry(None, schema, ("c",)) for f in files]), predicate, schema, ("c",))
    assert [n for n, flag in enumerate(mask.to_pylist()) if flag] == found


def test_a_file_whose_column_is_null_throughout_is_skipped_by_every_comparison() -> None:
    values = [[None, None], [1, None]]
    assert files_to_scan(values, pa.int64(), c(Op.GE, 0)) == [1]
    assert files_to_scan(values, pa.int64(), Not(c(Op.GE, 5))) == [1]
    assert files_to_scan(values, pa.int64(), Not(IsNull(C))) == [1]


LONG = "a service that writes long lines "


def test_a_cut_maximum_of_the_originals_is_no_maximum() -> None:
    values = [[LONG + "alpha", LONG + "omega"], ["b"]]
    for predicate in (c(Op.EQ, LONG + "omega"), c(Op.GT, LONG + "beta"), In(C, (pa.scalar(LONG + "omega"),))):
        assert files_to_scan(values[:1], pa.string(), predicate, maker="rust") == [0]
    assert files_to_scan(values, pa.string(), c(Op.EQ, "a t"), maker="rust") == []
    assert files_to_scan(values, pa.string(), c(Op.GE, "c"), maker="scala") == []
    assert files_to_scan(values, pa.string(), Not(c(Op.EQ, "b")), maker="rust") == [0, 1]
    assert files_to_scan(values, pa.string(), Not(c(Op.EQ, "b")), maker="ours") == [0]


def test_a_character_cut_in_two_is_no_bound() -> None:
    value = "a" * 31 + "😀"
    assert files_to_scan([[value]], pa.string(), c(Op.EQ, value), maker="scala") == [0]


def test_an_order_by_utf_16_is_no_order_for_us() -> None:
    # There U+FFFF is the greatest of the three; by UTF-8, as Spark compares, the smiley is.
    assert files_to_scan([["a", "\uffff", "😀"]], pa.string(), c(Op.EQ, "😀"), maker="scala") == [0]


def test_the_original_left_nan_out() -> None:
    values = [[1.0, float("nan")], [1.0]]
    for predicate in (
        c(Op.GT, 5.0),
        c(Op.EQ, float("nan")),
        Not(c(Op.LE, 5.0)),
        In(C, (pa.scalar(float("nan")),)),
    ):
        assert files_to_scan(values, pa.float64(), predicate, maker="rust") == [0, 1]
        assert files_to_scan(values, pa.float64(), predicate, maker="ours") == [0]
    assert files_to_scan(values, pa.float64(), c(Op.LT, 1.0), maker="rust") == []


def test_a_number_that_the_original_cut_is_no_bound() -> None:
    assert files_to_scan([[-1e-300]], pa.float64(), c(Op.LT, -1e-301), maker="rust") == [0]


def test_both_zeros_are_equal() -> None:
    assert files_to_scan([[-0.0]], pa.float64(), c(Op.EQ, 0.0)) == [0]
    assert files_to_scan([[0.0]], pa.float32(), c(Op.GE, -0.0)) == [0]
    assert files_to_scan([[0.0]], pa.float32(), c(Op.LT, -0.0)) == []


@pytest.mark.parametrize("maker", ["ours", "scala", "rust"])
def test_dates_compare_as_dates_with_dates_and_with_strings(maker: str) -> None:
    days = [[19_723], [19_724, 19_730]]
    for literal in (pa.scalar(date(2024, 1, 2)), pa.scalar("2024-01-02")):
        assert files_to_scan(days, pa.date32(), c(Op.EQ, literal), maker=maker) == [1]
        assert files_to_scan(days, pa.date32(), c(Op.LT, literal), maker=maker) == [0]
    assert files_to_scan(days, pa.date32(), c(Op.EQ, pa.scalar("2 January")), maker=maker) == [0, 1]
    assert files_to_scan(days, pa.date32(), c(Op.EQ, pa.scalar(0, UTC)), maker=maker) == [0, 1]


@pytest.mark.parametrize("maker", ["ours", "scala"])
def test_microseconds_of_timestamps_compare_exactly(maker: str) -> None:
    micros = 1_704_103_200_000_000
    values = [[micros], [micros + 1]]
    assert files_to_scan(values, UTC, c(Op.EQ, micros + 1, UTC), maker=maker) == [1]
    assert files_to_scan(
        values, UTC, c(Op.LE, pa.scalar(datetime(2024, 1, 1, 10, tzinfo=ZULU))), maker=maker
    ) == [0]
    assert files_to_scan(
        values, UTC, c(Op.GT, micros * 1000 + 999, pa.timestamp("ns", "Asia/Tokyo")), maker=maker
    ) == [1]
    assert files_to_scan(values, UTC, c(Op.EQ, micros, pa.timestamp("us")), maker=maker) == [0, 1]
    assert files_to_scan(values, UTC, c(Op.EQ, "2024-01-01T10:00:00Z"), maker=maker) == [0]
    assert files_to_scan(values, UTC, c(Op.EQ, "2024-01-01T10:00:00"), maker=maker) == [0, 1]


def test_integers_beyond_the_doubles_compare_exactly_or_not_at_all() -> None:
    values = [[2**53], [2**53 + 1]]
    assert files_to_scan(values, pa.int64(), c(Op.EQ, 2**53 + 1)) == [1]
    assert files_to_scan(values, pa.int64(), c(Op.EQ, Decimal(2**53 + 1), pa.decimal128(20, 0))) == [1]
    assert files_to_scan(values, pa.int64(), c(Op.EQ, float(2**53))) == [0, 1]
    assert files_to_scan([[1, 2], [3]], pa.int64(), c(Op.GT, 2.5)) == [1]
    assert files_to_scan([[1, 2], [3]], pa.int64(), c(Op.EQ, 2.5)) == []
    assert files_to_scan([[1, 2], [3]], pa.int64(), c(Op.LT, float("nan"))) == [0, 1]
    assert files_to_scan([[1, 2], [3]], pa.int64(), c(Op.EQ, "3")) == [1]
    assert files_to_scan([[1, 2], [3]], pa.int64(), c(Op.EQ, "3.0")) == [0, 1]


def test_decimals_compare_exactly() -> None:
    values = [[Decimal("0.10")], [Decimal("0.11"), Decimal("99999999999999999999.99")]]
    kind = pa.decimal128(38, 2)
    assert files_to_scan(values, kind, c(Op.GT, Decimal("0.105"))) == [1]
    assert files_to_scan(values, kind, c(Op.LE, Decimal("0.105"))) == [0]
    assert files_to_scan(values, kind, c(Op.EQ, Decimal("0.105"))) == []
    assert files_to_scan(values, kind, c(Op.GT, Decimal(10) ** 21)) == []
    assert files_to_scan(values, kind, c(Op.GE, 2**62)) == [1]
    assert files_to_scan(values, kind, c(Op.GT, 0.105)) == [0, 1]


def test_short_and_byte_and_boolean_columns_are_skipped_too() -> None:
    assert files_to_scan([[1], [2]], pa.int8(), c(Op.EQ, 2, pa.int8())) == [1]
    assert files_to_scan([[True], [False], [True, False]], pa.bool_(), c(Op.EQ, True)) == [0, 2]


@pytest.mark.parametrize("maker", ["ours", "scala", "rust"])
def test_starts_with_and_like_with_a_prefix_skip(maker: str) -> None:
    values = [["apple", "apricot"], ["banana"], ["apq", "aq"]]
    starts = TextMatch(TextMatchKind.STARTS, C, "ap")
    assert files_to_scan(values, pa.string(), starts, maker=maker) == [0, 2]
    assert files_to_scan(values, pa.string(), Not(starts), maker=maker) == [1, 2]
    assert files_to_scan(values, pa.string(), Like(C, "ap%"), maker=maker) == [0, 2]
    assert files_to_scan(values, pa.string(), Like(C, "ap_l%e"), maker=maker) == [0, 2]
    assert files_to_scan(values, pa.string(), Like(C, "banana"), maker=maker) == [1]
    assert files_to_scan(values, pa.string(), Like(C, r"ban\%"), maker="ours") == []
    assert files_to_scan(values, pa.string(), Like(C, "AP%", ignore_case=True), maker=maker) == [0, 1, 2]
    assert files_to_scan(values, pa.string(), Like(C, "ban!", escape="!"), maker=maker) == [0, 1, 2]


@pytest.mark.parametrize(
    "predicate",
    [
        Search(SearchKind.INDEXQUERY, C, "zebra"),
        Search(SearchKind.TEXTSEARCH, None, "zebra"),
        TextMatch(TextMatchKind.ENDS, C, "zebra"),
        TextMatch(TextMatchKind.CONTAINS, C, "zebra"),
        Compare(Op.EQ, Column(("c", "inner")), pa.scalar("zebra")),
        Compare(Op.EQ, column("absent"), pa.scalar("zebra")),
        IsNull(column("absent")),
        c(Op.EQ, 5),
        In(C, (pa.scalar("a"), pa.scalar(5))),
        Not(Search(SearchKind.FIELDMATCH, C, "a")),
    ],
    ids=repr,
)
def test_what_cannot_be_judged_keeps_every_file(predicate: Any) -> None:
    assert files_to_scan([["a"], ["b"]], pa.string(), predicate) == [0, 1]


def test_a_partition_condition_or_ed_with_another_does_not_skip_by_itself() -> None:
    schema = pa.schema([("c", pa.string()), ("x", pa.int64())])
    files = [File([{"x": n}], {"c": "ab"[n]}).entry(None, schema, ("c",)) for n in (0, 1)]
    search = Search(SearchKind.INDEXQUERY, column("x"), "y")
    assert prune(table_of(files), Or((c(Op.EQ, "a"), search)), schema, ("c",)).to_pylist() == [True, True]
    assert prune(table_of(files), And((c(Op.EQ, "a"), search)), schema, ("c",)).to_pylist() == [True, False]
    either = Or((c(Op.EQ, "a"), Compare(Op.EQ, column("x"), pa.scalar(1))))
    assert prune(table_of(files), either, schema, ("c",)).to_pylist() == [True, True]


def test_strings_with_a_collation_are_not_compared_by_their_bytes() -> None:
    field = pa.field(
        "c", pa.string(), metadata={b"SPARK::metadata::json": b'{"__COLLATIONS":{"c":"spark.UTF8_LCASE"}}'}
    )
    entry = File([{"c": "A"}], {}).entry(None, pa.schema([("c", pa.string())]), ())
    for names in ((), ("c",)):
        table = table_of([{**entry, "partitionValues": {"c": "A"} if names else {}}])
        assert prune(table, c(Op.EQ, "a"), pa.schema([field]), names).to_pylist() == [True]
        assert prune(
            table, TextMatch(TextMatchKind.STARTS, C, "a"), pa.schema([field]), names
        ).to_pylist() == [True]


def test_names_are_found_in_any_case() -> None:
    assert files_to_scan([[1], [2]], pa.int64(), Compare(Op.EQ, column("C"), pa.scalar(1))) == [0]


def test_unreadable_and_absent_statistics_keep_the_file() -> None:
    schema = pa.schema([("c", pa.int64()), ("p", pa.int32())])
    entry = File([{"c": 1}], {"p": 1}).entry(None, schema, ("p",))
    odd = [
        {**entry, "minValues": {"c": "one"}},
        {**entry, "minValues": None, "maxValues": None},
        {**entry, "minValues": {}, "maxValues": {}},
        {**entry, "minValues": {"c": "9"}, "maxValues": {"c": "1"}, "splitTags": None},
        {**entry, "partitionValues": {"p": "one"}},
        {**entry, "partitionValues": {}},
        {**entry, "partitionValues": None},
    ]
    table = table_of(odd)
    assert prune(table, c(Op.LT, 0), schema, ("p",)).to_pylist() == [
        True,
        True,
        True,
        True,
        False,
        False,
        False,
    ]
    by_partition = Compare(Op.EQ, column("p"), pa.scalar(7))
    assert prune(table, by_partition, schema, ("p",)).to_pylist() == [False] * 4 + [True] * 3
    assert (
        prune(table.select(["path"]), And((c(Op.LT, 0), by_partition)), schema, ("p",)).to_pylist()
        == [True] * 7
    )


def test_no_condition_and_no_files_are_fine() -> None:
    schema = pa.schema([("c", pa.int64())])
    table = table_of([File([{"c": 1}], {}).entry(None, schema, ())])
    assert prune(table, None, schema, ()).to_pylist() == [True]
    assert prune(table.slice(0, 0), c(Op.EQ, 1), schema, ()).to_pylist() == []


def test_slices_and_chunks_see_their_own_rows() -> None:
    schema = pa.schema([("c", pa.int64()), ("p", pa.int32())])
    table = table_of([File([{"c": n}], {"p": n}).entry(None, schema, ("p",)) for n in range(10)])
    chunked = pa.concat_tables([table.slice(2, 3), table.slice(7, 3)])
    for name in ("c", "p"):
        mask = prune(chunked, Compare(Op.GE, column(name), pa.scalar(4)), schema, ("p",))
        assert mask.to_pylist() == [False, False, True, True, True, True]


def test_maps_of_many_shapes_are_read() -> None:
    schema = pa.schema([("c", pa.int64()), ("d", pa.int64())])
    entry = File([{"c": 1, "d": 1}], {}).entry(None, schema, ())
    shapes = [{"d": "5", "c": "1"}, {"c": "7"}, {"d": "7"}, {"c": "1", "d": "1"}, {"c": "9", "z": "1"}]
    table = table_of([{**entry, "minValues": s, "maxValues": s} for s in shapes])
    assert prune(table, c(Op.GT, 5), schema, ()).to_pylist() == [False, True, True, False, True]


@pytest.mark.parametrize("name", ["numRecords", 'a"b', "a,b", "}", "é", "a\\", "nullCount"])
def test_null_counts_are_found_for_odd_names(name: str) -> None:
    schema = pa.schema([(name, pa.int64()), ("x" + name, pa.int64())])
    files = [File([{name: v, "x" + name: 1}], {}).entry(None, schema, ()) for v in (1, None)]
    table = table_of(files)
    assert prune(table, IsNull(Column((name,))), schema, ()).to_pylist() == [False, True]
    assert prune(table, Not(IsNull(Column((name,)))), schema, ()).to_pylist() == [True, False]
    assert prune(table, IsNull(Column(("x" + name,))), schema, ()).to_pylist() == [False, False]


def test_certain_files_are_told_from_possible_ones() -> None:
    assert files_to_scan(INTS, pa.int64(), c(Op.GE, 9), certain=True) == [2]
    assert files_to_scan(INTS, pa.int64(), Not(IsNull(C)), certain=True) == [0, 1, 2]
    assert files_to_scan([[1], [None]], pa.int64(), IsNull(C), certain=True) == [1]
    assert files_to_scan([[1]], pa.int64(), c(Op.GE, 1), maker="rust", certain=True) == []


def test_conjuncts_on_partitions_are_split_off() -> None:
    day, other = Compare(Op.EQ, column("day"), pa.scalar(1)), Compare(Op.EQ, column("x"), pa.scalar(1))
    mixed, search = Or((day, other)), Search(SearchKind.INDEXQUERY, column("day"), "q")
    assert split_partition_conjuncts(And((day, And((other, Not(day))))), ["Day"]) == (
        And((day, Not(day))),
        other,
    )
    assert split_partition_conjuncts(mixed, ["day"]) == (None, mixed)
    assert split_partition_conjuncts(search, ["day"]) == (None, search)
    assert split_partition_conjuncts(None, ["day"]) == (None, None)
    assert split_partition_conjuncts(Always(value=False), ["day"]) == (None, Always(value=False))


def test_a_long_list_of_values_skips_like_a_short_one() -> None:
    numbers = [[n * 10, n * 10 + 1] for n in range(300)]
    wanted = In(C, tuple(pa.scalar(n) for n in range(0, 30_000, 50)))
    assert files_to_scan(numbers, pa.int64(), wanted) == list(range(0, 300, 5))
    texts = [[f"{n:04d}"] for n in range(300)]
    assert files_to_scan(texts, pa.string(), In(C, tuple(pa.scalar(f"{n:04d}") for n in range(40)))) == list(
        range(40)
    )
    many = In(C, tuple(pa.scalar(f"{n:04d}x") for n in range(3000)))
    assert len(files_to_scan(texts, pa.string(), many)) <= 300
    assert files_to_scan(texts, pa.string(), In(C, tuple(pa.scalar(f"9{n:04d}") for n in range(3000)))) == []


def many_files(count: int) -> pa.Table:
    """Entries of 1,000 partitions with a range of integers each, as a snapshot would give them."""
    rows = np.arange(count)
    keys = pa.array(["id", "name"]).take(pa.array(np.tile([0, 1], count)))
    offsets = pa.array(np.arange(0, 2 * count + 1, 2, dtype=np.int32))

    def bounds(numbers: Any) -> Any:
        return pa.MapArray.from_arrays(offsets, keys, pc.cast(pa.array(np.repeat(numbers, 2)), pa.string()))

    day = pc.cast(pa.array(rows * 1000 // count), pa.string())
    single = pa.array(np.arange(count + 1, dtype=np.int32))
    return pa.table(
        {
            "partitionValues": pa.MapArray.from_arrays(single, pa.repeat("p", count), day),
            "minValues": bounds(rows * 10),
            "maxValues": bounds(rows * 10 + 9),
            "splitTags": pa.ListArray.from_arrays(single, pa.repeat("parquet", count)),
        }
    )


def test_one_partition_and_one_range_are_found_among_200_000_files_at_once() -> None:
    count = 200_000
    files = many_files(count)
    schema = pa.schema([("id", pa.int64()), ("name", pa.string()), ("p", pa.int32())])
    asked: dict[Any, int] = {
        Compare(Op.EQ, column("p"), pa.scalar(500)): count // 1000,
        And(
            (Compare(Op.GE, column("id"), pa.scalar(5000)), Compare(Op.LT, column("id"), pa.scalar(6000)))
        ): 100,
    }
    for predicate, found in asked.items():
        started = time.process_time()
        assert prune(files, predicate, schema, ["p"]).true_count == found
        # A loop over the files in Python would take longer.
        assert time.process_time() - started < 1.0


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize(
    ("arrow", "bounds", "inside", "outside"),
    [
        (pa.int64(), ("2", "10"), pa.scalar(9), pa.scalar(11)),
        (pa.date32(), ("2024-01-01", "2024-01-31"), pa.scalar("2024-01-15"), pa.scalar("2024-02-01")),
        (pa.float64(), ("-1.5", "1e3"), pa.scalar(999.0), pa.scalar(1001.0)),
        (pa.bool_(), ("true", "true"), pa.scalar(True), pa.scalar(False)),
        (
            UTC,
            ("2024-01-01 00:00:00", "2024-01-01 10:00:00.5"),
            pa.scalar(1_704_103_200_500_000, UTC),
            pa.scalar(0, UTC),
        ),
    ],
    ids=str,
)
def test_manifests_are_skipped_by_typed_bounds(
    arrow: Any, bounds: Any, inside: Any, outside: Any, ordered: bool
) -> None:
    schema = pa.schema([("c", arrow), ("x", pa.int64())])

    def may(predicate: Any) -> bool:
        return bounds_may_match(predicate, {"c": bounds}, schema, ["c"], ordered=ordered)

    assert may(c(Op.EQ, inside))
    assert not may(c(Op.EQ, outside))
    assert may(In(C, (inside, outside)))
    assert not may(In(C, (outside,)))
    assert not may(And((c(Op.EQ, inside), c(Op.EQ, outside))))
    assert may(Or((c(Op.EQ, inside), c(Op.EQ, outside))))
    assert may(IsNull(C))
    assert may(Compare(Op.EQ, column("x"), pa.scalar(1)))
    assert may(None)


def test_manifests_without_bounds_are_read() -> None:
    schema = pa.schema([("c", pa.int64())])
    for bounds in (
        {},
        {"c": (None, None)},
        {"c": ("1", None)},
        {"c": ("x", "y")},
        {"d": ("1", "2")},
        {"c": ("9", "1")},
    ):
        assert bounds_may_match(c(Op.EQ, 5), bounds, schema, ["c"], ordered=True)


def test_texts_are_skipped_only_by_bounds_in_order() -> None:
    schema = pa.schema([("c", pa.string()), ("d", pa.decimal128(20, 2))])
    bounds = {"c": ("1a", "1a"), "d": ("1.00", "2.00")}
    assert not bounds_may_match(c(Op.EQ, "9"), bounds, schema, ["c"], ordered=True)
    # The original, given "10", "9" and "1a", finds "1a" as both bounds.
    assert bounds_may_match(c(Op.EQ, "9"), bounds, schema, ["c"], ordered=False)
    above = Compare(Op.GT, column("d"), pa.scalar(Decimal("3.00")))
    assert not bounds_may_match(above, bounds, schema, ["c", "d"], ordered=True)
    assert bounds_may_match(above, bounds, schema, ["c", "d"], ordered=False)


def test_the_null_partition_among_foreign_bounds_is_no_bound() -> None:
    schema = pa.schema([("c", pa.int64())])
    bounds = {"c": ("5", "__HIVE_DEFAULT_PARTITION__")}
    assert bounds_may_match(c(Op.GT, 100), bounds, schema, ["c"], ordered=False)
    assert not bounds_may_match(c(Op.LT, 5), bounds, schema, ["c"], ordered=False)


def test_the_bounds_of_a_list_are_parsed_once_for_all_conditions(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = pa.schema([("c", pa.int64())])
    files = table_of([File([{"c": v} for v in held], {}, "ours").entry(None, schema, ()) for held in INTS])
    parsed = []
    parse = parse_values
    monkeypatch.setattr(
        column_metrics, "parse_values", lambda *args, **more: parsed.append(1) or parse(*args, **more)
    )
    assert prune(files, c(Op.EQ, 6), schema, ()).to_pylist() == [False, True, False, False]
    assert prune(files, c(Op.EQ, 11), schema, ()).to_pylist() == [False, False, True, False]
    assert evaluate_metrics(files, c(Op.GE, 6), schema, ()).strict.to_pylist() == [False, True, True, False]
    assert len(parsed) == 2, "least and greatest values"


def test_a_list_is_evaluated_with_the_schema_and_partitions_of_each_query() -> None:
    integers, texts = pa.schema([("c", pa.int64())]), pa.schema([("c", pa.string())])
    files = table_of([File([{"c": v} for v in (5, 10)], {}, "ours").entry(None, integers, ())])
    for _ in range(2):
        assert prune(files, c(Op.EQ, 7), integers, ()).to_pylist() == [True]
        assert prune(files, c(Op.EQ, "7"), texts, ()).to_pylist() == [False], "as texts 10 is before 5"
        assert prune(files, c(Op.EQ, 70), integers, ()).to_pylist() == [False]


def test_the_entries_of_a_list_are_released_with_it() -> None:
    schema = pa.schema([("c", pa.int64())])
    before = len(pruning._read_entries)
    files = table_of([File([{"c": 1}], {}, "ours").entry(None, schema, ())])
    prune(files, c(Op.EQ, 1), schema, ())
    assert len(pruning._read_entries) == before + 1
    del files
    assert len(pruning._read_entries) == before


def test_many_entries_and_columns_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_metrics, "_MAX_METRICS", 6)
    names = [f"c{n}" for n in range(9)]
    schema = pa.schema([(name, pa.int64()) for name in names])
    rows = [File([dict.fromkeys(names, v)], {}, "ours").entry(None, schema, ()) for v in range(3)]
    files = table_of(rows)
    for name in names * 2:
        condition = Compare(Op.EQ, column(name), pa.scalar(1))
        assert prune(files, condition, schema, ()).to_pylist() == [False, True, False]
    (entries,) = pruning._read_entries[id(files)].batches
    assert len(entries._metrics) <= 3
