"""The flags of commands that change the vocabulary of a model."""

from official_bert.options.corpus import CorpusOptions
from official_bert.options.model import ArchitectureOptions
from official_bert.options.option import option, options, restated
from official_bert.options.text import TextOptions


@options(group="model")
class VocabularyChangeOptions(CorpusOptions, TextOptions, ArchitectureOptions):
    """Flags of the tools that change the vocabulary of a model."""

    init_checkpoint: str | None = option(None, "Checkpoint of the model.", required=True, is_path=True)
    bert_config_file: str | None = restated(
        ArchitectureOptions, "bert_config_file", help="Model configuration of the checkpoint, a bert_config.json."
    )
    vocab_file: str | None = option(None, "Vocabulary of the model.", required=True, from_checkpoint=True, is_path=True)
    output_dir: str | None = option(
        None, "Folder to write bert_model.ckpt, bert_config.json and vocab.txt to.", required=True, is_path=True
    )
