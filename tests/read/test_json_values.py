"""Values within JSON texts, structs and lists: what the index holds of them, and what it cannot hold."""

import decimal
import json
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indextables
from indextables import Table
from indextables.split.json_values import parse_deep

# A key with this character keeps a row out of the index: it is evaluated on its value.
ON_ROWS = {"\x01": 0}
WHOLE = [
    10**17,
    10**18 - 1,
    10**18,
    10**18 + 1,
    2**53 + 1,
    2**63 - 1,
    2**63,
    2**63 + 1,
    2**64 - 1,
    -(2**63),
    -(10**18) - 1,
]


def table_of(path: Path, columns: Mapping[str, Any], **options: str) -> Table:
    rows = len(next(iter(columns.values())))
    data = pa.table({"id": range(rows), **columns})
    settings = {f"indexing.{name.replace('__', '.')}": value for name, value in options.items()}
    return indextables.write(path, data, options=settings)


def of_texts(path: Path, documents: Sequence[Any], **options: str) -> Table:
    """A table of documents in JSON."""
    texts = [text if isinstance(text, str) else json.dumps(text) for text in documents]
    return table_of(path, {"j": pa.array(texts, pa.string())}, typemap__j="json", **options)


def matching_ids(table: Table, where: str) -> list[int]:
    return sorted(table.scan(columns=["id"], where=where)["id"].to_pylist())


@pytest.mark.parametrize("added", [{}, ON_ROWS])
def test_whole_numbers_of_64_bits_are_compared_exactly_in_json(tmp_path: Path, added: dict[str, int]) -> None:
    table = of_texts(tmp_path / "t", [{"n": value, **added} for value in WHOLE])
    for i, value in enumerate(WHOLE):
        assert matching_ids(table, f"j INDEXQUERY 'j.n:\"{value}\"'") == [i]
        at_least = [k for k, other in enumerate(WHOLE) if other >= value]
        assert matching_ids(table, f"j INDEXQUERY 'j.n:[\"{value}\" TO *]'") == at_least


def test_whole_numbers_of_64_bits_are_compared_exactly_in_structs_and_lists(tmp_path: Path) -> None:
    own = [value for value in WHOLE if value < 2**63]
    structs = pa.array([{"n": value} for value in own], pa.struct([("n", pa.int64())]))
    table = table_of(
        tmp_path / "t", {"s": structs, "l": pa.array([[value] for value in own], pa.list_(pa.int64()))}
    )
    for i, value in enumerate(own):
        assert matching_ids(table, f"s INDEXQUERY 's.n:\"{value}\"'") == [i]
        assert matching_ids(table, f"l INDEXQUERY '\"{value}\"'") == [i]
        if value > -(2**63):
            assert matching_ids(table, f"s.n = {value}") == [i]
            assert matching_ids(table, f"s.n IN ({value}, 5)") == [i]


def test_whole_literals_equal_the_doubles_that_they_are_rounded_to(tmp_path: Path) -> None:
    structs = pa.array([{"d": 2.0**53}, {"d": 5.0}], pa.struct([("d", pa.float64())]))
    table = table_of(tmp_path / "t", {"s": structs})
    assert matching_ids(table, f"s.d = {2**53}") == [0]
    assert matching_ids(table, "s.d = 5") == [1]


@pytest.mark.parametrize("added", [{}, ON_ROWS])
def test_fractions_and_larger_numbers_are_found_by_their_digits(
    tmp_path: Path, seed: int, added: dict[str, int]
) -> None:
    rng = random.Random(seed)
    numbers = [rng.random() * 10 ** rng.randint(-20, 20) for _ in range(150)]
    numbers += [rng.randint(2**64, 10**30) for _ in range(50)]
    table = of_texts(tmp_path / "t", [{"n": number, **added} for number in numbers])
    for i, number in enumerate(numbers):
        assert i in matching_ids(table, f"j INDEXQUERY 'j.n:\"{number!r}\"'")


