"""The files of an index: which part each is, and where each field lies in them.

Files with the suffixes `.term`, `.idx`, `.pos` and `.fieldnorm` hold one stretch for each field. Their end
says where each begins:

```
stretches | count, then for each: bytes since the one before, field (u32), 0 | u32 length of that | footer
```

Counts and distances have seven bits a byte, the last byte with the high bit set. The footer is Tantivy's:
JSON, its length (u32) and a magic number (u32).
"""

import json
from dataclasses import dataclass

from indextables.errors import SplitError

# The parts of an index by the names that commands use, with the suffixes of their files.
PARTS = {
    "TERM": (".term",),
    "FASTFIELD": (".fast",),
    "POSTINGS": (".idx",),
    "POSITIONS": (".pos",),
    "FIELDNORM": (".fieldnorm",),
    "STORE": (".store",),
}
# Files that keep fields apart.
BY_FIELD = (".term", ".idx", ".pos", ".fieldnorm")
# No directory of fields is longer: some thousand fields.
DIRECTORY = 256 << 10
_TAIL = 8


@dataclass(frozen=True, slots=True)
class Stretch:
    """The bytes of one field in a file of the index."""

    field: int
    start: int
    end: int


def field_columns(meta: bytes) -> list[str]:
    """The column of each field of an index, by the field's number; the split's own fields as they are."""
    names = [str(field["name"]) for field in json.loads(meta)["schema"]]
    return [name.partition(":")[2] or name for name in names]


def stretches(end: bytes, size: int) -> list[Stretch]:
    """Where each field begins and ends in a file of `size` bytes whose last bytes are `end`."""
    try:
        below = len(end) - _TAIL - int.from_bytes(end[-_TAIL:-4], "little")
        length = int.from_bytes(end[below - 4 : below], "little")
        at = below - 4 - length
        if at < 0:
            raise ValueError("its directory is longer than expected")  # noqa: TRY301 - told below, like others
        last = size - len(end) + at
        count, at = _number(end, at)
        starts: list[tuple[int, int]] = []
        place = 0
        for _ in range(count):
            step, at = _number(end, at)
            place += step
            starts.append((int.from_bytes(end[at : at + 4], "little"), place))
            _, at = _number(end, at + 4)
    except (ValueError, IndexError) as error:
        raise SplitError(f"an index file has no directory of its fields ({error}); it is damaged") from None
    ends = [*(start for _, start in starts[1:]), last]
    return [Stretch(field, start, stop) for (field, start), stop in zip(starts, ends, strict=True)]


def _number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte & 0x80:
            return value, at
        shift += 7
