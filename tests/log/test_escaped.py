"""Partition values that the original escaped in its log are those of the rows again."""

from pathlib import Path
from typing import Any

import pytest

import indextables.log.format.files as under_test
from indextables.log.format.actions import Add
from indextables.log.format.files import from_adds
from indextables.log.snapshot_cache import invalidate
from indextables.predicate import parse_condition
from tests.log_tables import generations as made
from tests.log_tables.build import a_log, a_table, append, schema_string, split
from tests.log_tables.generations import HandMade

ROW_WRITER = "part-00000-69-dcc234c8-ba02-4079-88e0-6cb1178e7f1d.split"
ARROW_WRITER = "part-dcc234c8-ba02-4079-88e0-6cb1178e7f1d.split"


def value_of(*adds: Add) -> list[Any]:
    files = under_test.with_unescaped_partitions(from_adds(adds, version=1, timestamp=1))
    return [dict(entry) for entry in files["partitionValues"].to_pylist()]


@pytest.mark.parametrize(
    "value", ["a b", "a/b", 'q"<x>|y', "c:\\d", "what?*", "50%", "x=y", "größe", "%2", "%zz"]
)
def test_what_the_original_escaped_is_read_as_it_was(value: str) -> None:
    escaped = "".join(f"%{ord(c):02X}" if c in '/\\:*?"<>| ' else c for c in value)
    add = split(f"region=x/{ROW_WRITER}", partition_values={"region": escaped, "day": None})
    assert value_of(add) == [{"region": value, "day": None}]


def test_statistics_tell_a_value_that_only_looks_escaped() -> None:
    said: dict[str, Any] = {"partition_values": {"region": "a%20b"}}
    literal = split("x.split", min_values={"region": "a%20b"}, max_values={"region": "a%20b"}, **said)
    escaped = split("y.split", min_values={"region": "a b"}, max_values={"region": "a b"}, **said)
    assert value_of(literal, escaped, split("z.split", **said)) == [
        {"region": "a%20b"},
        {"region": "a b"},
        {"region": "a b"},
    ]


def test_writers_that_escape_nothing_are_taken_at_their_word() -> None:
    said: dict[str, Any] = {"partition_values": {"region": "a%20b"}}
    ours = split(f"region=x/{ROW_WRITER}", split_tags=["parquet"], **said)
    assert value_of(ours, split(f"region=x/{ARROW_WRITER}", **said)) == [{"region": "a%20b"}] * 2


def test_states_of_ours_hold_the_values_of_the_rows(tmp_path: Path) -> None:
    log = a_table(str(tmp_path / "t"), columns={"id": "long", "region": "string"}, partition_by=["region"])
    append(log, split(f"region=a%20b/{ROW_WRITER}", partition_values={"region": "a%20b"}))
    log.checkpoint()
    log.truncate()
    invalidate()
    snapshot = a_log(str(tmp_path / "t")).snapshot()
    assert [dict(e) for e in snapshot.files()["partitionValues"].to_pylist()] == [{"region": "a b"}]
    assert snapshot.files(parse_condition("region = 'a b'", snapshot.schema)).num_rows == 1
    assert snapshot.files(parse_condition("region = 'a%20b'", snapshot.schema)).num_rows == 0


@pytest.mark.parametrize(
    ("bounds", "wanted", "found"),
    [
        ({"min": "eu%20west", "max": "eu%20west"}, "eu west", 1),
        # Escaped, `a x` stands between these two; the value itself stands before both.
        ({"min": "a!x", "max": "a5"}, "a x", 1),
    ],
)
def test_bounds_of_escaped_values_skip_no_manifest_that_holds_the_value(
    tmp_path: Path, bounds: dict[str, Any], wanted: str, found: int
) -> None:
    table = HandMade(tmp_path / "t")
    escaped = wanted.replace(" ", "%20")
    entry = made.entry("a.split", partitionValues={"region": escaped})
    info = {**table.manifest("manifests/manifest-1.avro", [entry]), "partitionBounds": {"region": bounds}}
    schema = schema_string({"id": "long", "region": "string"})
    table.state(1, [info], metadata=made.metadata(schema, ["region"]))
    snapshot = a_log(str(tmp_path / "t")).snapshot()
    assert snapshot.files(parse_condition(f"region = '{wanted}'", snapshot.schema)).num_rows == found
