"""State manifests: one record in Avro or JSON, whatever its generation, and nothing impossible."""

import functools
import gzip
import io
import json
import time
from typing import Any

import avro.datafile
import avro.io
import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables.errors import CorruptLogError, ProtocolError
from indextables.log.format import avro as container
from indextables.log.format.actions import Format, Metadata
from indextables.log.format.state_manifest import (
    STATE_MANIFEST,
    Bounds,
    ManifestInfo,
    StateManifest,
    decode_state,
    encode_state,
    resolve_manifest_path,
)
from indextables.store import Store
from tests.log.entries import ORIGINAL, damaged, longs, string_maps, texts

URL = "file:///table/_transaction_log/state-v00000000000000000007/_manifest.avro"
CODECS = ["zstandard", "snappy", "null"]

METADATA = Metadata(
    id="a-b",
    schema_string='{"type":"struct","fields":[]}',
    partition_columns=["date"],
    format=Format(),
    configuration={"docMappingSchema.aa": "[]"},
    created_time=5,
)
STATE = StateManifest(
    state_version=7,
    created_at=1_705_123_456_789,
    num_files=70,
    total_bytes=1234,
    manifests=(
        ManifestInfo("manifests/manifest-1.avro", 50, 1, 5, {"date": Bounds("2024-01-01", "2024-01-15")}),
        ManifestInfo("manifests/manifest-2.avro", 22, 6, 7, None, 1, 21),
    ),
    tombstones=("a.split", "b.split"),
    schema_registry={"z7TwwZ-tDWGD-uX5": "[1]"},
    metadata=METADATA,
    extra={"indextables.carried": '{"x":1}'},
)

counts = st.integers(0, 2**62)
any_bounds = st.builds(Bounds, st.none() | texts, st.none() | texts)
manifests = st.lists(
    st.builds(
        ManifestInfo,
        path=texts,
        num_entries=counts,
        min_added_at_version=longs,
        max_added_at_version=longs,
        partition_bounds=st.none() | st.dictionaries(texts, any_bounds, max_size=2),
        tombstone_count=counts,
        live_entry_count=longs,
    ),
    max_size=3,
    unique_by=lambda info: info.path,
)
any_state = st.builds(
    StateManifest,
    state_version=counts,
    created_at=longs,
    num_files=st.just(0),
    total_bytes=counts,
    manifests=manifests.map(tuple),
    tombstones=st.lists(texts, max_size=3).map(tuple),
    schema_registry=string_maps,
    protocol_version=st.integers(1, 9),
    metadata=st.none() | st.builds(Metadata, id=texts, schema_string=texts, configuration=string_maps),
    extra=st.dictionaries(st.just("indextables.x"), texts),
)


@given(any_state, st.sampled_from(CODECS))
def test_any_state_survives_a_round_trip(state: Any, codec: Any) -> None:
    assert decode_state(encode_state(state, codec=codec, level=3), URL) == state


@pytest.mark.parametrize(
    ("codec", "level"), [("zstandard", 1), ("zstandard", 22), ("snappy", 3), ("null", 3)]
)
def test_every_codec_and_level_holds_the_same_state(codec: str, level: int) -> None:
    data = encode_state(STATE, codec=codec, level=level)
    assert container.read_header(data).codec == codec
    assert decode_state(data, URL) == STATE


def test_a_state_on_any_store_is_read_back(any_store: Store) -> None:
    path = "state-v00000000000000000007/_manifest.avro"
    assert any_store.create(path, encode_state(STATE, codec="zstandard", level=3))
    assert decode_state(any_store.get(path), f"{any_store.url}/{path}") == STATE


def _record(codec: str = "zstandard") -> dict[str, Any]:
    record: Any
    (record,) = fastavro.reader(io.BytesIO(encode_state(STATE, codec=codec, level=3)))
    result: dict[str, Any] = record
    return result


