"""Output shards of an Apache Beam job, each complete or absent."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam

from official_bert.support import writing

Items = Sequence[tuple[Any, Any]]


class WriteShards(beam.PTransform):
    """Transform that writes shards; one worker holds each shard in memory, sorted.

    A shard gets its name only when complete, so a worker that dies leaves no partial shard, and a retry replaces a
    shard by an identical one. Empty shards are written, too.

    Input: pairs of a shard number and items; an item is a pair of a unique sort key and content. Output: the paths.
    """

    def __init__(self, paths: Sequence[str], write: Callable[[str, Iterable[Any]], None]):
        """Configure the transform.

        Args:
          paths: the shard paths, by number.
          write: a module-level function that writes the contents of the items to a file atomically.
        """
        super().__init__()
        self._paths, self._write = list(paths), write

    def expand(self, items):
        """Add the steps to the pipeline."""
        every_shard = items.pipeline | "list the shards" >> beam.Create([(n, []) for n in range(len(self._paths))])
        return (
            (items, every_shard)
            | "add empty shards" >> beam.Flatten()
            | "gather the shards" >> beam.GroupByKey()
            | "write the shards" >> beam.ParDo(_WriteShard(self._paths, self._write))
        )


class _WriteShard(beam.DoFn):
    def __init__(self, paths: Sequence[str], write: Callable[[str, Iterable[Any]], None]):
        self._paths, self._write = paths, write

    def process(self, shard: tuple[int, Iterable[Items]]) -> Iterator[str]:
        number, parts = shard
        items = sorted((item for part in parts for item in part), key=lambda item: item[0])
        self._write(self._paths[number], (content for _, content in items))
        yield self._paths[number]


def shard_paths(path: str, num_shards: int) -> list[str]:
    """Return shard names: `out-00000-of-00008.jsonl`, ... for `out.jsonl` and 8; the path itself for 1."""
    if num_shards == 1:
        return [path]
    stem, ending = os.path.splitext(path)
    return [f"{stem}-{number:05d}-of-{num_shards:05d}{ending}" for number in range(num_shards)]


def write_lines(path: str, lines: Iterable[bytes]) -> None:
    """Write lines without line ends to a text file."""
    with writing.atomic_write(path, "wb") as sink:
        for line in lines:
            sink.write(line + b"\n")
