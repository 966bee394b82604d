"""Writes `tables/<name>`: a small table of every form of the log that was ever written.

`python -m tests.golden.write_tables [folder]` from the root of the repository. A table that is there already is never
replaced: it stands for those that users have. A change of the log's format adds a form here, and with it a table.
`tables/expected.json` has the answers; they are computed from `ROWS` without the engine.

The forms are: the log of this engine as version files only, with a JSON checkpoint, with Avro states, with filter
bundles, with the numbers of a stream's batches and a split that merges leave out, and of a companion index, whose
source is beside it; and the three generations of logs of older writers (`tests/log_tables/generations.py`), once with
Quickwit bundles as splits.
"""

import gzip
import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import deltalake
import pyarrow as pa
import tantivy

import indextables
from indextables.data_files import open_log
from indextables.log.conflict import Draft
from indextables.log.format import version_file
from indextables.log.format.actions import Add, MergeSkip, Metadata, Txn
from indextables.options import Options
from indextables.schema.spark import from_arrow
from indextables.store import open_store
from indextables.version import ENGINE
from tests.log_tables import generations
from tests.log_tables.build import WHEN
from tests.log_tables.generations import HandMade
from tests.split.bundle_files import bundle

T = TypeVar("T")

HERE = Path(__file__).parent / "tables"
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("level", pa.string()),
        pa.field("message", pa.string()),
        pa.field("cost", pa.float64()),
    ]
)
ROWS: list[dict[str, Any]] = [
    {"id": 1, "level": "info", "message": "service started", "cost": 0.5},
    {"id": 2, "level": "error", "message": "connection timeout on port 443", "cost": None},
    {"id": 3, "level": "warn", "message": None, "cost": -1.25},
    {"id": 4, "level": "error", "message": "timeout while reading", "cost": 2.0},
    {"id": 5, "level": None, "message": "connection closed by peer", "cost": 8.0},
    {"id": 6, "level": "info", "message": "reading finished", "cost": 3.5},
]
# The rows that each version adds.
BATCHES = (ROWS[:2], ROWS[2:5], ROWS[5:])
OPTIONS = {"indexing.typemap.message": "text", "indexing.storeonlyfields": "cost"}
CONDITIONS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "id >= 3": lambda row: row["id"] >= 3,
    "level = 'error'": lambda row: row["level"] == "error",
    "level IS NULL": lambda row: row["level"] is None,
    "NOT (level = 'error')": lambda row: row["level"] not in (None, "error"),
    "cost > 1": lambda row: row["cost"] is not None and row["cost"] > 1,
    "message INDEXQUERY 'timeout'": lambda row: "timeout" in (row["message"] or "").split(),
    "message INDEXQUERY 'connection AND NOT timeout'": lambda row: (
        "connection" in (row["message"] or "").split() and "timeout" not in (row["message"] or "").split()
    ),
}
FORMS = (
    "versions-only",
    "json-checkpoint",
    "avro-state",
    "generation-j",
    "generation-j-parts",
    "generation-a",
    "generation-b",
    "protocol-4",
    "quickwit-bundles",
    "filter-bundles",
    "streamed",
    "companion",
)
# Far in the future, so that the split is left out as long as there is this test.
SKIPPED_UNTIL = 4_102_444_800_000
STREAM = "golden"
# The document mapping of the bundles, as their writer has it.
BUNDLE_MAPPING = [
    {"name": "id", "type": "i64", "stored": True, "indexed": True, "fast": True},
    {"name": "level", "type": "text", "tokenizer": "raw", "stored": True, "indexed": True, "fast": True},
    {
        "name": "message",
        "type": "text",
        "tokenizer": "default",
        "stored": True,
        "indexed": True,
        "fast": False,
    },
    {"name": "cost", "type": "f64", "stored": True, "indexed": True, "fast": True},
]


def write_rows(path: Path, options: dict[str, str]) -> None:
    """The batches as one version each, in the form that the options choose."""
    for batch in BATCHES:
        data = pa.Table.from_pylist(batch, SCHEMA)
        indextables.write(str(path), data, mode="append", options={**OPTIONS, **options})


def actions(path: Path) -> list[list[dict[str, Any]]]:
    """The lines of the version files of a table, by version."""
    files = sorted((path / "_transaction_log").glob("0*.json"))
    return [
        [json.loads(line) for line in _text(file.read_bytes()).splitlines()]
        for file in files
        if ".checkpoint." not in file.name
    ]


