"""Columns of the original's bundles: what is stored is read as it was, what is not stored is refused by name."""

from typing import Any

import pyarrow as pa
import pytest
import tantivy

from indextables.errors import SplitError
from indextables.split.quickwit import bundle_rows
from indextables.store import Store, open_store
from tests.split.bundle_files import bundle

LISTS = pa.list_(pa.string())


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("bundles")
    builder = tantivy.SchemaBuilder()
    builder.add_integer_field("id", stored=True, fast=True)
    builder.add_text_field("hidden", stored=False)
    builder.add_json_field("tags", stored=True)
    builder.add_ip_addr_field("address", stored=True)
    builder.add_text_field("text", stored=True)
    schema = builder.build()
    documents: list[dict[str, Any]] = [
        {
            "id": 1,
            "hidden": "x",
            "tags": {"_values": ["a", "b"]},
            "address": "10.0.1.1",
            "text": "::ffff:10.0.1.1",
        },
        {"id": 2, "hidden": "y", "tags": {"_values": []}, "address": "2001:db8::1"},
        {"id": 3, "tags": {"tags": ["c"]}},
        {"id": 4},
    ]
    bundle(folder / "index", folder / "a.split", schema, documents)
    bundle(folder / "odd", folder / "odd.split", schema, [{"id": 5, "tags": {"other": ["c"]}}])
    return open_store(folder)


def column(store: Store, name: str, kind: Any, path: str = "a.split") -> Any:
    (batch,) = bundle_rows(store, path, pa.schema([(name, kind)]))
    return batch.column(0).to_pylist()


def test_lists_are_read_from_the_object_that_holds_them(store: Store) -> None:
    assert column(store, "tags", LISTS) == [["a", "b"], [], ["c"], None]


def test_an_object_that_is_no_list_is_refused_with_file_and_column(store: Store) -> None:
    with pytest.raises(SplitError, match=r"odd\.split: the column tags .*other"):
        column(store, "tags", LISTS, "odd.split")


def test_addresses_come_back_in_their_shortest_form_and_texts_as_they_are(store: Store) -> None:
    assert column(store, "address", pa.string()) == ["10.0.1.1", "2001:db8::1", None, None]
    assert column(store, "text", pa.string()) == ["::ffff:10.0.1.1", None, None, None]


def test_a_column_that_was_not_stored_is_refused_by_name_and_others_are_read(store: Store) -> None:
    assert column(store, "id", pa.int64()) == [1, 2, 3, 4]
    with pytest.raises(SplitError, match=r"a\.split: .* the column hidden without storing it"):
        column(store, "hidden", pa.string())


def test_a_column_of_another_type_is_refused_with_file_and_column(store: Store) -> None:
    with pytest.raises(SplitError, match=r"a\.split: the column text does not hold int64"):
        column(store, "text", pa.int64())
