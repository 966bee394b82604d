"""The two Avro schemas of the log, as every release of the format writes them (PROTOCOL.md, "The state").

Readers go by the fields' names. The field ids are kept for those who go by them.
"""

import json
from typing import Any

_NAMESPACE = "io.indextables.state"
_STRING_MAP = {"type": "map", "values": "string"}
_STRINGS = {"type": "array", "items": "string"}


def _required(name: str, kind: str | dict[str, Any], field_id: int, **default: bool | int) -> dict[str, Any]:
    return {"name": name, "type": kind, **default, "field-id": field_id}


def _optional(name: str, kind: str | dict[str, Any], field_id: int) -> dict[str, Any]:
    return {"name": name, "type": ["null", kind], "default": None, "field-id": field_id}


FILE_ENTRY: dict[str, Any] = {
    "type": "record",
    "name": "FileEntry",
    "namespace": _NAMESPACE,
    "fields": [
        _required("path", "string", 100),
        _required("partitionValues", _STRING_MAP, 101),
        _required("size", "long", 102),
        _required("modificationTime", "long", 103),
        _required("dataChange", "boolean", 104),
        _optional("stats", "string", 110),
        _optional("minValues", _STRING_MAP, 111),
        _optional("maxValues", _STRING_MAP, 112),
        _optional("numRecords", "long", 113),
        _optional("footerStartOffset", "long", 120),
        _optional("footerEndOffset", "long", 121),
        _required("hasFooterOffsets", "boolean", 124, default=False),
        _optional("deleteOpstamp", "long", 123),
        _optional("splitTags", _STRINGS, 132),
        _optional("numMergeOps", "int", 134),
        _optional("docMappingJson", "string", 133),
        _optional("docMappingRef", "string", 135),
        _optional("uncompressedSizeBytes", "long", 136),
        _optional("timeRangeStart", "string", 137),
        _optional("timeRangeEnd", "string", 138),
        _required("addedAtVersion", "long", 140, default=0),
        _required("addedAtTimestamp", "long", 141, default=0),
        _optional("companionSourceFiles", _STRINGS, 150),
        _optional("companionDeltaVersion", "long", 151),
        _optional("companionFastFieldMode", "string", 152),
    ],
}

_NULLABLE_STRING = ["null", "string"]

_BOUNDS: dict[str, Any] = {
    "type": "record",
    "name": "PartitionBoundsItem",
    "fields": [
        {"name": "min", "type": _NULLABLE_STRING, "default": None},
        {"name": "max", "type": _NULLABLE_STRING, "default": None},
    ],
}

_MANIFEST_INFO: dict[str, Any] = {
    "type": "record",
    "name": "ManifestInfoItem",
    "fields": [
        {"name": "path", "type": "string"},
        {"name": "numEntries", "type": "long"},
        {"name": "minAddedAtVersion", "type": "long"},
        {"name": "maxAddedAtVersion", "type": "long"},
        {"name": "partitionBounds", "type": ["null", {"type": "map", "values": _BOUNDS}], "default": None},
        {"name": "tombstoneCount", "type": "long", "default": 0},
        {"name": "liveEntryCount", "type": "long", "default": -1},
    ],
}

STATE_MANIFEST: dict[str, Any] = {
    "type": "record",
    "name": "StateManifest",
    "namespace": _NAMESPACE,
    "fields": [
        {"name": "formatVersion", "type": "int"},
        {"name": "stateVersion", "type": "long"},
        {"name": "createdAt", "type": "long"},
        {"name": "numFiles", "type": "long"},
        {"name": "totalBytes", "type": "long"},
        {"name": "manifests", "type": {"type": "array", "items": _MANIFEST_INFO}},
        {"name": "tombstones", "type": _STRINGS, "default": []},
        {"name": "schemaRegistry", "type": _STRING_MAP, "default": {}},
        {"name": "protocolVersion", "type": "int", "default": 4},
        {"name": "metadata", "type": _NULLABLE_STRING, "default": None},
    ],
}


def schema_json(schema: dict[str, Any]) -> str:
    """The schema as JSON, for a container's header."""
    return json.dumps(schema, separators=(",", ":"))
