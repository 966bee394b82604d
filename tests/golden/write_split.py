"""Writes `format-<n>-<part>.split`: the rows of `rows.json` as a split of the format that the code writes.

And `filters.bin`, a filter bundle of that split and of one that has no filters.

`python -m tests.golden.write_split [folder]`, with the release that writes the format on PYTHONPATH. A split
that is there already is never replaced: it stands for those that users have.
"""

import json
import sys
from pathlib import Path
from typing import IO, cast

import pyarrow as pa

from indextables.data_files import read_filters
from indextables.options import Options
from indextables.split.footer import FORMAT_VERSION
from indextables.split.index import files
from indextables.split.index.term_filter import BundleContent, encode_bundle, split_keys
from indextables.split.mapping import mapping_for
from indextables.split.writer import SplitWriter
from indextables.store import open_store

HERE = Path(__file__).parent
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("level", pa.string()),
        pa.field("message", pa.string()),
        pa.field("latency", pa.float64()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("source", pa.struct([("host", pa.string()), ("port", pa.int32())])),
    ]
)
OPTIONS = {"indexing.typemap.message": "text", "write.rowGroupSize": "8K", "write.pageSize": "1K"}


def golden_rows() -> pa.Table:
    """The rows that every golden split holds."""
    lines = (HERE / "rows.json").read_text("utf-8").splitlines()
    return pa.Table.from_pylist([json.loads(line) for line in lines], SCHEMA)


# What splits have that older ones of the same format number have not; older readers ignore it. The newest is last.
PARTS = ("term-filters", "term-pieces")
# The pieces of postings and positions are this small here, so that few rows have several.
_PIECE_BYTES = 1 << 10


BUNDLE = "filters.bin"
BUNDLED = (f"format-{FORMAT_VERSION}-{PARTS[0]}.split", f"format-{FORMAT_VERSION}.split")


def entries(folder: Path) -> pa.Table:
    """The splits of the bundle as the log has them."""
    sizes = [(folder / name).stat().st_size for name in BUNDLED]
    return pa.table({"path": list(BUNDLED), "size": sizes, "modificationTime": [1736899200000, None]})


def write_bundle(folder: Path) -> None:
    """Write the filter bundle."""
    store = open_store(folder)
    filters = [read_filters(store, name, (folder / name).stat().st_size, None, 1 << 20) for name in BUNDLED]
    data, _ = encode_bundle(BundleContent.of(split_keys(entries(folder)), filters))
    (folder / BUNDLE).write_bytes(data)


def main(folder: Path) -> None:
    """Write the split of this release's format, and the bundle if there is none."""
    if not (folder / BUNDLE).exists():
        write_bundle(folder)
    path = folder / f"format-{FORMAT_VERSION}-{PARTS[-1]}.split"
    if path.exists():
        sys.exit(f"{path} exists, and golden splits are never replaced")
    files.PIECE_BYTES = files.TERM_PIECE_BYTES = _PIECE_BYTES
    rows, options = golden_rows(), Options.parse(OPTIONS)
    sink = open_store(folder).open_upload(path.name)
    with SplitWriter(cast("IO[bytes]", sink), SCHEMA, mapping_for(SCHEMA, options, ()), options) as writer:
        for batch in rows.to_batches():
            writer.write(batch)
        writer.finish()
    sink.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
