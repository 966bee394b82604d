"""Version files: what is written is read, in three forms, and damage is named."""

import contextlib
import gzip
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indextables import limits
from indextables.errors import CorruptLogError
from indextables.log.format import version_file
from indextables.log.format.actions import (
    Add,
    CommitInfo,
    Format,
    MergeSkip,
    Metadata,
    Protocol,
    Remove,
    Txn,
)
from indextables.log.format.version_file import decode, encode, pack
from indextables.schema.values import NULL_PARTITION
from tests.log.entries import (
    ORIGINAL,
    adds,
    an_add,
    damaged,
    longs,
    moments,
    partition_maps,
    string_maps,
    strings,
    texts,
)

URL = "file:///table/_transaction_log/00000000000000000007.json"

ACTIONS: list[Any] = [
    Protocol(min_reader_version=4, min_writer_version=4),
    Metadata(
        id="a-b", schema_string="{}", partition_columns=["date"], format=Format(), configuration={"k": "v"}
    ),
    Remove(path="old.split", deletion_timestamp=5, data_change=False),
    an_add(),
    MergeSkip(path="bad.split", skip_timestamp=5, reason="broken", operation="merge", skip_count=2),
    CommitInfo(timestamp=5, operation="WRITE", token="t"),
    Txn(app_id="clicks", version=7),
]

_maybe = st.none().__or__
any_action = st.one_of(
    adds,
    st.builds(Protocol, min_reader_version=longs, min_writer_version=longs, reader_features=_maybe(strings)),
    st.builds(Metadata, id=texts, schema_string=texts, name=_maybe(texts), configuration=_maybe(string_maps)),
    st.builds(Remove, path=texts, deletion_timestamp=_maybe(longs), partition_values=_maybe(partition_maps)),
    st.builds(MergeSkip, path=texts, skip_timestamp=longs, reason=texts, skip_count=longs),
    st.builds(CommitInfo, timestamp=moments, operation=texts, token=texts, operation_parameters=string_maps),
    st.builds(Txn, app_id=texts, version=longs, last_updated=_maybe(longs)),
)


@given(st.lists(any_action, min_size=1, max_size=5), st.booleans())
def test_any_actions_survive_a_round_trip(actions: Any, compress: Any) -> None:
    assert decode(encode(actions, compress=compress), URL) == actions


@pytest.mark.parametrize("form", ["plain", "gzip", "prefixed", "two gzip members"])
def test_every_form_of_the_file_is_read(form: str) -> None:
    text = encode(ACTIONS, compress=False)
    first, rest = text.split(b"\n", 1)
    data = {
        "plain": text,
        "gzip": gzip.compress(text),
        "prefixed": b"\x01\x01" + gzip.compress(text),
        "two gzip members": gzip.compress(first + b"\n") + gzip.compress(rest),
    }[form]
    assert decode(data, URL) == ACTIONS


def test_what_is_written_is_gzip_with_one_json_object_a_line() -> None:
    lines = gzip.decompress(encode(ACTIONS)).splitlines()
    keys = ["protocol", "metaData", "remove", "add", "mergeskip", "commitInfo", "txn"]
    assert [list(json.loads(line)) for line in lines] == [[key] for key in keys]


def test_the_same_actions_make_the_same_bytes() -> None:
    assert encode(ACTIONS) == encode(ACTIONS)


def test_fields_that_other_readers_need_are_written_even_at_their_default() -> None:
    _, *lines, _ = encode([Protocol(), Add(path="p")], compress=False).splitlines()
    assert json.loads(lines[0]) == {"protocol": {"minReaderVersion": 1, "minWriterVersion": 1}}
    assert json.loads(lines[1]) == {"add": {"path": "p", "size": 0, "modificationTime": 0}}


def test_null_and_absent_mean_the_same() -> None:
    absent = b'{"add":{"path":"p","size":1,"modificationTime":2}}'
    null = b'{"add":{"path":"p","partitionValues":null,"size":1,"modificationTime":2,"stats":null,"splitTags":null}}'
    assert decode(absent, URL) == decode(null, URL)


def test_blank_lines_and_what_is_not_known_are_passed_over() -> None:
    text = b"""
{"add":{"path":"p","size":1,"modificationTime":2,"hotcacheLength":7,"tags":{"a":"b"}}}

{"somethingNew":{"x":[1,2]}}
{"remove":{"path":"q","extendedFileMetadata":true}}
{"add":null}
"""
    assert decode(text, URL) == [Add(path="p", size=1, modification_time=2), Remove(path="q")]


def test_the_alias_of_mergeskip_is_read() -> None:
    found = decode(b'{"skip":{"path":"p","skipTimestamp":1,"reason":"r"}}', URL)
    assert found == [MergeSkip(path="p", skip_timestamp=1, reason="r")]


