"""Integers that nearly all differ have term filters: splits without a value are skipped, answers stay the same."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import indextables
from indextables import metrics, read
from indextables.options import Options
from indextables.predicate import Column, Compare, In, Op, Or
from indextables.read.split_source import close_splits
from indextables.read.table_context import SKIPPED
from indextables.split.footer import FilterPlace, read_footer
from indextables.split.index.term_filter import TermFilter, encode_filter, encode_pages, integer_keys
from indextables.split.mapping import mapping_for
from indextables.split.query.required_terms import may_hold, required_terms
from indextables.store import open_store
from tests.read.read_tables import opened

SPLITS = 6
EDGES = [0, 1, -1, 2**24 + 1, 2**31 - 1, -(2**31), 2**53, 2**53 + 1, 2**63 - 1, -(2**63)]
INTEGERS = st.integers(-(2**63), 2**63 - 1) | st.sampled_from(EDGES) | st.integers(-100, 100)
TYPES = [pa.int64(), pa.float64(), pa.float32(), pa.decimal128(38, 2), pa.decimal128(20, 0)]


def literal(value: Any, kind: Any) -> Any:
    """The value in a type; None if it has none there."""
    try:
        return pa.scalar(value, pa.int64()).cast(kind, safe=False) if kind != pa.int64() else pa.scalar(value)
    except pa.ArrowInvalid:
        return None


def test_every_integer_of_a_filter_passes_in_any_type_that_equals_it() -> None:
    schema = pa.schema([("n", pa.int64())])
    mapping = mapping_for(schema, Options())

    @given(st.lists(INTEGERS, min_size=1, max_size=50), INTEGERS, st.sampled_from(TYPES), st.integers(1, 9))
    def check(values: Any, other: Any, kind: Any, blocks: Any) -> None:
        data = encode_pages("n:n", encode_filter(integer_keys(np.array(values, np.int64)), blocks))
        filter_ = TermFilter(FilterPlace("n:n", 0, blocks))

        def passes(condition: Any) -> bool:
            required = required_terms(condition, mapping, lambda _: pytest.fail("no search"))
            read = lambda ranges: [data[start:end] for start, end in ranges]  # noqa: E731
            return required is None or may_hold(
                required, lambda leaf: filter_.may_contain_any(leaf.terms, read)
            )

        for value in values:
            scalar = literal(value, kind)
            if scalar is None:
                continue
            assert passes(Compare(Op.EQ, Column(("n",)), scalar)), scalar
            absent = literal(other, kind)
            if absent is not None:
                listed = (absent, scalar)
                assert passes(In(Column(("n",)), listed)), listed

    check()


def rows(number: int, count: int = 400) -> pa.Table:
    """Rows of a split; `big` and `small` have random values, `up` ascends, `few` repeats."""
    rng = random.Random(number)
    return pa.table(
        {
            "big": pa.array([rng.randrange(-(2**62), 2**62) for _ in range(count)], pa.int64()),
            "small": pa.array(
                [None if n % 50 == 9 else rng.randrange(-(2**31), 2**31) for n in range(count)], pa.int32()
            ),
            "up": pa.array(range(count * number, count * (number + 1)), pa.int64()),
            "few": pa.array([rng.randrange(20) for _ in range(count)], pa.int64()),
            "pad": pa.array([rng.randbytes(150) for _ in range(count)]),
        }
    )


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same rows with filters, without, and with a bundle of the filters."""
    folder = tmp_path_factory.mktemp("integers")
    for number in range(SPLITS):
        indextables.write(folder / "with", rows(number))
        indextables.write(folder / "without", rows(number), options={"indexing.termFilters": "false"})
        indextables.write(folder / "bundled", rows(number))
    indextables.open(folder / "bundled").checkpoint()
    return folder


def filtered_fields(path: Path) -> list[Any]:
    table = indextables.open(path)
    store = open_store(table.url)
    return [
        {place.field for place in read_footer(store, split).term_filters}
        for split in table.files()["path"].to_pylist()
    ]


