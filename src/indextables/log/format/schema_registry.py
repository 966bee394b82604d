"""Document mappings stored once, under the hash of their JSON (PROTOCOL.md, "Schema deduplication").

The hash does not depend on the order of keys or fields, so splits written by tasks that list their
fields differently share one entry. The registry stores the text of the first writer.
"""

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from indextables.log.format.actions import Add, Metadata

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
    """`deduplicate` for the files of a table (`log.files.FILES`), column by column."""
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
        files: the files (`log.files.FILES`).
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
