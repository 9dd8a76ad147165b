"""Encoding of examples as records, in several processes if there are many."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from official_bert.support.processes import Workers, available_cores

_TEXTS_WORTH_A_PROCESS = 30_000  # one process handles these in a second or two
_EXAMPLES_IN_A_BATCH = 500


class EncodedBatch(NamedTuple):
    """Records of some examples, and counts of their texts."""

    records: list[bytes]
    counts: Mapping[str, int]


def encode_examples(
    examples: Sequence[Any],
    encode: Callable[..., EncodedBatch],
    *settings: Any,
    num_texts: int,
    counts: Counter,
    num_processes: int = 0,
) -> Iterator[bytes]:
    """Encode examples.

    Args:
      examples: the examples.
      encode: a function of a module, called with a slice of the examples and the settings.
      *settings: further arguments of `encode`.
      num_texts: number of texts of all examples.
      counts: the counts of all batches are added to it.
      num_processes: maximum number of processes, 0 for one per processor core; few texts use one.

    Yields:
      The records, in the order of the examples.
    """
    num_used = max(1, min(num_processes or available_cores(), num_texts // _TEXTS_WORTH_A_PROCESS))
    starts = range(0, len(examples), _EXAMPLES_IN_A_BATCH)
    batches = (examples[start : start + _EXAMPLES_IN_A_BATCH] for start in starts)
    with Workers(num_used, *settings, name="tokenizes texts") as workers:
        for batch in workers.map(encode, batches):
            yield from batch.records
            counts.update(batch.counts)