def _text(data: bytes) -> str:
    return (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()


def write_by_hand(path: Path, form: str) -> None:
    """The same splits under a log that is written line by line, as older writers did."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "table"
        write_rows(source, {"checkpoint.enabled": "false"})
        versions = actions(source)
        made = HandMade(path)
        for split in source.glob("*.split"):
            shutil.copy(split, path / split.name)
    (metadata,) = [line for line in versions[0] if "metaData" in line]
    adds = [
        [_with_mapping(line["add"], versions) for line in lines if "add" in line] for lines in versions[1:]
    ]
    if form == "protocol-4":
        _versions(made, generations.protocol(4), metadata, adds, form="gzip")
    elif form.startswith("generation-j"):
        _generation_j(made, metadata, adds, parts=form.endswith("parts"))
    elif form == "generation-a":
        _generation_a(made, metadata, adds)
    else:
        _generation_b(made, metadata, adds)


def _with_mapping(add: dict[str, Any], versions: list[list[dict[str, Any]]]) -> dict[str, Any]:
    """An `add` with its document mapping in place of a reference to one in the metadata."""
    key = f"docMappingSchema.{add.pop('docMappingRef')}"
    described = (
        line["metaData"].get("configuration") or {}
        for lines in versions
        for line in lines
        if "metaData" in line
    )
    return {**add, "docMappingJson": next(found[key] for found in described if key in found)}


def _versions(
    made: HandMade,
    protocol: dict[str, Any],
    metadata: dict[str, Any],
    adds: list[list[dict[str, Any]]],
    form: str,
) -> None:
    made.version(0, protocol, metadata, form=form)
    for version, added in enumerate(adds, start=1):
        made.version(version, *({"add": add} for add in added), form=form)


def _generation_j(
    made: HandMade, metadata: dict[str, Any], adds: list[list[dict[str, Any]]], *, parts: bool
) -> None:
    """JSON versions of protocol 2, and a JSON checkpoint of all but the last."""
    protocol = generations.protocol(2)
    _versions(made, protocol, metadata, adds, form="legacy")
    last = len(adds) - 1
    lines = [{"add": add} for added in adds[:last] for add in added]
    if parts:
        made.multipart(last, [protocol, metadata, lines[0]], lines[1:])
    else:
        made.checkpoint(last, protocol, metadata, *lines)
    identifier = {"parts": 2, "checkpointId": "abc123def456"} if parts else {}
    made.pointer(last, format=None, stateDir=None, size=len(lines) + 2, **identifier)


def _generation_a(made: HandMade, metadata: dict[str, Any], adds: list[list[dict[str, Any]]]) -> None:
    """Version 0 as JSON, every later commit a state only."""
    made.version(0, generations.protocol(readerFeatures=None, writerFeatures=None), metadata, form="legacy")
    manifests: list[dict[str, Any]] = []
    registry = {generations.MAPPING_HASH: adds[0][0]["docMappingJson"]}
    for version, added in enumerate(adds, start=1):
        entries = [_entry(add, version, docMappingRef=generations.MAPPING_HASH) for add in added]
        manifests.append(made.manifest(f"manifests/manifest-0000000{version}.avro", entries))
        made.state(version, list(manifests), schemaRegistry=registry, metadata=metadata)
    made.pointer(len(adds))


def _generation_b(made: HandMade, metadata: dict[str, Any], adds: list[list[dict[str, Any]]]) -> None:
    """A version and a state for each commit, with mappings in the metadata."""
    mapping, key = adds[0][0]["docMappingJson"], f"docMappingSchema.{generations.MAPPING_HASH}"
    configuration = {**(metadata["metaData"].get("configuration") or {}), key: mapping}
    described = {"metaData": {**metadata["metaData"], "configuration": configuration}}
    made.version(0, generations.protocol(), described)
    manifests: list[dict[str, Any]] = []
    for version, added in enumerate(adds, start=1):
        made.version(version, *({"add": add} for add in added))
        entries = [_entry(add, version, docMappingJson=add["docMappingJson"]) for add in added]
        path = f"manifests/manifest-000000000000000{version}.avro"
        manifests.append(made.manifest(path, entries, schema=generations.ENTRY_B, codec="null"))
        made.state(version, list(manifests), metadata=described, schemaRegistry={key: mapping})
    made.pointer(len(adds))


def write_bundles(path: Path) -> None:
    """Splits as the original writes them, under a log of generation J."""
    made = HandMade(path)
    builder = tantivy.SchemaBuilder()
    builder.add_integer_field("id", stored=True, indexed=True, fast=True)
    builder.add_text_field("level", stored=True, tokenizer_name="raw", fast=True)
    builder.add_text_field("message", stored=True)
    builder.add_float_field("cost", stored=True, indexed=True, fast=True)
    schema = builder.build()
    adds = []
    with tempfile.TemporaryDirectory() as folder:
        for number, batch in enumerate(BATCHES, start=1):
            target = path / f"part-{number}.split"
            documents = [{name: value for name, value in row.items() if value is not None} for row in batch]
            bundle(Path(folder) / str(number), target, schema, documents)
            add = generations.add_with_nulls(
                target.name,
                size=target.stat().st_size,
                numRecords=len(batch),
                docMappingJson=json.dumps(BUNDLE_MAPPING),
            )
            adds.append([add["add"]])
    _generation_j(made, generations.metadata(from_arrow(SCHEMA)), adds, parts=False)


def write_streamed(path: Path) -> None:
    """As a stream writes: each version has the number of its batch. The second one also says that merges skip a split."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "table"
        write_rows(source, {"checkpoint.enabled": "false"})
        versions = actions(source)
        path.mkdir(parents=True)
        for split in source.glob("*.split"):
            shutil.copy(split, path / split.name)
    (metadata,) = (line for line in versions[0] if "metaData" in line)
    options = Options.parse({"checkpoint.interval": "2", "state.filterBundles.enabled": "false"})
    log = open_log(open_store(str(path)), options, engine=ENGINE)
    snapshot = log.create(_action(metadata, Metadata))
    assert snapshot is not None
    splits: list[Add] = []
    for number, lines in enumerate(versions[1:]):
        adds = tuple(
            _action({"add": _with_mapping(line["add"], versions)}, Add) for line in lines if "add" in line
        )
        skips = tuple(
            MergeSkip(add.path, WHEN, "its footer is damaged", operation="merge", retry_after=SKIPPED_UNTIL)
            for add in (splits if number == 1 else ())
        )
        draft = Draft(operation="STREAMING UPDATE", adds=adds, skips=skips, txns=(Txn(STREAM, number, WHEN),))
        snapshot = log.commit(draft, snapshot)
        splits += adds


def _action(line: dict[str, Any], kind: type[T]) -> T:
    (action,) = version_file.decode(json.dumps(line).encode(), "a line")
    assert isinstance(action, kind)
    return action


def write_companion(path: Path) -> None:
    """The index of a Delta table with the batches, synced after each of them; a copy of the source lies beside it.

    The index names the place where the source was; the copy is read as a table root.
    """
    options = {**OPTIONS, "checkpoint.interval": "2"}
    with tempfile.TemporaryDirectory() as folder:
        source, index = Path(folder) / "source", Path(folder) / "index"
        for batch in BATCHES:
            deltalake.write_deltalake(source, pa.Table.from_pylist(batch, SCHEMA), mode="append")
            indextables.companion(source, at=index, options=options)
        shutil.copytree(folder, path)


def _entry(add: dict[str, Any], version: int, **changes: object) -> dict[str, Any]:
    """An entry of a manifest with the fields of an `add` that manifests have."""
    fields = (
        "stats", "minValues", "maxValues", "footerStartOffset", "footerEndOffset", "hasFooterOffsets",
        "splitTags", "numMergeOps", "uncompressedSizeBytes",
    )  # fmt: skip
    known = {name: add[name] for name in fields if name in add}
    return generations.entry(
        add["path"],
        size=add["size"],
        numRecords=add["numRecords"],
        addedAtVersion=version,
        **{"hasFooterOffsets": "footerStartOffset" in add, **known, **changes},
    )


def write_table(folder: Path, form: str) -> None:
    """Write the table of one form."""
    path = folder / form
    if path.exists():
        sys.exit(f"{path} exists, and golden tables are never replaced")
    match form:
        case "versions-only":
            write_rows(path, {"checkpoint.enabled": "false"})
        case "json-checkpoint":
            write_rows(path, {"checkpoint.interval": "2", "state.format": "json"})
        case "avro-state":
            write_rows(path, {"checkpoint.interval": "2", "state.filterBundles.enabled": "false"})
        case "filter-bundles":
            write_rows(path, {"checkpoint.interval": "2"})
        case "streamed":
            write_streamed(path)
        case "companion":
            write_companion(path)
        case "quickwit-bundles":
            write_bundles(path)
        case _:
            write_by_hand(path, form)


def expected() -> dict[str, Any]:
    """The answers: rows and counts of each version."""
    answers: dict[str, Any] = {}
    for version in range(1, len(BATCHES) + 1):
        rows = [row for batch in BATCHES[:version] for row in batch]
        counts = {text: sum(map(holds, rows)) for text, holds in CONDITIONS.items()}
        answers[str(version)] = {"ids": [row["id"] for row in rows], "counts": counts}
    return answers


def main(folder: Path) -> None:
    """Write the tables that are missing."""
    folder.mkdir(exist_ok=True)
    for form in FORMS:
        if not (folder / form).exists():
            write_table(folder, form)
    (folder / "expected.json").write_text(json.dumps(expected(), indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
