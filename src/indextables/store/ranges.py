"""Ranges of bytes: neighbours are fetched together, since a request costs more than a few bytes too many."""

from collections.abc import Sequence

_GAP_BYTES = 1 << 20

Range = tuple[int, int]


def merged(ranges: Sequence[Range]) -> list[Range]:
    """The fewest ranges that cover these, without bridging gaps of more than 1 MiB.

    >>> merged([(10, 20), (5_000_000, 5_000_010), (0, 5), (15, 30)])
    [(0, 30), (5000000, 5000010)]
    """
    found: list[Range] = []
    for start, end in sorted(ranges):
        if found and start - found[-1][1] <= _GAP_BYTES:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def cut(ranges: Sequence[Range], fetched: Sequence[Range], parts: Sequence[memoryview]) -> list[bytes]:
    """Each range out of the merged ones that were fetched; short where a part is.

    >>> cut([(2, 4), (0, 1)], [(0, 4)], [memoryview(b"abcd")])
    [b'cd', b'a']
    """
    cuts: dict[Range, bytes] = {}
    at = 0
    for start, end in sorted(ranges):
        while fetched[at][1] < end:
            at += 1
        first = fetched[at][0]
        cuts[start, end] = bytes(parts[at][start - first : end - first])
    return [cuts[wanted] for wanted in ranges]
