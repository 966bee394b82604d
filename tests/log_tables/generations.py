"""Logs written by hand, byte by byte as each generation of older writers did, with nothing of the engine.

J: JSON versions and JSON checkpoints. A: version 0 as JSON, every later commit a state only. B: raw gzip
versions and a state at each commit.
"""

import gzip
import io
import json
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa

WHEN = 1_775_007_000_000
SCHEMA = '{"type":"struct","fields":[{"name":"id","type":"integer","nullable":true,"metadata":{}},{"name":"text","type":"string","nullable":true,"metadata":{}}]}'
PARTITIONED = '{"type":"struct","fields":[{"name":"id","type":"integer","nullable":true,"metadata":{}},{"name":"date","type":"string","nullable":true,"metadata":{}}]}'
MAPPING = '[{"fast":true,"indexed":true,"name":"id","stored":true,"type":"i64"}]'
MAPPING_HASH = "0000000000000000"


def _field(name: str, kind: object, identifier: int, **default: object) -> dict[str, Any]:
    return {"name": name, "type": kind, "field-id": identifier, **default}


_TEXTS = {"type": "map", "values": "string"}
_LIST = {"type": "array", "items": "string"}

_OLDEST = [
    _field("path", "string", 100),
    _field("partitionValues", _TEXTS, 101),
    _field("size", "long", 102),
    _field("modificationTime", "long", 103),
    _field("dataChange", "boolean", 104),
    _field("stats", ["null", "string"], 110, default=None),
    _field("minValues", ["null", _TEXTS], 111, default=None),
    _field("maxValues", ["null", _TEXTS], 112, default=None),
    _field("numRecords", ["null", "long"], 113, default=None),
    _field("footerStartOffset", ["null", "long"], 120, default=None),
    _field("footerEndOffset", ["null", "long"], 121, default=None),
    _field("hasFooterOffsets", "boolean", 124, default=False),
    _field("splitTags", ["null", _LIST], 132, default=None),
    _field("numMergeOps", ["null", "int"], 134, default=None),
    _field("docMappingRef", ["null", "string"], 135, default=None),
    _field("uncompressedSizeBytes", ["null", "long"], 136, default=None),
    _field("addedAtVersion", "long", 140),
    _field("addedAtTimestamp", "long", 141),
]
_COMPANION = [
    _field("companionSourceFiles", ["null", _LIST], 150, default=None),
    _field("companionDeltaVersion", ["null", "long"], 151, default=None),
    _field("companionFastFieldMode", ["null", "string"], 152, default=None),
]
_LATER = [
    _field("deleteOpstamp", ["null", "long"], 123, default=None),
    _field("docMappingJson", ["null", "string"], 133, default=None),
    _field("timeRangeStart", ["null", "string"], 137, default=None),
    _field("timeRangeEnd", ["null", "string"], 138, default=None),
]


def _entry_schema(fields: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "record", "name": "FileEntry", "namespace": "io.indextables.state", "fields": fields}


ENTRY_04 = _entry_schema(_OLDEST)
ENTRY_05 = _entry_schema([*_OLDEST, *_COMPANION])
ENTRY_B = _entry_schema([*_OLDEST[:12], *_LATER, *_OLDEST[12:], *_COMPANION])

STATE = {
    "type": "record",
    "name": "StateManifest",
    "namespace": "io.indextables.state",
    "fields": [
        {"name": "formatVersion", "type": "int"},
        {"name": "stateVersion", "type": "long"},
        {"name": "createdAt", "type": "long"},
        {"name": "numFiles", "type": "long"},
        {"name": "totalBytes", "type": "long"},
        {
            "name": "manifests",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "ManifestInfoItem",
                    "fields": [
                        {"name": "path", "type": "string"},
                        {"name": "numEntries", "type": "long"},
                        {"name": "minAddedAtVersion", "type": "long"},
                        {"name": "maxAddedAtVersion", "type": "long"},
                        {
                            "name": "partitionBounds",
                            "type": [
                                "null",
                                {
                                    "type": "map",
                                    "values": {
                                        "type": "record",
                                        "name": "PartitionBoundsItem",
                                        "fields": [
                                            {"name": "min", "type": ["null", "string"], "default": None},
                                            {"name": "max", "type": ["null", "string"], "default": None},
                                        ],
                                    },
                                },
                            ],
                            "default": None,
                        },
                        {"name": "tombstoneCount", "type": "long", "default": 0},
                        {"name": "liveEntryCount", "type": "long", "default": -1},
                    ],
                },
            },
        },
        {"name": "tombstones", "type": {"type": "array", "items": "string"}, "default": []},
        {"name": "schemaRegistry", "type": {"type": "map", "values": "string"}, "default": {}},
        {"name": "protocolVersion", "type": "int", "default": 4},
        {"name": "metadata", "type": ["null", "string"], "default": None},
    ],
}


