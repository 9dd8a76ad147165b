"""Flags of `tools/ablation.py`."""

from official_bert.config.options import MAX_AXIS, MAX_BATCH_SIZE, MAX_SEED, check_options, option, options
from official_bert.config.run_configs.corpus import CorpusOptions
from official_bert.config.run_configs.training import TextOptions
from official_bert.support.errors import UserError

TABLES = ("tasks", "masking", "size")


@options(group="training")
class AblationConfig(CorpusOptions, TextOptions):
    """Flags of `tools/ablation.py`."""

    heldout_file: str | None = option(
        None,
        "Files with other text, on which masked words are predicted; as --input_file.",
        required=True,
        is_path=True,
    )
    bert_config_file: str | None = option(
        None, "Model configuration of the model that is varied, a bert_config.json.", required=True, is_path=True
    )
    vocab_file: str | None = option(None, "Vocabulary file, one wordpiece per line.", required=True, is_path=True)
    task_name: str | None = option(
        None, "Data set to fine-tune on: cola, sst-2, mrpc, ..., as of run_classifier.py.", required=True
    )
    data_dir: str | None = option(None, "Folder with the files of that data set.", required=True, is_path=True)
    output_dir: str | None = option(
        None, "Folder for ablation.tsv and for one folder per run.", required=True, is_path=True
    )
    tables: str = option(
        ",".join(TABLES),
        "Comma-separated list. tasks: with and without next sentences and attention to the right; masking: what "
        "becomes of the chosen wordpieces; size: layers and hidden size.",
    )
    random_seed: str = option("1,2,3", "Comma-separated list: random seeds; each variant is run with each of them.")
    max_seq_length: int = option(
        64,
        "Maximum number of wordpieces per sequence, including [CLS] and [SEP].",
        group="text",
        minimum=8,
        maximum=MAX_AXIS,
    )
    dupe_factor: int = option(5, "Number of times each document of the text is used to make records.", minimum=1)
    train_batch_size: int = option(
        32, "Number of examples per training step, in pretraining and fine-tuning.", minimum=1, maximum=MAX_BATCH_SIZE
    )
    num_train_steps: int = option(1000, "Number of steps of pretraining.", minimum=10)
    pretraining_learning_rate: float = option(1e-3, "Peak learning rate of pretraining.", minimum=0)
    learning_rate: float = option(3e-4, "Peak learning rate of fine-tuning.", minimum=0)
    num_train_epochs: float = option(3.0, "Number of training epochs of fine-tuning.", minimum=0)
    table_format: str = option("aligned", "How to print the tables.", group="output", choices=("aligned", "markdown"))

    def __post_init__(self):
        check_options(self)
        unknown = [name for name in self.table_names if name not in TABLES]
        if unknown or len(set(self.table_names)) < len(self.table_names):
            raise UserError(f"--tables={self.tables}: must be a list of different ones of {', '.join(TABLES)}")
        seeds = self.random_seed.split(",")
        is_right = all(seed.strip().isdecimal() and int(seed) <= MAX_SEED for seed in seeds)
        if not is_right or len(set(map(int, seeds))) < len(seeds):
            raise UserError(
                f"--random_seed={self.random_seed}: must be a list of different whole numbers, at most {MAX_SEED}"
            )

    @property
    def table_names(self) -> list[str]:
        """The tables to make."""
        return [name.strip() for name in self.tables.split(",")]

    @property
    def seeds(self) -> list[int]:
        """The random seeds."""
        return [int(seed) for seed in self.random_seed.split(",")]
