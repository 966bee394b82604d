"""Free text that no option names: indexed by hash where nearly all values differ, with the same answers."""

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indextables
from indextables.options import Options
from indextables.split.footer import read_footer
from indextables.split.mapping import mapping_for, resolve_fields
from indextables.store import open_store
from indextables.table import Table

WORDS = ("quick", "lazy", "final", "express", "ironic", "regular", "pending", "bold", "even", "silent")


def comment(number: int) -> str:
    """A text of several words that no other number has."""
    return " ".join([*(WORDS[number // 10**place % 10] for place in range(4)), f"number {number}"])


def kind_of(values: Any, **options: str) -> str:
    table = pa.table({"c": pa.array(values, pa.string())})
    declared = Options.parse({key.replace("__", "."): value for key, value in options.items()})
    (field,) = resolve_fields(mapping_for(table.schema, declared), table).fields
    return field.kind.value


def test_long_texts_that_nearly_all_differ_are_hashed_unless_an_option_names_them() -> None:
    comments = [comment(n) for n in range(2000)]
    assert kind_of(comments) == "hash"
    assert kind_of([*comments, None, None]) == "hash"
    assert kind_of(comments, indexing__typemap__c="string") == "string"
    assert kind_of(comments, indexing__typemap__c="text") == "text"
    assert kind_of(comments, indexing__fastfields="c") == "string"


@pytest.mark.parametrize(
    "values",
    [
        pytest.param([comment(n % 1000) for n in range(2000)], id="values that repeat"),
        pytest.param([comment(n) for n in range(900)], id="few rows"),
        pytest.param([f"user {n}" for n in range(2000)], id="short names"),
        pytest.param([f"https://shop.example/item/{n}" for n in range(2000)], id="no blanks"),
        pytest.param([None] * 2000, id="nulls"),
    ],
)
def test_other_texts_have_terms(values: Any) -> None:
    assert kind_of(values) == "string"


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A table whose splits have terms, hashes and terms again, and its rows."""
    path = tmp_path_factory.mktemp("mixed") / "t"
    rows = [{"id": n, "c": None if n % 97 == 5 else comment(n)} for n in range(3600)]
    for start, end in ((0, 300), (300, 3300), (3300, 3600)):
        indextables.write(path, pa.Table.from_pylist(rows[start:end]), mode="append")
    return path, rows


def conditions() -> list[Any]:
    """Conditions on the column `c`, each with a function that says whether a text matches."""
    some = [comment(n) for n in (7, 299, 300, 1234, 3299, 3300, 9999)]
    listed = ", ".join(f"'{text}'" for text in some)
    bound = comment(2500)
    return [
        (f"c = '{some[3]}'", lambda c: c == some[3]),
        (f"c <> '{some[3]}'", lambda c: c != some[3]),
        (f"c IN ({listed})", lambda c: c in some),
        (f"c NOT IN ({listed})", lambda c: c not in some),
        ("c LIKE 'lazy quick%'", lambda c: c.startswith("lazy quick")),
        ("c LIKE '%number 12_4'", lambda c: re.search(r"number 12.4$", c)),
        ("c NOT LIKE '%bold%silent%'", lambda c: not re.search("bold.*silent", c)),
        (f"c < '{bound}'", lambda c: c < bound),
        (f"c >= '{bound}'", lambda c: c >= bound),
        (f"c INDEXQUERY '\"{some[3]}\"'", lambda c: c == some[3]),
        ("c INDEXQUERY 'lazy*'", lambda c: c.startswith("lazy")),
        (f"c FIELDMATCH '\"{some[4]}\"'", lambda c: c == some[4]),
    ]


@pytest.mark.parametrize(("condition", "matches"), [pytest.param(*each, id=each[0]) for each in conditions()])
def test_a_table_with_terms_and_hashes_of_a_column_gives_exact_answers(
    mixed: Any, condition: Any, matches: Any
) -> None:
    path, rows = mixed
    table = indextables.open(path)
    expected = [row["id"] for row in rows if row["c"] is not None and matches(row["c"])]
    assert sorted(table.scan(columns=["id"], where=condition)["id"].to_pylist()) == expected
    assert table.count(condition) == len(expected)


def test_aggregates_of_a_column_with_terms_and_hashes_are_exact(mixed: Any) -> None:
    path, rows = mixed
    table = indextables.open(path)
    values = sorted(row["c"] for row in rows if row["c"] is not None)
    (figures,) = table.aggregate(
        {"low": "min(c)", "high": "max(c)", "n": "count(c)", "all": "count(distinct c)"}
    ).to_pylist()
    assert figures == {"low": values[0], "high": values[-1], "n": len(values), "all": len(set(values))}
    groups = table.aggregate({"n": "count(*)"}, group_by=["c"], where="id < 400")
    assert sorted(groups["c"].drop_null().to_pylist()) == sorted(
        row["c"] for row in rows[:400] if row["c"] is not None
    )


def test_splits_with_terms_and_hashes_are_merged_into_the_kind_of_most_rows(
    mixed: Any, tmp_path: Path
) -> None:
    _, rows = mixed
    for start, end in ((0, 300), (300, 3300), (3300, 3600)):
        indextables.write(tmp_path / "t", pa.Table.from_pylist(rows[start:end]), mode="append")
    assert kinds_of_splits(indextables.open(tmp_path / "t")) == ["string", "hash", "string"]
    indextables.open(tmp_path / "t").merge(target_size=100 << 20)
    table = indextables.open(tmp_path / "t")
    assert kinds_of_splits(table) == ["hash"]
    for condition, matches in conditions():
        expected = sum(row["c"] is not None and bool(matches(row["c"])) for row in rows)
        assert table.count(condition) == expected, condition


def kinds_of_splits(table: Table) -> list[Any]:
    """The kind of the field of the column `c`, in each split."""
    store = open_store(table.url)
    mappings = (read_footer(store, path).mapping for path in table.files()["path"].to_pylist())
    return [field.kind.value for mapping in mappings for field in mapping.fields_of("c")]
