"""Padded lengths for batches of similar records."""

_SHORTEST = 8  # positions; the smallest length that batches are cut to


def padded_lengths(max_length: int, unit: int = _SHORTEST) -> list[int]:
    """Return a short list of padded lengths for batches of similar texts, so that few shapes are compiled.

    Args:
      max_length: the maximum length; the last element of the result.
      unit: every other length is a multiple of it.

    Returns:
      Up to eight lengths per octave: 8, 16, 24, ... 112, 120, 128, 144, 160, ... 240, 256, 288, ...
    """
    lengths, length, step = [], unit, unit
    while length < max_length:
        lengths.append(length)
        if length == 16 * step:  # end of an octave
            step *= 2
        length += step
    return [*lengths, max_length]
