"""Builders of entries and actions, plain ones and any at all."""

from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from indextables.log.format.actions import Add
from indextables.log.format.files import from_adds
from indextables.schema.values import NULL_PARTITION

ORIGINAL = Path(__file__).parents[3] / "shared" / "fixtures" / "original-0.5.4"

WHEN = 1_775_007_206_490


def an_add(number: int = 0, **changes: Any) -> Add:
    """An add as our writer makes it."""
    day = f"2024-01-{number % 28 + 1:02d}"
    facts = {
        "path": f"date={day}/part-{number:08d}.split",
        "partition_values": {"date": day},
        "size": 1_000_000 + number,
        "modification_time": WHEN + number,
        "data_change": True,
        "min_values": {"id": str(number), "text": "alpha"},
        "max_values": {"id": str(number + 9), "text": "zulu"},
        "num_records": 10,
        "footer_start_offset": 900_000,
        "footer_end_offset": 1_000_000 + number,
        "has_footer_offsets": True,
        "doc_mapping_ref": "z7TwwZ-tDWGD-uX5",
        "uncompressed_size_bytes": 2_000_000,
    }
    return Add(**{**facts, **changes})


def files_of(count: int, *, version: int = 3) -> pa.Table:
    """That many entries."""
    return from_adds([an_add(number) for number in range(count)], version=version, timestamp=WHEN)


# --- any at all ------------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
longs = st.integers(-(2**63), 2**63 - 1)
# Times that a calendar has: years 1 to 9999.
moments = st.integers(-62_135_596_800_000, 253_402_300_799_999)
string_maps = st.dictionaries(texts, texts, max_size=4)
partition_maps = st.dictionaries(texts, st.none() | texts.filter(lambda t: t != NULL_PARTITION), max_size=3)
strings = st.lists(texts, max_size=3)


def _maybe(strategy: Any) -> Any:
    return st.none() | strategy


adds = st.builds(
    Add,
    path=texts,
    partition_values=partition_maps,
    size=longs,
    modification_time=longs,
    data_change=st.booleans(),
    stats=_maybe(texts),
    min_values=_maybe(string_maps),
    max_values=_maybe(string_maps),
    num_records=_maybe(longs),
    footer_start_offset=_maybe(longs),
    footer_end_offset=_maybe(longs),
    has_footer_offsets=st.booleans(),
    delete_opstamp=_maybe(longs),
    split_tags=_maybe(strings),
    num_merge_ops=_maybe(st.integers(-(2**31), 2**31 - 1)),
    doc_mapping_json=_maybe(texts),
    doc_mapping_ref=_maybe(texts),
    uncompressed_size_bytes=_maybe(longs),
    time_range_start=_maybe(texts),
    time_range_end=_maybe(texts),
    companion_source_files=_maybe(strings),
    companion_delta_version=_maybe(longs),
    companion_fast_field_mode=_maybe(texts),
)


def damaged(data: bytes) -> st.SearchStrategy[bytes]:
    """The data with one byte changed."""
    return st.builds(
        lambda at, xor: data[:at] + bytes([data[at] ^ xor]) + data[at + 1 :],
        st.integers(0, len(data) - 1),
        st.integers(1, 255),
    )
