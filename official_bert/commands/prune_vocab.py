"""`prune_vocab`: a model and a text in, a model without the wordpieces that the text does not use out."""

from official_bert.commands.file_checks import check_vocabulary_tool
from official_bert.options.command import Command
from official_bert.options.option import option, options
from official_bert.options.vocabulary import VocabularyChangeOptions


@options(group="output")
class PruneVocabConfig(VocabularyChangeOptions):
    """Flags of `prune_vocab`."""

    min_count: int = option(
        1, "Minimum number of times a wordpiece must be used to stay; above 1, the text is split otherwise.", minimum=1
    )
    keep_characters: bool = option(
        True, "Keep all wordpieces of one character that the text has, so that fewer other words are unknown."
    )


def run(config: PruneVocabConfig) -> None:
    """Writes the new model.

    Raises:
      UserError: a file is missing or damaged, those of the model do not fit each other, the text has no words, or the
        output would overwrite a model.
    """
    from official_bert.commands.vocabulary_tools import VocabularyTool
    from official_bert.data.vocab_changes import pruned

    tool = VocabularyTool(config)
    word_counts = tool.count_words()
    change = pruned(tool.vocabulary, word_counts, min_count=config.min_count, keep_characters=config.keep_characters)
    tool.write(change, word_counts)


COMMAND = Command(
    name="prune_vocab",
    config_class=PruneVocabConfig,
    summary="Leaves out the wordpieces that a text does not use: of a multilingual model those of other languages.",
    usage=r"""
  {command} --input_file='korean/*.txt' --init_checkpoint=bert_model.ckpt --bert_config_file=bert_config.json \
      --vocab_file=vocab.txt --output_dir=korean_model --nodo_lower_case

The text is split as before, and the model computes the same of it.
""",
    check=check_vocabulary_tool,
    run=run,
)
