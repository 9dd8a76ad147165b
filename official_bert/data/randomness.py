"""Drawing from `random.Random` exactly as the reference does, with fewer calls."""

from collections.abc import Iterator, MutableSequence
from random import Random


def _steps(length: int) -> Iterator[tuple[int, int]]:
    """Return each place but the first, from the end, and the bits of a number that chooses one up to it."""
    return ((last, (last + 1).bit_length()) for last in range(length - 1, 0, -1))


_STEPS = list(_steps(512))  # of the longest usual sequence, at whose end are those of any shorter one


def shuffle(items: MutableSequence, rng: Random) -> None:
    """Shuffle in place; draw the same bits, and give the same order, as `rng.shuffle(items)`.

    `Random.shuffle` calls a Python method for each element, which draws until the number is small enough; here that
    loop is written out, since shuffling the positions of a sequence is most of the work of masking it.
    """
    getrandbits = rng.getrandbits
    for last, bits in _STEPS[1 - len(items) :] if 1 < len(items) <= len(_STEPS) else _steps(len(items)):
        chosen = getrandbits(bits)
        while chosen > last:
            chosen = getrandbits(bits)
        items[last], items[chosen] = items[chosen], items[last]
