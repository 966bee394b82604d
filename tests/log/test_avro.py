"""Avro containers and single records: the specification's bytes, and refusal of any others."""

import io
import json
import zlib
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indextables import limits
from indextables.log.format import avro
from indextables.log.format.avro import AvroError, HeaderCutError
from indextables.log.format.avro_records import decode_datum, encode_datum
from indextables.log.format.state_manifest import STATE_MANIFEST
from tests.log.entries import longs, string_maps, texts

SCHEMA = json.dumps({"type": "record", "name": "R", "fields": [{"name": "s", "type": "string"}]})
RECORDS = b"".join(b"\x0a" + word for word in (b"alpha", b"gamma", b"delta"))


def _container(codec: str = "null", blocks: int = 2) -> bytes:
    sync = avro.new_sync()
    block = avro.block_bytes(3, RECORDS, codec, 3, sync)
    return avro.header_bytes(SCHEMA, codec, {"indextables.x": "y"}, sync) + block * blocks


def _fastavro(codec: str) -> bytes:
    file = io.BytesIO()
    fastavro.writer(file, json.loads(SCHEMA), [{"s": "alpha"}, {"s": "gamma"}, {"s": "delta"}], codec)
    return file.getvalue()


@given(longs)
def test_a_number_has_the_bytes_that_the_specification_gives_it(number: Any) -> None:
    expected = io.BytesIO()
    fastavro.schemaless_writer(expected, "long", number)
    assert avro.long_bytes(number) == expected.getvalue()
    assert avro.read_long(expected.getvalue(), 0) == (number, len(expected.getvalue()))


@pytest.mark.parametrize("codec", ["null", "zstandard", "snappy"])
def test_a_container_of_ours_comes_apart_as_it_was_put_together(codec: str) -> None:
    data = _container(codec)
    header = avro.read_header(data)
    assert header.codec == codec
    assert header.schema == json.loads(SCHEMA)
    assert header.metadata["indextables.x"] == b"y"
    blocks = avro.read_blocks(data, header)
    assert [block.count for block in blocks] == [3, 3]
    assert blocks[0].start == header.size
    assert blocks[-1].end == len(data)
    for block in blocks:
        assert avro.unpack(data[block.data_start : block.data_end], codec) == RECORDS


@pytest.mark.parametrize("codec", ["null", "deflate", "zstandard"])
def test_containers_of_others_come_apart(codec: str) -> None:
    data = _fastavro(codec)
    header = avro.read_header(data)
    (block,) = avro.read_blocks(data, header)
    assert block.count == 3
    assert avro.unpack(data[block.data_start : block.data_end], header.codec) == RECORDS


@pytest.mark.parametrize("codec", ["null", "zstandard"])
def test_containers_of_ours_are_read_by_others(codec: str) -> None:
    reader: Any = fastavro.reader(io.BytesIO(_container(codec)))
    assert [record["s"] for record in reader] == ["alpha", "gamma", "delta"] * 2


def test_zstd_that_does_not_say_how_large_it_is_is_unpacked() -> None:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(RECORDS)
    assert avro.unpack(sink.getvalue().to_pybytes(), "zstandard") == RECORDS


def test_a_container_that_is_cut_anywhere_but_between_blocks_is_refused() -> None:
    data = _container()
    header = avro.read_header(data)
    between = {header.size, header.size + (len(data) - header.size) // 2}
    for end in range(len(data)):
        if end < header.size:
            with pytest.raises(HeaderCutError):
                avro.read_header(data[:end])
        elif end not in between:
            with pytest.raises(AvroError, match="cut short"):
                avro.read_blocks(data[:end], header)


def test_a_wrong_sync_marker_is_refused() -> None:
    data = bytearray(_container())
    header = avro.read_header(bytes(data))
    data[-1] ^= 1
    with pytest.raises(AvroError, match="sync marker"):
        avro.read_blocks(bytes(data), header)


def test_any_change_to_a_header_of_ours_is_noticed() -> None:
    data = _container()
    size = avro.read_header(data).size
    kept = 0
    for at in range(size):
        changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        try:
            header = avro.read_header(changed)
        except AvroError:
            continue
        kept += 1
        # The key of the checksum itself was changed: whoever expects one sees that it is gone.
        assert avro.CHECKSUM_KEY not in header.metadata
    assert kept <= len(avro.CHECKSUM_KEY)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"PAR1....", "magic bytes are missing"),
        (b"", "cut short"),
        (b"Obj\x01\x01\x00", "cut short"),
        (b"Obj\x01" + b"\xff" * 11, "longer than 64 bits"),
        (b"Obj\x01\x02\x01", "negative length"),
        (b"Obj\x01\x02\x02\xff\x02\xff\x00" + b"s" * 16, "not UTF-8"),
    ],
)
def test_what_is_no_header_is_refused(data: bytes, problem: str) -> None:
    with pytest.raises(AvroError, match=problem):
        avro.read_header(data)