@pytest.mark.parametrize("codec", ["zstandard", "null"])
def test_fastavro_reads_what_is_written(codec: str) -> None:
    record = _record(codec)
    assert list(record) == [field["name"] for field in STATE_MANIFEST["fields"]]
    assert record["formatVersion"] == 1
    assert record["manifests"][0] == {
        "path": "manifests/manifest-1.avro",
        "numEntries": 50,
        "minAddedAtVersion": 1,
        "maxAddedAtVersion": 5,
        "partitionBounds": {"date": {"min": "2024-01-01", "max": "2024-01-15"}},
        "tombstoneCount": 0,
        "liveEntryCount": -1,
    }
    assert record["tombstones"] == ["a.split", "b.split"]
    assert json.loads(record["metadata"])["metaData"]["id"] == "a-b"


def test_the_reference_library_reads_what_is_written() -> None:
    data = encode_state(STATE, codec="null", level=3)
    (record,) = avro.datafile.DataFileReader(io.BytesIO(data), avro.io.DatumReader())
    assert record == _record()


@pytest.mark.parametrize("codec", ["zstandard", "null", "deflate"])
def test_what_fastavro_writes_is_read(codec: str) -> None:
    file = io.BytesIO()
    fastavro.writer(file, STATE_MANIFEST, [_record()], codec)
    found = decode_state(file.getvalue(), URL)
    assert found.extra == {}
    assert found.manifests == STATE.manifests
    assert found.metadata == METADATA


def test_the_schema_is_the_one_of_the_format() -> None:
    schema = container.read_header(encode_state(STATE, codec="null", level=3)).schema
    assert (schema["namespace"], schema["name"]) == ("io.indextables.state", "StateManifest")


@pytest.mark.skipif(not ORIGINAL.exists(), reason="the original's tables are not at hand")
def test_the_schema_has_the_fields_of_the_original() -> None:
    def bare(node: Any) -> Any:
        """The schema without its remarks."""
        if isinstance(node, dict):
            return {key: bare(value) for key, value in node.items() if key not in ("doc", "namespace")}
        return [bare(item) for item in node] if isinstance(node, list) else node

    path = min(ORIGINAL.glob("*/_transaction_log/state-v*/_manifest.avro"))
    assert bare(container.read_header(path.read_bytes()).schema) == bare(STATE_MANIFEST)


@pytest.mark.skipif(not ORIGINAL.exists(), reason="the original's tables are not at hand")
def test_every_state_of_the_original_tables_is_read_as_others_read_it() -> None:
    paths = sorted(ORIGINAL.glob("*/_transaction_log/state-v*/_manifest.avro"))
    assert len(paths) >= 40
    for path in paths:
        expected: Any
        with path.open("rb") as file:
            (expected,) = fastavro.reader(file)
        found = decode_state(path.read_bytes(), str(path))
        assert found.state_version == expected["stateVersion"] == int(path.parent.name[-20:])
        assert found.num_files == expected["numFiles"]
        assert found.total_bytes == expected["totalBytes"]
        assert [m.path for m in found.manifests] == [m["path"] for m in expected["manifests"]]
        assert sum(m.num_entries for m in found.manifests) - len(found.tombstones) == found.num_files
        assert found.schema_registry == expected["schemaRegistry"]
        assert (found.metadata is None) == (expected["metadata"] is None)
        for info in found.manifests:
            assert (path.parents[1] / resolve_manifest_path(info.path, path.parent.name)).exists()


# --- JSON in its place -----------------------------------------------------------------------------

JSON = {
    "formatVersion": 1,
    "stateVersion": 100,
    "createdAt": 1705123456789,
    "numFiles": 68,
    "totalBytes": 1234567890,
    "manifests": [
        {
            "path": "manifest-a1b2c3d4.avro",
            "numEntries": 50,
            "minAddedAtVersion": 1,
            "maxAddedAtVersion": 50,
            "partitionBounds": {"date": {"min": "2024-01-01", "max": "2024-01-15"}, "region": {}},
        },
        {
            "path": "manifest-e5f6g7h8.avro",
            "numEntries": 20,
            "minAddedAtVersion": 51,
            "maxAddedAtVersion": 99,
        },
    ],
    "tombstones": ["splits/a.split", "splits/b.split"],
    "schemaRegistry": {"_schema_abc": "{}", "docMappingSchema.def": "[]"},
    "protocolVersion": 4,
}


