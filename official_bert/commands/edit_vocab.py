"""`edit_vocab`: add wordpieces of a text to a model, or remove those that the text does not use."""

import dataclasses
from typing import TYPE_CHECKING

from absl import logging

from official_bert.commands.shared.text_options import check_corpus
from official_bert.config.bert_config import BertConfig
from official_bert.options.command import Command
from official_bert.options.groups import ArchitectureOptions, CorpusOptions, TextOptions
from official_bert.options.option import GIVEN, option, options
from official_bert.support import writing
from official_bert.support.errors import UserError, format_names

if TYPE_CHECKING:
    from collections import Counter

    from official_bert.data.vocab_learner import VocabularyChange
    from official_bert.tokenization.vocab import Vocabulary

# Flags that other flags need.
_ADDS, _PRUNES = {"num_new_tokens": GIVEN}, {"prune": (True,)}
_WORD_EMBEDDINGS = "bert/embeddings/word_embeddings"
_MEGABYTE = 2**20


@options(group="model")
class EditVocabConfig(CorpusOptions, TextOptions, ArchitectureOptions):
    """Flags of `edit_vocab`."""

    init_checkpoint: str | None = option(None, "Checkpoint of the model.", required=True, is_path=True)
    vocab_file: str | None = option(None, "Vocabulary of the model.", required=True, from_checkpoint=True, is_path=True)
    output_dir: str | None = option(
        None, "Folder to write bert_model.ckpt, bert_config.json and vocab.txt to.", required=True, is_path=True
    )
    num_new_tokens: int = option(
        0, "Maximum number of wordpieces of the text to add.", group="output", minimum=0, maximum=10**6
    )
    use_unused: bool = option(
        True,
        "Replace [unused...] tokens first, so that the vocabulary grows less or not at all.",
        group="output",
        only_with=_ADDS,
    )
    min_frequency: int = option(
        2,
        "Minimum number of times a new wordpiece must occur; single characters are exempt.",
        group="output",
        minimum=1,
        only_with=_ADDS,
    )
    max_characters: int = option(
        1000,
        "Maximum number of distinct characters of new wordpieces; raise it for Chinese.",
        group="output",
        minimum=1,
        only_with=_ADDS,
    )
    prune: bool = option(False, "Remove the wordpieces that the text does not use.", group="output")
    min_count: int = option(
        1,
        "Minimum number of uses for a wordpiece to be kept; above 1, the text is tokenized differently.",
        group="output",
        minimum=1,
        only_with=_PRUNES,
    )
    keep_characters: bool = option(
        True,
        "Keep all single-character wordpieces that occur in the text, so that fewer words of other texts are unknown.",
        group="output",
        only_with=_PRUNES,
    )

    def __post_init__(self):
        super().__post_init__()
        if bool(self.num_new_tokens) == self.prune:
            raise UserError("give either --num_new_tokens, to add wordpieces, or --prune, to remove some")


def check(config: EditVocabConfig) -> None:
    """Check the files before TensorFlow is imported."""
    from official_bert.checkpoints.state_file import find_checkpoint

    check_corpus(config)
    _read_model(config)
    find_checkpoint(config.init_checkpoint, "init_checkpoint")


