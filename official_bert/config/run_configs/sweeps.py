"""Flags of the tools that run a script with a grid of settings."""

from typing import ClassVar

from official_bert.config.options import option, options
from official_bert.config.run_configs.classification import ClassifierConfig
from official_bert.config.run_configs.tagging import TaggingConfig
from official_bert.config.run_configs.training import LabellingOptions
from official_bert.support.errors import UserError


@options(group="training")
class SweepOptions(LabellingOptions):
    """Flags of every sweep: those of the script that it runs, of which four take a list.

    Attributes:
      script: the script that it runs.
      run_config: the flags of that script.
    """

    script: ClassVar[str]
    run_config: ClassVar[type]

    output_dir: str | None = option(
        None,
        "Folder for sweep.tsv and for one folder per run with everything that the script writes.",
        required=True,
        is_path=True,
    )
    do_train: bool = option(True, "Run training; a sweep always does.")
    do_eval: bool = option(True, "Run evaluation on the dev set; a sweep always does.", group="evaluation")
    # The paper's grid.
    train_batch_size: str = option(
        "16,32", "Comma-separated list: number of examples per training step, over all devices."
    )
    learning_rate: str = option("5e-5,3e-5,2e-5", "Comma-separated list: peak learning rate.")
    num_train_epochs: str = option("2,3,4", "Comma-separated list: number of training epochs.")
    random_seed: str = option("12345", "Comma-separated list: random seeds; each combination is run with each of them.")

    keep_only_winner: bool = option(
        False,
        "Delete the checkpoints of a combination as soon as another one scores better; keep its other files.",
        group="output",
    )

    def __post_init__(self):
        super().__post_init__()
        if not (self.do_train and self.do_eval):
            raise UserError("a sweep trains and evaluates; leave --nodo_train and --nodo_eval out")
        if self.train_batch_tokens:
            raise UserError("a sweep tries the sizes of --train_batch_size; leave --train_batch_tokens out")
        if self.do_export:
            raise UserError(f"a sweep does not export; export the winner with {self.script}.py --do_export")


@options(group="training")
class SweepConfig(SweepOptions, ClassifierConfig):
    """Flags of `tools/sweep.py`."""

    script: ClassVar[str] = "run_classifier"
    run_config: ClassVar[type] = ClassifierConfig


@options(group="training")
class NerSweepConfig(SweepOptions, TaggingConfig):
    """Flags of `tools/sweep_ner.py`."""

    script: ClassVar[str] = "run_ner"
    run_config: ClassVar[type] = TaggingConfig
