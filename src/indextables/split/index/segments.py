"""Index segments of several sources under one roof, merged by Tantivy."""

import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import tantivy

from indextables.split.index.files import live_files
from indextables.split.stored_footer import META

_MANAGED = ".managed.json"
# Tantivy's policy merges segments of like size once there are so many of them.
_ENOUGH = 8
# One merge is the work of one thread. Every merge at once leaves a segment of its own, so there are only two.
_AT_ONCE = 2


def merge_segments(metas: Sequence[dict[str, Any]], folder: Path, heap: int) -> None:
    """Put the segments of several `meta.json` into one index, and merge those of like size.

    Their files are in the folder already; the index that comes out is there as well.
    """
    segments = [segment for meta in metas for segment in meta["segments"]]
    count = max(1, min(_AT_ONCE, os.cpu_count() or 1, len(segments) // _ENOUGH))
    if count == 1:
        _merge(metas[0], segments, folder, heap)
        return
    shares = _shares(segments, count)
    rooms = [folder / f"merging-{number}" for number in range(count)]
    for room, share in zip(rooms, shares, strict=True):
        room.mkdir()
        wanted = {_name(segment) for segment in share}
        _move([path for path in folder.iterdir() if path.name.partition(".")[0] in wanted], room)
    with ThreadPoolExecutor(count, thread_name_prefix="indextables-segments") as threads:
        list(threads.map(lambda share, room: _merge(metas[0], share, room, heap), shares, rooms))
    merged = [json.loads((room / META).read_text("utf-8")) for room in rooms]
    for room in rooms:
        _move(live_files(room)[1:], folder)
    _write_meta(metas[0], [segment for meta in merged for segment in meta["segments"]], folder)


def _merge(meta: dict[str, Any], segments: list[dict[str, Any]], folder: Path, heap: int) -> None:
    """An index over segments whose files are in the folder; Tantivy merges when it commits."""
    _write_meta(meta, segments, folder)
    writer = tantivy.Index.open(str(folder)).writer(heap, 1)
    writer.commit()
    writer.wait_merging_threads()


def _write_meta(meta: dict[str, Any], segments: list[dict[str, Any]], folder: Path) -> None:
    (folder / META).write_text(json.dumps({**meta, "segments": segments}), "utf-8")
    names = [path.name for path in live_files(folder)]
    (folder / _MANAGED).write_text(json.dumps(names), "utf-8")


def _shares(segments: list[dict[str, Any]], count: int) -> list[list[dict[str, Any]]]:
    """As many segments for each, and about as many documents: dealt out by size, there and back."""
    ordered = sorted(segments, key=lambda segment: (segment["max_doc"], _name(segment)))
    rounds = [ordered[i : i + count] for i in range(0, len(ordered), count)]
    dealt = [each if number % 2 else each[::-1] for number, each in enumerate(rounds)]
    return [[each[i] for each in dealt if i < len(each)] for i in range(count)]


def _name(segment: dict[str, Any]) -> str:
    return str(segment["segment_id"]).replace("-", "")


def _move(paths: Sequence[Path], folder: Path) -> None:
    for path in paths:
        path.replace(folder / path.name)
