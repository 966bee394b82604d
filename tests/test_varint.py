"""Variable-length integers: what is written is read, and malformed ones are refused."""

import pytest

from indextables.varint import read_varint, unzigzag, varint_bytes, zigzag

NUMBERS = [0, 1, 127, 128, 300, (1 << 35) + 7, (1 << 63) - 1, (1 << 64) - 1]


@pytest.mark.parametrize("number", NUMBERS)
def test_a_number_is_read_as_it_was_written(number: int) -> None:
    data = varint_bytes(number)
    assert read_varint(b"x" + data + b"y", 1) == (number, 1 + len(data))
    flipped = bytes(byte ^ 0x80 for byte in data)
    assert read_varint(flipped, 0, high_bit_ends=True) == (number, len(data))


@pytest.mark.parametrize("number", [0, 1, -1, 63, -64, (1 << 63) - 1, -(1 << 63)])
def test_signed_numbers_survive_zigzag(number: int) -> None:
    assert unzigzag(zigzag(number)) == number
    assert zigzag(number) >= 0


def test_a_cut_number_and_a_too_long_one_are_refused() -> None:
    with pytest.raises(IndexError):
        read_varint(b"\x80\x80", 0)
    with pytest.raises(ValueError, match="longer than 64 bits"):
        read_varint(b"\xff" * 11, 0)
