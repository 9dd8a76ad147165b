"""`tools/extend_vocab.py`: a model and the text of a domain in, a model with wordpieces of that domain out."""

from absl import logging

from official_bert.config.run_configs.tools import ExtendVocabConfig
from official_bert.data.vocab_changes import extended
from official_bert.data.vocab_learner import learn_vocab
from official_bert.runs.vocabulary_tools import VocabularyTool
from official_bert.support.errors import UserError


def run(config: ExtendVocabConfig) -> None:
    """Writes the new model.

    Raises:
      UserError: a file is missing or damaged, those of the model do not fit each other, the text has no new wordpieces,
        or the output would overwrite a model.
    """
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