def protocol(version: int = 4, **features: list[str] | None) -> dict[str, Any]:
    return {"protocol": {"minReaderVersion": version, "minWriterVersion": version, **features}}


def metadata(schema: str = SCHEMA, partition_by: Iterable[str] = (), **changes: object) -> dict[str, Any]:
    facts = {
        "id": "8e1f",
        "name": None,
        "description": None,
        "format": {"provider": "indextables", "options": {}},
        "schemaString": schema,
        "partitionColumns": list(partition_by),
        "configuration": {},
        "createdTime": WHEN,
    }
    return {"metaData": {**facts, **changes}}


def add(path: str, **changes: object) -> dict[str, Any]:
    """An add with only what every writer has."""
    facts = {
        "path": path,
        "partitionValues": {},
        "size": 10,
        "modificationTime": WHEN,
        "dataChange": True,
        "numRecords": 5,
    }
    return {"add": {**facts, **changes}}


def add_with_nulls(path: str, **changes: object) -> dict[str, Any]:
    """An add as generation A writes it: every optional field an explicit null."""
    optional = (
        "stats", "minValues", "maxValues", "footerStartOffset", "footerEndOffset", "deleteOpstamp", "splitTags",
        "numMergeOps", "docMappingJson", "docMappingRef", "uncompressedSizeBytes", "timeRangeStart",
        "timeRangeEnd", "companionSourceFiles", "companionDeltaVersion", "companionFastFieldMode", "tags",
        "hotcacheStartOffset", "hotcacheLength",
    )  # fmt: skip
    return add(path, **{**dict.fromkeys(optional), "hasFooterOffsets": False, **changes})


def remove(path: str, **changes: object) -> dict[str, Any]:
    return {"remove": {"path": path, "deletionTimestamp": WHEN, "dataChange": True, **changes}}


def entry(path: str, **changes: object) -> dict[str, Any]:
    """An entry of a manifest."""
    facts = {
        "path": path,
        "partitionValues": {},
        "size": 10,
        "modificationTime": WHEN,
        "dataChange": True,
        "numRecords": 5,
        "hasFooterOffsets": False,
        "addedAtVersion": 0,
        "addedAtTimestamp": WHEN,
    }
    return {**facts, **changes}


class HandMade:
    """The log folder of a table, written file by file."""

    def __init__(self, table: Path) -> None:
        self.table = table
        self.log = table / "_transaction_log"
        self.log.mkdir(parents=True)

    def version(self, version: int, *lines: dict[str, Any], form: str = "gzip") -> None:
        text = "".join(json.dumps(line) + "\n" for line in lines).encode()
        self._write(f"{version:020d}.json", _packed(text, form))

    def checkpoint(self, version: int, *lines: dict[str, Any]) -> None:
        text = "".join(json.dumps(line) + "\n" for line in lines).encode()
        self._write(f"{version:020d}.checkpoint.json", _packed(text, "legacy"))

    def multipart(self, version: int, *parts: list[dict[str, Any]], identifier: str = "abc123def456") -> None:
        names = []
        for number, lines in enumerate(parts, start=1):
            names.append(f"{version:020d}.checkpoint.{identifier}.{number:05d}.json")
            text = "".join(json.dumps(line) + "\n" for line in lines).encode()
            self._write(names[-1], _packed(text, "legacy"))
        listed = {
            "version": version,
            "checkpointId": identifier,
            "parts": names,
            "createdTime": WHEN,
            "format": "json",
        }
        self._write(f"{version:020d}.checkpoint.json", json.dumps(listed).encode())

    def manifest(
        self,
        path: str,
        entries: list[dict[str, Any]],
        *,
        schema: dict[str, Any] = ENTRY_05,
        codec: str = "zstandard",
    ) -> dict[str, Any]:
        """A manifest, and what a state says of it."""
        self._write(path, container(schema, entries, codec))
        return {
            "path": path,
            "numEntries": len(entries),
            "minAddedAtVersion": 0,
            "maxAddedAtVersion": 0,
            "partitionBounds": None,
            "tombstoneCount": 0,
            "liveEntryCount": -1,
        }

    def state(
        self,
        version: int,
        manifests: list[dict[str, Any]],
        *,
        metadata: dict[str, Any] | str | None = None,
        form: str = "avro",
        codec: str = "zstandard",
        folder: str | None = None,
        **changes: Any,
    ) -> None:
        tombstones = changes.get("tombstones", [])
        record = {
            "formatVersion": 1,
            "stateVersion": version,
            "createdAt": WHEN + version * 1000,
            "numFiles": sum(m["numEntries"] for m in manifests) - len(tombstones),
            "totalBytes": 10 * sum(m["numEntries"] for m in manifests),
            "manifests": manifests,
            "tombstones": [],
            "schemaRegistry": {},
            "protocolVersion": 4,
            "metadata": json.dumps(metadata) if isinstance(metadata, dict) else metadata,
            **changes,
        }
        folder = folder or f"state-v{version:020d}"
        if form == "json":
            self._write(f"{folder}/_manifest.json", json.dumps(record).encode())
        else:
            self._write(f"{folder}/_manifest.avro", container(STATE, [record], codec))

    def pointer(self, version: int, **changes: object) -> None:
        facts = {
            "version": version,
            "size": 1,
            "sizeInBytes": 10,
            "numFiles": 1,
            "createdTime": WHEN,
            "parts": None,
            "checkpointId": None,
            "format": "avro-state",
            "stateDir": f"state-v{version:020d}",
        }
        self._write("_last_checkpoint", json.dumps({**facts, **changes}).encode())

    def _write(self, path: str, data: bytes) -> None:
        target = self.log / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        (target.parent / f".{target.name}.crc").write_bytes(b"crc\0")


