"""Warning about texts with too many unknown wordpieces."""

from absl import logging

from official_bert.tokenization.full_tokenizer import FullTokenizer

_SUSPICIOUS_SHARE = 0.2  # fraction of the wordpieces; below 1% for texts that suit a published vocabulary


def warn_of_unknown(path: str, tokenizer: FullTokenizer, *, num_unknown: int, num_wordpieces: int) -> None:
    """Warn if so many wordpieces were [UNK] that the vocabulary is probably wrong.

    Args:
      path: the file that the texts were written to.
      tokenizer: the tokenizer of the texts.
      num_unknown: number of [UNK] wordpieces.
      num_wordpieces: total number of wordpieces.
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
