"""Keys of JSON texts, structs and maps, and names of columns, with characters that mean something elsewhere."""

import datetime as dt
import decimal
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indextables
from indextables.errors import UnknownFieldError
from indextables.predicate import Column, Compare, Not, Op, Search, SearchKind
from indextables.predicate import tree as q
from indextables.predicate.query_language import to_text
from tests.read.read_oracle import json_items, json_leaf
from tests.read.read_tables import opened

PIECES = ["a", "b", "\\", ".", "\x00", "\x01", '"', " ", "é", "*", ":", "0"]
TWINS = ["a.b", "a\\b", "a\x01b", "a\x00b", "a0b", "a\\.b", "\\", ".", "a", "b"]


def odd_key(rng: random.Random) -> str:
    if rng.random() < 0.5:
        return rng.choice(TWINS)
    return "".join(rng.choice(PIECES) for _ in range(rng.randint(1, 3)))


def odd_document(rng: random.Random, depth: int = 2) -> dict[Any, Any]:
    return {
        odd_key(rng): odd_document(rng, depth - 1) if depth and rng.random() < 0.4 else rng.randint(0, 2)
        for _ in range(rng.randint(0, 3))
    }


def paths_of(document: Any, before: tuple[Any, ...] = ()) -> Iterator[Any]:
    for key, value in document.items():
        yield (*before, key)
        if isinstance(value, dict):
            yield from paths_of(value, (*before, key))


def test_keys_with_odd_characters_are_found_in_json_texts_and_maps(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for i in range(120):
        document = odd_document(rng)
        flat = {key: value for key, value in document.items() if isinstance(value, int)}
        rows.append({"id": i, "j": json.dumps(document), "m": flat})
    schema = pa.schema([("id", pa.int64()), ("j", pa.string()), ("m", pa.map_(pa.string(), pa.int64()))])
    data = pa.Table.from_pylist([{**row, "m": list(row["m"].items())} for row in rows], schema=schema)
    indextables.write(tmp_path / "t", data, options={"indexing.typemap.j": "json"})
    table = opened(tmp_path / "t", rows, tmp_path / "cache")
    known = sorted({path for row in rows for path in paths_of(json.loads(row["j"]))})
    for _ in range(150):
        path = rng.choice(known) if rng.random() < 0.8 else (odd_key(rng),)
        column = rng.choice("jm") if len(path) == 1 else "j"
        field = (column, *path)
        leaf: Any = rng.choice([q.Exists(field), q.Term(str(rng.randint(0, 2)), field)])
        wanted = [
            row["id"]
            for row in rows
            if any(
                json_leaf(leaf, item)
                for item in json_items(column, row[column], path, isinstance(leaf, q.Exists))
            )
        ]
        search = Search(SearchKind.INDEXQUERY, Column((column,)), to_text(leaf))
        assert table.ids(search) == wanted, leaf
        assert table.count(Not(search)) == len(rows) - len(wanted), leaf


def test_fields_of_structs_with_odd_characters_are_found(tmp_path: Path) -> None:
    # Arrow ends the name of a field at the character 0.
    names = [name for name in [*TWINS, "x\\y", "x.y", 'q"t'] if "\x00" not in name]
    struct = pa.struct([(name, pa.int64()) for name in names])
    rows = [{"id": i, "st": {name: int(n == i) for n, name in enumerate(names)}} for i in range(len(names))]
    schema = pa.schema([("id", pa.int64()), ("st", struct)])
    indextables.write(tmp_path / "t", pa.Table.from_pylist(rows, schema=schema))
    table = opened(tmp_path / "t", rows, tmp_path / "cache")
    for i, name in enumerate(names):
        assert table.ids(Compare(Op.EQ, Column(("st", name)), pa.scalar(1))) == [i], name
        query = to_text(q.Term("1", ("st", name)))
        assert table.ids(Search(SearchKind.INDEXQUERY, Column(("st",)), query)) == [i], name


@pytest.mark.parametrize("inner", [pa.int64(), pa.struct([("c", pa.int64())])])
def test_a_struct_field_and_a_column_with_a_dot_in_its_name_are_told_apart(
    tmp_path: Path, inner: Any
) -> None:
    def value(number: int) -> int | dict[Any, Any]:
        return number if inner == pa.int64() else {"c": number}

    schema = pa.schema([("id", pa.int64()), ("a", pa.struct([("b", inner)])), ("a.b", inner)])
    rows = [
        {"id": 0, "a": {"b": value(1)}, "a.b": value(2)},
        {"id": 1, "a": {"b": value(2)}, "a.b": value(1)},
    ]
    table = indextables.write(tmp_path / "t", pa.Table.from_pylist(rows, schema=schema))
    rest = "" if inner == pa.int64() else ".c"

    def ids(where: str) -> Any:
        return table.scan(columns=["id"], where=where)["id"].to_pylist()

    assert table.scan().to_pylist() == rows
    assert table.scan(columns=["a.b"]).to_pylist() == [{"a.b": row["a.b"]} for row in rows]
    assert table.scan(columns=["a"]).to_pylist() == [{"a": row["a"]} for row in rows]
    for where in (f"a.b{rest} = 1", f"a.b{rest} INDEXQUERY '1'", f"a INDEXQUERY 'a.b{rest}:1'"):
        assert ids(where) == [0], where
    for where in (
        f"`a.b`{rest} = 1",
        f"`a.b`{rest} INDEXQUERY '1'",
        f"a INDEXQUERY r'a\\.b{rest}:1'".replace("r'", "'").replace("\\", "\\\\"),
    ):
        assert ids(where) == [1], where
    assert table.search("1", field=r"a\.b" + rest)["id"].to_pylist() == [1]


def test_a_dot_leads_into_a_column_before_it_is_part_of_a_name(tmp_path: Path) -> None:
    table = indextables.write(tmp_path / "t", [{"id": 0, "x.y": "one", "x": "two"}])
    assert table.count("`x.y` INDEXQUERY 'x.y:one'") == 1
    assert table.search("one", field="x.y").num_rows == 1
    with pytest.raises(UnknownFieldError, match=r"'x' has no fields within it: z"):
        table.search("x.z:one")


@pytest.mark.parametrize(
    ("key", "arrow", "text"),
    [
        (1.5, pa.float64(), "1\\.5"),
        (1e20, pa.float64(), "1e+20"),
        (0.5, pa.float32(), "0\\.5"),
        (decimal.Decimal("1.50"), pa.decimal128(10, 2), "1\\.50"),
        (True, pa.bool_(), "true"),
        (dt.date(2024, 1, 1), pa.date32(), "2024-01-01"),
        (
            dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
            pa.timestamp("us", "UTC"),
            "2024-01-01T00\\:00\\:00\\.000000Z",
        ),
    ],
)
def test_keys_of_maps_of_all_types_are_found_by_words_and_by_patterns(
    tmp_path: Path, key: Any, arrow: pa.DataType, text: str
) -> None:
    maps = pa.array([[(key, "red")], [(key, "blue")], None], pa.map_(arrow, pa.string()))
    table = indextables.write(tmp_path / "t", pa.table({"id": range(3), "m": maps}))
    for query in (f"m.{text}:red", f"m.{text}:r*"):
        assert table.search(query, columns=["id"])["id"].to_pylist() == [0]
