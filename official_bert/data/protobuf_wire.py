"""Protocol buffer wire format, limited to fields of bytes, strings and messages."""

from collections.abc import Iterator


def _varint(number: int) -> bytes:
    if number < 0:
        number += 1 << 64  # two's complement, as protocol buffers write a negative int64
    parts = []  # seven bits each; the eighth marks continuation
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


class _VarintTable(dict):
    """Cache of varints; wordpiece ids repeat often."""

    def __missing__(self, number: int) -> bytes:
        encoded = self[number] = _varint(number)
        return encoded


VARINTS = _VarintTable()


def delimited(tag: bytes, payload: bytes) -> bytes:
    """Return a field of bytes, a string or a message.

    Args:
      tag: eight times the field number, plus 2.
      payload: the field's content.
    """
    return tag + VARINTS[len(payload)] + payload


def fields(message: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Parse a message whose fields are all bytes, strings and messages, numbered below 16.

    Yields:
      The tag of each field, as in `delimited`, and its payload.

    Raises:
      ValueError: it has other fields, or is truncated.
    """
    position = 0
    while position < len(message):
        tag, size, shift = message[position], 0, 0
        if tag & 7 != 2 or tag > 0x7F:
            raise ValueError(f"a field with the tag {tag}")
        while True:
            position += 1
            if position >= len(message):
                raise ValueError("a field is cut off")
            size |= (message[position] & 0x7F) << shift
            shift += 7
            if message[position] < 0x80:
                break
        start, position = position + 1, position + 1 + size
        if position > len(message):
            raise ValueError("a field is cut off")
        yield bytes([tag]), message[start:position]
