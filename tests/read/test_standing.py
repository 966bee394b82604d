"""Standing queries: each row has the ids of the queries that a search over a table of those rows finds it by."""

import json
import pickle
import random
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indextables as it
from indextables.cli.main import main
from indextables.errors import OptionError, PredicateError, SchemaError

WORDS = [f"word{n}" for n in range(40)]
OPTIONS = {"indexing.typemap.text": "text"}


def generated(rows: int, queries: int) -> tuple[list[dict[str, Any]], dict[str, str]]:
    dice = random.Random(4)
    forms = ["{} AND {}", "{} OR {}", '"{} {}"', "{} AND NOT {}", "text:{} level:{}", "{}* {}"]
    saved = {
        f"q{n}": dice.choice(forms).format(dice.choice(WORDS), dice.choice(WORDS)) for n in range(queries)
    }
    saved["number"] = "id:[10 TO 20]"
    lines = [
        {"id": n, "text": " ".join(dice.choices(WORDS, k=5)), "level": dice.choice(["word1", "other"])}
        for n in range(rows)
    ]
    return lines, saved


def expected(path: Path, saved: dict[str, str]) -> dict[int, list[str]]:
    """By one search of the table after the other."""
    table = it.open(path)
    found: dict[int, list[str]] = {n: [] for n in table.scan(["id"])["id"].to_pylist()}
    for name, query in saved.items():
        for n in table.search(query, limit=None, columns=["id"])["id"].to_pylist():
            found[n].append(name)
    return found


def test_rows_have_the_queries_that_find_them(tmp_path: Path) -> None:
    lines, saved = generated(300, 60)
    options = {**OPTIONS, "indexing.typemap.level": "text"}
    it.write(tmp_path / "t", lines, options=options)
    with it.StandingQueries(saved) as queries:
        found = queries.match(pa.Table.from_pylist(lines))
        assert queries.match(found.schema.empty_table().drop_columns(["_matching_queries"])).num_rows == 0
        with pickle.loads(pickle.dumps(queries)) as copy:
            again = copy.match(lines[:7])
    assert found["id"].to_pylist() == list(range(300)), "rows keep their order"
    matches = expected(tmp_path / "t", saved)
    assert any(matches.values())
    assert found["_matching_queries"].to_pylist() == [matches[n] for n in range(300)]
    assert again["_matching_queries"].to_pylist() == [matches[n] for n in range(7)]


def test_batches_are_indexed_together_and_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("indextables.standing_queries._MAX_ROWS", 5)
    table = pa.table({"id": range(23), "text": [f"a{n % 3}" for n in range(23)]})
    with it.StandingQueries({"zero": "a0", "one": "a1"}) as queries:
        found = pa.Table.from_batches(
            queries.match_batches(iter(table.to_batches(max_chunksize=2)), table.schema)
        )
    assert found["id"].to_pylist() == list(range(23))
    assert found["_matching_queries"].to_pylist() == [[["zero"], ["one"], []][n % 3] for n in range(23)]


def test_watch_uses_the_indexes_of_new_splits(tmp_path: Path) -> None:
    lines, saved = generated(60, 20)
    path = tmp_path / "t"
    table = it.write(path, lines[:20], options=OPTIONS)
    it.write(path, lines[20:40])
    it.write(path, lines[40:])
    matches = expected(path, saved)
    found = {
        row["id"]: row["_matching_queries"]
        for rows in table.watch(saved, columns=["id"], timeout=0)
        for row in rows.to_pylist()
    }
    assert found == {n: ids for n, ids in matches.items() if n >= 20 and ids}
    everything = [row for rows in table.watch(saved, since=-1, timeout=0) for row in rows.to_pylist()]
    assert {row["id"] for row in everything} == {n for n, ids in matches.items() if ids}


@pytest.mark.parametrize("most", [1, 3, 1000])
def test_matches_of_a_split_come_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr("indextables.read.standing._MAX_MATCHES", most)
    lines, saved = generated(60, 20)
    path = tmp_path / "t"
    table = it.write(path, lines, options=OPTIONS)
    matches = {n: ids for n, ids in expected(path, saved).items() if ids}
    tables = list(table.watch(saved, since=-1, timeout=0))
    assert (len(tables) > 1) is (most < 1000)
    found = [(row["id"], row["_matching_queries"]) for rows in tables for row in rows.to_pylist()]
    assert found == sorted(matches.items())
    assert {rows.schema.metadata[b"indextables.since"] for rows in tables} == {b"-1"}
    with it.StandingQueries(saved, options=OPTIONS) as queries:
        assert dict(
            zip(range(60), queries.match(lines)["_matching_queries"].to_pylist(), strict=True)
        ) == expected(path, saved)