def _json(**changes: Any) -> bytes:
    return json.dumps({**JSON, **changes}, indent=2).encode()


@pytest.mark.parametrize(
    "pack", [bytes, lambda data: b"\n " + data, lambda data: b"\x01\x01" + gzip.compress(data)]
)
def test_a_state_in_json_is_read(pack: Any) -> None:
    assert decode_state(pack(_json()), URL) == StateManifest(
        state_version=100,
        created_at=1705123456789,
        num_files=68,
        total_bytes=1234567890,
        manifests=(
            ManifestInfo(
                "manifest-a1b2c3d4.avro",
                50,
                1,
                50,
                {"date": Bounds("2024-01-01", "2024-01-15"), "region": Bounds(None, None)},
            ),
            ManifestInfo("manifest-e5f6g7h8.avro", 20, 51, 99),
        ),
        tombstones=("splits/a.split", "splits/b.split"),
        schema_registry={"_schema_abc": "{}", "def": "[]"},
    )


BARE = {"id": "i", "schemaString": "{}", "partitionColumns": None, "unknown": 7}


@pytest.mark.parametrize(
    "metadata", [BARE, {"metaData": BARE}, json.dumps(BARE), json.dumps({"metaData": BARE})]
)
def test_metadata_is_read_bare_or_wrapped_as_text_or_object(metadata: Any) -> None:
    assert decode_state(_json(metadata=metadata), URL).metadata == Metadata(id="i", schema_string="{}")


@pytest.mark.parametrize("metadata", [None, ""])
def test_a_state_may_have_no_metadata(metadata: str | None) -> None:
    assert decode_state(_json(metadata=metadata), URL).metadata is None


def test_empty_lists_are_read() -> None:
    found = decode_state(_json(numFiles=0, manifests=[], tombstones=[], schemaRegistry={}), URL)
    assert (found.manifests, found.tombstones, dict(found.schema_registry)) == ((), (), {})


# --- what cannot be --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"numFiles": 71}, "counts 71 files, but its manifests have only 70"),
        ({"numFiles": -1}, "numFiles is -1"),
        ({"stateVersion": -3}, "stateVersion is -3"),
        ({"totalBytes": -1}, "totalBytes is -1"),
        ({"manifests": [{"path": "m", "numEntries": -5}], "numFiles": 0}, "numEntries of m is -5"),
        ({"manifests": [{"path": "m", "numEntries": 50}] * 2}, "a manifest twice"),
        ({"formatVersion": 0}, "format version is 0"),
        ({"formatVersion": None}, "format version is None"),
        ({"formatVersion": "1"}, "format version is 1"),
        ({"numFiles": "many"}, "cannot be read"),
        ({"manifests": None}, "cannot be read"),
        ({"metadata": "{"}, "cannot be read"),
        ({"metadata": {"metaData": {"id": 7}}}, "cannot be read"),
        ({"metadata": "[1]"}, "cannot be read"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(CorruptLogError, match=problem) as caught:
        decode_state(_json(**changes), URL)
    assert caught.value.url == URL


def test_a_newer_layout_is_refused_by_its_number_whatever_else_it_has() -> None:
    with pytest.raises(ProtocolError, match=r"_manifest\.avro has state format version 2.*newer release"):
        decode_state(_json(formatVersion=2, manifests={"all": "different"}), URL)


@pytest.mark.parametrize(
    "data", [b"", b"PAR1", b"[1]", b"null", b"Obj\x01", b"{", b"\x1f\x8b\x00", b"Obj\x02" + b"x" * 50]
)
def test_what_is_no_state_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptLogError) as caught:
        decode_state(data, URL)
    assert caught.value.url == URL


