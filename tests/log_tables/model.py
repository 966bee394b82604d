"""A simple independent model of the log: version files read with the standard library, applied to plain dicts."""

import gzip
import json
from collections.abc import Iterable
from typing import Any


def lines_of(data: bytes) -> list[dict[str, Any]]:
    """The actions of a version file, as plain JSON."""
    text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    return [json.loads(line) for line in text.splitlines() if line.strip()]


class Model:
    """What a table holds after some versions: paths and sizes, metadata, batches."""

    def __init__(self) -> None:
        self.live: dict[str, int] = {}
        self.configuration: dict[str, str] = {}
        self.batches: dict[str, int] = {}

    def apply(self, actions: Iterable[dict[str, Any]], *, strict: bool = True) -> None:
        """One version. Strict: what it removes must be live, what it adds must not be."""
        for action in actions:
            if "remove" in action:
                path = action["remove"]["path"]
                assert not strict or path in self.live, f"{path} is removed though it is not live"
                self.live.pop(path, None)
            elif "add" in action:
                path = action["add"]["path"]
                assert not strict or path not in self.live, f"{path} is added though it is live"
                self.live[path] = action["add"]["size"]
            elif "metaData" in action:
                found = action["metaData"].get("configuration", {})
                self.configuration = {k: v for k, v in found.items() if not k.startswith("docMappingSchema.")}
            elif "txn" in action:
                self.batches[action["txn"]["appId"]] = action["txn"]["version"]