def test_decimals_in_structs_are_found_by_their_digits(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    numbers = [decimal.Decimal(rng.randint(10**20, 10**27)).scaleb(-10) for _ in range(150)]
    numbers += [decimal.Decimal(rng.randint(2**46, 2**53)) for _ in range(50)]
    structs = pa.array([{"d": number} for number in numbers], pa.struct([("d", pa.decimal128(38, 10))]))
    table = table_of(tmp_path / "t", {"s": structs})
    for i, number in enumerate(numbers):
        assert i in matching_ids(table, f"s INDEXQUERY 's.d:\"{number}\"'")


@pytest.mark.parametrize("options", [{}, {"tokenizer__j": "default"}])
def test_lone_surrogates_in_json_are_question_marks_as_in_spark(
    tmp_path: Path, options: dict[str, str]
) -> None:
    documents = [
        r'{"a": "\ud800 x"}',
        r'{"a": "x"}',
        r'{"\udc00k": "x"}',
        r'{"a": "\ud83d\ude00"}',
        r'{"a": "\\ud800"}',
    ]
    table = of_texts(tmp_path / "t", documents, **options)
    assert matching_ids(table, "j INDEXQUERY 'j.a:x'") == ([0, 1] if options else [1])
    assert matching_ids(table, "j INDEXQUERY 'j.a:[w TO z]'") == ([0, 1] if options else [1])
    assert matching_ids(table, "j INDEXQUERY 'j.\\\\?k:x'") == [2]
    if not options:
        assert matching_ids(table, "j INDEXQUERY 'j.a:\"? x\"'") == [0]
        assert matching_ids(table, "j INDEXQUERY 'j.a:😀'") == [3]
        assert matching_ids(table, "j INDEXQUERY 'j.a:\"\\\\\\\\ud800\"'") == [4]


@pytest.mark.parametrize("tokenizer", ["raw", "default", "whitespace"])
@pytest.mark.parametrize("mode", ["full", "minimal"])
def test_a_text_without_words_is_a_value(tmp_path: Path, tokenizer: str, mode: str) -> None:
    values = ["--", "", "word", None, "x" * 300, "2024-01-01T00:00:00Z", 1, {}, [], [""], [None]]
    options = {"tokenizer__j": tokenizer, "json__mode": mode}
    table = of_texts(tmp_path / "t", [{"b": value} for value in values], **options)
    assert matching_ids(table, "j INDEXQUERY 'j.b:*'") == [0, 1, 2, 4, 5, 6, 9]
    assert matching_ids(table, "j INDEXQUERY 'NOT j.b:*'") == [3, 7, 8, 10]
    assert table.count("j INDEXQUERY 'j.b:*'") == 7


def test_a_text_without_words_in_a_struct_is_a_value(tmp_path: Path) -> None:
    structs = pa.array([{"b": value} for value in ("--", "", "word", None)], pa.struct([("b", pa.string())]))
    table = table_of(tmp_path / "t", {"s": structs}, typemap__s__b="text")
    assert matching_ids(table, "s INDEXQUERY 's.b:*'") == [0, 1, 2]


@pytest.mark.parametrize("beside", [1.5, float("inf")])
@pytest.mark.parametrize(
    ("document", "has_value"),
    [
        ('{"a": %s}' % ("9" * 5000), True),
        ('{"a": 1.%s}' % ("9" * 5000), True),
        ('{"a": 1e%s}' % ("9" * 5000), True),
        ('{"a":' * 200 + "1" + "}" * 200, True),
        ('{"a":' * 2000 + "1" + "}" * 2000, True),
        ('{"a": "x", "b": ' + "[" * 20_000 + "]" * 20_000 + "}", True),
        ("[" * 20_000 + "]" * 20_000, False),
        ("[" * 200_000, False),
        ('{"a": "9999-12-31T23:59:59-01:00"}', True),
        ("{", False),
    ],
)
def test_no_json_text_fails_a_write_or_a_search(
    tmp_path: Path, document: str, has_value: bool, beside: float
) -> None:
    documents = pa.array([document, '{"a": 1}'], pa.string())
    table = table_of(tmp_path / "t", {"j": documents, "f": [beside, 1.0]}, typemap__j="json")
    assert matching_ids(table, "j INDEXQUERY 'j.a:*'") == ([0, 1] if has_value else [1])
    assert matching_ids(table, "j INDEXQUERY 'j.a:1'") == [1]
    assert 1 in matching_ids(table, "j INDEXQUERY 'j.a:>0'")


def test_documents_of_any_depth_are_parsed_as_others_are(seed: int) -> None:
    rng = random.Random(seed)
    inserted = ["", *'{}[],:"0-.e \\', "true", "NaN", "-Infinity", "Infinity"]
    for _ in range(2000):
        text = json.dumps(document_of(rng, 3), indent=rng.choice([None, 1]), ensure_ascii=rng.random() < 0.5)
        if rng.random() < 0.6:
            place = rng.randrange(len(text) + 1)
            text = text[:place] + rng.choice(inserted) + text[place + rng.randint(0, 2) :]
        assert outcome(parse_deep, text) == outcome(json.loads, text), text


def document_of(rng: random.Random, depth: int) -> Any:
    if depth and rng.random() < 0.4:
        return [document_of(rng, depth - 1) for _ in range(rng.randint(0, 3))]
    if depth and rng.random() < 0.5:
        return {rng.choice('ab"\\'): document_of(rng, depth - 1) for _ in range(rng.randint(0, 3))}
    text = "".join(rng.choices('a"\\\n é\x00😀{}[]:,/', k=rng.randint(0, 6)))
    return rng.choice([None, True, False, rng.randint(-(10**22), 10**22), rng.random() * 10**-9, text])


def outcome(parse: Callable[[str], Any], text: str) -> str:
    try:
        return repr(parse(text))
    except json.JSONDecodeError:
        return "not JSON"


# The index takes these for texts: there is no such date or time.
NO_INSTANTS = [
    "2024-02-30T00:00:00Z",
    "2024-01-01T24:00:00Z",
    "2024-01-01T00:00:00+24:00",
    "2024-01-01T00:00:00+23:60",
    "2016-12-30T23:59:60Z",
    "2024-01-01T00:00:61Z",
    "2024-13-01T00:00:00Z",
    "٢٠٢٤-01-01T00:00:00Z",
]
INSTANTS = [
    "0000-01-01T00:00:00Z",
    "1600-01-01T00:00:00Z",
    "2016-12-31T23:59:59.9999999999Z",
    "2016-12-31T23:59:60Z",
    "2016-12-31T23:59:60.5Z",
    "2017-01-01T00:00:00Z",
    "2024-01-01T00:00:00Z",
    "2024-01-01T00:00:00.1234567Z",
    "2024-01-01T00:00:00.1234568Z",
    "2024-01-01T00:00:00.2Z",
    "2024-02-29T00:00:00Z",
    "2300-01-01T00:00:00Z",
    "9999-12-31T23:59:59-01:00",
]


def instants_and_others(path: Path, tokenizer: str, added: dict[str, int]) -> tuple[list[str], Table]:
    values = [*NO_INSTANTS, *INSTANTS]
    texts = [json.dumps({"t": value, **added}) for value in values]
    structs = pa.array([{"t": value} for value in values], pa.struct([("t", pa.string())]))
    table = table_of(path, {"j": texts, "s": structs}, typemap__j="json", tokenizer__j=tokenizer)
    return values, table


@pytest.mark.parametrize("tokenizer", ["raw", "default"])
@pytest.mark.parametrize("added", [{}, ON_ROWS])
def test_texts_like_instants_are_found_as_they_are_written(
    tmp_path: Path, tokenizer: str, added: dict[str, int]
) -> None:
    values, table = instants_and_others(tmp_path / "t", tokenizer, added)
    for i, value in enumerate(values):
        assert matching_ids(table, f"j INDEXQUERY 'j.t:\"{value}\"'") == [i], value
        assert matching_ids(table, f"s INDEXQUERY 's.t:\"{value}\"'") == [i], value
        assert matching_ids(table, f"s.t = '{value}'") == [i], value


@pytest.mark.parametrize("added", [{}, ON_ROWS])
def test_instants_are_compared_in_their_order(tmp_path: Path, added: dict[str, int]) -> None:
    values, table = instants_and_others(tmp_path / "t", "raw", added)
    for i, bound in enumerate(values):
        if bound not in NO_INSTANTS:
            later = matching_ids(table, f"j INDEXQUERY 'j.t:>\"{bound}\"'")
            assert [k for k in later if values[k] in INSTANTS] == list(range(i + 1, len(values)))


def test_all_notations_of_an_instant_are_equal(tmp_path: Path) -> None:
    notations = [
        "2024-01-01T00:00:00Z",
        "2024-01-01t00:00:00z",
        "2024-01-01 00:00:00.000Z",
        "2024-01-01_00:00:00-00:00",
        "2023-12-31T23:00:00-01:00",
    ]
    table = of_texts(tmp_path / "t", [{"t": value} for value in notations])
    for value in notations:
        assert matching_ids(table, f"j INDEXQUERY 'j.t:\"{value}\"'") == list(range(len(notations)))


def test_times_without_python_objects_are_found_in_structs_lists_and_maps(tmp_path: Path) -> None:
    zoned = pa.timestamp("us", "UTC")
    micros = [9 * 10**18, -(10**18), 0, None]
    moments = pa.array(micros, pa.int64()).cast(zoned)
    days = pa.array([5_000_000, -800_000, 0, None], pa.int32()).cast(pa.date32())
    lengths = pa.array([2**62, -(2**62), 0, None], pa.int64()).cast(pa.duration("us"))
    words = pa.array(["alpha", "beta", "alp", None])
    structs = pa.StructArray.from_arrays([moments, days, lengths, words], ["ts", "day", "length", "w"])
    lists = pa.array([[m] for m in micros], pa.list_(pa.int64())).cast(pa.list_(zoned))
    maps = pa.array([[("k", m)] for m in micros], pa.map_(pa.string(), pa.int64()))
    table = table_of(tmp_path / "t", {"st": structs, "l": lists, "m": maps.cast(pa.map_(pa.string(), zoned))})
    for query, wanted in [
        ("st.w:al*", [0, 2]),
        ("st.w:/b.*/", [1]),
        ("NOT st.w:al*", [1, 3]),
        ("st.length:*", [0, 1, 2]),
        ('st.ts:"1970-01-01T00:00:00Z"', [2]),
        ('l:"1970-01-01T00:00:00Z"', [2]),
        ('m.k:"1970-01-01T00:00:00Z"', [2]),
        ("st.day:1970*", [2]),
    ]:
        assert matching_ids(table, f"st INDEXQUERY '{query}'") == wanted
    for condition, wanted in [
        ("st.ts > TIMESTAMP '9999-12-31 23:59:59'", [0]),
        ("st.ts = TIMESTAMP '+20000-01-01 00:00:00'", []),
        ("st.day IN (DATE '+15659-07-15', DATE '1970-01-01')", [0, 2]),
        ("st.day <=> DATE '+20000-01-01'", []),
    ]:
        assert matching_ids(table, condition) == wanted


def test_times_of_day_in_structs_have_one_text(tmp_path: Path) -> None:
    times = pa.array([{"t": value} for value in (43_200_000_000, 43_200_000_005)])
    arrow = pa.struct([("t", pa.time64("us"))])
    table = table_of(tmp_path / "t", {"st": times.cast(arrow)})
    for query, wanted in [
        ('st.t:"12:00:00.000000"', [0]),
        ("st.t:/12:00:00.000000/", [0]),
        ('st.t:"12:00:00"', []),
        ("st.t:/12:00:00/", []),
        ("st.t:12\\\\:00*", [0, 1]),
    ]:
        assert matching_ids(table, f"st INDEXQUERY '{query}'") == wanted
