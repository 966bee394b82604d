"""The schema registry: hashes as the original computes them, references in place of copies."""

import json
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indextables.log.format.actions import (
    REGISTRY_PREFIX,
    Metadata,
    deduplicate,
    deduplicate_files,
    registry_of,
    renormalize,
    schema_hash,
)
from indextables.log.format.files import from_adds, to_adds
from tests.log.entries import ORIGINAL, an_add, files_of

ID = '{"fast":true,"indexed":true,"name":"id","stored":true,"type":"i64"}'
TEXT = '{"fast":true,"indexed":true,"name":"text","stored":true,"tokenizer":"raw","type":"text"}'
SCORE = '{"fast":true,"indexed":true,"name":"score","stored":true,"type":"f64"}'

VECTORS = [
    (f"[{ID},{TEXT},{SCORE}]", "z7TwwZ-tDWGD-uX5"),
    (f"[{ID},{TEXT}]", "gC45RGOqJ_Grt0xH"),
    ('{"b":2,"a":1}', "QyWM_3g_5wNtikMD"),
    ('[{"name":"b","type":"i64"},{"type":"text","name":"a"}]', "JEwXenmAc59DadHR"),
]

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abcnxyz"), inner, max_size=4)
    ),
)


@pytest.mark.parametrize(("text", "expected"), VECTORS)
def test_hashes_are_those_of_the_original(text: str, expected: str) -> None:
    assert schema_hash(text) == expected


@pytest.mark.skipif(not ORIGINAL.exists(), reason="the original's tables are not at hand")
def test_every_registry_entry_of_the_original_tables_hashes_to_its_key() -> None:
    checked = 0
    for path in sorted(ORIGINAL.glob("*/_transaction_log/state-v*/_manifest.avro")):
        state: Any
        with path.open("rb") as file:
            (state,) = fastavro.reader(file)
        for key, text in state["schemaRegistry"].items():
            assert schema_hash(text) == key
            checked += 1
    assert checked >= 40


@given(json_values, st.randoms(use_true_random=False))
def test_the_order_of_keys_does_not_matter(value: Any, random: Any) -> None:
    def shuffled(node: Any) -> Any:
        if isinstance(node, dict):
            keys = list(node)
            random.shuffle(keys)
            return {key: shuffled(node[key]) for key in keys}
        return [shuffled(item) for item in node] if isinstance(node, list) else node

    assert schema_hash(json.dumps(value)) == schema_hash(
        json.dumps(shuffled(value), indent=1, ensure_ascii=False)
    )


def test_the_order_of_named_fields_does_not_matter_and_that_of_others_does() -> None:
    assert schema_hash(f"[{TEXT},{ID}]") == schema_hash(f"[{ID},{TEXT}]")
    assert schema_hash('[{"x":1},{"x":2}]') != schema_hash('[{"x":2},{"x":1}]')
    assert schema_hash('[{"name":"a"},7]') != schema_hash('[7,{"name":"a"}]')


def test_names_are_ordered_by_their_bytes() -> None:
    # As UTF-16, which another implementation orders by, the second would come first.
    ordered = '[{"name":"\uff5e"},{"name":"\U0001f600"}]'
    assert schema_hash(ordered) == schema_hash('[{"name":"\U0001f600"},{"name":"\uff5e"}]')


@pytest.mark.parametrize(
    "text", ["not json", "[NaN]", '["\\ud800"]', "[" * 100_000, "[" * 200 + "]" * 200, ""]
)
def test_what_is_not_json_to_the_original_is_hashed_as_it_is(text: str) -> None:
    assert len(schema_hash(text)) == 16
    assert schema_hash(text) != schema_hash(text + " ")


def test_the_registry_joins_metadata_and_state_under_bare_hashes() -> None:
    metadata = Metadata(id="i", schema_string="{}", configuration={f"{REGISTRY_PREFIX}aa": "1", "other": "x"})
    assert registry_of(metadata, {f"{REGISTRY_PREFIX}bb": "2", "cc": "3"}) == {
        "aa": "1",
        "bb": "2",
        "cc": "3",
    }
    assert registry_of(None, {"cc": "3"}) == {"cc": "3"}
    assert registry_of(Metadata(id="i", schema_string="{}"), {}) == {}


INLINE = [
    an_add(1, doc_mapping_json=f"[{ID},{TEXT}]", doc_mapping_ref=None),
    an_add(2, doc_mapping_json=f"[{TEXT},{ID}]", doc_mapping_ref=None),
    an_add(3, doc_mapping_json=None, doc_mapping_ref="kept"),
    an_add(4, doc_mapping_json=f"[{ID}]", doc_mapping_ref=None),
]


def test_document_mappings_are_replaced_by_references() -> None:
    adds, new = deduplicate(INLINE, {})
    assert [add.doc_mapping_json for add in adds] == [None] * 4
    assert [add.doc_mapping_ref for add in adds] == [
        "gC45RGOqJ_Grt0xH",
        "gC45RGOqJ_Grt0xH",
        "kept",
        schema_hash(f"[{ID}]"),
    ]
    assert new == {"gC45RGOqJ_Grt0xH": f"[{ID},{TEXT}]", schema_hash(f"[{ID}]"): f"[{ID}]"}


def test_what_the_registry_has_is_not_new() -> None:
    _, new = deduplicate(INLINE, {"gC45RGOqJ_Grt0xH": "..."})
    assert list(new) == [schema_hash(f"[{ID}]")]


def test_files_are_deduplicated_as_adds_are() -> None:
    adds, new = deduplicate(INLINE, {})
    files, new_of_files = deduplicate_files(from_adds(INLINE, version=1, timestamp=2), {})
    assert to_adds(files) == adds
    assert new_of_files == new
    untouched = files_of(3)
    assert deduplicate_files(untouched, {}) == (untouched, {})


def _with_refs(*refs: Any) -> Any:
    return from_adds([an_add(n, doc_mapping_ref=ref) for n, ref in enumerate(refs)], version=1, timestamp=2)


def test_mappings_that_are_alike_become_one() -> None:
    good = schema_hash(f"[{ID},{TEXT}]")
    registry = {"old1": f"[{TEXT},{ID}]", good: f"[{ID},{TEXT}]", "old2": f"[{ID}]", "unused": f"[{SCORE}]"}
    files, after = renormalize(_with_refs("old1", good, "old2", None, "unknown"), registry, threshold=2)
    assert files.column("docMappingRef").to_pylist() == [good, good, schema_hash(f"[{ID}]"), None, "unknown"]
    assert after == {
        good: f"[{ID},{TEXT}]",
        schema_hash(f"[{ID}]"): f"[{ID}]",
        schema_hash(f"[{SCORE}]"): f"[{SCORE}]",
    }


def test_few_references_are_trusted() -> None:
    registry = {"old1": f"[{TEXT},{ID}]", "old2": f"[{ID},{TEXT}]"}
    files = _with_refs("old1", "old2")
    assert renormalize(files, registry, threshold=2) == (files, registry)
    assert renormalize(files, registry, threshold=1) != (files, registry)
