"""The model that `extend_vocab` and `prune_vocab` read, and the one that they write."""

import dataclasses
from collections import Counter

from absl import logging

from official_bert.checkpoints.opening import open_checkpoint
from official_bert.checkpoints.surgery import read_model, with_vocabulary
from official_bert.config.bert_config import BertConfig
from official_bert.data.corpus_words import count_corpus_words
from official_bert.data.vocab_changes import VocabularyChange, coverage
from official_bert.options.vocabulary import VocabularyChangeOptions
from official_bert.support.errors import UserError
from official_bert.support.input_files import find_inputs
from official_bert.tokenization.casing import check_casing
from official_bert.tokenization.vocab import CLS, MASK, SEP, UNK, Vocabulary
from official_bert.training.model_files import check_fits
from official_bert.training.model_folder import check_new_model, write_model

_WORD_EMBEDDINGS = "bert/embeddings/word_embeddings"
_MEGABYTE = 2**20


class VocabularyTool:
    """A model whose vocabulary is changed.

    Attributes:
      vocabulary: the old one.
    """

    def __init__(self, config: VocabularyChangeOptions):
        """Reads the files of the model.

        Raises:
          UserError: one is missing or damaged, they do not fit each other, or the output would overwrite a model.
        """
        self._config = config
        self._bert_config = BertConfig.from_json_file(config.bert_config_file)
        self.vocabulary = Vocabulary.from_file(config.vocab_file)
        self.vocabulary.require(UNK, CLS, SEP, MASK)
        check_fits(self.vocabulary, self._bert_config, config)
        check_casing(self.vocabulary, config.text_settings, init_checkpoint=config.init_checkpoint)
        check_new_model(config.output_dir)
        self._reader = open_checkpoint(config.init_checkpoint, "init_checkpoint")
        num_rows = self._reader.shapes.get(_WORD_EMBEDDINGS, (0,))[0]
        if num_rows < self.vocabulary.size:
            raise UserError(
                f"init_checkpoint {self._reader.prefix} has embeddings of {num_rows} tokens, and "
                f"{config.vocab_file} has {self.vocabulary.size}; use files that belong together"
            )

    def count_words(self) -> Counter[str]:
        """The words of the text; word to number of occurrences."""
        return count_corpus_words(find_inputs(self._config.input_file), self._config)

    def write(self, change: VocabularyChange, word_counts: Counter[str]) -> None:
        """Writes checkpoint, architecture and vocabulary together, and logs how the text is split before and after."""
        before, after = (coverage(tokens, word_counts) for tokens in (self.vocabulary.token_to_id, change.tokens))
        logging.info("before: %s", before)
        logging.info("after: %s", after)
        arrays = with_vocabulary(read_model(self._reader), change.sources)
        bert_config = dataclasses.replace(self._bert_config, vocab_size=len(change.tokens))
        content = "".join(f"{token}\n" for token in change.tokens).encode()
        prefix = write_model(self._config.output_dir, arrays, bert_config, {Vocabulary.file_name: content})
        old_rows = self._reader.shapes[_WORD_EMBEDDINGS]
        logging.info(
            "wrote %s with %s tokens instead of %s: word embeddings of %.1f instead of %.1f MiB",
            prefix,
            f"{len(change.tokens):,}",
            f"{old_rows[0]:,}",
            arrays[_WORD_EMBEDDINGS].nbytes / _MEGABYTE,
            4 * old_rows[0] * old_rows[1] / _MEGABYTE,
        )
