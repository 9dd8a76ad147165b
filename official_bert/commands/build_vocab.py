"""`build_vocab`: learn a `vocab.txt` from the files of a corpus."""

from absl import logging

from official_bert.commands.shared.corpora import LearnerOptions, find_parts, warn_of_text
from official_bert.data.corpus_files import CorpusPart
from official_bert.options.command import Command
from official_bert.options.groups import CorpusOptions, TextOptions
from official_bert.options.option import option, options
from official_bert.support import writing


@options(group="output")
class VocabConfig(CorpusOptions, LearnerOptions, TextOptions):
    vocab_file: str | None = option(None, "Vocabulary file to write.", required=True, is_output=True)
    vocab_size: int = option(
        30000, "Maximum number of wordpieces, including special tokens and single characters.", minimum=10
    )


def run(config: VocabConfig, parts: list[CorpusPart]) -> None:
    from official_bert.data.vocab_learner import count_corpus_words, learn_vocab

    warn_of_text(parts[0], config, config.text_settings)
    wordpieces = learn_vocab(
        count_corpus_words(parts, config.text_settings), vocab_size=config.vocab_size, **config.learner_flags
    )
    with writing.atomic_write(config.vocab_file) as sink:
        sink.writelines(f"{piece}\n" for piece in wordpieces)
    message = "wrote %s wordpieces to %s (--vocab_size=%d; each occurs at least %d times in the text)"
    logging.info(message, f"{len(wordpieces):,}", config.vocab_file, config.vocab_size, config.min_frequency)


COMMAND = Command(
    config_class=VocabConfig,
    summary="Learns a WordPiece vocabulary from text.",
    usage="""
  {command} --input_file=corpus.txt --vocab_file=vocab.txt --vocab_size=8000
""",
    prepare=find_parts,
    run=run,
    uses_tensorflow=False,
)
