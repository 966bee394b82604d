"""Fetches the parts of a split's index that a search needs into the disk cache, whose files are sparse.

Most searches look for some terms. Of a large field they need its term dictionary, the lengths of its texts,
and then a small part of its postings (of phrases, also of its positions). Small fields are fetched whole, and
so are the fields of searches that may need any term.

The dictionaries of a small split are read with its footer; they show whether it has a term without its index.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from threading import get_ident
from typing import Literal, NamedTuple, TypeAlias

from indextables.errors import SplitError
from indextables.split.footer import (
    META,
    Footer,
    IndexFile,
    Piece,
    is_tail_cached,
    positions_key,
    read_ranges,
)
from indextables.split.index.cache import Lease
from indextables.split.index.cache_entry import CachedPiece, PieceKey
from indextables.split.index.files import copy_pieces, decode_piece
from indextables.split.tantivy_layout import (
    DICTIONARY_SUFFIX,
    FAST_SUFFIX,
    FIELD_LENGTHS_SUFFIX,
    POSITIONS_SUFFIX,
    POSTINGS_SUFFIX,
    TOKENS_BYTES,
    ByteSpan,
    DictionaryFormatError,
    FieldRange,
    TermDictionary,
    TermSpans,
    field_names,
    field_ranges,
)
from indextables.store import Store

# From this many stored bytes on, the postings of a field are read by term.
MIN_POSTINGS_BYTES = 512 << 10
# After this many reads by term, the rest of the field is fetched, since more reads are likely.
_MAX_TERM_READS = 16
# More terms of a list need most of the pieces.
_MAX_TERMS = 256
# The bytes at the end of a file that are read for its directory, which suffice for some thousand fields.
_DIRECTORY_BYTES = 32 << 10
# The maximum number of parts that are remembered per index, and of terms in a list.
_MAX_REMEMBERED = 4096
_MAX_REMEMBERED_TERMS = 16
# A larger dictionary is not decoded: it takes memory for every split that is searched at the same time.
_MAX_DICTIONARY_BYTES = 32 << 20
# Larger pieces that were read with a footer are not decoded.
_MAX_DECODED_BYTES = 1 << 20


class FastColumn(NamedTuple):
    """The values of a field by row."""

    field: str
    kind: Literal["column"] = "column"


class Dictionary(NamedTuple):
    """The terms of a field, with the number of rows that have each."""

    field: str
    kind: Literal["dictionary"] = "dictionary"


class TermList(NamedTuple):
    """The rows of some terms, and, for phrases, the positions in their texts."""

    field: str
    terms: tuple[str, ...]
    positions: bool = False


class TermRange(NamedTuple):
    """The rows of all terms from `low` to before `high`, or of all from `low` on."""

    field: str
    low: bytes
    high: bytes | None


# A part of an index. A text is a whole field without its positions, or the `positions_key` of a field.
IndexPart: TypeAlias = str | FastColumn | Dictionary | TermList | TermRange
_ByTerm: TypeAlias = TermList | TermRange


class LoadedParts:
    """The parts of an open index that are in the disk cache; may be incomplete."""

    def __init__(self) -> None:
        self._parts: set[IndexPart] = set()
        self._term_reads: dict[str, int] = {}

    def has(self, part: IndexPart) -> bool:
        """Whether a part is known to be in the cache."""
        if part in self._parts:
            return True
        match part:
            case str():
                return False
            case TermList(field, _, True):
                return field in self._parts and positions_key(field) in self._parts
            case _:
                return part.field in self._parts

    def add(self, parts: Iterable[IndexPart]) -> None:
        """Remember parts, without long lists of terms."""
        if len(self._parts) > _MAX_REMEMBERED:
            # A copy, since other threads add parts meanwhile.
            self._parts = {part for part in self._parts.copy() if isinstance(part, str)}
        self._parts.update(
            part
            for part in parts
            if not isinstance(part, TermList) or len(part.terms) <= _MAX_REMEMBERED_TERMS
        )

    def count_read(self, field: str) -> int:
        """Count a read by term; returns their number."""
        count = self._term_reads[field] = self._term_reads.get(field, 0) + 1
        return count


class IndexLoader:
    """Fetches parts of one index.

    The parts that a thread needs for a query are collected while the query is compiled, so that they are
    fetched together, with one request after the other only where one depends on the other.
    """

    def __init__(
        self, store: Store, footer: Footer, lease: Lease, loaded: LoadedParts, on_error: Callable[[], None]
    ) -> None:
        self._store = store
        self._footer = footer
        self._lease = lease
        self._loaded = loaded
        # By thread.
        self._pending: dict[int, dict[IndexPart, None]] = {}
        self._on_error = on_error

    def __call__(self, parts: Iterable[IndexPart]) -> None:
        """Fetch parts, and those that this thread collected with `need`."""
        self.need(parts)
        pending = self._pending.pop(get_ident(), None)
        if pending:
            self._fetch(pending)

    def fetch(self, part: IndexPart) -> None:
        """Fetch one part, without those that this thread collected."""
        if not self._loaded.has(part):
            self._fetch((part,))

    def need(self, parts: Iterable[IndexPart]) -> None:
        """Add parts to those that the next call fetches for this thread."""
        missing = [part for part in parts if not self._loaded.has(part)]
        if missing:
            self._pending.setdefault(get_ident(), {}).update(dict.fromkeys(missing))

    def _fetch(self, parts: Collection[IndexPart]) -> None:
        by_term = [
            part for part in parts if isinstance(part, TermList | TermRange) and self._reads_by_term(part)
        ]
        complete: list[IndexPart] = []
        for part in parts:
            complete += [part] if part in by_term else _complete(part)
        first = [piece for part in complete for piece in self._first(part)]
        self._fill(first)
        if by_term:
            try:
                self._fill(self._pieces_of_terms(by_term))
            except (DictionaryFormatError, OSError):
                # If the files are damaged, fetching the whole field raises the error.
                complete = [whole for part in complete for whole in _complete(part)]
                self._fill([piece for part in complete for piece in self._first(part)])
        self._loaded.add(complete)

    def _reads_by_term(self, part: _ByTerm) -> bool:
        if isinstance(part, TermList) and len(part.terms) > _MAX_TERMS:
            return False
        return is_read_by_term(self._footer, part.field) and (
            self._loaded.count_read(part.field) <= _MAX_TERM_READS
        )

    def _first(self, part: IndexPart) -> list[Piece]:
        """The pieces of a part; for one that is read by term, the pieces that locate its postings."""
        match part:
            case str():
                return self._footer.pieces.get(part, [])
            case FastColumn(field):
                return parts_of(self._footer, field, FAST_SUFFIX)
            case Dictionary(field):
                return [*parts_of(self._footer, field, DICTIONARY_SUFFIX), *self._token_counts(field)]
            case TermList(field) | TermRange(field):
                return parts_of(self._footer, field, DICTIONARY_SUFFIX, FIELD_LENGTHS_SUFFIX)

    def _token_counts(self, field: str) -> list[Piece]:
        """The pieces with the number of tokens of a field, which Tantivy reads with its dictionary.

        In splits of this release every search has that number; in older ones it is in the postings.
        """
        files = {piece.file for piece in parts_of(self._footer, field, POSTINGS_SUFFIX)}
        folder = self._lease.folder
        try:
            names = field_names((folder / META).read_bytes()) if files else []
            return [
                piece
                for file in files
                for piece in self._overlapping(folder, names, file, field, [ByteSpan(0, TOKENS_BYTES)])
            ]
        except (DictionaryFormatError, SplitError, OSError):
            return self._footer.pieces.get(field, [])

    def _fill(self, pieces: Iterable[Piece]) -> None:
        by_key = {(piece.file, piece.start): piece for piece in pieces}

        def write(folder: Path, missing: Collection[PieceKey]) -> list[CachedPiece]:
            return copy_pieces(self._store, self._footer, folder, [by_key[key] for key in missing])

        try:
            self._lease.fill(by_key.keys(), write)
        except SplitError:
            self._on_error()
            raise

    def _pieces_of_terms(self, parts: Iterable[_ByTerm]) -> list[Piece]:
        """The pieces with the postings of terms, from the dictionaries in the cache."""
        folder = self._lease.folder
        by_field: dict[str, list[_ByTerm]] = {}
        for part in parts:
            by_field.setdefault(part.field, []).append(part)
        try:
            names = field_names((folder / META).read_bytes())
            return [
                piece
                for field, own in by_field.items()
                for file in self._footer.index_files
                if file.name.endswith(DICTIONARY_SUFFIX)
                for piece in self._pieces_in_segment(folder, names, file.name, field, own)
            ]
        except SplitError as error:
            raise DictionaryFormatError(str(error)) from error

    def _pieces_in_segment(
        self, folder: Path, names: list[str], dictionary: str, field: str, parts: Iterable[_ByTerm]
    ) -> Iterator[Piece]:
        own = _range_of(folder / dictionary, names, field)
        if own is None:
            return
        if own.end - own.start > _MAX_DICTIONARY_BYTES:
            raise DictionaryFormatError(f"the dictionary of {field} is too large to be decoded")
        with (folder / dictionary).open("rb", buffering=0) as file:
            file.seek(own.start)
            terms = TermDictionary(file.read(own.end - own.start))
        spans_by_part = [(part, spans) for part in parts for spans in _spans(terms, part)]
        # The number of tokens, before the first postings, is needed whatever the terms are.
        postings = [ByteSpan(0, TOKENS_BYTES), *(spans.postings for _, spans in spans_by_part)]
        segment = dictionary.removesuffix(DICTIONARY_SUFFIX)
        yield from self._overlapping(folder, names, segment + POSTINGS_SUFFIX, field, postings)
        positions = [
            spans.positions for part, spans in spans_by_part if isinstance(part, TermList) and part.positions
        ]
        if positions:
            yield from self._overlapping(folder, names, segment + POSITIONS_SUFFIX, field, positions)

    def _overlapping(
        self, folder: Path, names: list[str], file: str, field: str, spans: Collection[ByteSpan]
    ) -> Iterator[Piece]:
        """The pieces of a field in a file that have bytes of the spans, relative to its first byte."""
        own = _range_of(folder / file, names, field)
        if own is None:
            raise DictionaryFormatError(f"{file} has no range of the field {field}")
        if any(own.start + span.end > own.end for span in spans):
            raise DictionaryFormatError(f"a term has bytes outside of the field {field}")
        for piece in parts_of(self._footer, field, file):
            start, end = piece.start - own.start, piece.start - own.start + piece.size
            if any(span.start < end and span.end > start for span in spans):
                yield piece


def _complete(part: IndexPart) -> list[IndexPart]:
    """The parts to fetch for a part that is not read by term: for terms, the whole field."""
    match part:
        case TermList(field, _, True):
            return [field, positions_key(field)]
        case TermList(field) | TermRange(field):
            return [field]
        case _:
            return [part]


def is_read_by_term(footer: Footer, field: str) -> bool:
    """Whether the postings of a field are read by term: they are large, and in several pieces."""
    postings = parts_of(footer, field, POSTINGS_SUFFIX)
    return len(postings) > 1 and sum(piece.length for piece in postings) >= MIN_POSTINGS_BYTES


def parts_of(footer: Footer, field: str, *files: str) -> list[Piece]:
    """The pieces of a field in the files with these suffixes or names."""
    pieces = footer.pieces.get(positions_key(field) if files[0].endswith(POSITIONS_SUFFIX) else field, ())
    return [piece for piece in pieces if piece.file.endswith(files)]


def first_pieces(footer: Footer, field: str) -> list[Piece]:
    """The pieces of a field that most searches in it need: all, or those that are not read by term."""
    if is_read_by_term(footer, field):
        return parts_of(footer, field, DICTIONARY_SUFFIX, FIELD_LENGTHS_SUFFIX)
    return footer.pieces.get(field, [])


def prefix_range(field: str, prefix: str) -> IndexPart:
    """The terms of a field that begin with a text."""
    low = prefix.encode()
    # No byte of UTF-8 is 255.
    return TermRange(field, low, low[:-1] + bytes([low[-1] + 1])) if low else field


def _spans(terms: TermDictionary, part: _ByTerm) -> Iterator[TermSpans]:
    if isinstance(part, TermRange):
        spans: Iterable[TermSpans | None] = (terms.between(part.low, part.high),)
    else:
        spans = (terms.find(term.encode()) for term in part.terms)
    return (each for each in spans if each is not None)


def _range_of(path: Path, names: list[str], field: str) -> FieldRange | None:
    """The bytes of a field in a file of the cache; None if it has none."""
    size = path.stat().st_size
    with path.open("rb", buffering=0) as file:
        file.seek(max(0, size - _DIRECTORY_BYTES))
        ranges = field_ranges(path.suffix, file.read(), size, names)
    own = [each for each in ranges if each.field == field]
    if len(own) > 1:
        raise DictionaryFormatError(f"{path.name} has several ranges of the field {field}")
    return own[0] if own else None


# --- terms of an index that is not open -------------------------------------------------------------

# A term filter lets some splits pass that do not have the term. The dictionaries of a small split lie before
# its filters, so they are read with its footer (`read_tail`), and decide without another request.


class StoredTerms:
    """The terms of one split, by those bytes of its index that were read with its footer."""

    def __init__(self, store: Store, footer: Footer) -> None:
        self._store = store
        self._footer = footer
        self._decoded: dict[tuple[str, int], bytes] = {}
        self._dictionaries: dict[str, list[TermDictionary] | None] = {}

    @property
    def are_at_hand(self) -> bool:
        """Whether the end of the split that was read has the ends of the dictionaries."""
        ends = [file.pieces[-1] for file in self._files()]
        meta = self._meta()
        return meta is not None and bool(ends) and self._can_decode([*meta.pieces, *ends])

    def has_any(self, field: str, terms: Iterable[str]) -> bool | None:
        """Whether a field has one of the terms; None if the bytes that were read do not show it.

        Args:
            field: A field all of whose terms are in the index, as of one with a term filter.
            terms: The terms.
        """
        try:
            if field not in self._dictionaries:
                self._dictionaries[field] = self._read(field)
            dictionaries = self._dictionaries[field]
            if dictionaries is None:
                return None
            encoded = [term.encode() for term in terms]
            return any(each.find(term) is not None for each in dictionaries for term in encoded)
        except (DictionaryFormatError, SplitError):
            # Opening the index raises the error if these bytes are damaged.
            self._dictionaries[field] = None
            return None

    def _files(self) -> Sequence[IndexFile]:
        return [file for file in self._footer.index_files if file.name.endswith(DICTIONARY_SUFFIX)]

    def _meta(self) -> IndexFile | None:
        return next((file for file in self._footer.index_files if file.name == META), None)

    def _read(self, field: str) -> list[TermDictionary] | None:
        """The dictionaries of a field, one for each segment; None if not all are at hand."""
        meta = self._meta()
        if meta is None or not self.are_at_hand:
            return None
        names = field_names(self._bytes_of(meta.pieces))
        dictionaries = []
        for file in self._files():
            end = self._bytes_of(file.pieces[-1:])
            own = [
                part for part in field_ranges(DICTIONARY_SUFFIX, end, file.size, names) if part.field == field
            ]
            if len(own) != 1:
                return None
            pieces = list(_overlapping(file, own[0]))
            if not self._can_decode(pieces):
                return None
            start = pieces[0].start
            data = self._bytes_of(pieces)[own[0].start - start : own[0].end - start]
            dictionaries.append(TermDictionary(data))
        return dictionaries

    def _can_decode(self, pieces: Sequence[Piece]) -> bool:
        """Whether pieces are small, and in the end of the split that was read."""
        if not pieces or sum(piece.size for piece in pieces) > _MAX_DECODED_BYTES:
            return False
        start = min(piece.offset for piece in pieces)
        return is_tail_cached(self._store, self._footer.path, self._footer.size, start)

    def _bytes_of(self, pieces: Sequence[Piece]) -> bytes:
        """The bytes of adjacent pieces of a file."""
        missing = [piece for piece in pieces if (piece.file, piece.start) not in self._decoded]
        ranges = [(piece.offset, piece.offset + piece.length) for piece in missing]
        read = read_ranges(self._store, self._footer.path, self._footer.size, ranges)
        where = f"{self._store.url}/{self._footer.path}"
        for piece, data in zip(missing, read, strict=True):
            self._decoded[piece.file, piece.start] = decode_piece(where, piece, data)
        return b"".join(self._decoded[piece.file, piece.start] for piece in pieces)


def _overlapping(file: IndexFile, own: FieldRange) -> Iterator[Piece]:
    """The pieces of a file that have bytes of a field."""
    return (piece for piece in file.pieces if piece.start < own.end and piece.start + piece.size > own.start)
