"""Variable-length integers (LEB128), seven bits per byte, as in Thrift, Avro and Tantivy.

Most formats set the high bit of every byte except the last. Tantivy also has a form with the high bit only in
the last byte.
"""

from mmap import mmap

# Ten groups of seven bits hold every number of 64 bits.
_MAX_SHIFT = 63
_ONE_BYTE = [bytes((value,)) for value in range(0x80)]


def read_varint(
    data: bytes | memoryview | mmap, position: int, *, high_bit_ends: bool = False
) -> tuple[int, int]:
    """Read an unsigned number.

    Args:
        data: The bytes.
        position: Where the number begins.
        high_bit_ends: Whether the high bit marks the last byte instead of all others.

    Returns:
        The number, and the position after it.

    Raises:
        IndexError: The data end within the number.
        ValueError: The number is longer than 64 bits.

    >>> read_varint(bytes([0xAC, 0x02]), 0), read_varint(bytes([0x2C, 0x82]), 0, high_bit_ends=True)
    ((300, 2), (300, 2))
    """
    last = 0x80 if high_bit_ends else 0
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte & 0x80 == last:
            return value, position
        shift += 7
        if shift > _MAX_SHIFT:
            raise ValueError(f"the number before byte {position} is longer than 64 bits")


def varint_bytes(value: int) -> bytes:
    """The bytes of an unsigned number.

    >>> varint_bytes(300).hex()
    'ac02'
    """
    if value < 0x80:
        return _ONE_BYTE[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def zigzag(value: int) -> int:
    """A signed number of 64 bits as an unsigned one, with the sign in the lowest bit.

    >>> zigzag(-1), zigzag(1)
    (1, 2)
    """
    return (value << 1) ^ (value >> 63)


def unzigzag(value: int) -> int:
    """The signed number that `zigzag` encoded."""
    return (value >> 1) ^ -(value & 1)
