"""Damage to the disk cache is repaired from the split, and never blamed on it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from tantivy import Index, Query

from indextables.errors import SplitError
from indextables.options import Options
from indextables.split.footer import read_footer
from indextables.split.query.searcher import close_indexes, open_index
from indextables.store import Store, open_store
from tests.split.every_type import logs
from tests.split.split_files import write_split

TEXT = {"indexing.typemap.message": "text"}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = open_store(tmp_path / "t")
    write_split(store, "a.split", logs(2000), TEXT)
    return store


@pytest.fixture
def options(tmp_path: Path) -> Iterator[Options]:
    yield Options.parse({"cache.disk.path": str(tmp_path / "cache")})
    close_indexes()


def search_paths(store: Store, options: Options) -> Any:
    index = open_index(store, read_footer(store, "a.split"), options)
    index.load({"t:message"})
    return index.rows(Query.term_query(index.view.schema, "t:message", "word7")).tolist()


def entry_files(tmp_path: Path) -> list[Any]:
    (entry,) = (tmp_path / "cache" / "entries").iterdir()
    return [path for path in sorted(entry.iterdir()) if not path.name.startswith(".")]


@pytest.mark.parametrize("state", ["open", "closed"])
def test_every_damaged_file_of_an_entry_is_replaced_and_the_search_succeeds(
    store: Store, options: Options, tmp_path: Path, caplog: pytest.LogCaptureFixture, state: str
) -> None:
    expected = search_paths(store, options)
    assert expected
    random = np.random.default_rng()
    names = [path.name for path in entry_files(tmp_path)]
    for name in names:
        if state == "closed":
            close_indexes()
        (path,) = (path for path in entry_files(tmp_path) if path.name == name)
        # In place, as a failing disk changes it; an open index has the file mapped.
        with path.open("r+b") as file:
            at = int(random.integers(path.stat().st_size))
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 0x10]))
        caplog.clear()
        assert search_paths(store, options) == expected, name
        assert search_paths(store, options) == expected, name
        # An open index does not read `entry.json` again.
        if (state, name) != ("open", "entry.json"):
            assert len(caplog.records) == 1, name
            assert "damaged; it was fetched from its split again" in caplog.text


def test_an_entry_that_tantivy_refuses_is_fetched_again(
    store: Store, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = search_paths(store, options)
    close_indexes()
    opened = []

    def refuse_once(path: Any) -> Index:
        opened.append(path)
        if len(opened) == 1:
            raise ValueError("an error of the index library")
        return Index.open(path)

    monkeypatch.setattr(
        "indextables.split.query.searcher.tantivy.Index", type("I", (), {"open": staticmethod(refuse_once)})
    )
    assert search_paths(store, options) == expected
    assert len(opened) == 2


def test_a_split_whose_index_is_refused_again_and_again_is_named(
    store: Store, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Any) -> None:
        raise ValueError("an error of the index library")

    monkeypatch.setattr(
        "indextables.split.query.searcher.tantivy.Index", type("I", (), {"open": staticmethod(refuse)})
    )
    with pytest.raises(SplitError, match=r"a\.split: its index cannot be opened .*; the split is damaged"):
        search_paths(store, options)


class PanicException(BaseException):
    """As pyo3 raises it; its class cannot be imported."""


def test_a_panic_of_the_index_library_is_an_error_that_names_the_split_and_heals(
    store: Store, options: Options
) -> None:
    expected = search_paths(store, options)
    index = open_index(store, read_footer(store, "a.split"), options)

    class Panics:
        def search(self, *_: Any, **__: Any) -> None:
            raise PanicException("index out of bounds")

    real = index.view
    index.view = replace(real, searcher=cast("Any", Panics()))
    query = Query.term_query(real.schema, "t:message", "word7")
    for ask in (lambda: index.rows(query), lambda: index.count(query), lambda: index.top(query, 3)):
        with pytest.raises(SplitError, match=r"a\.split: .*index out of bounds.*repeat the query"):
            ask()
    assert search_paths(store, options) == expected


@pytest.mark.parametrize("limit", ["files_to_keep", "maps_to_keep"])
def test_indexes_stay_open_up_to_the_limits_of_the_process(
    store: Store, options: Options, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    names = [f"{number}.split" for number in range(4)]
    for name in names:
        write_split(store, name, logs(50, seed=len(name)), TEXT)
    if limit == "files_to_keep":
        monkeypatch.setattr("indextables.split.query.searcher.max_open_files", lambda most: 2)
    else:
        # Each has seven files and the stack of a thread.
        monkeypatch.setattr("indextables.split.query.searcher.max_mapped_files", lambda: 20)
    close_indexes()
    for name in names:
        open_index(store, read_footer(store, name), options)
    assert close_indexes() == 2
