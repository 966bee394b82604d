"""Manifests: written, read back, read by others, read from others, and read in part."""

import functools
import io
import json
import multiprocessing
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import avro.codecs
import avro.datafile
import avro.io
import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables.errors import CorruptLogError, IndexTablesError, LogError, StoreError
from indextables.log.format import avro as container
from indextables.log.format import manifest
from indextables.log.format.avro import schema_json
from indextables.log.format.avro_records import encode_records
from indextables.log.format.files import FILE_ENTRY, FILES, conform, empty, from_adds, to_adds
from indextables.log.format.manifest import encode_manifest, read_manifest
from indextables.log.format.state_manifest import (
    BLOCKS_KEY,
    BlockInfo,
    Bounds,
    block_bounds,
    encode_index,
    ordered_bounds,
    read_index,
)
from indextables.schema.values import NULL_PARTITION
from indextables.store import Store, open_store
from tests.log.entries import ORIGINAL, WHEN, adds, an_add, damaged, files_of

CODECS = ["zstandard", "snappy", "null"]
PATH = "manifests/manifest-1.avro"


def encode(
    files: pa.Table, codec: str = "zstandard", level: int = 3, columns: tuple[str, ...] = ("date",)
) -> bytes:
    return encode_manifest(files, partition_columns=columns, codec=codec, level=level)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path)


