"""The actions of a version file and their JSON, and the protocol versions that this release supports.

PROTOCOL.md, "Version files" and "Protocol versions and features".

A line of a version file is an object with one key that names the action. Fields that are absent and
fields that are null mean the same. No field is ever added inside one of the original's actions, since
its older readers drop a line with an unknown field; what only this implementation records is in actions of
its own (`commitInfo`, `txn`), which they skip.

Document mappings are stored once, under the hash of their JSON (PROTOCOL.md, "Schema deduplication"). The
hash does not depend on the order of keys or fields, so splits written by tasks that list their fields
differently share one entry. The registry stores the text of the first writer.
"""

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, NoReturn, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta, Struct, field

from indextables.errors import ProtocolError
from indextables.schema.values import PARQUET_TAG

# Numbers as Arrow, Avro and Java hold them.
Int64: TypeAlias = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
# Milliseconds since 1970, in the years 1 to 9999.
Moment: TypeAlias = Annotated[int, Meta(ge=-62_135_596_800_000, le=253_402_300_799_999)]
Int32: TypeAlias = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]


class _Record(Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """A record in JSON: keys in camel case, absent if the value is the default."""


class Protocol(_Record, frozen=True):
    """The reader and writer versions and the features that the table requires."""

    # msgspec omits fields that equal a default, but not those with a factory: these are always written.
    min_reader_version: Int64 = field(default_factory=lambda: 1)
    min_writer_version: Int64 = field(default_factory=lambda: 1)
    reader_features: list[str] | None = None
    writer_features: list[str] | None = None


class Format(Struct, frozen=True):
    """Which system wrote the table."""

    provider: str = "indextables"
    options: dict[str, str] = {}


class Metadata(_Record, frozen=True):
    """The table's identity, schema, partition columns and configuration."""

    id: str
    schema_string: str
    name: str | None = None
    description: str | None = None
    partition_columns: list[str] | None = None
    format: Format | None = None
    configuration: dict[str, str] | None = None
    created_time: Int64 | None = None


class Add(_Record, frozen=True):
    """The split is live from this version on."""

    path: str
    partition_values: dict[str, str | None] | None = None
    # Written even if zero: the original's reader refuses an `add` without them.
    size: Int64 = field(default_factory=int)
    modification_time: Int64 = field(default_factory=int)
    data_change: bool | None = None
    stats: str | None = None
    min_values: dict[str, str] | None = None
    max_values: dict[str, str] | None = None
    num_records: Int64 | None = None
    footer_start_offset: Int64 | None = None
    footer_end_offset: Int64 | None = None
    has_footer_offsets: bool | None = None
    delete_opstamp: Int64 | None = None
    split_tags: list[str] | None = None
    num_merge_ops: Int32 | None = None
    doc_mapping_json: str | None = None
    doc_mapping_ref: str | None = None
    uncompressed_size_bytes: Int64 | None = None
    time_range_start: str | Int64 | None = None
    time_range_end: str | Int64 | None = None
    companion_source_files: list[str] | None = None
    companion_delta_version: Int64 | None = None
    companion_fast_field_mode: str | None = None


class Remove(_Record, frozen=True):
    """The split is not live any more from this version on."""

    path: str
    deletion_timestamp: Int64 | None = None
    data_change: bool | None = None
    partition_values: dict[str, str | None] | None = None
    size: Int64 | None = None


class MergeSkip(_Record, frozen=True):
    """A split that a merge skipped, and when to try again; it stays in the table."""

    path: str
    skip_timestamp: Int64
    reason: str
    operation: str = ""
    partition_values: dict[str, str | None] | None = None
    size: Int64 | None = None
    retry_after: Int64 | None = None
    skip_count: Int64 = 1


class CommitInfo(_Record, frozen=True):
    """The audit record of a commit; `token` makes the bytes of every commit unique.

    `base_token` is the token of the version before (PROTOCOL.md, "Lineage"). `lineage` is written in JSON
    checkpoints only: the tokens of the last versions, the newest last.
    """

    timestamp: Moment
    operation: str
    token: str
    operation_parameters: dict[str, str] = {}
    operation_metrics: dict[str, Int64] = {}
    engine: str | None = None
    user_metadata: str | None = None
    base_token: str | None = None
    lineage: list[str | None] = []


class Txn(_Record, frozen=True):
    """The last batch of an application that is in the table, for exactly-once streams."""

    app_id: str
    version: Int64
    last_updated: Int64 | None = None


Action: TypeAlias = Protocol | Metadata | Add | Remove | MergeSkip | CommitInfo | Txn

# The action of each key of a line. `skip` is an alias that one reader of the original accepts.
ACTIONS: dict[str, type[Struct]] = {
    "protocol": Protocol,
    "metaData": Metadata,
    "add": Add,
    "remove": Remove,
    "mergeskip": MergeSkip,
    "skip": MergeSkip,
    "commitInfo": CommitInfo,
    "txn": Txn,
}


class Line(Struct, frozen=True, omit_defaults=True):
    """One line of a version file: exactly one of these is set; unknown keys are ignored."""

    protocol: Protocol | None = None
    metaData: Metadata | None = None  # noqa: N815 - the key on disk
    add: Add | None = None
    remove: Remove | None = None
    mergeskip: MergeSkip | None = None
    skip: MergeSkip | None = None
    commitInfo: CommitInfo | None = None  # noqa: N815 - the key on disk
    txn: Txn | None = None

    def actions(self) -> list[Action]:
        """The known actions on this line: one, or none."""
        fields = (
            self.add,
            self.remove,
            self.metaData,
            self.protocol,
            self.mergeskip,
            self.skip,
            self.commitInfo,
            self.txn,
        )
        return [action for action in fields if action is not None]


def line_of(action: Action) -> dict[str, Any]:
    """The action under its key, ready to be encoded.

    >>> import msgspec
    >>> msgspec.json.encode(line_of(Txn(app_id="clicks", version=7)))
    b'{"txn":{"appId":"clicks","version":7}}'
    """
    for key, kind in ACTIONS.items():
        if isinstance(action, kind):
            return {key: action}
    raise AssertionError(f"not an action: {type(action).__name__}")


# Tables with states. The original's releases check this number and nothing else.
STATES = 4
# Tables that list the features they need.
FEATURES = 5
PARQUET_SPLITS = "parquetSplits"
# Splits that index the files of another table and hold no rows.
COMPANION_SPLITS = "companionSplits"
# In the configuration of a companion index: the format of its source.
COMPANION_FORMAT_KEY = "companion.format"

_READER_FEATURES = frozenset(
    {
        "avroState",
        "extendedMetadata",
        "footerOffsets",
        "multiPartCheckpoint",
        "schemaDeduplication",
        "skippedFiles",
        PARQUET_SPLITS,
        COMPANION_SPLITS,
    }
)
_WRITER_FEATURES = _READER_FEATURES | {"checkpoint", "optimizeWrite"}

# Keys of the original in the configuration of its companion tables.
_COMPANION = "indextables.companion.enabled"
_COMPANION_KIND = "indextables.companion.sourceFormat"
_COMPANION_SOURCE = "indextables.companion.sourceTablePath"


def new_table_protocol() -> Protocol:
    """The protocol of a table that this release creates."""
    return _with_parquet_splits(Protocol())


def companion_protocol() -> Protocol:
    """The protocol of a companion table that this release creates."""
    protocol = new_table_protocol()
    return msgspec.structs.replace(
        protocol,
        reader_features=sorted([*(protocol.reader_features or ()), COMPANION_SPLITS]),
        writer_features=sorted([*(protocol.writer_features or ()), COMPANION_SPLITS]),
    )


def is_companion(protocol: Protocol) -> bool:
    """Whether a table is a companion index, whose splits hold no rows."""
    return COMPANION_SPLITS in (protocol.reader_features or ())


def upgrade_for(adds: Iterable[Add], protocol: Protocol) -> Protocol | None:
    """The protocol that a table needs to add these splits; None if its protocol is sufficient."""
    if not any(PARQUET_TAG in (add.split_tags or ()) for add in adds):
        return None
    needed = _with_parquet_splits(protocol)
    return None if needed == protocol else needed


def _with_parquet_splits(protocol: Protocol) -> Protocol:
    return msgspec.structs.replace(
        protocol,
        min_reader_version=max(protocol.min_reader_version, FEATURES),
        min_writer_version=max(protocol.min_writer_version, FEATURES),
        reader_features=_with_feature(protocol.reader_features),
        writer_features=_with_feature(protocol.writer_features),
    )


def _with_feature(features: list[str] | None) -> list[str]:
    present = features or []
    return present if PARQUET_SPLITS in present else sorted([*present, PARQUET_SPLITS])


def check_readable(protocol: Protocol, url: str) -> None:
    """Refuse a table that requires reader features or versions which this release lacks."""
    _check(url, "reader", protocol.min_reader_version, protocol.reader_features, _READER_FEATURES)


def check_writable(protocol: Protocol, url: str) -> None:
    """Refuse a table that requires writer features or versions which this release lacks."""
    check_readable(protocol, url)
    _check(url, "writer", protocol.min_writer_version, protocol.writer_features, _WRITER_FEATURES)


def check_not_companion(metadata: Metadata, url: str) -> None:
    """Refuse a companion table of the original: its splits index files of another table and hold no rows."""
    if (metadata.configuration or {}).get(_COMPANION, "").lower() == "true":
        raise companion_error(metadata, url)


def companion_error(metadata: Metadata, url: str) -> ProtocolError:
    """The error of a companion table of the original, or of a table with such splits."""
    properties = metadata.configuration or {}
    kind = properties.get(_COMPANION_KIND, "").upper()
    kind = kind if kind in ("DELTA", "ICEBERG", "PARQUET") else "{DELTA | ICEBERG | PARQUET}"
    path = properties.get(_COMPANION_SOURCE, "<source>").replace("'", "\\'")
    source = f"{kind} '{path}'"
    return ProtocolError(
        f"the table at {url} is a companion table of IndexTables for Scala: its splits index the files of "
        "another table and hold no rows, so it cannot be read, written or maintained here; build an index "
        f"of the same source at another place: BUILD INDEXTABLES COMPANION FOR {source} AT LOCATION '<path>'"
    )


def _check(url: str, role: str, version: int, features: list[str] | None, supported: frozenset[str]) -> None:
    if unknown := sorted(set(features or ()) - supported):
        raise ProtocolError(
            f"the table at {url} requires {role} features that this release does not have: "
            f"{', '.join(unknown)}; use a newer release of indextables"
        )
    if not 1 <= version <= FEATURES:
        raise ProtocolError(
            f"the table at {url} requires {role} version {version}, and this release has versions 1 to "
            f"{FEATURES}; use a newer release of indextables"
        )


# A JSON value.
Json: TypeAlias = Any

# The prefix of a hash in the configuration of the metadata.
REGISTRY_PREFIX = "docMappingSchema."

# 12 bytes of the digest are 16 characters of Base64.
_DIGEST_BYTES = 12
# The original's parser refuses deeper nesting; then the text is hashed unchanged.
_MAX_DEPTH = 127


def schema_hash(doc_mapping_json: str) -> str:
    """The name of a document mapping: 16 characters, the same for every order of keys and fields.

    Text that is not JSON is hashed unchanged.

    >>> schema_hash('{"b":2,"a":1}') == schema_hash('{"a": 1, "b": 2}')
    True
    """
    try:
        parsed = json.loads(doc_mapping_json, parse_constant=_refuse, parse_int=_parse_int)
        canonical = msgspec.json.encode(_canonical(parsed, 0))
    except (ValueError, RecursionError):
        canonical = doc_mapping_json.encode("utf-8", "surrogatepass")
    digest = hashlib.sha256(canonical).digest()
    return base64.urlsafe_b64encode(digest[:_DIGEST_BYTES]).decode()


def _canonical(value: Json, depth: int) -> Json:
    """The value with sorted keys, and with lists of named objects sorted by name."""
    if not isinstance(value, dict | list):
        return value
    if depth >= _MAX_DEPTH:
        raise ValueError("nested too deeply")
    if isinstance(value, dict):
        # Python orders strings by code point, which is the order of their UTF-8 bytes.
        return {key: _canonical(value[key], depth + 1) for key in sorted(value)}
    items = [_canonical(item, depth + 1) for item in value]
    if items and all(isinstance(item, dict) and "name" in item for item in items):
        items.sort(key=_name)
    return items


def _name(item: dict[str, Any]) -> str:
    name = item["name"]
    return name if isinstance(name, str) else ""


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _parse_int(digits: str) -> int | float:
    """Parse a whole number; beyond 64 bits as a floating-point number, as the original does."""
    number = int(digits)
    return number if -(2**63) <= number < 2**64 else float(digits)


def registry_of(metadata: Metadata | None, state_registry: Mapping[str, str]) -> dict[str, str]:
    """Document mappings by their bare hash, from the metadata's configuration and from a state.

    Writers differ in whether a state's keys carry the prefix; the metadata's always do.
    """
    registry = {key.removeprefix(REGISTRY_PREFIX): text for key, text in state_registry.items()}
    for key, text in ((metadata and metadata.configuration) or {}).items():
        if key.startswith(REGISTRY_PREFIX):
            registry[key.removeprefix(REGISTRY_PREFIX)] = text
    return registry


def deduplicate(adds: Iterable[Add], registry: Mapping[str, str]) -> tuple[list[Add], dict[str, str]]:
    """The actions with references in place of document mappings.

    Returns:
        The actions, and the document mappings, by bare hash, that the registry does not have yet.
    """
    hashes: dict[str, str] = {}
    new: dict[str, str] = {}
    referring: list[Add] = []
    for add in adds:
        text = add.doc_mapping_json
        if text is None:
            referring.append(add)
            continue
        name = hashes.get(text)
        if name is None:
            name = hashes[text] = schema_hash(text)
            if name not in registry:
                new.setdefault(name, text)
        referring.append(msgspec.structs.replace(add, doc_mapping_json=None, doc_mapping_ref=name))
    return referring, new


def deduplicate_files(files: pa.Table, registry: Mapping[str, str]) -> tuple[pa.Table, dict[str, str]]:
    """`deduplicate` for the files of a table (`log.format.files.FILES`), column by column."""
    texts = files.column("docMappingJson")
    if texts.null_count == len(texts):
        return files, {}
    encoded = texts.combine_chunks().dictionary_encode()
    distinct = encoded.dictionary.to_pylist()
    hashes = [schema_hash(text) for text in distinct]
    new: dict[str, str] = {}
    for name, text in zip(hashes, distinct, strict=True):
        if name not in registry:
            new.setdefault(name, text)
    refs = pc.coalesce(pa.array(hashes, pa.string()).take(encoded.indices), files.column("docMappingRef"))
    files = _with_column(files, "docMappingRef", refs)
    return _with_column(files, "docMappingJson", pa.nulls(files.num_rows, pa.string())), new


def renormalize(
    files: pa.Table, registry: Mapping[str, str], *, threshold: int
) -> tuple[pa.Table, dict[str, str]]:
    """Hash every document mapping again, and remove duplicates from the files and the registry.

    Writers of other generations order names differently, so one mapping may have several hashes.

    Args:
        files: the files (`log.format.files.FILES`).
        registry: document mappings by bare hash; must hold what the files refer to.
        threshold: up to this many distinct references nothing is changed.
    """
    refs = files.column("docMappingRef")
    used = [ref for ref in pc.unique(refs).to_pylist() if ref is not None]
    if len(used) <= threshold:
        return files, dict(registry)
    renamed = {old: schema_hash(text) for old, text in registry.items()}
    consolidated: dict[str, str] = {}
    # Correct hashes come first, so that their text is retained.
    for old in sorted(registry, key=lambda name: renamed[name] != name):
        consolidated.setdefault(renamed[old], registry[old])
    # A reference that is not in the registry stays: resolving it raises an error that names it.
    if any(renamed.get(ref, ref) != ref for ref in used):
        encoded = refs.combine_chunks().dictionary_encode()
        names = [renamed.get(ref, ref) for ref in encoded.dictionary.to_pylist()]
        files = _with_column(files, "docMappingRef", pa.array(names, pa.string()).take(encoded.indices))
    return files, consolidated


def _with_column(files: pa.Table, name: str, values: pa.Array) -> pa.Table:
    index = files.schema.get_field_index(name)
    return files.set_column(index, files.schema.field(index), values)
