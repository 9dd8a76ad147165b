"""Draw from `random.Random` exactly as the reference does, with fewer calls."""

from collections.abc import Iterator, MutableSequence
from random import Random


def _steps(length: int) -> Iterator[tuple[int, int]]:
    """Return each index except the first, in descending order, with the number of random bits to draw for it."""
    return ((last, (last + 1).bit_length()) for last in range(length - 1, 0, -1))


_STEPS = list(_steps(512))  # for the longest usual sequence; its tail serves shorter ones


def shuffle(items: MutableSequence, rng: Random) -> None:
    """Shuffle in place, drawing the same bits and giving the same order as `rng.shuffle(items)`.

    `Random.shuffle` calls a Python method per element, which draws until the number is small enough. Here that loop is
    inlined, because shuffling positions takes most of the masking time.
    """
    getrandbits = rng.getrandbits
    for last, bits in _STEPS[1 - len(items) :] if 1 < len(items) <= len(_STEPS) else _steps(len(items)):
        chosen = getrandbits(bits)
        while chosen > last:
            chosen = getrandbits(bits)
        items[last], items[chosen] = items[chosen], items[last]
