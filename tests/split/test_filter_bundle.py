"""Filter bundles: every term of every split passes, others rarely, and damage is found."""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables.errors import SplitError
from indextables.split.checksum import crc32
from indextables.split.index.term_filter import (
    BundleContent,
    BundleDirectory,
    decode_bundle,
    encode_bundle,
    encode_filter,
    find_keys,
    probes,
    split_keys,
    term_keys,
)


def entries(count: int, start: int = 0) -> pa.Table:
    numbers = range(start, start + count)
    return pa.table(
        {
            "path": pa.array([f"part-{n}.split" for n in numbers], pa.string()),
            "size": pa.array([1000 + n for n in numbers], pa.int64()),
            "modificationTime": pa.array(list(numbers), pa.int64()),
        }
    )


def filter_of(terms: Any, blocks: Any) -> Any:
    return encode_filter(np.unique(term_keys(sorted(terms))), blocks)


def content(terms: list[Any], blocks: list[Any], start: int = 0) -> BundleContent:
    """A split for each list of terms; its filter has so many blocks, 0 for none."""
    filters = [{"t:a": filter_of(own, size)} if size else {} for own, size in zip(terms, blocks, strict=True)]
    return BundleContent.of(split_keys(entries(len(terms), start)), filters)


def splits_with(data: bytes, directory_bytes: int, term: Any) -> Any:
    """Whether each split of a bundle may have a term, reading the pages of that term only."""
    directory = BundleDirectory.decode(data[-directory_bytes:], len(data))
    (probe,) = probes([term])
    mask = np.ones(len(directory.keys), np.bool_)
    for group in directory.of_field("t:a"):
        number = group.page_of(probe)
        page = group.decode_page(number, data[slice(*group.page_range(number))])
        mask[group.members] = group.test(probe, page)
    return mask


TERMS = st.lists(st.text(max_size=8), max_size=20, unique=True)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(TERMS, st.sampled_from([0, 1, 2, 3, 64, 65, 130])), min_size=1, max_size=80))
def test_every_term_of_every_split_passes(splits: Any) -> None:
    data, directory = encode_bundle(content([terms for terms, _ in splits], [size for _, size in splits]))
    for number, (terms, _) in enumerate(splits):
        for term in terms:
            assert splits_with(data, directory, term)[number]


def test_other_terms_rarely_pass() -> None:
    terms = [[f"w{n}-{i}" for i in range(200)] for n in range(50)]
    data, directory = encode_bundle(content(terms, [9] * 50))  # 11.5 bits for each term
    rate = np.mean([splits_with(data, directory, f"absent{i}").mean() for i in range(200)])
    assert 0 < rate < 0.03


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_merged_selected_and_cut_bundles_hold_what_their_parts_held(draw: Any) -> None:
    sizes = st.sampled_from([0, 1, 3, 70])
    parts = [draw.draw(st.lists(st.tuples(TERMS, sizes), max_size=8)) for _ in range(3)]
    contents = []
    for n, part in enumerate(parts):
        start = sum(map(len, parts[:n]))
        contents.append(content([terms for terms, _ in part], [size for _, size in part], start))
    merged = BundleContent.merge(contents)
    splits = [each for part in parts for each in part]
    assert (merged.keys == split_keys(entries(len(splits)))).all()
    mask = np.array([draw.draw(st.booleans()) for _ in splits], np.bool_)
    chosen = [each for each, stays in zip(splits, mask, strict=True) if stays]
    found = 0
    for piece in merged.select(mask).cut(2000):
        data, directory = encode_bundle(piece)
        again = decode_bundle(data, directory)
        assert encode_bundle(again) == (data, directory)
        for number in range(len(piece.keys)):
            terms, blocks = chosen[found + number]
            assert (piece.keys[number] == merged.keys[mask][found + number]).all()
            for term in terms:
                assert splits_with(data, directory, term)[number]
            own = [
                bits[members == number]
                for (_, size), (members, bits) in again.groups.items()
                if size == blocks
            ]
            if blocks:
                assert (np.concatenate(own)[0] == filter_of(terms, blocks)).all()
        found += len(piece.keys)
    assert found == len(chosen)


def test_a_split_is_found_only_by_its_path_size_and_time() -> None:
    own = split_keys(entries(100))
    assert find_keys(own, own).tolist() == list(range(100))
    assert find_keys(own[::-1][:3], own).tolist() == [99, 98, 97]
    for word in range(3):
        other = own.copy()
        other[:, word] += np.uint64(1000)
        assert (find_keys(other, own) == -1).all()
    assert (find_keys(own, own[:0]) == -1).all()
    assert (find_keys(split_keys(entries(3, start=200)), own) == -1).all()


def test_a_changed_bit_is_found_wherever_it_is() -> None:
    data, directory = encode_bundle(content([["a", "b"], ["c"], ["d"]], [2, 2, 70]))
    for place in range(4, len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 4
        with pytest.raises(SplitError):
            decode_bundle(bytes(damaged), directory)


def test_pages_that_change_places_are_found() -> None:
    data, directory = encode_bundle(content([["a"], ["b"]], [64, 64]))
    (group,) = BundleDirectory.decode(data[-directory:], len(data)).groups
    first, second = (slice(*group.page_range(number)) for number in (0, 1))
    swapped = data[: first.start] + data[second] + data[first] + data[second.stop :]
    assert len(swapped) == len(data)
    with pytest.raises(SplitError, match="damaged"):
        decode_bundle(swapped, directory)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda group: [group[0], 0, *group[2:]], "0 blocks"),
        (lambda group: [group[0], 1 << 40, *group[2:]], "blocks"),
        (lambda group: [group[0], group[1] + 1, *group[2:]], "take"),
        (lambda group: [*group[:2], group[2] + 36, group[3]], "not where"),
        (lambda group: [*group[:3], "BwAAAA=="], "does not list"),
        (lambda group: [*group[:3], ""], "does not list"),
        (lambda group: [*group[:3], "BwA="], "cannot be understood"),
        (lambda group: [None, *group[1:]], "cannot be understood"),
    ],
)
def test_directories_that_cannot_be_are_refused(change: Any, problem: str) -> None:
    data, directory = encode_bundle(content([["a"]], [1]))
    stored = json.loads(data[-directory:-4])
    stored["groups"] = [change(group) for group in stored["groups"]]
    text = json.dumps(stored).encode()
    forged = text + crc32(text).to_bytes(4, "little")
    with pytest.raises(SplitError, match=problem):
        BundleDirectory.decode(forged, len(data) - directory + len(forged))


@pytest.mark.parametrize("size", [0, 3, 5, 1 << 20])
def test_what_is_no_bundle_is_refused(size: int) -> None:
    data, _ = encode_bundle(content([["a"]], [1]))
    with pytest.raises(SplitError):
        decode_bundle(data, size)
    with pytest.raises(SplitError):
        decode_bundle(b"x" * 50, 20)
