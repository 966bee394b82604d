"""The parsers that read what strangers wrote, each as a function of bytes.

A target returns, or raises an error of ours. Whatever else leaves it is a bug: another exception, a process
that ends, memory without bounds, an answer that never comes. `fuzz.py` looks for such inputs; those that it
found are in `corpus/` and are replayed by the tests.
"""

import json
import zlib
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from indextables.commands.grammar import parse_statement
from indextables.errors import IndexTablesError
from indextables.log.format import avro, version_file
from indextables.log.format.actions import registry_of
from indextables.log.format.avro import schema_json
from indextables.log.format.checkpoint_files import checkpoint_file, read_checkpoint, read_pointer
from indextables.log.format.files import FILE_ENTRY
from indextables.log.format.manifest import read_manifest
from indextables.log.format.state_manifest import STATE_MANIFEST, decode_state, resolve_manifest_path
from indextables.log.snapshot import Delta
from indextables.predicate import evaluate, parse_condition, parse_query, to_sql
from indextables.predicate.query_language import to_text
from indextables.schema.spark import to_arrow
from indextables.schema.values import null_counts, parse_partition_path, parse_values
from indextables.split.checksum import split_extension
from indextables.split.footer import CHECKSUM_KEY, FOOTER_KEY, MAGIC, read_footer
from indextables.split.index.term_filter import (
    BundleContent,
    BundleDirectory,
    decode_bundle,
    encode_bundle,
    probes,
)
from indextables.split.mapping import Mapping
from indextables.split.parquet.metadata import BINARY, I32, I64, LIST, STRUCT, read_struct, write_struct
from indextables.split.parquet.pages import FileLayout, page_locations, shift_pages
from indextables.split.quickwit import bundle_mapping, describe_bundle, read_bundle
from indextables.split.tantivy_layout import FILES_BY_FIELD, field_names, field_ranges
from indextables.store import Store, open_store

URL = "memory://fuzz/input"
SYNC = b"0123456789abcdef"


def _store() -> Store:
    return open_store("memory://fuzz")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _version_file(data: bytes) -> None:
    """As it stands, or packed."""
    kind, body = data[:1], data[1:]
    actions = version_file.decode(version_file.pack(body) if kind == b"z" else body, URL)
    delta = Delta().then([(7, actions)])
    assert delta.files().num_rows == len(delta.added)
    if delta.metadata is not None:
        registry_of(delta.metadata, {})
    version_file.encode(actions)


def _checkpoint(data: bytes) -> None:
    store = _store()
    store.put(checkpoint_file(7), data)
    read_checkpoint(store, 7)


def _pointer(data: bytes) -> None:
    store = _store()
    store.put("_last_checkpoint", data)
    read_pointer(store)


def _container(data: bytes, schema: str) -> bytes:
    """A container around records (`r`), or around a schema and records (`s`), or the bytes as they are."""
    kind, body = data[:1], data[1:]
    if kind == b"s":
        length = int.from_bytes(body[:2], "little")
        schema, body = _text(body[2 : 2 + length]), body[2 + length :]
    elif kind != b"r":
        return body
    count = body[0] if body else 0
    entries = b"".join(
        avro.long_bytes(len(part)) + part
        for part in (b"avro.schema", schema.encode("utf-8", "replace"), b"avro.codec", b"null")
    )
    header = avro.MAGIC + avro.long_bytes(2) + entries + b"\x00" + SYNC
    return header + avro.block_bytes(count, body[1:], "null", 1, SYNC)


def _state(data: bytes) -> None:
    state = decode_state(_container(data, schema_json(STATE_MANIFEST)), URL)
    for manifest in state.manifests:
        resolve_manifest_path(manifest.path, "state-v7")


def _manifest(data: bytes) -> None:
    store = _store()
    store.put("manifest.avro", _container(data, schema_json(FILE_ENTRY)))
    read_manifest(store, "manifest.avro", entries=None)


def _split(footer: bytes) -> bytes:
    """A Parquet file without rows whose footer says this."""
    root = {4: (BINARY, b"schema"), 5: (I32, 0)}
    key_values = [
        {1: (BINARY, FOOTER_KEY), 2: (BINARY, footer)},
        {1: (BINARY, CHECKSUM_KEY), 2: (BINARY, str(zlib.crc32(footer)).encode())},
    ]
    tail = write_struct(
        {
            1: (I32, 2),
            2: (LIST, (STRUCT, [root])),
            3: (I64, 0),
            4: (LIST, (STRUCT, [])),
            5: (LIST, (STRUCT, key_values)),
        }
    )
    return MAGIC + b"." * 64 + tail + len(tail).to_bytes(4, "little") + MAGIC


def _footer(data: bytes) -> None:
    """A whole file, or the JSON of its footer (`j`)."""
    kind, body = data[:1], data[1:]
    store = _store()
    store.put("a.split", _split(body) if kind == b"j" else body)
    footer = read_footer(store, "a.split")
    assert footer.pieces


def _parquet_footer(data: bytes) -> None:
    """What rows are found by, from the bytes of a footer."""
    try:
        layout = FileLayout.of(data)
        for number, group in enumerate(layout.groups):
            for leaf in list(layout.flat.values())[: len(group.columns)]:
                layout.page_index_range(number, leaf)
    except (ValueError, LookupError, TypeError, AttributeError):
        return  # `Rows` says of these that the split is damaged


def _thrift(data: bytes) -> None:
    try:
        found, _ = read_struct(data)
    except ValueError:
        return
    write_struct(found)


def _page_index(data: bytes) -> None:
    split_extension(data, 3)
    try:
        page_locations(data)
        shift_pages(data, 10)
    except ValueError:
        return


