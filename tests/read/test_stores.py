"""The same answers from every kind of store: rows and indexes by ranged reads."""

from pathlib import Path
from typing import Any

from indextables import read
from indextables.ingest import write_table
from indextables.ingest.target import Mode
from indextables.options import Options
from indextables.predicate import Predicate, parse_condition
from indextables.read import Aggregate, Function
from indextables.store import Store

ROWS: list[dict[str, Any]] = [
    {"id": n, "p": n % 2, "k": f"key{n % 3}", "t": f"word{n} all", "st": {"a": n}} for n in range(50)
]


def test_scans_searches_and_aggregates_work_over_any_store(any_store: Store, tmp_path: Path) -> None:
    store = any_store.at("reading")
    options = Options.parse({"cache.disk.path": str(tmp_path / "cache")})
    written = Options.parse({"indexing.typemap.t": "text"})
    snapshot = write_table(
        store, ROWS, mode=Mode.of("append"), partition_by=["p"], options=written, engine="test"
    ).snapshot

    def where(text: str) -> Predicate:
        return parse_condition(text, snapshot.schema)

    whole = read.scan(snapshot, store, options).read_all()
    assert sorted(whole.to_pylist(), key=lambda row: row["id"]) == ROWS
    needle = read.scan(snapshot, store, options, where=where("t INDEXQUERY 'word7'")).read_all()
    assert needle.to_pylist() == [ROWS[7]]
    assert read.count(snapshot, store, options, where=where("st.a >= 10 AND t INDEXQUERY 'all'")) == 40
    best = read.search(snapshot, store, options, query="word9 OR word11", field="t", columns=["id"])
    assert sorted(best["id"].to_pylist()) == [9, 11]
    groups = read.aggregate(
        snapshot,
        store,
        options,
        aggregates=[Aggregate(Function.SUM, "id")],
        group_by=["k"],
        where=where("p = 1"),
    )
    assert {r["k"]: r["sum(id)"] for r in groups.to_pylist()} == {
        f"key{k}": sum(r["id"] for r in ROWS if r["p"] == 1 and r["k"] == f"key{k}") for k in range(3)
    }
