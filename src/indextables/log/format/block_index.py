"""Which blocks a container of ours has, and what each holds: an entry of its header (PROTOCOL.md, "Entries").

Other readers pass it over. Ours can tell damage from the checksums, and leave out blocks whose partition
values cannot match.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from isal import isal_zlib

from indextables.log.format.avro import CHECKSUM_KEY, AvroError, Data, Header
from indextables.log.format.nested import lookup

BLOCKS_KEY = "indextables.blocks"


@dataclass(frozen=True, slots=True)
class Bounds:
    """The least and the greatest value of a partition column; both None where all values are null."""

    min: str | None
    max: str | None


@dataclass(frozen=True, slots=True)
class BlockInfo:
    """How many records a block has, how many bytes it takes, their checksum, and its bounds.

    A column without bounds may hold anything.
    """

    count: int
    size: int
    crc: int
    bounds: Mapping[str, Bounds] = field(default_factory=dict)

    @classmethod
    def of(cls, count: int, block: Data, bounds: Mapping[str, Bounds]) -> "BlockInfo":
        """What is to be said of a block."""
        return cls(count, len(block), isal_zlib.crc32(block), bounds)

    def check(self, block: Data) -> None:
        """Refuse bytes that are not those that were written."""
        if len(block) != self.size or isal_zlib.crc32(block) != self.crc:
            raise AvroError("a block does not match its checksum")


_Stored = list[tuple[int, int, int, dict[str, tuple[str, str]]]]


def encode_index(blocks: Iterable[BlockInfo]) -> str:
    """The header entry for the blocks, in their order."""
    stored = [
        (block.count, block.size, block.crc, {name: (b.min, b.max) for name, b in block.bounds.items()})
        for block in blocks
    ]
    return msgspec.json.encode(stored).decode()


def read_index(header: Header) -> list[BlockInfo] | None:
    """The blocks as the header lists them; None if the container is not one of ours."""
    if (BLOCKS_KEY in header.metadata) != (CHECKSUM_KEY in header.metadata):
        raise AvroError("the header lacks its checksum or its list of blocks")
    if BLOCKS_KEY not in header.metadata:
        return None
    try:
        stored = msgspec.json.decode(header.metadata[BLOCKS_KEY], type=_Stored)
    except msgspec.DecodeError as error:
        raise AvroError(f"the header's list of blocks is malformed ({error})") from error
    return [
        BlockInfo(count, size, crc, {name: Bounds(*pair) for name, pair in bounds.items()})
        for count, size, crc, bounds in stored
    ]


# --- bounds ----------------------------------------------------------------------------------------

# Values for which the order of strings is the order of what they stand for, whatever the column's type.
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_DIGITS = re.compile(r"0|[1-9]\d*")
_NOT_A_WORD = re.compile(r"[\s\d+.-]|inf|nan", re.IGNORECASE)


def block_bounds(
    partition_values: pa.ChunkedArray, columns: Sequence[str], cuts: Sequence[int]
) -> list[dict[str, Bounds]]:
    """The bounds of each block, for the columns where they can be told without knowing the type.

    Args:
        partition_values: the map column of all entries.
        columns: the partition columns.
        cuts: the row at which each block starts, and at last the number of rows.
    """
    bounds: list[dict[str, Bounds]] = [{} for _ in cuts[1:]]
    for column in columns:
        values = [lookup(chunk, column)[0] for chunk in partition_values.chunks]
        encoded = pa.chunked_array(values, pa.string()).combine_chunks().dictionary_encode()
        texts = encoded.dictionary.to_pylist()
        codes = pc.fill_null(encoded.indices, -1).to_numpy()
        for block, (start, end) in enumerate(pairwise(cuts)):
            distinct = np.unique(codes[start:end]).tolist()
            # A null among the values cannot be told from bounds, so such a block has none.
            if distinct and distinct[0] >= 0:
                found = ordered_bounds([texts[code] for code in distinct])
                if found is not None:
                    bounds[block][column] = found
    return bounds


def ordered_bounds(values: Sequence[str]) -> Bounds | None:
    """The bounds of values, unless their order depends on the column's type.

    >>> ordered_bounds(["2024-01-02", "2024-01-01"])
    Bounds(min='2024-01-01', max='2024-01-02')
    >>> ordered_bounds(["9", "10"]) is None
    True
    """
    least, greatest = min(values), max(values)
    if least != greatest and not _ordered_as_strings(values):
        return None
    # Where NaN stands among numbers is the engine's to say.
    if least.lower() == "nan":
        return None
    return Bounds(least, greatest)


def _ordered_as_strings(values: Sequence[str]) -> bool:
    if all(_DATE.fullmatch(value) for value in values):
        return True
    if all(_DIGITS.fullmatch(value) for value in values):
        # Digits of one length: as numbers and as strings alike.
        return len({len(value) for value in values}) == 1
    return not any(_NOT_A_WORD.match(value) for value in values)
