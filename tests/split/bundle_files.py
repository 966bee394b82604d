"""Bundles as the original writes them, made of an index that Tantivy wrote here."""

import json
import struct
from pathlib import Path
from typing import Any

import tantivy


def bundle(folder: Path, target: Path, schema: tantivy.Schema, documents: list[dict[str, Any]]) -> None:
    """Write documents as a bundle."""
    folder.mkdir()
    index = tantivy.Index(schema, str(folder))
    writer = index.writer(15_000_000, 1)
    for document in documents:
        writer.add_json(json.dumps(document))
    writer.commit()
    writer.wait_merging_threads()
    body, places = b"", {}
    for path in sorted(folder.iterdir()):
        if path.is_file() and not path.name.startswith("."):
            data = path.read_bytes()
            places[path.name] = {"start": len(body), "end": len(body) + len(data)}
            body += data
    meta = struct.pack("<II", 403_881_646, 1) + json.dumps({"files": places}).encode()
    hotcache = b"hot"
    target.write_bytes(
        body + meta + struct.pack("<I", len(meta)) + hotcache + struct.pack("<I", len(hotcache))
    )
