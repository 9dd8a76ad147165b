"""Protocol buffers without their classes, and the checksums of TensorFlow's files."""

from collections import defaultdict
from typing import Any

_SIZES = {1: 8, 5: 4}  # bytes of numbers of fixed size, by wire type


def masked(checksum: int) -> int:
    """Rotate and shift a CRC-32C, so that checksums of data that contains checksums remain good."""
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


def read_varint(content: bytes, position: int) -> tuple[int, int]:
    """Return a number of seven bits per byte, and the position after it; raise IndexError at the end."""
    number = shift = 0
    while content[position] >= 0x80 and shift < 63:
        number |= (content[position] & 0x7F) << shift
        position, shift = position + 1, shift + 7
    return number | content[position] << shift, position + 1


def read_fields(message: bytes) -> dict[int, list[Any]]:
    """Return the values of each field by its number: integers and bytes; raise IndexError if one is cut off."""
    found, position = defaultdict(list), 0
    while position < len(message):
        tag, position = read_varint(message, position)
        value, end = read_varint(message, position) if tag & 7 in (0, 2) else (0, position)
        if tag & 7:
            size = value if tag & 7 == 2 else _SIZES.get(tag & 7, len(message))
            position, end = end, end + size
            value = message[position:end] if tag & 7 == 2 else int.from_bytes(message[position:end], "little")
        if end > len(message):
            raise IndexError("a field is cut off")
        found[tag >> 3].append(value)
        position = end
    return found
