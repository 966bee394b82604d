"""A file with a row that matches is never skipped, whoever wrote its statistics."""

import math
import operator
from decimal import Decimal

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from prunable import PARTITIONS, SCHEMA, File, array_of, column, table_of, truth

from indextables.log.prune import bounds_may_match, judge, prune, split_partition_conjuncts
from indextables.predicate import (
    Always,
    And,
    Compare,
    In,
    IsNull,
    Like,
    Not,
    Op,
    Or,
    TextMatch,
    TextMatchKind,
)

INTEGERS = [-(2**63), -(2**53) - 1, -1, 0, 1, 2, 9, 10, 2**24 + 1, 2**53, 2**53 + 1, 2**63 - 1]
FLOATS = [
    -math.inf,
    -1e300,
    -1.5,
    -5e-324,
    -0.0,
    0.0,
    0.1,
    1.5,
    2.0,
    9.0,
    2.0**53,
    1e300,
    math.inf,
    *[math.nan] * 4,
]
FLOAT32S = [float(np.float32(x)) for x in (-3e38, -0.0, 0.0, 0.1, 1.5, 2**24, math.inf, *[math.nan] * 3)]
DECIMALS = [Decimal(x) for x in ("-9999999999.99", "-0.01", "0.00", "0.01", "1.50", "2.00", "9999999999.99")]
_LONG = "log line of a service that "
TEXTS = [
    "", "a", "aa", "ab", "b", "a?", "?", "9", "10", "100", "é", "\0", "a\0", "\ud7ff", "\ue000", "\uffff", "😀",
    _LONG + "failed at once", _LONG + "failed", _LONG + "ended", _LONG[:31], _LONG + "f" * 5, "a" * 31 + "😀", "a" * 31 + "b",
    "a" * 32, "a" * 33, "\U0010ffff" * 33, "z" * 31 + "\ud7ff" + "z", "%_\\", "a%b",
]  # fmt: skip
DAYS = [-719_162, -1, 0, 1, 19_000, 19_723, 2_932_896]
MICROS = [
    -62_135_596_800_000_000,
    -1,
    0,
    1,
    1_700_000_000_000_000,
    1_700_000_000_000_001,
    253_402_300_799_999_999,
]

POOLS = {
    "i": INTEGERS,
    "h": [-32768, -1, 0, 1, 9, 10, 32767],
    "f": FLOATS,
    "g": FLOAT32S,
    "d": DECIMALS,
    "t": TEXTS,
    "b": [True, False],
    "day": DAYS,
    "ts": MICROS,
    "local": MICROS,
    "p": [-1, 0, 9, 10, 100],
    "q": ["", "a", "b", "9", "10", "1a", "a/b", "é", "😀", "\uffff", "%"],
}
NAMES = list(POOLS)


def numbers(name):
    """Literals for a numeric column: also those of other types."""
    own = SCHEMA.field(name).type
    literals = [array_of(POOLS[name], own)[n] for n in range(len(POOLS[name]))]
    literals += [pa.scalar(n, pa.int64()) for n in INTEGERS]
    literals += [pa.scalar(n, pa.decimal128(30, 3)) for n in (*DECIMALS, Decimal("1.501"), Decimal("-0.001"))]
    literals += [pa.scalar(n, pa.float64()) for n in FLOATS]
    literals += [pa.scalar(n, pa.float32()) for n in FLOAT32S]
    return literals


def literals_of(name):
    own = SCHEMA.field(name).type
    if pa.types.is_integer(own) or pa.types.is_floating(own) or pa.types.is_decimal(own):
        made = numbers(name)
    else:
        held = array_of(POOLS[name], own)
        made = [held[n] for n in range(len(held))]
    if name == "day":
        made += [pa.scalar("2022-01-08"), pa.scalar("1970-01-01")]
    return [*made, pa.scalar(None, own)]


LITERALS = {name: literals_of(name) for name in NAMES}
wildcards = st.lists(st.sampled_from(["%", "_", "a", "9", "\\%"]), max_size=3).map("".join)


def own_literals(name, values):
    held = array_of(values, SCHEMA.field(name).type)
    return [held[n] for n in range(len(held))]


def leaves_of(name, pool):
    here = st.just(column(name))
    literals = st.sampled_from(own_literals(name, pool) * 2 + LITERALS[name])
    literals = st.one_of(st.sampled_from(own_literals(name, pool)), literals)
    compared = st.builds(Compare, st.sampled_from(list(Op)), here, literals)
    kinds = [
        compared,
        compared,
        st.builds(In, here, st.lists(literals, max_size=4).map(tuple)),
        st.builds(IsNull, here),
    ]
    if SCHEMA.field(name).type == pa.string():
        prefixes = st.sampled_from([text[:n] for text in pool for n in (0, 1, 31, 32, 99)])
        kinds.append(st.builds(TextMatch, st.sampled_from(list(TextMatchKind)), here, prefixes))
        kinds.append(st.builds(Like, here, st.builds(operator.add, prefixes, wildcards)))
    return st.one_of(kinds)