def run(config: EditVocabConfig) -> None:
    """Write checkpoint, architecture and vocabulary, and log tokenization statistics before and after."""
    from official_bert.checkpoints.editing import read_model, with_vocabulary
    from official_bert.checkpoints.opening import open_checkpoint
    from official_bert.data.vocab_learner import count_corpus_words, coverage, pruned
    from official_bert.support.manifest import find_inputs
    from official_bert.tokenization.vocab import Vocabulary, number_tokens
    from official_bert.training.model_folder import write_model

    bert_config, vocabulary = _read_model(config)
    reader = open_checkpoint(config.init_checkpoint, "init_checkpoint")
    num_rows, width = reader.shapes.get(_WORD_EMBEDDINGS, (0, 0))
    if num_rows < vocabulary.size:
        raise UserError(
            f"init_checkpoint {reader.prefix} has embeddings of {num_rows} tokens, and {config.vocab_file} has "
            f"{vocabulary.size}; use files that belong together"
        )
    word_counts = count_corpus_words(
        find_inputs(config.input_file),
        config.text_settings,
        input_format=config.input_format,
        text_field=config.text_field,
    )
    if config.prune:
        change = pruned(vocabulary, word_counts, min_count=config.min_count, keep_characters=config.keep_characters)
    else:
        change = _extended(config, vocabulary, word_counts)
    logging.info("before: %s", coverage(vocabulary.token_to_id, word_counts))
    logging.info("after: %s", coverage(change.tokens, word_counts))
    arrays = with_vocabulary(read_model(reader), change.sources)
    prefix = write_model(
        config.output_dir,
        arrays,
        dataclasses.replace(bert_config, vocab_size=len(change.tokens)),
        Vocabulary(number_tokens(change.tokens, config.vocab_file)),
    )
    logging.info(
        "wrote %s with %s tokens instead of %s: word embeddings of %.1f instead of %.1f MiB",
        prefix,
        f"{len(change.tokens):,}",
        f"{num_rows:,}",
        arrays[_WORD_EMBEDDINGS].nbytes / _MEGABYTE,
        4 * num_rows * width / _MEGABYTE,
    )


def _read_model(config: EditVocabConfig) -> "tuple[BertConfig, Vocabulary]":
    """Read architecture and vocabulary, and check that they match."""
    from official_bert.tokenization.tokenizer_files import check_casing
    from official_bert.tokenization.vocab import CLS, MASK, SEP, UNK, Vocabulary
    from official_bert.training.model_files import check_fits

    writing.check_new_folder(config.output_dir, "output_dir")
    bert_config = BertConfig.from_json_file(config.bert_config_file)
    vocabulary = Vocabulary.from_file(config.vocab_file)
    vocabulary.require(UNK, CLS, SEP, MASK)
    if vocabulary.added:
        names = format_names([token["content"] for token in vocabulary.added])
        raise UserError(f"{vocabulary.source} has added tokens ({names}), which edit_vocab does not support")
    check_fits(vocabulary, bert_config, config)
    check_casing(vocabulary, config.text_settings, init_checkpoint=config.init_checkpoint)
    return bert_config, vocabulary


def _extended(config: EditVocabConfig, vocabulary: "Vocabulary", word_counts: "Counter[str]") -> "VocabularyChange":
    """Add the wordpieces that shorten a text most."""
    from official_bert.data.vocab_learner import extended, learn_vocab

    learned = learn_vocab(
        word_counts,
        vocab_size=max(vocabulary.size, 2 * config.num_new_tokens),
        min_frequency=config.min_frequency,
        max_characters=config.max_characters,
    )
    change = extended(
        vocabulary, learned, word_counts, num_new_tokens=config.num_new_tokens, use_unused=config.use_unused
    )
    num_added = len(set(change.tokens) - vocabulary.token_to_id.keys())
    if not num_added:
        raise UserError(
            f"{vocabulary.source} has all wordpieces that occur {config.min_frequency} times in the text: "
            "nothing to add"
        )
    num_appended = len(change.tokens) - vocabulary.size
    logging.info("adding %d wordpieces, %d of them replacing unused tokens", num_added, num_added - num_appended)
    return change


COMMAND = Command(
    name="edit_vocab",
    config_class=EditVocabConfig,
    summary="Adds wordpieces of a text to the vocabulary of a model, or removes those that it does not use.",
    usage=r"""
Adds the wordpieces of a domain. The embedding of a new token is the mean of the embeddings of its old wordpieces.
Train the model further on the text.

  {command} --input_file='domain/*.txt' --num_new_tokens=1000 --init_checkpoint=bert_model.ckpt \
      --bert_config_file=bert_config.json --vocab_file=vocab.txt --output_dir=domain_model

Removes wordpieces, for example those of other languages from a multilingual model. The text is tokenized as before, and
the model's outputs for it do not change.

  {command} --input_file='korean/*.txt' --prune --init_checkpoint=bert_model.ckpt \
      --bert_config_file=bert_config.json --vocab_file=vocab.txt --output_dir=korean_model --nodo_lower_case
""",
    check=check,
    run=run,
)
