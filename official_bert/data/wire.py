"""The wire format of protocol buffers, as far as fields of bytes, strings and messages go."""


def _varint(number: int) -> bytes:
    if number < 0:
        number += 1 << 64  # two's complement, as protocol buffers write a negative int64
    parts = []  # seven bits each; the eighth says that more follow
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


class _VarintTable(dict):
    """Varints made so far; ids of pieces come again and again."""

    def __missing__(self, number: int) -> bytes:
        encoded = self[number] = _varint(number)
        return encoded


VARINTS = _VarintTable()


def delimited(tag: bytes, payload: bytes) -> bytes:
    """A field that holds bytes, a string or a message.

    Args:
      tag: eight times the field's number, plus 2.
      payload: what it holds.
    """
    return tag + VARINTS[len(payload)] + payload
