"""`extend_vocab`: a model and the text of a domain in, a model with wordpieces of that domain out."""

from absl import logging

from official_bert.commands.file_checks import check_vocabulary_tool
from official_bert.options.command import Command
from official_bert.options.option import option, options
from official_bert.options.vocabulary import VocabularyChangeOptions
from official_bert.support.errors import UserError


@options(group="output")
class ExtendVocabConfig(VocabularyChangeOptions):
    """Flags of `extend_vocab`."""

    num_new_tokens: int = option(1000, "Maximum number of wordpieces to add.", minimum=1, maximum=10**6)
    use_unused: bool = option(
        True, "Put them in the places of [unused...] tokens first, so that the vocabulary grows less, or not at all."
    )
    min_frequency: int = option(
        2, "Minimum number of times a wordpiece must occur; single characters are exempt.", minimum=1
    )
    max_characters: int = option(1000, "Maximum number of distinct characters; raise it for Chinese.", minimum=1)


def run(config: ExtendVocabConfig) -> None:
    """Writes the new model.

    Raises:
      UserError: a file is missing or damaged, those of the model do not fit each other, the text has no new wordpieces,
        or the output would overwrite a model.
    """
    from official_bert.commands.vocabulary_tools import VocabularyTool
    from official_bert.data.vocab_changes import extended
    from official_bert.data.vocab_learner import learn_vocab

    tool = VocabularyTool(config)
    word_counts = tool.count_words()
    learned = learn_vocab(
        word_counts,
        vocab_size=max(tool.vocabulary.size, 2 * config.num_new_tokens),
        min_frequency=config.min_frequency,
        max_characters=config.max_characters,
    )
    change = extended(
        tool.vocabulary,
        learned,
        word_counts,
        num_new_tokens=config.num_new_tokens,
        use_unused=config.use_unused,
    )
    num_added = len(set(change.tokens) - tool.vocabulary.token_to_id.keys())
    if not num_added:
        raise UserError(
            f"{tool.vocabulary.source} has all wordpieces that occur {config.min_frequency} times in the text: "
            "nothing to add"
        )
    num_appended = len(change.tokens) - tool.vocabulary.size
    logging.info("adding %d wordpieces, %d of them in the places of unused tokens", num_added, num_added - num_appended)
    tool.write(change, word_counts)


COMMAND = Command(
    name="extend_vocab",
    config_class=ExtendVocabConfig,
    summary="Adds the wordpieces of a domain's text to the vocabulary of a model.",
    usage=r"""
  {command} --input_file='domain/*.txt' --num_new_tokens=1000 --init_checkpoint=bert_model.ckpt \
      --bert_config_file=bert_config.json --vocab_file=vocab.txt --output_dir=domain_model

The row of a new token is the mean of those of the wordpieces that it consisted of. Train the model further on the text.
""",
    check=check_vocabulary_tool,
    run=run,
)