def _index_file(data: bytes) -> None:
    suffix = (*FILES_BY_FIELD, ".store")[data[0] % 6] if data else ".term"
    field_ranges(suffix, data[1:], len(data) + 100, ["t:message", "s:level", "_row"])


def _meta(data: bytes) -> None:
    field_names(data)


def _bundle(data: bytes) -> None:
    """A whole file, or the JSON that lists its files (`j`)."""
    kind, body = data[:1], data[1:]
    if kind == b"j":
        said = (403_881_646).to_bytes(4, "little") + (1).to_bytes(4, "little") + body
        body = b"{}" * 50 + said + len(said).to_bytes(4, "little") + b"hot" + (3).to_bytes(4, "little")
    store = _store()
    store.put("a.split", body)
    read_bundle(store, "a.split")
    describe_bundle(store, "a.split")


def _filter_bundle(data: bytes) -> None:
    """The length of a directory, its JSON, and the pages; checksums are made right, as a stranger can."""
    length = int.from_bytes(data[:2], "little")
    text, pages = data[2 : 2 + length], data[2 + length :]
    directory = text + zlib.crc32(text).to_bytes(4, "little")
    found = BundleDirectory.decode(directory, len(pages) + len(directory))
    sealed = bytearray(pages + directory)
    (probe,) = probes(["alpha"])
    for group in found.groups:
        for number in range(-(-group.blocks // group.page_blocks)):
            start, end = group.page_range(number)
            sealed[end - 4 : end] = page_checksum(group.field, start, sealed[start : end - 4])
        page = group.page_of(probe)
        group.test(probe, group.decode_page(page, bytes(sealed[slice(*group.page_range(page))])))
    content = decode_bundle(bytes(sealed), len(directory))
    some = content.select(np.arange(len(content.keys)) % 2 == 0)
    again, size = encode_bundle(BundleContent.merge([content, *some.cut(1000)]))
    assert len(decode_bundle(again, size).keys) == len(content.keys) + len(some.keys)


def page_checksum(field: str, offset: int, page: bytes | bytearray) -> bytes:
    """The checksum of a page, as PROTOCOL.md has it."""
    return zlib.crc32(f"{field}\0{offset}\0".encode() + bytes(page)).to_bytes(4, "little")


def _mapping(data: bytes) -> None:
    Mapping.from_json(data)


def _original_mapping(data: bytes) -> None:
    schema = pa.schema(
        [("message", pa.string()), ("id", pa.int64()), ("nested", pa.struct([("a", pa.int8())]))]
    )
    bundle_mapping(_text(data), schema)


def _spark_schema(data: bytes) -> None:
    to_arrow(_text(data))


CONDITION_ROWS = pa.table(
    {
        "id": pa.array([1, None], pa.int32()),
        "big": pa.array([1 << 60, None], pa.int64()),
        "price": pa.array([1.5, float("nan")], pa.float64()),
        "level": pa.array(["ERROR", None], pa.string()),
        "ok": pa.array([True, None], pa.bool_()),
        "day": pa.array([0, None], pa.date32()),
        "at": pa.array([0, None], pa.timestamp("us", "UTC")),
        "cost": pa.array([None, None], pa.decimal128(10, 2)),
        "raw": pa.array([b"x", None], pa.binary()),
        "inner": pa.array([{"a": 1}, None], pa.struct([("a", pa.int64())])),
    }
)


def _condition(data: bytes) -> None:
    condition = parse_condition(_text(data), CONDITION_ROWS.schema)
    again = parse_condition(to_sql(condition), CONDITION_ROWS.schema)
    for batch in CONDITION_ROWS.to_batches():
        try:
            first = evaluate(condition, batch)
        except IndexTablesError:
            continue  # searches need an index
        assert first.equals(evaluate(again, batch)), to_sql(condition)


def _query(data: bytes) -> None:
    query = parse_query(_text(data))
    assert parse_query(to_text(query)) == query


def _command(data: bytes) -> None:
    parse_statement(_text(data))


TYPES = (
    pa.int8(), pa.int64(), pa.float32(), pa.float64(), pa.bool_(), pa.date32(), pa.timestamp("us"),
    pa.timestamp("us", "UTC"), pa.decimal128(10, 2), pa.decimal128(38, 18), pa.string(), pa.binary(),
)  # fmt: skip


def _values(data: bytes) -> None:
    kind = TYPES[data[0] % len(TYPES)] if data else pa.string()
    texts = pa.array(_text(data[1:]).split("\n"), pa.string())
    for partition in (False, True):
        parse_values(texts, kind, partition=partition)


def _statistics(data: bytes) -> None:
    null_counts(_text(data))


def _folder(data: bytes) -> None:
    parse_partition_path(_text(data))


TARGETS: dict[str, Callable[[bytes], None]] = {
    "bundle": _bundle,
    "checkpoint": _checkpoint,
    "command": _command,
    "condition": _condition,
    "filter_bundle": _filter_bundle,
    "folder": _folder,
    "footer": _footer,
    "index_file": _index_file,
    "manifest": _manifest,
    "mapping": _mapping,
    "meta": _meta,
    "original_mapping": _original_mapping,
    "page_index": _page_index,
    "parquet_footer": _parquet_footer,
    "pointer": _pointer,
    "query": _query,
    "spark_schema": _spark_schema,
    "state": _state,
    "statistics": _statistics,
    "thrift": _thrift,
    "values": _values,
    "version_file": _version_file,
}


def run(target: str, data: bytes) -> None:
    """One input: nothing, or an exception that no caller expects."""
    try:
        TARGETS[target](data)
    except IndexTablesError as error:
        json.dumps(str(error))
