"""Checks that the text settings fit the casing of the vocabulary and the checkpoint."""

import os

from absl import logging

from official_bert.config.text_settings import TextSettings
from official_bert.support.errors import UserError
from official_bert.tokenization.vocab import Vocabulary

# Released checkpoints whose names do not give their casing.
_UNCASED_NAMES = ("multilingual_L-12_H-768_A-12", "chinese_L-12_H-768_A-12")
_CASED_FRACTION = 0.01  # fraction of the wordpieces with Latin letters; a few uppercase ones may be placeholders


def check_casing(vocabulary: Vocabulary, settings: TextSettings, *, init_checkpoint: str | None) -> None:
    """Raise if lowercasing the text is certainly wrong; warn if keeping its case probably is.

    Pretokenized words may already be lowercased, so they suit any checkpoint.

    Args:
      vocabulary: the vocabulary.
      settings: the tokenizer's text settings.
      init_checkpoint: prefix of the checkpoint; names of released checkpoints give their casing.

    Raises:
      UserError: the vocabulary is cased and the text would be lowercased, or the name of the checkpoint contradicts the
        settings.
    """
    do_lower_case = settings.do_lower_case
    folder, name = os.path.split(init_checkpoint or "")
    if name.startswith("bert_model.ckpt") and settings.basic_tokenize:
        released = os.path.basename(folder)
        named_uncased = released.removeprefix("wwm_").startswith("uncased_L-") or released in _UNCASED_NAMES
        named_cased = released.removeprefix("wwm_").startswith(("cased_L-", "multi_cased_L-"))
        if (named_uncased and not do_lower_case) or (named_cased and do_lower_case):
            raise UserError(
                f"do_lower_case={_written(do_lower_case)}, but init_checkpoint={init_checkpoint} is "
                f"{'an uncased' if named_uncased else 'a cased'} model; give do_lower_case={_written(named_uncased)}"
            )
    num_upper, num_with_letters = _count_upper(vocabulary)
    if do_lower_case and is_cased(vocabulary):
        raise UserError(
            f"do_lower_case=true, but {vocabulary.source} is cased ({num_upper:,} wordpieces have capital letters, "
            "which lowercased text never has); give do_lower_case=false"
        )
    if not do_lower_case and num_with_letters and not num_upper:
        logging.warning(
            "%s, but %s has no capital letters: words with capitals become [UNK]", settings, vocabulary.source
        )


def is_cased(vocabulary: Vocabulary) -> bool:
    """Return True if a vocabulary was built from cased text."""
    num_upper, num_with_letters = _count_upper(vocabulary)
    return num_upper > _CASED_FRACTION * num_with_letters


def _count_upper(vocabulary: Vocabulary) -> tuple[int, int]:
    """Count the wordpieces with capital Latin letters, and those with any Latin letters."""
    words = map(vocabulary.characters_of, vocabulary.token_to_id)
    words = [word for word in words if word.isascii() and word.isalpha()]
    return sum(word != word.lower() for word in words), len(words)


def _written(value: bool) -> str:
    return str(value).lower()
