"""The flags that name a model."""

from official_bert.options.option import option, options
from official_bert.options.training import TokenizerOptions, bert_config_option


@options(group="model")
class ModelOptions(TokenizerOptions):
    """The flags that name a model."""

    bert_config_file: str | None = bert_config_option()
    init_checkpoint: str | None = option(None, "Checkpoint with the weights of the model.", required=True, is_path=True)
