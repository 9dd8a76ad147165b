"""A check that the vocabulary is the right one for the texts of a run."""

from absl import logging

from official_bert.tokenization.full_tokenizer import FullTokenizer

_SUSPICIOUS_SHARE = 0.2  # of the wordpieces; published vocabularies leave below 1% of fitting texts unknown


def warn_of_unknown(path: str, tokenizer: FullTokenizer, *, num_unknown: int, num_wordpieces: int) -> None:
    """Warn if too many wordpieces were [UNK] for the vocabulary to be the right one.

    Args:
      path: the file that the texts went into.
      tokenizer: split them.
      num_unknown: wordpieces that were [UNK].
      num_wordpieces: wordpieces in all.
    """
    if num_unknown > _SUSPICIOUS_SHARE * num_wordpieces:
        logging.warning(
            "%s: %.0f%% of the wordpieces are [UNK]; is %s the vocabulary of the checkpoint and of these texts' "
            "language, and does %s fit it?",
            path,
            100 * num_unknown / num_wordpieces,
            tokenizer.vocabulary.source,
            tokenizer.settings,
        )
