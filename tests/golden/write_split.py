"""Writes `format-<n>-<part>.split`: the rows of `rows.json` as a split of the format that the code writes.

`python -m tests.golden.write_split [folder]`, with the release that writes the format on PYTHONPATH. A split
that is there already is never replaced: it stands for those that users have.
"""

import json
import sys
from pathlib import Path
from typing import IO, cast

import pyarrow as pa

from indextables.options import Options
from indextables.split.footer import FORMAT_VERSION
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


# What the newest splits have that others of the same format number have not; older readers ignore it.
NEWEST_PART = "term-filters"


def main(folder: Path) -> None:
    """Write the split of this release's format."""
    path = folder / f"format-{FORMAT_VERSION}-{NEWEST_PART}.split"
    if path.exists():
        sys.exit(f"{path} exists, and golden splits are never replaced")
    rows, options = golden_rows(), Options.parse(OPTIONS)
    sink = open_store(folder).open_upload(path.name)
    with SplitWriter(cast("IO[bytes]", sink), SCHEMA, mapping_for(SCHEMA, options, ()), options) as writer:
        for batch in rows.to_batches():
            writer.write(batch)
        writer.finish()
    sink.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