@st.composite
def cases(draw, names):
    """Files that have values in a few columns only, out of a few values, and conditions on them."""
    chosen = draw(names)
    pools = {
        name: draw(st.lists(st.sampled_from(POOLS[name]), min_size=1, max_size=4))
        for name in {*chosen, *PARTITIONS}
    }
    values = {name: st.sampled_from([*pool, None]) for name, pool in pools.items()}
    made = st.builds(
        File,
        st.lists(
            st.fixed_dictionaries({n: values[n] for n in chosen if n not in PARTITIONS}),
            min_size=1,
            max_size=3,
        ),
        st.fixed_dictionaries({name: values[name] for name in PARTITIONS}),
        st.sampled_from(["ours", "ours", "scala", "rust"]),
    )
    leaves = st.one_of(*(leaves_of(name, pools[name]) for name in chosen), st.sampled_from(ALWAYS))
    asked = st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(And, st.lists(inner, min_size=1, max_size=3).map(tuple)),
            st.builds(Or, st.lists(inner, min_size=1, max_size=3).map(tuple)),
            st.builds(Not, inner),
        ),
        max_leaves=3,
    )
    return draw(st.lists(made, min_size=1, max_size=5)), draw(st.lists(asked, min_size=6, max_size=6))


ALWAYS = [Always(True), Always(False), Always(None)]
# Texts and doubles have the most ways to go wrong.
single = st.sampled_from([*NAMES, "t", "t", "t", "f", "f", "f"]).map(lambda name: (name,))
some_names = st.one_of(single, single, st.permutations(NAMES).map(lambda names: tuple(names[:2])))
cuts = st.sampled_from([None, {"stats.truncation.maxLength": "1"}, {"stats.truncation.enabled": "false"}])


@settings(max_examples=350, deadline=None)
@given(cases(some_names), cuts)
def test_no_file_with_a_matching_row_is_skipped_and_no_certain_one_is_wrong(case, options):
    made, asked = case
    table = table_of([file.entry(options) for file in made])
    for predicate in asked:
        may, must = judge(table, predicate, SCHEMA, PARTITIONS)
        assert prune(table, predicate, SCHEMA, PARTITIONS).equals(may)
        for file, kept, certain in zip(made, may.to_pylist(), must.to_pylist(), strict=True):
            truths = [truth(predicate, row) for row in file.full_rows()]
            assert kept or True not in truths, (predicate, file)
            assert not certain or all(truths), (predicate, file)


@settings(max_examples=60, deadline=None)
@given(cases(st.sampled_from([("p", "i"), ("q", "p"), ("q", "t")])))
def test_what_is_split_off_for_partitions_loses_nothing(case):
    made, asked = case
    table = table_of([file.entry() for file in made])
    for predicate in asked:
        mine, others = split_partition_conjuncts(predicate, PARTITIONS)
        for file in made:
            for row in file.full_rows():
                both = And(tuple(part for part in (mine, others) if part is not None))
                assert (truth(both, row) is True) == (truth(predicate, row) is True)
        whole = prune(table, predicate, SCHEMA, PARTITIONS)
        part = prune(table, mine, SCHEMA, PARTITIONS)
        assert all(p or not w for w, p in zip(whole.to_pylist(), part.to_pylist(), strict=True))


def foreign_fold(texts):
    """The bounds that the original finds: as numbers if both look like numbers, else as texts."""

    def less(a, b):
        for number in (int, float):
            try:
                return number(a) < number(b)
            except ValueError:
                continue
        return a < b

    low = high = texts[0]
    for text in texts[1:]:
        low, high = (text if less(text, low) else low), (text if less(high, text) else high)
    return low, high


@settings(max_examples=150, deadline=None)
@given(cases(st.sampled_from([("p",), ("q",), ("p", "q")])), st.booleans())
def test_no_manifest_with_a_matching_row_is_skipped(case, ordered):
    made, asked = case
    bounds = {}
    for name in PARTITIONS:
        held = [file.partition[name] for file in made if file.partition[name] is not None]
        if ordered:
            held.sort(key=lambda v: v.encode() if isinstance(v, str) else v)
            bounds[name] = (str(held[0]), str(held[-1])) if held else (None, None)
        else:
            texts = [
                "__HIVE_DEFAULT_PARTITION__" if (v := f.partition[name]) is None else str(v) for f in made
            ]
            bounds[name] = foreign_fold(texts)
    for predicate in asked:
        wanted = any(truth(predicate, row) is True for file in made for row in file.full_rows())
        assert bounds_may_match(predicate, bounds, SCHEMA, PARTITIONS, ordered=ordered) or not wanted
