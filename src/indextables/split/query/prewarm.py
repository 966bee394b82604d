"""An index brought to the local disk and into memory ahead of the first search."""

import os
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import IO

from indextables.options import Options
from indextables.split.footer import Footer, positions_of
from indextables.split.mapping import OWN_FIELDS
from indextables.split.parts import BY_FIELD, DIRECTORY, PARTS, column_of, field_names, stretches
from indextables.split.query.search import open_index
from indextables.split.stored_footer import META
from indextables.store import Store


def prewarm(
    store: Store,
    footer: Footer,
    options: Options,
    parts: Iterable[str] = ("TERM", "POSTINGS"),
    columns: Collection[str] = (),
) -> int:
    """Bring a split's index into the disk cache, open it, and read the named parts into memory.

    Returns how many bytes were read. Parts are the keys of `PARTS`. With columns, only what belongs to their
    fields comes into the cache, and of files that keep fields apart only theirs are read.
    """
    opened = open_index(store, footer, options)
    folder = opened.lease.folder
    fields = field_names((folder / META).read_bytes())
    wanted = {name for name in fields if not columns or column_of(name) in columns}
    opened.load(wanted | OWN_FIELDS | set(map(positions_of, wanted)))
    suffixes = tuple(suffix for part in parts for suffix in PARTS[part])
    return sum(
        _read_through(Path(item.path), fields, wanted if columns else None)
        for item in os.scandir(folder)
        if item.name.endswith(suffixes)
    )


def _read_through(path: Path, fields: Sequence[str], wanted: Collection[str] | None) -> int:
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        spans = [(0, size)]
        if wanted is not None and path.suffix in BY_FIELD:
            file.seek(max(0, size - DIRECTORY))
            found = stretches(path.suffix, file.read(), size, fields)
            spans = [(stretch.start, stretch.end) for stretch in found if stretch.field in wanted]
        return sum(_read_span(file, start, end) for start, end in spans)


def _read_span(file: IO[bytes], start: int, end: int) -> int:
    file.seek(start)
    read = 0
    while read < end - start and (chunk := file.read(min(1 << 22, end - start - read))):
        read += len(chunk)
    return read