@pytest.fixture(autouse=True, scope="module", params=["record by record", "DataFusion"])
def decoder(request: pytest.FixtureRequest) -> Iterator[str]:
    """Both ways of decoding a manifest, whatever its size."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifest, "_SMALL_ENTRIES", 0 if request.param == "DataFusion" else 1_000_000)
        yield request.param


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "BLOCK_ENTRIES", 10)


def records_of(files: pa.Table) -> list[dict[str, Any]]:
    """The entries as an Avro library has them."""
    nested = [i for i, field in enumerate(FILES) if pa.types.is_map(field.type)]
    records = []
    for row in files.to_pylist():
        values = list(row.values())
        for i in nested:
            values[i] = None if values[i] is None else dict(values[i])
        record = dict(zip(FILES.names, values, strict=True))
        record["partitionValues"] = {
            k: NULL_PARTITION if v is None else v for k, v in record["partitionValues"].items()
        }
        records.append(record)
    return records


def foreign(
    files: pa.Table,
    *,
    codec: str = "null",
    without: Sequence[str] = (),
    extra: Sequence[Any] = (),
    **writer: Any,
) -> bytes:
    """The entries as another writer of some generation puts them down."""
    fields = [field for field in FILE_ENTRY["fields"] if field["name"] not in without]
    schema = {**FILE_ENTRY, "fields": [*fields, *extra]}
    file = io.BytesIO()
    records = [{**record, **{field["name"]: "new" for field in extra}} for record in records_of(files)]
    fastavro.writer(file, schema, records, codec, **writer)
    return file.getvalue()


# --- what is written is read -----------------------------------------------------------------------


@settings(max_examples=60)
@given(st.lists(adds, max_size=6), st.sampled_from(CODECS), st.integers(1, 3))
def test_any_entries_survive_a_round_trip(
    tmp_path_factory: pytest.TempPathFactory, actions: Any, codec: Any, block_entries: Any
) -> None:
    store = open_store(tmp_path_factory.getbasetemp() / "any")
    files = from_adds(actions, version=3, timestamp=WHEN)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifest, "BLOCK_ENTRIES", block_entries)
        store.put(PATH, encode(files, codec))
    assert read_manifest(store, PATH, entries=len(actions)) == files


@given(st.lists(adds, min_size=1, max_size=6), st.integers(0, 3))
def test_records_are_those_that_others_would_write(actions: Any, start: Any) -> None:
    files = from_adds(actions, version=3, timestamp=WHEN)
    files = files.slice(min(start, len(actions) - 1))
    (batch,) = (manifest._writable(files.combine_chunks().to_batches()[0]),)
    decoded = [
        fastavro.schemaless_reader(io.BytesIO(record), FILE_ENTRY)
        for record in encode_records(FILE_ENTRY, batch).to_pylist()
    ]
    assert decoded == records_of(files)


@pytest.mark.parametrize("count", [0, 1, 1000])
def test_a_manifest_on_any_store_is_read_back(any_store: Store, count: int) -> None:
    files = files_of(count)
    any_store.put(PATH, encode(files))
    assert read_manifest(any_store, PATH, entries=count) == files


@pytest.mark.parametrize(
    ("codec", "level"), [("zstandard", 1), ("zstandard", 3), ("zstandard", 22), ("snappy", 3), ("null", 3)]
)
def test_every_codec_and_level_holds_the_same_entries(store: Store, codec: str, level: int) -> None:
    files = files_of(5000)
    data = encode(files, codec, level)
    store.put(PATH, data)
    assert container.read_header(data).codec == codec
    assert read_manifest(store, PATH, entries=5000) == files


def test_a_higher_level_makes_a_smaller_manifest() -> None:
    files = files_of(5000)
    assert len(encode(files, level=19)) < len(encode(files, level=1)) < len(encode(files, "null"))


def test_a_large_manifest_is_read_back_in_blocks(store: Store) -> None:
    files = from_adds([an_add(n) for n in range(100_000)], version=3, timestamp=WHEN)
    data = encode(files)
    index = read_index(container.read_header(data))
    assert max(block.count for block in index) == manifest.BLOCK_ENTRIES
    assert sum(block.count for block in index) == 100_000
    store.put(PATH, data)
    assert read_manifest(store, PATH, entries=100_000) == files


def test_large_entries_make_blocks_of_fewer(store: Store) -> None:
    mapping = "x" * 1_000_000
    files = from_adds([an_add(n, doc_mapping_json=mapping) for n in range(20)], version=3, timestamp=WHEN)
    data = encode(files)
    assert [block.count for block in read_index(container.read_header(data))] == [4, 4, 4, 4, 4]
    store.put(PATH, data)
    assert read_manifest(store, PATH, entries=20) == files


def test_chunks_and_slices_are_written_as_the_rows_they_show(store: Store) -> None:
    files = files_of(50)
    store.put(PATH, encode(pa.concat_tables([files.slice(40), files.slice(7, 3), files.slice(0, 1)])))
    expected = to_adds(files)[40:] + to_adds(files)[7:10] + to_adds(files)[:1]
    assert to_adds(read_manifest(store, PATH, entries=14)) == expected


def test_nulls_inside_statistics_and_tags_are_left_out(store: Store) -> None:
    files = files_of(2)
    kind = pa.map_(pa.string(), pa.string())
    stats = pa.array([[("a", None), ("b", "1")], [("c", None)]], kind)
    tags = pa.array([["x", None, "y"], [None]], pa.list_(pa.string()))
    files = files.set_column(6, FILES.field("minValues"), stats)
    files = files.set_column(13, FILES.field("splitTags"), tags)
    store.put(PATH, encode(files))
    first, second = to_adds(read_manifest(store, PATH, entries=2))
    assert (first.min_values, first.split_tags) == ({"b": "1"}, ["x", "y"])
    assert (second.min_values, second.split_tags) == ({}, [])


def test_values_that_must_be_there_are_written_where_they_are_null(store: Store) -> None:
    files = files_of(2)
    for name in ("partitionValues", "dataChange", "size"):
        field = FILES.field(name)
        files = files.set_column(FILES.get_field_index(name), field, pa.nulls(2, field.type))
    store.put(PATH, encode(files))
    found = to_adds(read_manifest(store, PATH, entries=2))
    assert [(add.partition_values, add.data_change, add.size) for add in found] == [({}, True, 0)] * 2


def test_an_entry_without_a_path_is_not_written() -> None:
    files = files_of(2).set_column(0, FILES.field("path"), pa.array(["p", None]))
    with pytest.raises(LogError, match="no path"):
        encode(files)


def test_a_table_without_any_chunk_is_an_empty_manifest(store: Store) -> None:
    store.put(PATH, encode(pa.Table.from_batches([], schema=FILES)))
    assert read_manifest(store, PATH, entries=0) == empty()


def test_only_the_columns_asked_for_are_read(store: Store) -> None:
    files = files_of(100)
    store.put(PATH, encode(files))
    columns = ["addedAtVersion", "path", "partitionValues"]
    assert read_manifest(store, PATH, entries=100, columns=columns) == files.select(columns)
    assert read_manifest(store, PATH, entries=100, columns=["size"]) == files.select(["size"])


def test_entries_can_be_told_by_the_version_and_the_time_that_added_them(store: Store) -> None:
    old = from_adds([an_add(n) for n in range(5)], version=3, timestamp=1000)
    new = from_adds([an_add(n) for n in range(5, 9)], version=4, timestamp=2000)
    store.put(PATH, encode(pa.concat_tables([old, new])))
    files = read_manifest(store, PATH, entries=9)
    assert files.filter(pc.field("addedAtVersion") > 3) == new
    assert files.filter(pc.field("addedAtTimestamp") > 1000) == new


def test_manifests_are_read_and_written_at_the_same_time(store: Store) -> None:
    tables = [files_of(1000, version=number) for number in range(10)]

    def round_trip(number: int) -> bool:
        store.put(f"m{number}.avro", encode(tables[number]))
        result: bool = read_manifest(store, f"m{number}.avro", entries=1000) == tables[number]
        return result

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(round_trip, range(10)))


def test_nothing_is_left_in_the_temporary_folder(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = tmp_path / "spool"
    spool.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(spool))
    store.put(PATH, encode(files_of(10)))
    read_manifest(store, PATH, entries=10)
    assert not list(spool.iterdir())


def test_a_temporary_folder_that_cannot_be_written_is_said_to_be_it(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decoder: str
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "absent"))
    store.put(PATH, encode(files_of(10)))
    if decoder != "DataFusion":
        assert read_manifest(store, PATH, entries=10).num_rows == 10
        return
    with pytest.raises(StoreError, match="set TMPDIR"):
        read_manifest(store, PATH, entries=10)


def _read_in_child(url: str, queue: Any) -> None:
    try:
        queue.put(read_manifest(open_store(url), PATH, entries=10).num_rows)
    except IndexTablesError as error:
        queue.put(str(error))


@pytest.mark.parametrize(("method", "expected"), [("fork", "forked from one that has read"), ("spawn", 10)])
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_is_refused_and_a_spawned_one_reads(
    store: Store, tmp_path: Path, method: str, expected: int | str, decoder: str
) -> None:
    """DataFusion has threads, which a forked child does not have; small manifests are read there, too."""
    expected = expected if decoder == "DataFusion" else 10
    store.put(PATH, encode(files_of(10)))
    assert read_manifest(store, PATH, entries=10).num_rows == 10
    context: Any = multiprocessing.get_context(method)
    queue = context.Queue()
    child = context.Process(target=_read_in_child, args=(str(tmp_path), queue))
    child.start()
    found = queue.get(timeout=60)
    child.join(60)
    assert found == expected or str(expected) in str(found)


# --- read by others --------------------------------------------------------------------------------


class _PeerCodec(avro.codecs.Codec):
    """What the reference library needs an extra package for."""

    @staticmethod
    def decompress(readers_decoder: avro.io.BinaryDecoder) -> avro.io.BinaryDecoder:
        raise NotImplementedError

    @staticmethod
    def compress(data: bytes) -> tuple[bytes, int]:
        raise NotImplementedError


class _Snappy(_PeerCodec):
    @staticmethod
    def decompress(readers_decoder: avro.io.BinaryDecoder) -> avro.io.BinaryDecoder:
        return avro.io.BinaryDecoder(io.BytesIO(container.unpack(readers_decoder.read_bytes(), "snappy")))


class _Zstandard(_PeerCodec):
    @staticmethod
    def decompress(readers_decoder: avro.io.BinaryDecoder) -> avro.io.BinaryDecoder:
        stream = pa.CompressedInputStream(pa.BufferReader(readers_decoder.read_bytes()), "zstd")
        return avro.io.BinaryDecoder(io.BytesIO(stream.read()))


@pytest.fixture
def reference_codecs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(avro.codecs.KNOWN_CODECS, "snappy", _Snappy)
    monkeypatch.setitem(avro.codecs.KNOWN_CODECS, "zstandard", _Zstandard)


@pytest.mark.parametrize("codec", CODECS)
def test_the_reference_library_reads_what_is_written(
    reference_codecs: None, small_blocks: None, codec: str
) -> None:
    files = files_of(25)
    reader = avro.datafile.DataFileReader(io.BytesIO(encode(files, codec)), avro.io.DatumReader())
    assert list(reader) == records_of(files)


@pytest.mark.parametrize("codec", ["zstandard", "null"])
def test_fastavro_reads_what_is_written(small_blocks: None, codec: str) -> None:
    files = files_of(25)
    reader = fastavro.reader(io.BytesIO(encode(files, codec)))
    assert list(reader) == records_of(files)
    assert reader.codec == codec


def test_the_schema_has_the_names_and_ids_of_the_format() -> None:
    schema = container.read_header(encode(files_of(1))).schema
    assert (schema["namespace"], schema["name"]) == ("io.indextables.state", "FileEntry")
    ids = {field["name"]: field["field-id"] for field in schema["fields"]}
    assert list(ids) == FILES.names
    assert ids == {
        "path": 100,
        "partitionValues": 101,
        "size": 102,
        "modificationTime": 103,
        "dataChange": 104,
        "stats": 110,
        "minValues": 111,
        "maxValues": 112,
        "numRecords": 113,
        "footerStartOffset": 120,
        "footerEndOffset": 121,
        "hasFooterOffsets": 124,
        "deleteOpstamp": 123,
        "splitTags": 132,
        "numMergeOps": 134,
        "docMappingJson": 133,
        "docMappingRef": 135,
        "uncompressedSizeBytes": 136,
        "timeRangeStart": 137,
        "timeRangeEnd": 138,
        "addedAtVersion": 140,
        "addedAtTimestamp": 141,
        "companionSourceFiles": 150,
        "companionDeltaVersion": 151,
        "companionFastFieldMode": 152,
    }


@pytest.mark.skipif(not ORIGINAL.exists(), reason="the original's tables are not at hand")
def test_the_original_reads_what_is_written_by_its_own_schema() -> None:
    path = min(ORIGINAL.glob("*/_transaction_log/manifests/manifest-*.avro"))
    theirs = container.read_header(path.read_bytes()).schema
    files = files_of(3)
    reader = fastavro.reader(io.BytesIO(encode(files)), reader_schema=theirs)
    known = [field["name"] for field in theirs["fields"]]
    assert list(reader) == [{name: record[name] for name in known} for record in records_of(files)]


# --- read from others ------------------------------------------------------------------------------

GEN_046 = ["deleteOpstamp", "docMappingJson", "timeRangeStart", "timeRangeEnd"]
GENERATIONS = {
    "first": [*GEN_046, "companionSourceFiles", "companionDeltaVersion", "companionFastFieldMode"],
    "second": GEN_046,
    "third": [],
}


@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize("codec", ["zstandard", "null", "deflate"])
def test_entries_of_every_generation_of_writers_are_read(store: Store, generation: str, codec: str) -> None:
    files = files_of(300)
    store.put(PATH, foreign(files, codec=codec, without=GENERATIONS[generation], sync_interval=1000))
    assert read_manifest(store, PATH, entries=300) == files
    assert read_manifest(store, PATH, entries=300, columns=["path"]) == files.select(["path"])
    assert read_manifest(store, PATH, entries=300, columns=["stats"]) == files.select(["stats"])
    assert read_manifest(store, PATH, entries=300, columns=["timeRangeEnd"]) == files.select(["timeRangeEnd"])
    asked = ["timeRangeEnd", "path"]
    assert read_manifest(store, PATH, entries=300, columns=asked) == files.select(asked)


def test_snappy_of_others_is_read(store: Store) -> None:
    files = files_of(30)
    data = foreign(files, codec="null")
    header = container.read_header(data)
    (block,) = container.read_blocks(data, header)
    snappy = container.block_bytes(30, data[block.data_start : block.data_end], "snappy", 0, header.sync)
    head = data[: header.size].replace(b"\x14avro.codec\x08null", b"\x14avro.codec\x0csnappy")
    store.put(PATH, head + snappy)
    assert read_manifest(store, PATH, entries=30) == files


def test_fields_that_only_a_newer_writer_knows_are_passed_over(store: Store) -> None:
    files = files_of(30)
    newer = {"name": "newField", "type": ["null", "string"], "default": None, "field-id": 153}
    store.put(PATH, foreign(files, extra=[newer]))
    assert read_manifest(store, PATH, entries=30) == files


def test_a_reader_that_knows_fewer_fields_reads_what_is_written() -> None:
    files = files_of(30)
    older = {
        **FILE_ENTRY,
        "fields": [f for f in FILE_ENTRY["fields"] if f["name"] not in GENERATIONS["first"]],
    }
    found: list[Any] = list(fastavro.reader(io.BytesIO(encode(files)), reader_schema=older))
    assert [record["path"] for record in found] == files.column("path").to_pylist()
    assert set(found[0]) == {field["name"] for field in older["fields"]}


def test_a_narrower_number_of_another_writer_is_widened(store: Store) -> None:
    files = files_of(30)
    fields = [{**f, "type": "int"} if f["name"] == "size" else f for f in FILE_ENTRY["fields"]]
    file = io.BytesIO()
    fastavro.writer(file, {**FILE_ENTRY, "fields": fields}, records_of(files))
    store.put(PATH, file.getvalue())
    assert read_manifest(store, PATH, entries=30) == files


def test_a_field_under_another_name_is_another_field(store: Store) -> None:
    files = files_of(3)
    fields = [{**f, "name": "records"} if f["name"] == "numRecords" else f for f in FILE_ENTRY["fields"]]
    records = [{**record, "records": 5} for record in records_of(files)]
    file = io.BytesIO()
    fastavro.writer(file, {**FILE_ENTRY, "fields": fields}, records)
    store.put(PATH, file.getvalue())
    # Names are what every reader of the format goes by; the id alone makes no field.
    assert read_manifest(store, PATH, entries=3).column("numRecords").null_count == 3


@pytest.mark.skipif(not ORIGINAL.exists(), reason="the original's tables are not at hand")
def test_every_manifest_of_the_original_tables_is_read_as_others_read_it() -> None:
    paths = sorted(ORIGINAL.glob("*/_transaction_log/manifests/manifest-*.avro"))
    assert len(paths) >= 40
    for path in paths:
        with path.open("rb") as file:
            records: Any = fastavro.reader(file)
            expected = [{name: record.get(name) for name in FILES.names} for record in records]
        store = open_store(path.parent)
        assert records_of(read_manifest(store, path.name, entries=len(expected))) == expected


# --- damage ----------------------------------------------------------------------------------------


def refused(store: Store, data: bytes, *, entries: int | None = 25, **how: Any) -> str:
    store.put(PATH, data)
    with pytest.raises(CorruptLogError, match=re.escape(f"{store.url}/{PATH}")) as caught:
        read_manifest(store, PATH, entries=entries, **how)
    return caught.value.problem


@pytest.mark.parametrize("codec", CODECS)
def test_a_manifest_that_is_cut_is_refused(store: Store, small_blocks: None, codec: str) -> None:
    data = encode(files_of(25), codec)
    header = container.read_header(data)
    blocks = container.read_blocks(data, header)
    ends = {0, 1, 4, header.size // 2, header.size, len(data) - 1, len(data) - 16}
    ends |= {block.start + delta for block in blocks for delta in (-1, 0, 1, 2, 5)}
    ends |= {block.data_end for block in blocks}
    for end in sorted(ends):
        assert "cannot be read" in refused(store, data[:end])
        assert "cannot be read" in refused(store, data[:end], entries=None)


def test_a_manifest_of_others_that_is_cut_is_refused(store: Store) -> None:
    data = foreign(files_of(25), sync_interval=500)
    blocks = container.read_blocks(data, container.read_header(data))
    assert len(blocks) > 3
    for end in [*(block.start for block in blocks), *range(0, len(data), 97)]:
        refused(store, data[:end])


@functools.cache
def _in_small_blocks(codec: str) -> bytes:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifest, "BLOCK_ENTRIES", 10)
        return encode(files_of(25), codec)


@settings(max_examples=150)
@given(st.data(), st.sampled_from(CODECS))
def test_a_changed_byte_is_always_noticed(
    tmp_path_factory: pytest.TempPathFactory, data: Any, codec: Any
) -> None:
    store = open_store(tmp_path_factory.getbasetemp() / "flip")
    refused(store, data.draw(damaged(_in_small_blocks(codec))))


def test_a_changed_byte_in_any_place_of_the_header_is_noticed_when_reading_in_part(
    store: Store, small_blocks: None
) -> None:
    whole = encode(files_of(25))
    for at in range(0, container.read_header(whole).size, 11):
        changed = whole[:at] + bytes([whole[at] ^ 3]) + whole[at + 1 :]
        refused(store, changed, keep_block=lambda bounds: False)


def test_a_changed_byte_in_a_block_that_is_read_in_part_is_noticed(store: Store, small_blocks: None) -> None:
    whole = bytearray(encode(files_of(25)))
    whole[-20] ^= 1
    store.put(PATH, bytes(whole))
    last = {"date": Bounds("2024-01-21", "2024-01-25")}
    kept = read_manifest(store, PATH, entries=25, keep_block=lambda bounds: bounds != last)
    assert kept == files_of(20)
    assert "checksum" in refused(store, bytes(whole), keep_block=lambda bounds: bounds == last)


@functools.cache
def _of_another(codec: str) -> bytes:
    return foreign(files_of(25), codec=codec)


@settings(max_examples=60)
@given(st.data(), st.sampled_from(["null", "zstandard"]))
def test_a_changed_byte_in_a_manifest_of_others_never_stops_the_process(
    tmp_path_factory: pytest.TempPathFactory, data: Any, codec: Any
) -> None:
    store = open_store(tmp_path_factory.getbasetemp() / "foreign")
    store.put(PATH, data.draw(damaged(_of_another(codec))))
    try:
        found = read_manifest(store, PATH, entries=25)
    except CorruptLogError:
        return
    # Nothing guards a letter in a path of theirs; but the number of entries is right.
    assert found.num_rows == 25


@pytest.mark.parametrize("entries", [24, 26, 0])
@pytest.mark.parametrize("keep_block", [None, lambda bounds: False])
def test_another_number_of_entries_than_the_state_counts_is_refused(
    store: Store, entries: int, keep_block: Any
) -> None:
    problem = refused(store, encode(files_of(25)), entries=entries, keep_block=keep_block)
    assert f"it has 25 entries, and the state counts {entries}" in problem


def test_a_manifest_that_is_missing_is_named(store: Store) -> None:
    for keep_block in (None, lambda bounds: True):
        with pytest.raises(CorruptLogError, match=re.escape(f"{store.url}/{PATH}: the manifest is missing")):
            read_manifest(store, PATH, entries=1, keep_block=keep_block)


@pytest.mark.parametrize("data", [b"", b"PAR1", b"{}", b"\x00" * 100])
def test_what_is_no_avro_is_refused(store: Store, data: bytes) -> None:
    refused(store, data)
    refused(store, data, keep_block=lambda bounds: True)


def test_records_of_another_kind_are_refused(store: Store) -> None:
    schema = {"type": "record", "name": "Other", "fields": [{"name": "x", "type": "long"}]}
    file = io.BytesIO()
    fastavro.writer(file, schema, [{"x": 1}])
    assert "no field path" in refused(store, file.getvalue(), entries=1)


def test_blocks_put_in_another_order_are_refused(store: Store, small_blocks: None) -> None:
    data = encode(files_of(20))
    header = container.read_header(data)
    first, second = container.read_blocks(data, header)
    swapped = data[: header.size] + data[second.start : second.end] + data[first.start : first.end]
    assert "checksum" in refused(store, swapped, entries=20)


def test_a_codec_that_nobody_knows_is_refused(store: Store) -> None:
    head = foreign(files_of(5)).replace(b"\x14avro.codec\x08null", b"\x14avro.codec\x08nope")
    refused(store, head, entries=5)


# --- reading in part -------------------------------------------------------------------------------


def _wants(day: str) -> Callable[..., bool | Any]:
    return lambda bounds: "date" not in bounds or bounds["date"].min <= day <= bounds["date"].max


@pytest.fixture
def by_day() -> pa.Table:
    """Ten entries a day."""
    days = [f"2024-01-{n // 10 + 1:02d}" for n in range(200)]
    return from_adds(
        [an_add(n, partition_values={"date": d}) for n, d in enumerate(days)], version=1, timestamp=2
    )


def test_only_the_blocks_that_may_match_are_fetched(
    any_store: Store, small_blocks: None, by_day: pa.Table
) -> None:
    any_store.put(PATH, encode(by_day))
    found = read_manifest(any_store, PATH, entries=200, keep_block=_wants("2024-01-07"))
    assert found == by_day.slice(60, 10)
    columns = ["path", "size"]
    found = read_manifest(any_store, PATH, entries=200, columns=columns, keep_block=_wants("2024-01-07"))
    assert found == by_day.slice(60, 10).select(columns)


def test_reading_in_part_fetches_a_part(
    store: Store, small_blocks: None, by_day: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "_HEAD_BYTES", 4096)
    data = encode(by_day, "null")
    store.put(PATH, data)
    monkeypatch.setattr(type(store), "get", lambda *_: pytest.fail("the whole manifest was fetched"))
    found = read_manifest(store, PATH, entries=200, keep_block=_wants("2024-01-20"))
    assert found == by_day.slice(190, 10)


def test_no_block_or_every_block_may_be_wanted(store: Store, small_blocks: None, by_day: pa.Table) -> None:
    store.put(PATH, encode(by_day))
    assert read_manifest(store, PATH, entries=200, keep_block=lambda bounds: False) == empty()
    assert read_manifest(store, PATH, entries=200, keep_block=lambda bounds: True) == by_day
    nothing = read_manifest(store, PATH, entries=200, columns=["size"], keep_block=lambda bounds: False)
    assert nothing == empty().select(["size"])


def test_manifests_of_others_are_read_whole(store: Store, by_day: pa.Table) -> None:
    store.put(PATH, foreign(by_day))
    assert read_manifest(store, PATH, entries=200, keep_block=lambda bounds: False) == by_day


def test_a_header_longer_than_the_first_fetch_is_read(
    store: Store, small_blocks: None, by_day: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "_HEAD_BYTES", 100)
    store.put(PATH, encode(by_day))
    found = read_manifest(store, PATH, entries=200, keep_block=_wants("2024-01-07"))
    assert found == by_day.slice(60, 10)


def _bounds(*values: Any, cuts: Any = None) -> list[Any]:
    adds = [an_add(n, partition_values={"c": v}) for n, v in enumerate(values)]
    column = from_adds(adds, version=1, timestamp=2).column("partitionValues")
    return [b.get("c") for b in block_bounds(column, ["c", "absent"], cuts or [0, len(values)])]


def test_bounds_are_given_a_block() -> None:
    values = ["2024-01-02", "2024-01-01", "2024-01-05", "2024-01-05"]
    assert _bounds(*values, cuts=[0, 2, 4]) == [
        Bounds("2024-01-01", "2024-01-02"),
        Bounds("2024-01-05", "2024-01-05"),
    ]


@pytest.mark.parametrize(
    "values",
    [
        ["9", "10"],
        ["1.5", "2"],
        ["-1", "1"],
        ["nan", "x"],
        ["NaN", "NaN"],
        ["Infinity", "a"],
        ["2024-01-01", "10000-01-01"],
    ],
)
def test_values_whose_order_depends_on_their_type_have_no_bounds(values: list[str]) -> None:
    assert ordered_bounds(values) is None
    assert _bounds(*values) == [None]


@pytest.mark.parametrize(
    "values", [["a", "b"], ["false", "true"], ["10", "99"], ["7", "7"], ["", "x"], ["\u00e9", "\U0001f600"]]
)
def test_values_that_are_ordered_alike_in_any_type_have_bounds(values: list[str]) -> None:
    assert _bounds(*values) == [Bounds(min(values), max(values))]


@pytest.mark.parametrize("values", [["a", None], [None, None], ["a", NULL_PARTITION]])
def test_a_block_with_a_null_has_no_bounds(values: Any) -> None:
    assert _bounds(*values) == [None]


def test_a_table_without_partitions_has_no_bounds() -> None:
    adds = [an_add(n, partition_values={}) for n in range(3)]
    data = encode(from_adds(adds, version=1, timestamp=2), columns=())
    assert [block.bounds for block in read_index(container.read_header(data))] == [{}]


def test_the_header_lists_the_blocks_for_whoever_wants_to_know(small_blocks: None, by_day: pa.Table) -> None:
    data = encode(by_day)
    header = container.read_header(data)
    listed = json.loads(header.metadata["indextables.blocks"])
    blocks = container.read_blocks(data, header)
    assert [(count, size) for count, size, _, _ in listed] == [(b.count, b.end - b.start) for b in blocks]
    assert listed[0][3] == {"date": ["2024-01-01", "2024-01-01"]}


def test_conforming_twice_changes_nothing(by_day: pa.Table) -> None:
    assert conform(conform(by_day)) == by_day


# --- strangers' manifests --------------------------------------------------------------------------


def bomb(size: int, count: int = 1) -> bytes:
    """A legal manifest whose one path is so long; packed it is tiny."""
    files = from_adds([an_add(1)], version=1, timestamp=WHEN)
    small = encode_manifest(files, partition_columns=[], codec="null", level=1)
    header = container.read_header(small)
    block = container.read_blocks(small, header)[0]
    record = small[block.data_start : block.data_end]
    path = files["path"][0].as_py().encode()
    assert record.startswith(container.long_bytes(len(path)) + path)
    record = container.long_bytes(size) + b"P" * size + record[len(path) + 1 :]
    sync = container.new_sync()
    packed = container.block_bytes(count, record, "zstandard", 3, sync)
    index = encode_index([BlockInfo.of(count, packed, {})])
    return container.header_bytes(schema_json(FILE_ENTRY), "zstandard", {BLOCKS_KEY: index}, sync) + packed


def test_a_small_manifest_does_not_become_a_large_one(store: Store) -> None:
    data = bomb(64 << 20)
    assert len(data) < 50_000
    store.put("manifest-x.avro", data)
    with pytest.raises(CorruptLogError, match="the limit for its compressed size"):
        read_manifest(store, "manifest-x.avro", entries=1)


def test_a_count_of_records_that_have_no_bytes_is_refused(store: Store) -> None:
    store.put("manifest-x.avro", bomb(10, count=10**15))
    with pytest.raises(CorruptLogError, match="entries, the limit for its size"):
        read_manifest(store, "manifest-x.avro", entries=10**15)


def test_records_that_nest_in_themselves_are_refused_before_they_are_decoded(store: Store) -> None:
    """The native decoder would follow them until its stack ends, and the process with it."""
    schema = {
        "type": "record",
        "name": "FileEntry",
        "fields": [{"name": "path", "type": "string"}, {"name": "next", "type": ["null", "FileEntry"]}],
    }
    sync = container.new_sync()
    records = b"\x02a\x02" * 200_000 + b"\x02a\x00"
    data = container.header_bytes(json.dumps(schema), "null", {}, sync)
    data = data.replace(b"indextables.crc", b"indextables.xyz")
    store.put("manifest-x.avro", data + container.block_bytes(1, records, "null", 1, sync))
    with pytest.raises(CorruptLogError, match="refers to a type 'FileEntry' that it does not declare before"):
        read_manifest(store, "manifest-x.avro", entries=1)


def test_few_large_manifests_are_decoded_at_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = files_of(manifest._SMALL_ENTRIES + 1)
    store.put(PATH, encode(entries))
    monkeypatch.setattr(manifest._PROCESS, "decoding", threading.BoundedSemaphore(1))
    running, most, guard = [], [], threading.Lock()
    read = manifest._read_avro

    def watched(*arguments: Any) -> Any:
        with guard:
            running.append(1)
            most.append(len(running))
        time.sleep(0.01)
        result = read(*arguments)
        running.pop()
        return result

    monkeypatch.setattr(manifest, "_read_avro", watched)
    with ThreadPoolExecutor(4) as pool:
        tables = list(pool.map(lambda _: read_manifest(store, PATH, entries=len(entries)), range(4)))
    assert tables == [entries] * 4
    assert max(most) == 1
