"""Files that the workers of an Apache Beam job write: a shard each, complete or not there."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam

from official_bert.support import writing

Items = Sequence[tuple[Any, bytes]]


class WriteShards(beam.PTransform):
    """Writes shards, each by one worker that holds it in memory, sorted.

    A shard gets its name when it is complete, so a worker that dies leaves none half-written, and one that is asked
    again replaces a shard by the same one. A shard without items is written, too.

    Reads pairs of a shard's number and items, each a pair of a sort key, of which no two are equal, and bytes. Gives
    the paths.
    """

    def __init__(self, paths: Sequence[str], write: Callable[[str, Iterable[bytes]], None]):
        """Say what to write.

        Args:
          paths: of the shards, in the order of their numbers.
          write: a function of a module, which writes a file of such bytes that appears when it is complete.
        """
        super().__init__()
        self._paths, self._write = list(paths), write

    def expand(self, items):
        """Add the steps."""
        every_shard = items.pipeline | "list the shards" >> beam.Create([(n, []) for n in range(len(self._paths))])
        return (
            (items, every_shard)
            | "add empty shards" >> beam.Flatten()
            | "gather the shards" >> beam.GroupByKey()
            | "write the shards" >> beam.ParDo(_WriteShard(self._paths, self._write))
        )


class _WriteShard(beam.DoFn):
    def __init__(self, paths: Sequence[str], write: Callable[[str, Iterable[bytes]], None]):
        self._paths, self._write = paths, write

    def process(self, shard: tuple[int, Iterable[Items]]) -> Iterator[str]:
        number, parts = shard
        items = sorted((item for part in parts for item in part), key=lambda item: item[0])
        self._write(self._paths[number], (content for _, content in items))
        yield self._paths[number]


def shard_paths(path: str, num_shards: int) -> list[str]:
    """Return the names of shards: `out-00000-of-00008.jsonl`, ... for `out.jsonl` and 8; the path itself for 1."""
    if num_shards == 1:
        return [path]
    stem, ending = os.path.splitext(path)
    return [f"{stem}-{number:05d}-of-{num_shards:05d}{ending}" for number in range(num_shards)]


def write_lines(path: str, lines: Iterable[bytes]) -> None:
    """Write a text file of lines, which have no line ends."""
    with writing.atomic_write(path, "wb") as sink:
        for line in lines:
            sink.write(line + b"\n")