@pytest.mark.parametrize("count", [0, 2])
def test_another_number_of_records_than_one_is_refused(count: int) -> None:
    file = io.BytesIO()
    fastavro.writer(file, STATE_MANIFEST, [_record()] * count)
    with pytest.raises(CorruptLogError, match=f"holds {count} records, expected one"):
        decode_state(file.getvalue(), URL)


@pytest.mark.parametrize("codec", CODECS)
def test_a_state_that_is_cut_anywhere_is_refused(codec: str) -> None:
    data = _encoded(codec)
    for end in range(len(data)):
        with pytest.raises(CorruptLogError):
            decode_state(data[:end], URL)


@functools.cache
def _encoded(codec: str) -> bytes:
    return encode_state(STATE, codec=codec, level=3)


@settings(max_examples=300)
@given(st.data(), st.sampled_from(CODECS))
def test_a_changed_byte_is_always_noticed(data: Any, codec: Any) -> None:
    with pytest.raises(CorruptLogError):
        decode_state(data.draw(damaged(_encoded(codec))), URL)


@functools.cache
def _of_another(codec: str) -> bytes:
    file = io.BytesIO()
    fastavro.writer(file, STATE_MANIFEST, [_record()], codec)
    return file.getvalue()


@settings(max_examples=300)
@given(st.data(), st.sampled_from(["null", "zstandard"]))
def test_a_changed_byte_in_a_state_of_others_is_read_or_refused(data: Any, codec: Any) -> None:
    try:
        found = decode_state(data.draw(damaged(_of_another(codec))), URL)
    except (CorruptLogError, ProtocolError):
        return
    # Nothing guards their letters and digits; what is read still is a possible state.
    assert 0 <= found.num_files <= sum(info.num_entries for info in found.manifests)


def test_a_hundred_thousand_tombstones_take_no_time() -> None:
    paths = tuple(f"date=2024-01-01/part-{number:032x}-with-a-long-name.split" for number in range(100_000))
    state = StateManifest(7, 1, 0, 0, (ManifestInfo("m", 100_000, 1, 1),), tombstones=paths)
    start = time.perf_counter()
    found = decode_state(encode_state(state, codec="zstandard", level=3), URL)
    assert time.perf_counter() - start < 2
    assert found.tombstones == paths


# --- where manifests lie ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("manifests/manifest-1.avro", "manifests/manifest-1.avro"),
        ("state-v00000000000000000003/manifest-1.avro", "state-v00000000000000000003/manifest-1.avro"),
        ("manifest-1.avro", "state-v7/manifest-1.avro"),
        ("s3://bucket/table/_transaction_log/manifests/manifest-1.avro", "manifests/manifest-1.avro"),
        ("file:/data/table/_transaction_log/state-v3/manifest-1.avro", "state-v3/manifest-1.avro"),
        ("/data/table/_transaction_log/manifests/manifest-1.avro", "manifests/manifest-1.avro"),
    ],
)
def test_a_manifest_is_found_by_every_form_of_its_path(path: str, found: str) -> None:
    assert resolve_manifest_path(path, "state-v7") == found
    assert resolve_manifest_path(path, "_transaction_log/state-v7") == f"_transaction_log/{found}"


@pytest.mark.parametrize(
    "path",
    [
        "s3://elsewhere/manifest-1.avro",
        "/etc/passwd",
        "../manifest-1.avro",
        "manifests/../../other/m.avro",
        "manifests//m.avro",
        "s3://b/_transaction_log/../x.avro",
        "s3://b/_transaction_log/",
        "..",
        "",
    ],
)
def test_a_path_that_leads_out_of_the_log_is_refused(path: str) -> None:
    with pytest.raises(CorruptLogError, match="state-v7 refers to a manifest"):
        resolve_manifest_path(path, "state-v7")
