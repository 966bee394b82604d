"""Random damage to bytes: what disks, networks and crashes do to files."""

from random import Random


def _flip(data: bytearray, random: Random) -> None:
    for _ in range(random.choice((1, 1, 1, 2, 8))):
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _span(data: bytearray, random: Random) -> tuple[int, int]:
    start = random.randrange(len(data))
    return start, min(len(data), start + random.choice((1, 16, 512, 4096)))


def _zero(data: bytearray, random: Random) -> None:
    start, end = _span(data, random)
    data[start:end] = bytes(end - start)


def _junk(data: bytearray, random: Random) -> None:
    start, end = _span(data, random)
    data[start:end] = random.randbytes(end - start)


def _cut(data: bytearray, random: Random) -> None:
    del data[random.randrange(len(data)) :]


def _cut_lines(data: bytearray, random: Random) -> None:
    """End the file after a line, as far as it has lines."""
    ends = [at + 1 for at, byte in enumerate(data) if byte == 0x0A]
    del data[random.choice(ends or [len(data) // 2]) :]


def _swap(data: bytearray, random: Random) -> None:
    """Exchange two blocks of the same size."""
    size = min(random.choice((1, 64, 512, 4096)), len(data) // 2)
    blocks = len(data) // size if size else 0
    if blocks > 1:
        first, second = (at * size for at in random.sample(range(blocks), 2))
        one, other = data[first : first + size], data[second : second + size]
        data[first : first + size], data[second : second + size] = other, one


def _repeat(data: bytearray, random: Random) -> None:
    """Put a block where another belongs."""
    size = min(random.choice((16, 512, 4096)), len(data) // 2)
    start, target = random.randrange(len(data) - size), random.randrange(len(data) - size)
    data[target : target + size] = data[start : start + size]


KINDS = (_flip, _flip, _flip, _zero, _junk, _cut, _cut_lines, _swap, _repeat)


def damaged(data: bytes, random: Random) -> tuple[bytes, str]:
    """Other bytes, and what was done to them; they may be the same if damage changed nothing."""
    found = bytearray(data)
    kind = random.choice(KINDS)
    if len(found) > 1:
        kind(found, random)
    return bytes(found), kind.__name__.strip("_")