def container(schema: Mapping[str, Any], records: list[dict[str, Any]], codec: str) -> bytes:
    """An Avro container, written by another library."""
    target = io.BytesIO()
    parsed = fastavro.parse_schema(dict(schema))
    if codec != "snappy":
        fastavro.writer(target, parsed, records, codec=codec)
        return target.getvalue()
    # The library needs one more package for snappy; the container is simple enough.
    body, sync = io.BytesIO(), b"0123456789abcdef"
    for record in records:
        fastavro.schemaless_writer(body, parsed, record)
    packed = pa.compress(body.getvalue(), codec="snappy", asbytes=True) + zlib.crc32(
        body.getvalue()
    ).to_bytes(4)
    head = {"avro.schema": json.dumps(schema).encode(), "avro.codec": b"snappy"}
    target.write(b"Obj\x01")
    fastavro.schemaless_writer(target, {"type": "map", "values": "bytes"}, head)
    target.write(sync)
    fastavro.schemaless_writer(target, "long", len(records))
    fastavro.schemaless_writer(target, "bytes", packed)
    target.write(sync)
    return target.getvalue()


def _packed(text: bytes, form: str) -> bytes:
    if form == "plain":
        return text
    packed = gzip.compress(text, 6)
    return b"\x01\x01" + packed if form == "legacy" else packed


def generation_a(table: Path, commits: int = 3) -> HandMade:
    """A table of generation A: two splits a commit."""
    made = HandMade(table)
    made.version(0, protocol(readerFeatures=None, writerFeatures=None), metadata(), form="legacy")
    manifests = []
    for version in range(1, commits + 1):
        entries = [entry(f"part-{version}-{n}.split") for n in (1, 2)]
        manifests.append(made.manifest(f"manifests/manifest-0000000{version}.avro", entries))
        made.state(version, list(manifests), schemaRegistry={MAPPING_HASH: MAPPING})
    made.pointer(commits)
    return made


def generation_b(table: Path, commits: int = 3) -> HandMade:
    """A table of generation B: a version and a state for each commit."""
    made = HandMade(table)
    facts = metadata(configuration={f"docMappingSchema.{MAPPING_HASH}": MAPPING})
    made.version(0, protocol(), facts)
    manifests = []
    for version in range(1, commits + 1):
        path = f"part-{version}.split"
        made.version(version, add(path, docMappingJson=MAPPING))
        entries = [entry(path, docMappingJson=MAPPING, addedAtVersion=version)]
        manifests.append(
            made.manifest(
                f"manifests/manifest-000000000000000{version}.avro", entries, schema=ENTRY_B, codec="null"
            )
        )
        made.state(
            version,
            list(manifests),
            metadata=facts if version % 2 else facts["metaData"],
            schemaRegistry={f"docMappingSchema.{MAPPING_HASH}": MAPPING},
        )
    made.pointer(commits)
    return made


def generation_j(table: Path, commits: int = 12, *, checkpoint_at: int = 10, parts: bool = False) -> HandMade:
    """A table of generation J: JSON versions, and a JSON checkpoint at the tenth."""
    made = HandMade(table)
    made.version(0, protocol(2), metadata(), form="legacy")
    for version in range(1, commits + 1):
        made.version(version, add_with_nulls(f"part-{version}.split"), form="legacy")
    lines = [add_with_nulls(f"part-{version}.split") for version in range(1, checkpoint_at + 1)]
    head = [protocol(2), metadata()]
    if parts:
        made.multipart(checkpoint_at, [*head, *lines[:4]], lines[4:])
    else:
        made.checkpoint(checkpoint_at, *head, *lines)
    identifier = {"parts": 2, "checkpointId": "abc123def456"} if parts else {}
    made.pointer(checkpoint_at, format=None, stateDir=None, size=len(lines) + 2, **identifier)
    return made
