"""What the index holds of a value: exact, in order, and never silently less."""

import datetime as dt
import json
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tantivy
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables.options.writing import find_tokenizer
from indextables.split.index.encode import (
    _multipliers,
    documents,
    float_text,
    float_values,
    hash_values,
    integer_values,
    json_text,
    rows_with_long_tokens,
)
from indextables.split.index.tokenizers import analyzer
from indextables.split.mapping import Field, Kind, Mapping

TEXTS = st.text(max_size=40)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=60))
def test_a_double_goes_through_json_without_a_lost_bit(values: Any) -> None:
    texts, failed = float_text(np.array(values))
    schema = tantivy.SchemaBuilder().add_integer_field("n", fast=True).add_float_field("f", fast=True).build()
    index = tantivy.Index(schema)
    writer = index.writer(15_000_000, 1)
    for i, text in enumerate(texts.to_pylist()):
        if not failed[i]:
            writer.add_json(f'{{"n":{i},"f":{text}}}')
    writer.commit()
    index.reload()
    searcher = index.searcher()
    found = [address for _, address in searcher.search(tantivy.Query.all_query(), 100).hits]
    numbers = searcher.fast_field_values("n", found)
    back = dict(zip(numbers, searcher.fast_field_values("f", found), strict=True))
    assert back == {i: value for i, value in enumerate(values) if not failed[i]}


def test_ordinary_doubles_nearly_all_have_a_json_form() -> None:
    values = np.random.default_rng(5).exponential(50, 20_000)
    assert float_text(values)[1].mean() < 0.01


def test_there_is_one_zero_and_one_nan() -> None:
    odd = np.array([0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(np.float64)
    values = float_values(pa.array([-0.0, *odd, None]))
    assert math.copysign(1, values[0]) == 1
    assert len({value.tobytes() for value in values[1:3]}) == 1


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([-128, None, 127], pa.int8()), [-128, None, 127]),
        (pa.array([-(2**63), 2**63 - 1]), [-(2**63), 2**63 - 1]),
        (pa.array([dt.date(1969, 12, 31), None]), [-1, None]),
        (pa.array([1_000_005], pa.int64()).view(pa.timestamp("us")), [1_000_005]),
        (pa.array([-(2**63), 2**63 - 1], pa.int64()).view(pa.timestamp("us", "UTC")), [-(2**63), 2**63 - 1]),
        (pa.array([dt.timedelta(seconds=-1)], pa.duration("us")), [-1_000_000]),
        (pa.array([dt.time(0, 0, 1)], pa.time64("us")), [1_000_000]),
        (pa.array(["-9.99", None, "0.01"]).cast(pa.decimal128(18, 2)), [-999, None, 1]),
    ],
)
def test_numbers_dates_and_times_become_whole_numbers(values: Any, expected: Any) -> None:
    assert integer_values(values).to_pylist() == expected
    assert integer_values(values.slice(1)).to_pylist() == expected[1:]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.none() | TEXTS, max_size=20), st.integers(0, 5))
def test_a_hash_depends_on_the_value_alone(values: Any, start: Any) -> None:
    together = hash_values(pa.array(values, pa.string()).slice(start)).to_pylist()
    alone = [hash_values(pa.array([v], pa.string()))[0].as_py() for v in values[start:]]
    assert together == alone
    assert all(h is None or 0 <= h < 2**32 for h in together)


