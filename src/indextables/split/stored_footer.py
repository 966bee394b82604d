"""The JSON of a split's footer, with its types and limits (PROTOCOL.md, "The split's footer").

A split may come from a stranger: names become files in the reader's cache, and sizes become memory. So every
value is checked here, before anything is done with it.
"""

import re
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta, Struct

from indextables.limits import MAX_INDEX_BYTES, MAX_INDEX_META

# Index files are packed in blocks of so many bytes.
BLOCK_BYTES = 4 << 20
META = "meta.json"
# What zstd makes of a block that cannot be packed: a little more than it was.
_LONGEST_BLOCK = BLOCK_BYTES + BLOCK_BYTES // 64

# The names that index files have (PROTOCOL.md, "Index files").
_NAME = re.compile(r"meta\.json|[0-9a-f]{32}\.(term|idx|pos|fast|fieldnorm|store)")

Count: TypeAlias = Annotated[int, Meta(ge=0, lt=1 << 62)]
_Crc: TypeAlias = Annotated[int, Meta(ge=0, lt=1 << 32)]
_Source: TypeAlias = Annotated[int, Meta(ge=0, lt=1 << 31)]
# Field, size, offset, length, checksum, lengths of packed blocks.
StoredPiece: TypeAlias = tuple[str | None, Count, Count, Count, _Crc, list[Count]]


class StoredFile(Struct):
    """An index file: its pieces, or in format 1 the one piece that it is."""

    name: str
    pieces: list[StoredPiece] | None = None
    size: Count | None = None
    offset: Count | None = None
    length: Count | None = None
    crc32: _Crc | None = None
    blocks: list[Count] | None = None

    def all_pieces(self) -> list[StoredPiece]:
        """Its pieces, in either form; ValueError if it has none."""
        if self.pieces:
            return self.pieces
        if None in (self.size, self.offset, self.length, self.crc32, self.blocks):
            raise ValueError(f"the index file {self.name!r} has no pieces")
        piece = (None, self.size, self.offset, self.length, self.crc32, self.blocks)
        return [msgspec.convert(piece, StoredPiece)]


class StoredFooter(Struct, rename="camel"):
    """Everything that the footer says; unknown keys are passed over."""

    format_version: int
    created_time: Count
    num_records: Count
    schema: str
    mapping: msgspec.Raw
    partition_values: dict[str, str | None]
    min_values: dict[str, str]
    max_values: dict[str, str]
    uncompressed_size_bytes: Count
    num_merge_ops: Count
    chunks: list[tuple[_Source, Count, Count]]
    index: list[StoredFile]
    stats: str | None = None
    checksums: list[list[tuple[_Crc, _Crc | None, _Crc | None]]] | None = None


class _Version(Struct, rename="camel"):
    format_version: int


def format_version(text: bytes) -> int:
    """The format of the footer: a newer one may differ in everything else."""
    return msgspec.json.decode(text, type=_Version).format_version


def check_file(file: StoredFile) -> None:
    """Raise ValueError unless an index file has a name of one and pieces that can be unpacked."""
    if _NAME.fullmatch(file.name) is None:
        raise ValueError(f"{file.name!r} is not the name of an index file")
    pieces = file.all_pieces()
    for _, size, _, length, _, blocks in pieces:
        whole = -(-size // BLOCK_BYTES)
        fits = (
            len(blocks) == whole and sum(blocks) == length and max(blocks) <= _LONGEST_BLOCK
            if blocks
            else length == size
        )
        if not fits:
            raise ValueError(f"the index file {file.name} has a piece whose sizes contradict each other")
    if file.name == META and sum(piece[1] for piece in pieces) > MAX_INDEX_META:
        raise ValueError(f"{META} has more than {MAX_INDEX_META} bytes")


def check_footer(footer: StoredFooter, footer_start: int) -> None:
    """Raise ValueError unless index files lie before the footer, and chunks are the rows."""
    for file in footer.index:
        check_file(file)
    if len({file.name for file in footer.index}) != len(footer.index):
        raise ValueError("an index file is listed twice")
    pieces = [piece for file in footer.index for piece in file.all_pieces()]
    if any(not 4 <= offset <= offset + length <= footer_start for _, _, offset, length, _, _ in pieces):
        raise ValueError("an index file lies outside of the split")
    if sum(piece[1] for piece in pieces) > MAX_INDEX_BYTES:
        raise ValueError(f"its index has more than {MAX_INDEX_BYTES} bytes")
    rows = footer.num_records
    if any(start + count > rows for _, start, count in footer.chunks):
        raise ValueError("a chunk has rows that the split does not have")
    if len({source for source, _, _ in footer.chunks}) != len(footer.chunks):
        raise ValueError("two chunks have the same source")