@pytest.mark.parametrize("schema", [None, b"not json"])
def test_a_header_without_a_schema_is_refused(schema: bytes | None) -> None:
    metadata = {} if schema is None else {"avro.schema": schema}
    header = avro.Header(metadata, b"s" * 16, 0)
    with pytest.raises(AvroError, match="no schema"):
        _ = header.schema


def test_a_block_with_a_negative_count_is_refused() -> None:
    sync = b"s" * 16
    with pytest.raises(AvroError, match="negative count"):
        avro.read_block(avro.long_bytes(-1) + avro.long_bytes(0) + sync, 0, sync)


@pytest.mark.parametrize("codec", ["zstandard", "snappy", "deflate"])
def test_a_block_that_cannot_be_unpacked_is_refused(codec: str) -> None:
    with pytest.raises(AvroError):
        avro.unpack(b"garbage that is nothing", codec)


def test_a_codec_that_is_not_known_is_named() -> None:
    with pytest.raises(AvroError, match="lzma"):
        avro.unpack(b"", "lzma")


def test_snappy_with_a_wrong_checksum_is_refused() -> None:
    data = _container("snappy", blocks=1)
    (block,) = avro.read_blocks(data, avro.read_header(data))
    packed = bytearray(data[block.data_start : block.data_end])
    packed[-1] ^= 1
    with pytest.raises(AvroError, match="checksum"):
        avro.unpack(bytes(packed), "snappy")


@pytest.mark.parametrize("codec", ["zstandard", "snappy", "deflate"])
def test_no_more_is_unpacked_than_the_limit(monkeypatch: pytest.MonkeyPatch, codec: str) -> None:
    records = b"\x00" * 10_000
    if codec == "deflate":
        packer = zlib.compressobj(wbits=-15)
        packed = packer.compress(records) + packer.flush()
    else:
        sync = b"s" * 16
        data = avro.block_bytes(1, records, codec, 3, sync)
        block = avro.read_block(data, 0, sync)
        packed = data[block.data_start : block.data_end]
    monkeypatch.setattr(limits, "MAX_UNPACKED", 1000)
    with pytest.raises(AvroError, match=r"more than 1000 bytes|cut short"):
        avro.unpack(packed, codec)


# --- single records --------------------------------------------------------------------------------

bounds = st.fixed_dictionaries({"min": st.none() | texts, "max": st.none() | texts})
infos = st.fixed_dictionaries(
    {
        "path": texts,
        "numEntries": longs,
        "minAddedAtVersion": longs,
        "maxAddedAtVersion": longs,
        "partitionBounds": st.none() | st.dictionaries(texts, bounds, max_size=2),
        "tombstoneCount": longs,
        "liveEntryCount": longs,
    }
)
states = st.fixed_dictionaries(
    {
        "formatVersion": st.integers(-(2**31), 2**31 - 1),
        "stateVersion": longs,
        "createdAt": longs,
        "numFiles": longs,
        "totalBytes": longs,
        "manifests": st.lists(infos, max_size=2),
        "tombstones": st.lists(texts | st.text("x", min_size=60, max_size=300), max_size=3),
        "schemaRegistry": string_maps,
        "protocolVersion": st.integers(-(2**31), 2**31 - 1),
        "metadata": st.none() | texts,
    }
)


@given(states)
def test_a_record_has_the_bytes_that_others_give_it(record: Any) -> None:
    expected = io.BytesIO()
    fastavro.schemaless_writer(expected, STATE_MANIFEST, record)
    assert encode_datum(STATE_MANIFEST, record) == expected.getvalue()
    assert decode_datum(STATE_MANIFEST, expected.getvalue()) == record


@given(states, st.data())
def test_a_record_that_is_cut_is_refused(record: Any, data: Any) -> None:
    encoded = encode_datum(STATE_MANIFEST, record)
    end = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(AvroError):
        decode_datum(STATE_MANIFEST, encoded[:end])


