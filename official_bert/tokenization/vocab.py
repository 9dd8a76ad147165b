"""The vocabulary: wordpieces and their ids, read from `vocab.txt` and checked."""

import hashlib
import json
from collections.abc import Iterable

from absl import logging

from official_bert import files
from official_bert.errors import UserError

PAD, UNKNOWN, CLASSIFIER, SEPARATOR, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"


def load_vocab(vocab_file: str) -> dict[str, int]:
    r"""Reads a vocabulary file: one piece a line, its id is the line's number from 0.

    As in the reference, a line ends at `\n` alone and is stripped of white space, so a line of only U+2028 (the
    released Chinese vocabulary has one) is the empty piece; of pieces that occur twice the last id counts, with a
    warning.

    Returns:
      Piece to id, in the order of the file.

    Raises:
      UserError: the file is missing, empty or not UTF-8.
    """
    vocab: dict[str, int] = {}
    repeated = []
    for index, line in enumerate(files.LineReader(vocab_file)):
        piece = line.strip()
        if piece in vocab:
            repeated.append(f"{piece!r} (lines {vocab[piece] + 1} and {index + 1})")
        vocab[piece] = index
    if not vocab:
        raise UserError(f"the vocabulary {vocab_file} is empty; it must hold one wordpiece a line")
    if repeated:
        logging.warning(
            "%s holds %d pieces twice; the last line counts: %s", vocab_file, len(repeated), ", ".join(repeated[:5])
        )
    return vocab


class Vocabulary:
    """Pieces, ids and the ids of the special pieces.

    Attributes:
      pieces: dict, piece to id.
      inverse: dict, id to piece.
      source: the file, for messages.
    """

    def __init__(self, pieces: dict[str, int], source: str = "the vocabulary"):
        self.pieces = pieces
        self.inverse = {index: piece for piece, index in pieces.items()}
        self.source = source

    @classmethod
    def from_file(cls, vocab_file: str) -> "Vocabulary":
        """Reads a file; see `load_vocab`."""
        return cls(load_vocab(vocab_file), vocab_file)

    @property
    def size(self) -> int:
        """Number of ids: the highest one plus 1, which counts repeated lines too."""
        return max(self.inverse) + 1

    @property
    def fingerprint(self) -> str:
        """A hash of all pieces and their ids: equal for vocabularies that give every text the same ids."""
        return hashlib.sha256(json.dumps(list(self.pieces.items())).encode()).hexdigest()

    def require(self, *specials: str) -> list[int]:
        """Looks up special pieces.

        Returns:
          Their ids, in order.

        Raises:
          UserError: one is missing; the message gives the line of a piece that differs only in case.
        """
        missing = [special for special in specials if special not in self.pieces]
        if missing:
            advice = "is this a BERT vocabulary?"
            for piece, index in self.pieces.items():
                if piece.upper() == missing[0]:
                    advice = f"line {index + 1} holds {piece!r}: special pieces are written in capitals"
            raise UserError(f"{self.source} lacks {', '.join(missing)}; {advice}")
        return [self.pieces[special] for special in specials]

    def ids(self, pieces: Iterable[str]) -> list[int]:
        """Looks up pieces.

        Raises:
          KeyError: a piece is not in the vocabulary.
        """
        return self._look_up(self.pieces, pieces)

    def pieces_of(self, ids: Iterable[int]) -> list[str]:
        """Looks up ids.

        Raises:
          KeyError: an id is not in the vocabulary.
        """
        return self._look_up(self.inverse, ids)

    def _look_up(self, table: dict, keys: Iterable) -> list:
        try:
            return [table[key] for key in keys]
        except KeyError as error:
            raise KeyError(f"{error.args[0]!r} is not in {self.source}") from None
