"""Checks that `--do_lower_case` fits the vocabulary and the checkpoint."""

import os

from absl import logging

from official_bert.errors import UserError
from official_bert.tokenization.vocab import Vocabulary

# The released checkpoints whose names do not say it.
_UNCASED_NAMES = ("multilingual_L-12_H-768_A-12", "chinese_L-12_H-768_A-12")
_CASED_SHARE = 0.01  # of the pieces with Latin letters; a few upper-case ones may be placeholders


def check_casing(vocabulary: Vocabulary, *, do_lower_case: bool, init_checkpoint: str | None) -> None:
    """Raises if lower-casing is certainly wrong; warns if not lower-casing probably is.

    Args:
      vocabulary: the vocabulary.
      do_lower_case: the flag.
      init_checkpoint: the flag; the names of released checkpoints tell their casing.

    Raises:
      UserError: the vocabulary is cased and the text would be lower-cased, or the checkpoint's name says otherwise.
    """
    folder, name = os.path.split(init_checkpoint or "")
    if name.startswith("bert_model.ckpt"):
        released = os.path.basename(folder)
        is_uncased = released.removeprefix("wwm_").startswith("uncased_L-") or released in _UNCASED_NAMES
        is_cased = released.removeprefix("wwm_").startswith(("cased_L-", "multi_cased_L-"))
        if (is_uncased and not do_lower_case) or (is_cased and do_lower_case):
            raise UserError(
                f"--do_lower_case={_written(do_lower_case)}, but --init_checkpoint={init_checkpoint} is "
                f"{'an uncased' if is_uncased else 'a cased'} model; give --do_lower_case={_written(is_uncased)}"
            )
    letters = [piece for piece in vocabulary.pieces if piece.isascii() and piece.removeprefix("##").isalpha()]
    num_upper = sum(piece != piece.lower() for piece in letters)
    if do_lower_case and num_upper > _CASED_SHARE * len(letters):
        raise UserError(
            f"--do_lower_case=true, but {vocabulary.source} is cased ({num_upper:,} pieces have capital letters, which "
            "lower-cased text never has); give --do_lower_case=false"
        )
    if not do_lower_case and letters and not num_upper:
        logging.warning(
            "--do_lower_case=false, but %s has no capital letters: words that do become [UNK]", vocabulary.source
        )


def _written(value: bool) -> str:
    return str(value).lower()