def test_bytes_after_a_record_are_refused() -> None:
    with pytest.raises(AvroError, match="ends at byte 1 of 2"):
        decode_datum("long", b"\x02\x02")


FOREIGN = {
    "type": "record",
    "name": "Foreign",
    "namespace": "other.space",
    "fields": [
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
        {"name": "f", "type": {"type": "fixed", "name": "F", "size": 3}},
        {"name": "again", "type": "E"},
        {"name": "full", "type": "other.space.F"},
        {
            "name": "part",
            "type": ["null", {"type": "record", "name": "Part", "fields": [{"name": "p", "type": "E"}]}],
        },
        {"name": "b", "type": "boolean"},
        {"name": "d", "type": "double"},
        {"name": "g", "type": "float"},
        {"name": "raw", "type": {"type": "bytes"}},
        {"name": "either", "type": ["long", "string", "null"]},
        {"name": "many", "type": {"type": "array", "items": {"type": "map", "values": "long"}}},
    ],
}


def test_types_that_only_others_use_are_read() -> None:
    inner = {"e": "A", "f": b"xyz", "again": "B", "full": b"abc", "part": None, "b": True, "d": 0.1, "g": 0.5}
    inner |= {"raw": b"\x00\xff", "either": "text", "many": [{"a": 1}, {}]}
    record = inner | {"part": {"p": "A"}, "either": 7}
    file = io.BytesIO()
    fastavro.schemaless_writer(file, FOREIGN, record)
    assert decode_datum(FOREIGN, file.getvalue()) == record


def test_blocks_that_announce_their_size_are_read() -> None:
    # Two items with the size of the block (4 bytes), then one without.
    data = avro.long_bytes(-2) + avro.long_bytes(4) + b"\x02a\x02b" + avro.long_bytes(1) + b"\x02c" + b"\x00"
    assert decode_datum({"type": "array", "items": "string"}, data) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("schema", "data", "problem"),
    [
        ("string", b"\x04\xff\xfe", "not UTF-8"),
        (["null", "long"], b"\x06", "branch 3 of 2"),
        ({"type": "array", "items": "long"}, avro.long_bytes(2**60), "more than so few bytes can hold"),
        ({"type": "array", "items": "string"}, b"\x02\x01", "cut short"),
        ("Unheard", b"", "refers to a type 'Unheard'"),
        ({"type": "record", "name": "R"}, b"", "malformed"),
        ({"type": "array"}, b"", "malformed"),
    ],
)
def test_what_is_no_record_is_refused(schema: Any, data: Any, problem: str) -> None:
    with pytest.raises(AvroError, match=problem):
        decode_datum(schema, data)


# --- schemas of strangers --------------------------------------------------------------------------


def _nested(depth: int) -> Any:
    schema: Any = "string"
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


def _wide(levels: int) -> dict[Any, Any]:
    """Each record holds ten of the one before: a few lines stand for 10 ** levels fields of no bytes."""
    fields = [{"name": "a", "type": {"type": "record", "name": "R0", "fields": []}}]
    for level in range(1, levels):
        inner = [{"name": f"f{n}", "type": f"R{level - 1}"} for n in range(10)]
        fields.append({"name": f"a{level}", "type": {"type": "record", "name": f"R{level}", "fields": inner}})
    return {"type": "record", "name": "R", "fields": [*fields, {"name": "s", "type": "string"}]}


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (_nested(17), "nested more than 16 deep"),
        (_wide(9), "more than 10000 fields"),
        ({"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]}, "does not declare"),
        ({"type": "array", "items": "null"}, "list of values that take no bytes"),
        ({"type": "array", "items": {"type": "record", "name": "R", "fields": []}}, "take no bytes"),
        ({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}, "take no bytes"),
        ({"type": "record", "name": "R", "fields": [{"name": "n", "type": "null"}]}, "records that take no bytes"),
        ({"type": "record", "name": "R"}, "malformed"),
        ({"type": "record", "fields": []}, "malformed"),
        ({"type": "record", "name": 7, "fields": []}, "malformed"),
        ({"type": "fixed", "name": "F", "size": "x"}, "malformed"),
        (7, "malformed"),
        ("dance", "does not declare"),
    ],
)  # fmt: skip
def test_a_schema_that_lets_few_bytes_become_much_is_refused(schema: Any, says: str) -> None:
    with pytest.raises(AvroError, match=says):
        decode_datum(schema, b"\x02" * 100)
