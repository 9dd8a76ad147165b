"""`tools/prune_vocab.py`: a model and a text in, a model without the wordpieces that the text does not use out."""

from official_bert.config.run_configs.tools import PruneVocabConfig
from official_bert.data.vocab_changes import pruned
from official_bert.runs.vocabulary_tools import VocabularyTool


def run(config: PruneVocabConfig) -> None:
    """Writes the new model.

    Raises:
      UserError: a file is missing or damaged, those of the model do not fit each other, the text has no words, or the
        output would overwrite a model.
    """
    tool = VocabularyTool(config)
    word_counts = tool.count_words()
    change = pruned(tool.vocabulary, word_counts, min_count=config.min_count, keep_characters=config.keep_characters)
    tool.write(change, word_counts)
