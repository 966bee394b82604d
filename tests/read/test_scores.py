"""Scores of a table do not depend on how its rows are distributed over splits."""

import datetime as dt
import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import indextables
from indextables.split.query.index_view import TermStatistics, idf, sum_statistics
from indextables.table import Table

WORDS = [f"w{n}" for n in range(40)]
WEIGHTS = [1 / (n + 1) for n in range(40)]
OPTIONS = {"indexing.typemap.t": "text", "indexing.typemap.s": "string", "indexing.typemap.j": "json"}
OPTIONS_OF_TEXT = {"indexing.typemap.t": "text"}
QUERIES = [
    "w3",
    "w0 OR w9 OR w20",
    "w5 w7",
    '"w0 w1"',
    "w2^3 OR w30",
    "w1 -w0",
    "s:b OR w11",
    'j.k:red OR "w1 w0"~3',
]


def texts_of(rng: random.Random, count: int, lengths: list[Any]) -> list[Any]:
    return [" ".join(rng.choices(WORDS, WEIGHTS, k=rng.choice(lengths))) for _ in range(count)]


def written(path: Path, texts: Any, splits: int) -> Table:
    """The rows in so many splits; sorted, so that each split has words of its own."""
    ordered = sorted(range(len(texts)), key=lambda i: texts[i])
    part = {i: place * splits // len(texts) for place, i in enumerate(ordered)}
    rows = [
        {
            "id": i,
            "t": text,
            "s": "ab"[i % 7 == 0],
            "j": json.dumps({"k": ["red", "blue"][i % 5 > 0]}),
            "p": part[i],
        }
        for i, text in enumerate(texts)
    ]
    indextables.write(path, pa.Table.from_pylist(rows), options=OPTIONS, partition_by=["p"])
    table = indextables.open(path)
    assert table.files().num_rows == splits
    return table


def ranking(table: Any, query: str, limit: Any = 10) -> dict[Any, Any]:
    found = table.search(query, field="t", columns=["id"], limit=limit, scores=True)
    return dict(zip(found["id"].to_pylist(), found["_score"].to_pylist(), strict=True))


def same_ranking(one: Any, other: Any) -> None:
    """Equal scores place by place, and equal rows but for rows of equal scores."""
    assert list(one.values()) == pytest.approx(list(other.values()), rel=1e-5)
    last = min([*one.values(), *other.values()], default=0.0) * (1 + 1e-5)
    assert {i for i, s in one.items() if s > last} == {i for i, s in other.items() if s > last}


@pytest.fixture(scope="module")
def of_one_length(tmp_path_factory: pytest.TempPathFactory) -> Any:
    rng = random.Random(3)
    place = tmp_path_factory.mktemp("scores")
    texts = texts_of(rng, 700, [12])
    return {splits: written(place / str(splits), texts, splits) for splits in (1, 7, 100)}, place


@pytest.mark.parametrize("query", QUERIES)
def test_the_ten_best_are_the_same_in_one_in_seven_and_in_a_hundred_splits(
    of_one_length: Any, query: str
) -> None:
    best = {splits: ranking(table, query) for splits, table in of_one_length[0].items()}
    assert len(best[1]) == 10
    same_ranking(best[1], best[7])
    same_ranking(best[1], best[100])


def test_all_rows_have_the_same_scores_whatever_the_splits(of_one_length: Any) -> None:
    every = [ranking(table, "w0 OR w9 OR w20", None) for table in of_one_length[0].values()]
    for other in every[1:]:
        assert other == pytest.approx(every[0], rel=1e-5)


def test_texts_of_different_lengths_differ_by_no_more_than_the_average_lengths_do(
    tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    texts = texts_of(rng, 400, [4, 8, 12, 20])
    whole, parts = written(tmp_path / "1", texts, 1), written(tmp_path / "9", texts, 9)
    lengths = np.array([len(text.split()) for text in texts])
    part = {row["id"]: row["p"] for row in parts.scan(columns=["id", "p"]).to_pylist()}
    means = {p: lengths[[i for i in part if part[i] == p]].mean() for p in set(part.values())}
    widest = max(max(mean / lengths.mean(), lengths.mean() / mean) for mean in means.values()) ** 2
    for query in ("w3", "w0 OR w9 OR w20"):
        one, other = ranking(whole, query, None), ranking(parts, query, None)
        assert one.keys() == other.keys()
        assert all(1 / widest - 1e-5 <= other[i] / one[i] <= widest + 1e-5 for i in one)


def test_splits_of_short_and_of_long_texts_are_scored_alike(tmp_path: Path) -> None:
    rng = random.Random(2)
    texts = [*texts_of(rng, 200, [5]), *texts_of(rng, 200, [40])]
    rows = [{"id": i, "t": text, "p": i // 200} for i, text in enumerate(texts)]
    scores = []
    for partition in (["p"], []):
        path = tmp_path / f"by{len(partition)}"
        indextables.write(path, rows, options=OPTIONS_OF_TEXT, partition_by=partition)
        scores.append(ranking(indextables.open(path), "w9", None))
    once = [i for i in scores[0] if texts[i].split().count("w9") == 1]
    assert len(once) > 50
    assert [scores[0][i] for i in once] == pytest.approx([scores[1][i] for i in once], rel=1e-5)


def test_merging_splits_does_not_reorder_the_best(tmp_path: Path) -> None:
    rng = random.Random(9)
    texts = sorted(texts_of(rng, 300, [10]))
    for start in range(0, 300, 60):
        rows = [{"id": i, "t": texts[i]} for i in range(start, start + 60)]
        indextables.write(tmp_path / "t", rows, mode="append", options=OPTIONS_OF_TEXT)
    table = indextables.open(tmp_path / "t")
    before = {query: ranking(table, query) for query in ("w3", "w0 OR w9", '"w0 w1"')}
    assert table.files().num_rows == 5
    table.merge()
    merged = indextables.open(tmp_path / "t")
    assert merged.files().num_rows == 1
    for query, found in before.items():
        same_ranking(found, ranking(merged, query))


def test_rows_that_were_removed_do_not_count(tmp_path: Path) -> None:
    rng = random.Random(4)
    texts = texts_of(rng, 200, [10])
    kept = [{"id": i, "t": text, "p": i % 2} for i, text in enumerate(texts)]
    gone = [{"id": 1000 + i, "t": "w3 " * 10, "p": 9} for i in range(200)]
    options = OPTIONS_OF_TEXT
    indextables.write(tmp_path / "a", kept, options=options, partition_by=["p"])
    indextables.write(tmp_path / "b", [*kept, *gone], options=options, partition_by=["p"])
    plain = ranking(indextables.open(tmp_path / "a"), "w3 OR w0")
    assert ranking(indextables.open(tmp_path / "b"), "w3 OR w0") != pytest.approx(plain)
    table = indextables.open(tmp_path / "b")
    table.drop_partitions("p = 9")
    same_ranking(plain, ranking(indextables.open(tmp_path / "b"), "w3 OR w0"))


def test_counts_of_some_splits_stand_for_all(of_one_length: Any) -> None:
    part = TermStatistics(50, {("t:t", "w1"): 10})
    assert sum_statistics([part, part], 400) == TermStatistics(400, {("t:t", "w1"): 80})
    assert sum_statistics([part, part], 100) == TermStatistics(100, {("t:t", "w1"): 20})
    split = SimpleNamespace(num_rows=20, frequency=lambda _: 1, average_length=lambda *_: 8.0)
    assert part.factor("t:t", ["w1"], split) == pytest.approx(idf(50, 10) / idf(20, 1))
    assert part.factor("t:t", ["unknown"], split) == 1.0
    longer = TermStatistics(50, {("t:t", "w1"): 10}, {"t:t": 16.0})
    assert longer.factor("t:t", ["w1"], split) == pytest.approx(idf(50, 10) / idf(20, 1) * 2.2 / 1.75)
    few = indextables.open(of_one_length[1] / "100", options={"search.statisticsSplits": "10"})
    scores = ranking(few, "w0 OR w9", None)
    repeated = ranking(few, "w0 OR w9", None)
    assert scores == repeated
    assert len(scores) == len(ranking(of_one_length[0][1], "w0 OR w9", None))


CONSTANT = {
    "alpha -w3": 0,
    "alpha AND -g:1": 0,
    "alpha -nothing": 0,
    "alpha AND *": 0,
    "alpha AND g:>2": 1,
    "alpha AND g:>=5 AND f:>0": 2,
    "alpha AND g:[0 TO 10]": 1,
    "alpha AND g: IN [5 6 7 9]": 1,
    "alpha AND g:>2 -w3": 1,
    "alpha AND id:*": 1,
    "alpha AND n:*": 1,
    "alpha AND ip:10.0.0.0/24": 1,
    "alpha AND day:>2023-01-01": 1,
    "alpha AND t:/[a-d].*/": 1,
    "alpha AND t:a*": 1,
    "alpha AND s:[a TO z]": 1,
    "alpha OR g:>2": 1,
    "-w3 OR alpha": 0,
    "id:* OR alpha": 1,
    "alpha -part:c": 0,
    'alpha AND j.at:"2024-01-01T00:00:00Z"': 1,
    "alpha AND j.n:>0": 1,
}


@pytest.fixture(scope="module")
def in_one_and_two_splits(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    place = tmp_path_factory.mktemp("alike")
    texts = ["alpha beta", "alpha gamma", "alpha delta", "alpha w3", "alpha delta", "beta eta"]
    numbers, floats = [5, 6, 7, 1, 9, 3], [1.0, 1.0, 1.0, 0.0, 2.0, 2.0]
    rows = [
        {
            "id": i,
            "t": text,
            "g": number,
            "f": fraction,
            "s": f"x{i % 2}",
            "ip": f"10.0.0.{i}",
            "n": None if i in (3, 5) else i,
            "day": dt.date(2024, 1, 1 + i),
            "j": json.dumps({"at": "2024-01-01T00:00:00Z", "n": number}),
            "part": "a" if i < 3 else "b",
        }
        for i, (text, number, fraction) in enumerate(zip(texts, numbers, floats, strict=True))
    ]
    options = {**OPTIONS, "indexing.typemap.ip": "ip"}
    one = indextables.write(place / "one", rows, options=options)
    return one, indextables.write(place / "two", rows, options=options, partition_by=["part"])


@pytest.mark.parametrize(("query", "added"), CONSTANT.items())
def test_conditions_add_the_same_score_whatever_else_is_in_a_split(
    in_one_and_two_splits: tuple[Any, Any], query: str, added: int
) -> None:
    for table in in_one_and_two_splits:
        words = ranking(table, "alpha", limit=None)
        scores = ranking(table, query, limit=None)
        for i in (0, 1, 2, 4):
            assert scores[i] == pytest.approx(words[i] + added, rel=1e-5)


def test_a_partition_column_adds_the_same_score_in_every_split(
    in_one_and_two_splits: tuple[Any, Any],
) -> None:
    _, parted = in_one_and_two_splits
    scores = ranking(parted, "part:a OR part:b OR alpha", limit=None)
    assert scores == pytest.approx(
        {i: 1 + score for i, score in ranking(parted, "alpha *", None).items()} | {5: 1}
    )