def test_integers_that_nearly_all_differ_and_have_no_order_have_a_filter(tables: Path) -> None:
    assert filtered_fields(tables / "with") == [{"n:big", "n:small"}] * SPLITS
    assert filtered_fields(tables / "without") == [set()] * SPLITS


def test_a_merge_keeps_the_filters_of_integers(tables: Path, tmp_path: Path) -> None:
    for number in range(3):
        indextables.write(tmp_path / "t", rows(number))
    indextables.open(tmp_path / "t").merge(target_size=100 << 20)
    assert filtered_fields(tmp_path / "t") == [{"n:big", "n:small"}]
    table = indextables.open(tmp_path / "t")
    assert all(table.count(f"big = {value}") == 1 for value in rows(1)["big"].to_pylist()[:40])


def conditions() -> Iterator[Any]:
    rng = random.Random(1)
    values = {name: rows(3)[name].drop_null().to_pylist() for name in ("big", "small")}
    for name, own in values.items():
        present, other = own[17], rng.randrange(2**30)
        yield from (
            f"{name} = {present}",
            f"{name} = {other}",
            f"{name} = {present}.0",
            f"{name} <=> {present}",
        )
        yield from (f"{name} = CAST({present} AS DOUBLE)", f"{name} = {present} OR {name} = {other}")
        yield from (f"{name} IN ({present}, {other}, NULL)", f"{name} NOT IN ({present}, {other})")
        yield from (f"{name} = {other}.5", f"{name} = {present} AND few < 30", f"{name} <> {present}")


@pytest.mark.parametrize("condition", list(conditions()))
def test_conditions_on_integers_give_the_same_foundwith_filters_and_without(
    tables: Path, condition: Any
) -> None:
    answers = [
        indextables.open(tables / name).scan(columns=["big"], where=condition)["big"].to_pylist()
        for name in ("with", "without", "bundled")
    ]
    assert sorted(answers[0]) == sorted(answers[1]) == sorted(answers[2])


@pytest.mark.parametrize("name", ["with", "bundled"])
def test_splits_without_an_integer_are_skipped(tables: Path, tmp_path: Path, name: str) -> None:
    close_splits()
    table = opened(tables / name, [], tmp_path / "cache")
    value = rows(2)["small"][0]
    for condition in (
        Compare(Op.EQ, Column(("small",)), value),
        Compare(Op.EQ, Column(("small",)), value.cast(pa.int64())),
        In(Column(("small",)), (value,)),
    ):
        before = metrics.figures()[SKIPPED].total if SKIPPED in metrics.figures() else 0
        assert read.count(table.snapshot, table.store, table.options, where=condition) == 1
        assert metrics.figures()[SKIPPED].total - before >= SPLITS - 2, condition


@pytest.mark.parametrize("micros", [-62_135_600_000_000_000, 253_402_300_800_000_000, 2**62])
def test_moments_that_python_has_no_object_for_are_compared(tmp_path: Path, micros: int) -> None:
    kind = pa.timestamp("us", tz="UTC")
    moments = pa.array([micros, 0, None, micros], pa.int64()).cast(kind)
    names = pa.array(["a", "b", "c", "d"])
    indextables.write(tmp_path / "t", pa.table({"at": moments, "name": names, "n": pa.array(range(4))}))
    table = indextables.open(tmp_path / "t")
    moment, column = pa.scalar(micros, pa.int64()).cast(kind), Column(("at",))
    equal, listed = Compare(Op.EQ, column, moment), In(column, (moment, moment))
    named = Compare(Op.EQ, Column(("name",)), pa.scalar("c"))
    for condition, expected in (
        (equal, [0, 3]),
        (listed, [0, 3]),
        (Or((equal, named)), [0, 2, 3]),
        (Or((listed, named)), [0, 2, 3]),
    ):
        found = read.scan(table._snapshot, table._log.store, Options(), columns=["n"], where=condition)
        assert sorted(found.read_all()["n"].to_pylist()) == expected
