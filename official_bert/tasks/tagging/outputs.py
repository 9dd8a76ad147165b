"""Prediction file of a tagger: the input file with an extra column."""

import itertools
from collections.abc import Iterator, Sequence

from official_bert.support import writing
from official_bert.tasks.tagging.examples import TaggedFile, is_document_start, split_columns, with_suffix

PREDICTIONS_FILE = "predictions.conll"


def write_predictions(path: str, tagged_file: TaggedFile, tags: Sequence[Sequence[str]]) -> None:
    r"""Write the lines of a file with the predicted tags as an extra column.

    In the layout "columns", the conlleval script can read the result if the last column contains the gold tags, with
    `-d '\t'` for tab-separated columns; runs of blanks are written as one blank. A `-DOCSTART-` line gets `O` in the
    new column and in any column that it lacks; the script counts it as a word. In the layout "sentences", a tab and the
    tags are appended to each line. If the prefix of the input's tags is at the end, so is that of the predicted tags.
    Blank lines and comments are kept; lines end in `\n`.

    Args:
      path: the file to write.
      tagged_file: the input file.
      tags: the predicted tags of each sentence, with the prefix first.

    Raises:
      ValueError: the number of tags differs from the number of words.
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