@pytest.mark.parametrize(
    "lengths", [[7], [0], [0, 1, 30, 31], list(range(40)), [3, 200, 65_530], [5, 65_531]]
)
def test_hashes_of_many_strings_of_few_lengths_are_those_of_the_format(lengths: Any) -> None:
    random = np.random.default_rng(len(lengths))
    texts = ["".join(random.choice(list("aé b"), n)) for n in lengths for _ in range(40 if n < 1000 else 2)]
    random.shuffle(texts)
    values = [None, *texts, *texts[:5]]
    multipliers = _multipliers().tolist()

    def expected(text: str) -> Any:
        data = text.encode()[:65_530]
        s = sum((byte + 1) * multipliers[place] for place, byte in enumerate(data)) % 2**64
        s = (s ^ s >> 29) * 0xBF58476D1CE4E5B9 % 2**64
        return (s ^ len(text.encode()) * 0x9E3779B97F4A7C15 % 2**64) >> 32

    array = pa.array(["first", *values], pa.string()).slice(1)
    assert hash_values(array).to_pylist() == [None if v is None else expected(v) for v in values]


def test_hashes_are_part_of_the_format() -> None:
    texts = ["abc", "", "01234567-89ab-cdef-0123-456789abcdef", "é", "x" * 70_000, None]
    assert hash_values(pa.array(texts)).to_pylist()[:2] == [985779911, 0]
    assert hash_values(pa.array(["x" * 70_000]))[0] != hash_values(pa.array(["x" * 70_001]))[0]


def test_hashes_of_similar_values_differ() -> None:
    for texts in (
        [f"user-{i}" for i in range(50_000)],
        [str(i) for i in range(50_000)],
        ["a" * i for i in range(2000)],
    ):
        assert len(set(hash_values(pa.array(texts)).to_pylist())) >= len(texts) - 3


TOKENIZERS = ["default", "whitespace", "raw", "cjk", "en_stem", "ngram_1_3"]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.none() | st.text(st.sampled_from("abé東 -.\n0Z"), max_size=12), min_size=1, max_size=8),
    st.sampled_from(TOKENIZERS),
    st.integers(1, 6),
)
def test_no_row_with_a_dropped_token_goes_unnoticed(values: Any, tokenizer: Any, limit: Any) -> None:
    listed = rows_with_long_tokens(pa.array(values, pa.string()), find_tokenizer(tokenizer), limit)
    marked = [False] * len(values) if listed is None else listed.tolist()
    whole, cut = analyzer(find_tokenizer(tokenizer), 65530), analyzer(find_tokenizer(tokenizer), limit)
    for value, mark in zip(values, marked, strict=True):
        if value is not None and len(whole.analyze(value)) != len(cut.analyze(value)):
            assert mark, value


def test_rows_with_short_tokens_are_not_listed() -> None:
    values = pa.array(["word " * 1000, "x" * 255, "a" * 256 + " b", None])
    assert rows_with_long_tokens(values, find_tokenizer("default"), 255).tolist() == [
        False,
        False,
        True,
        False,
    ]
    assert rows_with_long_tokens(values.slice(0, 2), find_tokenizer("default"), 255) is None


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
STRUCT = pa.struct(
    [
        ("n", pa.int64()),
        ('s"x', pa.string()),
        ("l", pa.list_(pa.string())),
        ("m", pa.map_(pa.string(), pa.int32())),
        ("d", pa.struct([("deep", pa.list_(pa.struct([("b", pa.bool_())])))])),
    ]
)
ROWS = st.none() | st.fixed_dictionaries(
    {
        "n": st.none() | st.integers(-(2**63), 2**63 - 1),
        's"x': st.none() | TEXTS,
        "l": st.none() | st.lists(st.none() | TEXTS, max_size=3),
        "m": st.none() | st.dictionaries(TEXTS, st.none() | st.integers(-5, 5), max_size=3).map(lambda d: list(d.items())),
        "d": st.none() | st.fixed_dictionaries({"deep": st.none() | st.lists(st.none() | st.fixed_dictionaries({"b": st.booleans()}), max_size=2)}),
    }
)  # fmt: skip


def without_nulls(value: Any, kind: Any) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(kind):
        pairs = ((f.name, without_nulls(value[f.name], f.type)) for f in kind)
        return {name: inner for name, inner in pairs if inner is not None}
    if pa.types.is_map(kind):
        return {key: item for key, item in value if item is not None}
    if pa.types.is_list(kind):
        items = (without_nulls(item, kind.value_type) for item in value)
        return [item for item in items if item is not None]
    return value


