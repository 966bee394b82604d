"""JSON checkpoints: in one file or in parts, as older tables have them."""

import gzip
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from indextables import limits
from indextables.errors import CorruptLogError
from indextables.log.format import checkpoint_files, version_file
from indextables.log.format.actions import Format, MergeSkip, Metadata, Protocol, Txn
from indextables.log.format.checkpoint_files import (
    EncodedCheckpoint,
    checkpoint_file,
    encode_checkpoint,
    read_checkpoint,
)
from indextables.log.format.version_file import encode_lines
from indextables.store import Store, open_store
from tests.log.entries import an_add

OTHERS: list[Any] = [
    Protocol(min_reader_version=3, min_writer_version=3),
    Metadata(id="i", schema_string="{}", partition_columns=["date"], format=Format(), configuration={}),
    Txn(app_id="clicks", version=7),
    MergeSkip(path="bad.split", skip_timestamp=1, reason="broken"),
]
ADDS = [an_add(number) for number in range(20)]
NAME = "00000000000000000012.checkpoint.json"


def _write(store: Store, actions: Sequence[Any] = (*OTHERS, *ADDS), version: int = 12) -> EncodedCheckpoint:
    encoded = encode_checkpoint(actions, version=version, now_ms=99)
    for name, data in encoded.files.items():
        store.put(name, data)
    return encoded


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_files, "ACTIONS_PER_PART", 10)


def test_a_small_checkpoint_is_one_file_as_the_original_packs_it(any_store: Store) -> None:
    encoded = _write(any_store)
    assert list(encoded.files) == [NAME]
    assert (encoded.parts, encoded.checkpoint_id) == (None, None)
    data = encoded.files[NAME]
    assert data[:4] == b"\x01\x01\x1f\x8b"
    keys = [next(iter(json.loads(line))) for line in gzip.decompress(data[2:]).splitlines()]
    assert keys == ["protocol", "metaData", "txn", "mergeskip", *["add"] * 20]
    assert read_checkpoint(any_store, 12) == [*OTHERS, *ADDS]


def test_a_part_of_large_actions_is_cut_before_readers_refuse_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = len(encode_lines((*OTHERS, *ADDS)))
    for module in (limits, version_file, checkpoint_files):
        monkeypatch.setattr(module, "MAX_UNPACKED", whole // 3)
    encoded = _write(store)
    assert encoded.parts == len(encoded.files) - 1 > 1
    assert read_checkpoint(store, 12) == [*OTHERS, *ADDS]


def test_a_large_checkpoint_is_in_parts_with_the_list_written_last(
    any_store: Store, small_parts: None
) -> None:
    encoded = _write(any_store)
    *parts, last = encoded.files
    assert last == NAME
    assert len(parts) == encoded.parts == 3
    assert re.fullmatch(r"[0-9a-f]{12}", encoded.checkpoint_id)
    assert parts == [
        f"00000000000000000012.checkpoint.{encoded.checkpoint_id}.{n:05d}.json" for n in (1, 2, 3)
    ]
    assert json.loads(encoded.files[NAME]) == {
        "version": 12,
        "checkpointId": encoded.checkpoint_id,
        "parts": parts,
        "createdTime": 99,
        "format": "json",
    }
    assert read_checkpoint(any_store, 12) == [*OTHERS, *ADDS]


def test_adds_come_last_so_that_the_first_part_has_all_else(store: Store, small_parts: None) -> None:
    _write(store, [*ADDS, *OTHERS])
    assert read_checkpoint(store, 12) == [*OTHERS, *ADDS]


def test_parts_begin_past_a_hundred_thousand_actions(store: Store) -> None:
    adds = [an_add(number) for number in range(100_001)]
    assert len(encode_checkpoint(adds[:-1], version=1, now_ms=2).files) == 1
    encoded = _write(store, adds, version=1)
    assert encoded.parts == 2
    assert read_checkpoint(store, 1) == adds


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lambda text: b"\x01\x01" + gzip.compress(text)])
def test_every_form_of_packing_is_read(store: Store, pack: Any) -> None:
    text = b'{"protocol":{"minReaderVersion":2,"minWriterVersion":2}}\n{"add":{"path":"p","size":1,"modificationTime":2}}\n'
    store.put(checkpoint_file(3), pack(text))
    actions: Any = read_checkpoint(store, 3)
    protocol, add = actions
    assert (protocol.min_reader_version, add.path) == (2, "p")


def test_words_of_a_list_of_parts_in_the_metadata_make_no_list(store: Store) -> None:
    odd = Metadata(id="i", schema_string="{}", configuration={"parts": "x", "checkpointId": "y"})
    _write(store, [odd, *ADDS])
    assert read_checkpoint(store, 12) == [odd, *ADDS]


# --- damage ----------------------------------------------------------------------------------------


def _refused(store: Store, name: str, problem: str) -> None:
    with pytest.raises(CorruptLogError, match=problem) as caught:
        read_checkpoint(store, 12)
    assert caught.value.url == f"{store.url}/{name}"


def test_a_missing_checkpoint_is_named(store: Store) -> None:
    _refused(store, NAME, "missing")


@pytest.mark.parametrize("part", [0, 1, 2])
def test_a_missing_part_is_named(store: Store, small_parts: None, part: int) -> None:
    name = list(_write(store).files)[part]
    store.delete([name])
    _refused(store, name, "missing")


@pytest.mark.parametrize("part", [0, 1, 2])
def test_a_part_that_is_cut_is_named(store: Store, small_parts: None, part: int) -> None:
    encoded = _write(store)
    name = list(encoded.files)[part]
    for end in (0, 1, 2, 10, len(encoded.files[name]) - 1):
        store.put(name, encoded.files[name][:end])
        _refused(store, name, "cut short|is empty|not JSON|gzip")


def test_a_checkpoint_that_is_cut_is_named(store: Store, small_parts: None) -> None:
    encoded = _write(store)
    store.put(NAME, encoded.files[NAME][:-5])
    _refused(store, NAME, "not JSON")
    store.put(NAME, b"")
    _refused(store, NAME, "neither actions")
    store.put(NAME, gzip.compress(b""))
    _refused(store, NAME, "neither actions")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"version": 13}, "parts of version 13, not 12"),
        ({"parts": []}, "empty"),
        ({"parts": [f"{NAME[:-5]}.a.00001.json"] * 2}, "names one twice"),
        ({"parts": ["../00000000000000000012.checkpoint.a.00001.json"]}, "no part of this checkpoint"),
        ({"parts": ["00000000000000000012.checkpoint./../x.json"]}, "no part of this checkpoint"),
        ({"parts": ["00000000000000000011.checkpoint.a.00001.json"]}, "no part of this checkpoint"),
        ({"parts": "all"}, "list of parts"),
        ({"checkpointId": 7}, "list of parts"),
    ],
)
def test_a_list_of_parts_that_cannot_be_is_refused(
    store: Store, small_parts: None, changes: dict[str, Any], problem: str
) -> None:
    encoded = _write(store)
    store.put(NAME, json.dumps({**json.loads(encoded.files[NAME]), **changes}).encode())
    _refused(store, NAME, problem)