def test_watch_says_after_which_version_to_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, file = tmp_path / "t", tmp_path / "queries.yaml"
    it.write(path, [{"id": 1, "text": "disk full"}], options=OPTIONS)
    file.write_text("disk: disk\n")
    table = it.open(path)
    it.write(path, [{"id": 2, "text": "disk full"}])
    newest = it.open(path).version
    ((row, metadata),) = [
        (rows["id"][0].as_py(), rows.schema.metadata) for rows in table.watch({"disk": "disk"}, timeout=0)
    ]
    assert (row, metadata[b"indextables.since"]) == (2, str(newest - 1).encode())
    since = ["watch", str(path), str(file), "--timeout", "0", "--since", str(newest - 1)]
    assert main([*since, "--exec", f"{sys.executable} -c 'import sys; sys.exit(4)'"]) == 1
    assert f"With --since {newest - 1} it goes on" in capsys.readouterr().err
    assert main([*since, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["id"] == 2


@pytest.mark.parametrize(
    ("saved", "problem", "error"),
    [
        ({}, "no standing queries", OptionError),
        ({"a": 7}, "the standing query 'a' is 7", OptionError),
        ({"a": {"field": "text"}}, "the standing query 'a'", OptionError),
        ({"a": {"query": "x", "color": "red"}}, "the standing query 'a'", OptionError),
        ({1: "x", "1": "y"}, "more than one standing query with the id '1'", OptionError),
        ([("a", "x")], "a mapping from ids to queries", OptionError),
        ({"good": "x", "bad": "((x"}, "the standing query 'bad' cannot be evaluated", PredicateError),
        ({"a": {"query": "x", "field": "nope"}}, "the standing query 'a' .*nope", PredicateError),
    ],
)
def test_queries_that_make_no_sense_are_named(tmp_path: Path, saved: Any, problem: str, error: Any) -> None:
    table = it.write(tmp_path / "t", [{"text": "x"}], options=OPTIONS)
    with pytest.raises(error, match=problem):
        table.watch(saved, timeout=0)
    with pytest.raises(error, match=problem), it.StandingQueries(saved) as queries:
        queries.match([{"text": "x"}])


def test_rows_that_have_a_column_of_matching_queries_are_refused(tmp_path: Path) -> None:
    lines = [{"text": "x", "_Matching_Queries": "y"}]
    table = it.write(tmp_path / "t", lines, options=OPTIONS)
    with pytest.raises(SchemaError, match="there is a column _matching_queries already"):
        table.watch({"a": "x"}, timeout=0)
    for rows in (lines, pa.Table.from_pylist(lines).slice(0, 0)):
        with (
            pytest.raises(SchemaError, match="there is a column _matching_queries already"),
            it.StandingQueries({"a": "x"}) as queries,
        ):
            queries.match(rows)


def test_the_program_watches_with_a_file_of_queries(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, file = tmp_path / "t", tmp_path / "queries.yaml"
    it.write(path, [{"id": 1, "text": "disk full"}, {"id": 2, "text": "all well"}], options=OPTIONS)
    file.write_text("disk: disk AND full\nslow:\n  query: timeout\n  field: text\n")
    watch = ["watch", str(path), str(file), "--since", "-1", "--timeout", "0"]
    assert main([*watch, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "id": 1,
        "text": "disk full",
        "_matching_queries": ["disk"],
    }
    script = tmp_path / "script.py"
    script.write_text(f"import sys; open({str(tmp_path / 'seen')!r}, 'a').write(sys.stdin.read())")
    assert main([*watch, "--exec", f"{sys.executable} {script}"]) == 0
    assert json.loads((tmp_path / "seen").read_text())["id"] == 1
    assert main([*watch, "--exec", f"{sys.executable} -c 'import sys; sys.exit(4)'"]) == 1
    shown = capsys.readouterr().err
    assert "ended with the code 4" in shown
    assert "With --since -1 it goes on" in shown
    for command, problem in (("", "--exec is empty"), ("'open", "is no command: No closing quotation")):
        assert main([*watch[:2], str(tmp_path / "no file"), "--exec", command]) == 1, "before all else"
        assert problem in capsys.readouterr().err
    assert main([*watch, "--exec", str(tmp_path / "nothing")]) == 1
    assert "could not be run" in capsys.readouterr().err
    assert main(["watch", str(path), str(file), "--timeout", "0"]) == 3, "nothing new"
    file.write_text("on: disk\n007: full")
    assert main([*watch, "--json", "--columns", "id"]) == 0
    ids = json.loads(capsys.readouterr().out)["_matching_queries"]
    assert ids == ["on", "007"], "ids are texts, not what YAML makes of them"
    for text, problem in (
        ("- a list", "has no queries"),
        ("a: [", "is not YAML"),
        ("a: disk\nb: x\na: full\n", "more than one query with the id 'a'"),
        ('{"a": "disk", "a": "full"}', "more than one query with the id 'a'"),
        ("1: disk\n'1': full\n", "more than one query with the id '1'"),
        ("a: {query: disk, query: full}", "the query 'a' has 'query' more than once"),
    ):
        file.write_text(text)
        assert main(watch) == 1
        assert problem in capsys.readouterr().err
