"""Tantivy's term dictionary, decoded: which bytes of the postings and positions belong to a term."""

import random
from bisect import bisect_left
from pathlib import Path

import pytest
import tantivy

from indextables.split.tantivy_layout import (
    TOKENS_BYTES,
    ByteSpan,
    DictionaryFormatError,
    FieldRange,
    TermDictionary,
    TermSpans,
    field_names,
    field_ranges,
)


def text_index(folder: Path, texts: list[str], *, tokenizer: str = "whitespace", commits: int = 1) -> None:
    """Write an index with a field `t`, with as many segments as there are commits."""
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("t", tokenizer_name=tokenizer, index_option="position")
    writer = tantivy.Index(builder.build(), str(folder)).writer(15_000_000, 1)
    step = -(-len(texts) // commits)
    for start in range(0, len(texts), step):
        for text in texts[start : start + step]:
            writer.add_document(tantivy.Document(t=text))
        writer.commit()
    writer.wait_merging_threads()


def parts(folder: Path, suffix: str) -> list[bytes]:
    """The bytes of the field `t` in the files of all segments."""
    names = field_names((folder / "meta.json").read_bytes())
    found = []
    for path in sorted(folder.glob(f"*{suffix}")):
        data = path.read_bytes()
        ranges: list[FieldRange] = field_ranges(suffix, data, len(data), names)
        found += [data[each.start : each.end] for each in ranges if each.field == "t"]
    return found


def random_words(rng: random.Random, count: int) -> list[str]:
    kinds = [
        lambda: "".join(rng.choices("abc", k=rng.randint(1, 6))),
        lambda: "".join(rng.choices("etaoinshrdlu0123456789", k=rng.randint(1, 12))),
        lambda: "".join(map(chr, rng.choices(range(0x21, 0x7F), k=rng.randint(1, 3)))),
        lambda: "".join(map(chr, rng.choices(range(0xA1, 0x2FFF), k=rng.randint(1, 3)))),
        lambda: chr(rng.randint(0x10000, 0x10FFF)) * rng.randint(1, 2),
        lambda: "x" * rng.randint(1, 400),
        lambda: f"request{rng.randint(0, 10**6):07}",
    ]
    words = {rng.choice(kinds)() for _ in range(count)}
    return sorted(word for word in words if len(word.split()) == 1)


@pytest.mark.parametrize(("count", "commits"), [(1, 1), (2, 1), (255, 1), (258, 1), (600, 3), (4000, 2)])
def test_every_term_is_found_with_its_bytes_and_no_other(tmp_path: Path, count: int, commits: int) -> None:
    rng = random.Random(count)
    words = random_words(rng, count)
    texts = [" ".join(rng.choices(words, k=rng.randint(1, 8))) for _ in range(2 * count)] + words
    text_index(tmp_path, texts, commits=commits)
    searcher = tantivy.Index.open(str(tmp_path)).searcher()
    terms = sorted({term.encode() for term, _ in searcher.terms_with_prefix("t", "")})
    assert {term.decode() for term in terms} == set(words)
    dictionaries = [TermDictionary(data) for data in parts(tmp_path, ".term")]
    assert len(dictionaries) >= min(commits, 2)
    for data, postings, positions in zip(
        dictionaries, parts(tmp_path, ".idx"), parts(tmp_path, ".pos"), strict=True
    ):
        before = TermSpans(ByteSpan(0, TOKENS_BYTES), ByteSpan(0, 0))
        own = [term for term in terms if data.find(term) is not None]
        assert len(own) == data.num_terms
        for term in own:
            spans = data.find(term)
            assert spans is not None
            assert spans.postings.start == before.postings.end < spans.postings.end
            assert spans.positions.start == before.positions.end <= spans.positions.end
            before = spans
        assert before.postings.end == len(postings)
        assert before.positions.end == len(positions)
        for absent in [b"", b"\x00", b"zzz", terms[0] + b"\x00", terms[-1][:-1], b"\xff"]:
            assert (data.find(absent) is not None) == (absent in own)


def test_ranges_are_those_of_the_sorted_terms(tmp_path: Path) -> None:
    rng = random.Random(7)
    words = random_words(rng, 1500)
    text_index(tmp_path, words)
    (data,) = map(TermDictionary, parts(tmp_path, ".term"))
    terms = sorted(word.encode() for word in words)
    spans = [data.find(term) for term in terms]
    bounds = [b"", b"\x00", b"\xfe", *rng.choices(terms, k=200)]
    bounds += [
        term[: rng.randint(0, len(term))] + rng.choice([b"", b"\x00", b"a", b"\xf0"]) for term in bounds
    ]
    for _ in range(1000):
        low, high = rng.choice(bounds), rng.choice([*bounds, None])
        first = bisect_left(terms, low)
        last = (len(terms) if high is None else bisect_left(terms, high)) - 1
        found = data.between(low, high)
        if first > last:
            assert found is None
        else:
            start, end = spans[first], spans[last]
            assert found is not None
            assert start is not None
            assert end is not None
            assert found.postings == (start.postings.start, end.postings.end)
            assert found.positions == (start.positions.start, end.positions.end)


def test_a_field_without_terms_has_none(tmp_path: Path) -> None:
    text_index(tmp_path, ["", ""])
    for data in map(TermDictionary, parts(tmp_path, ".term")):
        assert data.num_terms == 0
        assert data.find(b"a") is None
        assert data.between(b"", None) is None


def test_damaged_dictionaries_are_refused_or_answered_and_never_crash(tmp_path: Path) -> None:
    rng = random.Random(11)
    words = random_words(rng, 700)
    text_index(tmp_path, words)
    (data,) = parts(tmp_path, ".term")
    refused = 0
    for _ in range(3000):
        spoilt = bytearray(data[: rng.randint(0, len(data))] if rng.random() < 0.2 else data)
        for _ in range(rng.randint(1, 4)):
            if spoilt:
                spoilt[-rng.randint(1, min(len(spoilt), 600))] = rng.randrange(256)
        try:
            terms = TermDictionary(bytes(spoilt))
            for word in rng.choices(words, k=5):
                terms.find(word.encode())
                terms.between(word.encode(), None)
        except DictionaryFormatError:
            refused += 1
    assert refused > 100
