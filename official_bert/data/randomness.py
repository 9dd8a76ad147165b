"""Drawing from `random.Random` exactly as the reference does, with fewer calls."""

from collections.abc import MutableSequence
from random import Random


def shuffle(items: MutableSequence, rng: Random) -> None:
    """Shuffles in place; draws the same bits, and gives the same order, as `rng.shuffle(items)`.

    `Random.shuffle` calls a Python method for each element, which draws until the number is small enough; here that
    loop is written out, since shuffling the positions of a sequence is most of the work of masking it.
    """
    getrandbits = rng.getrandbits
    for last in range(len(items) - 1, 0, -1):
        bits = (last + 1).bit_length()
        chosen = getrandbits(bits)
        while chosen > last:
            chosen = getrandbits(bits)
        items[last], items[chosen] = items[chosen], items[last]