@settings(max_examples=150, deadline=None)
@given(st.lists(ROWS, max_size=6), st.integers(0, 3))
def test_nested_values_are_written_as_their_json(rows: Any, start: Any) -> None:
    values = pa.array(rows, STRUCT).slice(start)
    texts, partial = json_text(values)
    expected = [without_nulls(row, STRUCT) for row in values.to_pylist()]
    assert [None if t is None else json.loads(t) for t in texts.to_pylist()] == expected
    assert not partial.any()


def test_what_json_cannot_hold_is_said() -> None:
    values = pa.array([[1.5, float("nan")], [2.0], None], pa.list_(pa.float64()))
    texts, partial = json_text(values)
    assert [None if t is None else json.loads(t) for t in texts.to_pylist()] == [[1.5], [2.0], None]
    assert partial.tolist() == [True, False, False]
    assert json_text(pa.array([{"b": b"x"}, {"b": None}]))[1].tolist() == [True, False]


@pytest.mark.parametrize("micros", [-(2**63), -1, 0, 253402300800000000, 2**63 - 1])
def test_timestamps_of_any_year_have_a_json_form(micros: int) -> None:
    values = pa.array([{"t": micros}], pa.struct([("t", pa.int64())]))
    stamps = pa.StructArray.from_arrays([values.field(0).view(pa.timestamp("us", "UTC"))], names=["t"])
    assert json.loads(json_text(stamps)[0][0].as_py())["t"].endswith("Z")


@settings(max_examples=100, deadline=None)
@given(st.lists(st.none() | st.text(max_size=20), min_size=1, max_size=10))
def test_any_string_is_fed_as_it_is(values: Any) -> None:
    field = Field("c", "s:c", Kind.STRING)
    batch = pa.record_batch({"c": pa.array(values, pa.string())})
    made = documents(batch, Mapping((field,)), np.arange(len(values)))
    fed = [json.loads(line) for line in made.lines.to_pylist()]
    assert [row.get("s:c") for row in fed] == values
    assert [row["_row"] for row in fed] == list(range(len(values)))


JSON_FIELD = Field("j", "j:j", Kind.JSON, root="j")


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.none() | JSON_VALUES.map(json.dumps) | st.text('{}[]",:1a \n', max_size=10), min_size=1, max_size=6
    )
)
def test_json_texts_are_taken_whole_or_marked(texts: Any) -> None:
    batch = pa.record_batch({"j": pa.array(texts, pa.string())})
    made = documents(batch, Mapping((JSON_FIELD,)), np.arange(len(texts)))
    for text, line in zip(texts, made.lines.to_pylist(), strict=True):
        row = json.loads(line)
        assert set(row) <= {"_row", "j:j", "_partial"}
        if text is None:
            assert set(row) == {"_row"}
            continue
        try:
            value = json.loads(text)
        except ValueError:
            assert row["_partial"] == ["j:j"]
            continue
        if "_partial" not in row:
            assert row["j:j"] == (value if isinstance(value, dict) else {"j": value})


def test_only_addresses_are_fed_to_an_address_field() -> None:
    texts = [
        "1.2.3.4",
        "255.255.255.255",
        "::1",
        "2001:db8::ff",
        "256.1.1.1",
        "01.2.3.4",
        "fe80::1%eth0",
        "x",
        "",
        None,
    ]
    batch = pa.record_batch({"a": pa.array(texts)})
    made = documents(batch, Mapping((Field("a", "a:a", Kind.IP),)), np.arange(len(texts)))
    fed = [json.loads(line) for line in made.lines.to_pylist()]
    assert [row.get("a:a") for row in fed] == [*texts[:4], *[None] * 6]
    assert [("_partial" in row) for row in fed] == [*[False] * 4, *[True] * 5, False]