@pytest.mark.parametrize(
    "action",
    [
        an_add(partition_values={"date": None, "region": "eu"}),
        Remove(path="p", partition_values={"date": None}),
        MergeSkip(path="p", skip_timestamp=1, reason="r", partition_values={"date": None}),
    ],
)
def test_a_null_partition_value_has_its_name_on_disk_and_is_null_again_when_read(action: Any) -> None:
    text = encode([action], compress=False)
    assert NULL_PARTITION.encode() in text
    assert b"null" not in text
    assert decode(text, URL) == [action]


def test_a_null_partition_value_that_is_null_on_disk_is_null() -> None:
    found = decode(b'{"add":{"path":"p","partitionValues":{"date":null},"size":1,"modificationTime":2}}', URL)
    assert found == [Add(path="p", partition_values={"date": None}, size=1, modification_time=2)]


@pytest.mark.parametrize("prefix", [b"", b"\x01\x01"])
def test_gzip_that_is_cut_anywhere_is_refused(prefix: bytes) -> None:
    data = prefix + encode(ACTIONS)
    for end in range(len(data)):
        with pytest.raises(CorruptLogError, match=URL):
            decode(data[:end], URL)


def test_plain_text_that_is_cut_anywhere_is_refused() -> None:
    data = encode(ACTIONS, compress=False)
    for end in range(len(data) - 1):
        with pytest.raises(CorruptLogError, match=URL):
            decode(data[:end], URL)


def test_plain_text_that_lost_its_first_line_is_refused() -> None:
    data = encode(ACTIONS, compress=False)
    with pytest.raises(CorruptLogError, match="differs from its checksum"):
        decode(data.split(b"\n", 1)[1], URL)


def test_plain_text_with_another_number_is_refused() -> None:
    data = encode([an_add(size=1234)], compress=False)
    with pytest.raises(CorruptLogError, match="differs from its checksum"):
        decode(data.replace(b"1234", b"1235"), URL)


def test_plain_text_without_a_checksum_is_read() -> None:
    _, *lines, _ = encode(ACTIONS, compress=False).splitlines()
    assert decode(b"\n".join(lines), URL) == ACTIONS


@given(st.data())
def test_a_changed_byte_never_changes_the_actions(data: Any) -> None:
    packed = encode(ACTIONS, compress=data.draw(st.booleans()))
    # The header of gzip has bytes without a meaning here, such as its time.
    with contextlib.suppress(CorruptLogError):
        assert decode(data.draw(damaged(packed)), URL) == ACTIONS


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'{"add":{"path":"p"', "line 2 is not JSON"),
        (b"garbage", "line 2 is not JSON"),
        (b'{"add":{"path":"\xff"}}', "line 2 is not JSON"),
        (b"[1]", "line 2 is not an action"),
        (b"null", "line 2 is not an action"),
        (b'{"add":{"path":"p","size":"large"}}', "line 2 is not an action"),
        (b'{"add":{"path":"p","partitionValues":{"date":7}}}', "line 2 is not an action"),
        (b'{"add":{"size":1}}', "line 2 is not an action"),
        (b'{"add":{"path":"p"},"remove":{"path":"q"}}', "more than one action"),
        (b'{"x":' + b"[" * 100_000, "line 2 is not JSON"),
    ],
)
def test_a_damaged_line_is_named(line: bytes, problem: str) -> None:
    with pytest.raises(CorruptLogError, match=problem) as caught:
        decode(b'{"txn":{"appId":"a","version":1}}\n' + line + b"\n", URL)
    assert caught.value.url == URL


def test_an_empty_file_is_damage_and_an_empty_list_of_actions_is_not() -> None:
    with pytest.raises(CorruptLogError, match="is empty"):
        decode(b"", URL)
    assert decode(encode([]), URL) == []


@pytest.mark.parametrize("compress", [True, False])
def test_no_more_is_unpacked_than_the_limit(monkeypatch: pytest.MonkeyPatch, compress: bool) -> None:
    data = encode([an_add(n) for n in range(100)], compress=compress)
    monkeypatch.setattr(limits, "MAX_UNPACKED", 1000)
    monkeypatch.setattr(version_file, "MAX_UNPACKED", 1000)
    with pytest.raises(CorruptLogError, match="more than 1000 bytes"):
        decode(data, URL)


def test_a_small_file_does_not_become_a_million_actions() -> None:
    bomb = pack(b'{"add":{"path":""}}\n' * 1_000_000)
    assert len(bomb) < 200_000
    with pytest.raises(CorruptLogError, match="lines, the limit for its size"):
        decode(bomb, URL)


@pytest.mark.skipif(not ORIGINAL.exists(), reason="the original's tables are not at hand")
def test_the_first_version_of_every_original_table_is_read() -> None:
    found = sorted(ORIGINAL.glob("*/_transaction_log/*.json"))
    assert found
    for path in found:
        protocol, metadata = decode(path.read_bytes(), str(path))
        assert protocol == Protocol(min_reader_version=4, min_writer_version=4)
        assert isinstance(metadata, Metadata)
        assert metadata.format == Format()
