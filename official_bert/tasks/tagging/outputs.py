"""The file of a tagger's predictions: the file that was read, with one more column."""

import itertools
from collections.abc import Iterator, Sequence

from official_bert.support import writing
from official_bert.tasks.tagging.examples import TaggedFile, is_document_start, split_columns, with_suffix

PREDICTIONS_FILE = "predictions.conll"


def write_predictions(path: str, tagged_file: TaggedFile, tags: Sequence[Sequence[str]]) -> None:
    r"""Write the lines of a file with the predicted tags as one more column.

    In the layout "columns" the script conlleval reads the result if the last column was the gold tag, with `-d '\t'`
    where tabs separate the columns; where blanks do, one is written for each run of them. A `-DOCSTART-` line gets `O`,
    in every column that it lacks, too; the script counts it as a word. In the layout "sentences" a line gets a tab and
    its tags. A file whose tags have the prefix at the end gets such tags. Blank lines and comments are kept; lines end
    in `\n`.

    Args:
      path: the file to write.
      tagged_file: what was read.
      tags: the predicted tag of each word of each of its sentences, with the prefix in front.

    Raises:
      ValueError: there is not one tag for each word.
    """
    if list(map(len, tags)) != [len(sentence.words) for sentence in tagged_file.sentences]:
        raise ValueError(f"the predicted tags are not one for each word of {tagged_file.path}")
    with writing.atomic_write(path) as sink:
        sink.writelines(line + "\n" for line in _lines(tagged_file, tags))


def _lines(tagged_file: TaggedFile, tags: Sequence[Sequence[str]]) -> Iterator[str]:
    written = [[with_suffix(tag) for tag in row] for row in tags] if tagged_file.suffix_tags else tags
    is_columns = tagged_file.layout == "columns"
    cells_to_add = itertools.chain.from_iterable(written) if is_columns else map(" ".join, written)
    for number, line in enumerate(tagged_file.lines, start=1):
        if number in tagged_file.comments:
            yield line
            continue
        cells = split_columns(line, tagged_file.separator) if line else []
        if is_document_start(line):
            cells += ["O"] * max(1, tagged_file.num_columns + 1 - len(cells))
        elif line:
            cells.append(next(cells_to_add))
        yield tagged_file.separator.join(cells)
