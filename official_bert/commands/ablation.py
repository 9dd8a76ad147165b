"""`ablation`: reproduce the BERT paper's ablations at small scale on given text and data; print tables.

The commands themselves pretrain and fine-tune each variant, once per seed.
"""

import dataclasses
import itertools
import json
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from absl import logging

from official_bert.commands.shared.text_options import check_file, check_folder
from official_bert.config.bert_config import BertConfig
from official_bert.options.command import Command
from official_bert.options.groups import CorpusOptions, TextOptions
from official_bert.options.option import MAX_AXIS, MAX_BATCH_SIZE, MAX_SEED, option, options
from official_bert.support import files, text_files, writing
from official_bert.support.console import format_table, mean_and_deviation
from official_bert.support.errors import UserError
from official_bert.support.input_files import find_inputs
from official_bert.tasks.classification.options import ClassifierConfig
from official_bert.tasks.pretraining.options import PretrainingConfig, PretrainingDataConfig

if TYPE_CHECKING:
    from official_bert.training.trials import Trial

TABLES = ("tasks", "masking", "size")


@options(group="training")
class AblationConfig(CorpusOptions, TextOptions):
    """Flags of `ablation`."""

    heldout_file: str | None = option(
        None,
        "Held-out text files for the masked-LM evaluation; same syntax as --input_file.",
        required=True,
        is_path=True,
    )
    bert_config_file: str | None = option(
        None, "Model configuration (bert_config.json) of the baseline model.", required=True, is_path=True
    )
    vocab_file: str | None = option(None, "Vocabulary file, one wordpiece per line.", required=True, is_path=True)
    task_name: str | None = option(
        None, "Data set to fine-tune on: cola, sst-2, mrpc, ..., as in run_classifier.", required=True
    )
    data_dir: str | None = option(None, "Folder with the files of the data set.", required=True, is_path=True)
    output_dir: str | None = option(
        None, "Folder for ablation.tsv and for one folder per run.", required=True, is_path=True
    )
    tables: str = option(
        ",".join(TABLES),
        "Comma-separated list. tasks: with and without next sentences and attention to the right; masking: replacement "
        "of the chosen wordpieces; size: layers and hidden size.",
    )
    random_seed: str = option("1,2,3", "Comma-separated list: random seeds; each variant is run with each of them.")
    max_seq_length: int = option(
        64,
        "Maximum number of wordpieces per sequence, including [CLS] and [SEP].",
        group="text",
        minimum=8,
        maximum=MAX_AXIS,
        sizes_run_with="always",
    )
    dupe_factor: int = option(5, "Number of times each document of the text is used to make records.", minimum=1)
    train_batch_size: int = option(
        32,
        "Number of examples per training step, in pretraining and fine-tuning.",
        minimum=1,
        maximum=MAX_BATCH_SIZE,
        sizes_run_with="do_train",
    )
    num_train_steps: int = option(1000, "Number of steps of pretraining.", minimum=10)
    pretraining_learning_rate: float = option(1e-3, "Peak learning rate of pretraining.", minimum=0)
    learning_rate: float = option(3e-4, "Peak learning rate of fine-tuning.", minimum=0)
    num_train_epochs: float = option(3.0, "Number of training epochs of fine-tuning.", minimum=0)
    table_format: str = option("aligned", "How to print the tables.", group="output", choices=("aligned", "markdown"))

    def __post_init__(self):
        super().__post_init__()
        unknown = [name for name in self.table_names if name not in TABLES]
        if unknown or len(set(self.table_names)) < len(self.table_names):
            raise UserError(f"--tables={self.tables}: must list one or more of {', '.join(TABLES)}, each once")
        seeds = self.random_seed.split(",")
        is_right = all(seed.strip().isdecimal() and int(seed) <= MAX_SEED for seed in seeds)
        if not is_right or len(set(map(int, seeds))) < len(seeds):
            raise UserError(
                f"--random_seed={self.random_seed}: must list whole numbers of at most {MAX_SEED}, each once"
            )

    @property
    def table_names(self) -> list[str]:
        return [name.strip() for name in self.tables.split(",")]

    @property
    def seeds(self) -> list[int]:
        return [int(seed) for seed in self.random_seed.split(",")]


def check(config: AblationConfig) -> None:
    """Check the files before TensorFlow is imported."""
    from official_bert.data.corpus_files import CorpusReader, corpus_parts
    from official_bert.tasks.classification.datasets import named_dataset

    for name in ("bert_config_file", "vocab_file"):
        check_file(getattr(config, name), name)
    check_folder(config.data_dir, "data_dir")
    for given in (config.input_file, config.heldout_file):
        paths = find_inputs(given)
        parts = corpus_parts(paths, file_format=config.input_format, text_field=config.text_field)
        if not any(line.strip() for part in parts for _, line in CorpusReader(part)):  # reads only up to the first text
            raise UserError(f"there is no text in {files.describe_paths(paths)}")
    dataset = named_dataset(config.task_name)
    for split in ("train", *dataset.eval_splits):
        dataset.find(config.data_dir, split)


_SETTINGS_FILE, _TABLE_FILE = "settings.json", "ablation.tsv"
_PREDICTED_SHARE = 0.16  # of the positions per record: enough for the 15% that are masked
_MASKED_LM_LOSS = "masked_lm_loss"
_DECIMALS = 4


class _Variant(NamedTuple):
    """A model variant that differs from BERT."""

    name: str  # name of its folders
    cells: tuple[str, ...]  # its cells in the table
    architecture: Mapping[str, Any] = {}  # overrides of `bert_config.json`
    pretraining: Mapping[str, Any] = {}  # overrides of the pretraining flags
    finetuning: Mapping[str, Any] = {}  # overrides of the fine-tuning flags
    pretrained_as: str | None = None  # the variant whose pretrained model is fine-tuned; None for its own


_NO_NEXT_SENTENCE = {"use_next_sentence": False}
_LEFT_TO_RIGHT = {**_NO_NEXT_SENTENCE, "attention_direction": "left_to_right"}


def _task_variants(config: BertConfig) -> list[_Variant]:
    """Return the variants of the paper's table 5."""
    del config
    return [
        _Variant("bert", ("BERT",)),
        _Variant("no_next_sentence", ("no next sentence",), pretraining=_NO_NEXT_SENTENCE),
        _Variant("left_to_right", ("left to right, no next sentence",), pretraining=_LEFT_TO_RIGHT),
        _Variant(
            "left_to_right_bilstm",
            ("left to right, no next sentence + BiLSTM",),
            finetuning={"head": "bilstm"},
            pretrained_as="left_to_right",
        ),
    ]


def _masking_variants(config: BertConfig) -> list[_Variant]:
    """Return the variants of the paper's table 8: percentages of [MASK], unchanged and random wordpieces."""
    del config
    variants = []
    for mask, same, random in ((80, 10, 10), (100, 0, 0), (80, 0, 20), (80, 20, 0), (0, 20, 80), (0, 0, 100)):
        shares = {"mask_replace_prob": mask / 100, "random_replace_prob": random / 100}
        is_bert = (mask, same, random) == (80, 10, 10)
        name = "bert" if is_bert else f"mask_{mask}_same_{same}_random_{random}"
        variants.append(_Variant(name, (f"{mask}%", f"{same}%", f"{random}%"), pretraining={} if is_bert else shares))
    return variants


def _size_variants(config: BertConfig) -> list[_Variant]:
    """Return the models of the paper's table 6: depths and widths derived from the given model."""
    depth, width, heads = config.num_hidden_layers, config.hidden_size, config.num_attention_heads
    inner = config.intermediate_size
    changes: list[dict[str, int]] = [{}, {"num_hidden_layers": 2 * depth}]
    if depth > 1:
        changes.insert(0, {"num_hidden_layers": depth // 2})
    if width % 2 == heads % 2 == inner % 2 == 0:  # keeps the head width
        halves = {"hidden_size": width // 2, "num_attention_heads": heads // 2, "intermediate_size": inner // 2}
        changes.insert(0, halves)
    variants = []
    for change in changes:
        sizes = dataclasses.replace(config, **change)
        numbers = (sizes.num_hidden_layers, sizes.hidden_size, sizes.num_attention_heads)
        name = "layers_{}_hidden_{}_heads_{}".format(*numbers) if change else "bert"
        cells = (*map(str, numbers), f"{sizes.num_parameters:,}")
        variants.append(_Variant(name, cells, architecture=change))
    return variants


class _Table(NamedTuple):
    """A table of results."""

    title: str  # the table's title
    columns: tuple[str, ...]  # headers of the columns that distinguish the variants
    variants: Callable[[BertConfig], list[_Variant]]  # returns the variants of an architecture
    # whether to compare masked-LM perplexity; requires the same prediction targets for all variants
    has_perplexity: bool


_TABLES = {
    "tasks": _Table("Pretraining tasks", ("variant",), _task_variants, has_perplexity=False),
    "masking": _Table("Masking", ("[MASK]", "same", "random"), _masking_variants, has_perplexity=True),
    "size": _Table("Model size", ("layers", "hidden", "heads", "parameters"), _size_variants, has_perplexity=True),
}


class _Trials(NamedTuple):
    """The runs of a variant with a seed, in order: each depends on the previous ones."""

    pretrained: "Trial"
    heldout: "Trial"
    finetuned: "Trial"


def run(config: AblationConfig) -> None:
    """Execute unfinished runs, then print the tables."""
    from official_bert.tasks.classification.datasets import named_dataset

    metric = f"eval_{named_dataset(config.task_name).primary_metric}"
    bert_config = BertConfig.from_json_file(config.bert_config_file)
    bert_config.check_length(config.max_seq_length, config.bert_config_file)
    tables = {name: _TABLES[name].variants(bert_config) for name in config.table_names}
    variants = {variant.name: variant for variants in tables.values() for variant in variants}
    runs = {
        (name, seed): _trials(config, bert_config, variant, seed, metric)
        for name, variant in variants.items()
        for seed in config.seeds
    }
    settings = _checked_settings(config)
    # Variants may share a pretrained model.
    trials = list({trial.config.output_dir: trial for of_run in runs.values() for trial in of_run}.values())
    for trial in trials:
        trial.check_folder()
    writing.make_folders(config.output_dir)
    with writing.atomic_write(os.path.join(config.output_dir, _SETTINGS_FILE)) as sink:
        sink.write(json.dumps(settings, indent=2) + "\n")
    for variant in variants.values():
        _write_architecture(config, bert_config, variant)
    _run_all(config, trials)
    rows = {name: _rows(_TABLES[name], tables[name], runs, config, metric) for name in tables}
    with writing.atomic_write(os.path.join(config.output_dir, _TABLE_FILE)) as sink:
        sink.write(format_table(_all_scores(runs, metric), "tsv"))
    for name, table in rows.items():
        sys.stdout.write(f"{_TABLES[name].title}\n\n{format_table(table, config.table_format)}\n")


def _run_all(config: AblationConfig, trials: "Sequence[Trial]") -> None:
    """Create the records, then execute unfinished runs."""
    pending = [trial for trial in trials if trial.score is None]
    logging.info("%d runs, %d of them finished already", len(trials), len(trials) - len(pending))
    for has_pairs, seed in itertools.product((True, False), config.seeds):
        pretraining = [trial.config for trial in pending if isinstance(trial.config, PretrainingConfig)]
        if any((trained.random_seed, trained.use_next_sentence) == (seed, has_pairs) for trained in pretraining):
            _make_records(config, has_pairs, seed)
    for number, trial in enumerate(pending, start=1):
        name = os.path.relpath(trial.config.output_dir, config.output_dir)
        logging.info("run %d of %d: %s", number, len(pending), name)
        trial.run(name)
        logging.info("%s = %.*f", trial.metric, _DECIMALS, trial.score)


def _trials(config: AblationConfig, bert_config: BertConfig, variant: _Variant, seed: int, metric: str) -> _Trials:
    from official_bert.training.trials import Trial

    shared = {"vocab_file": config.vocab_file, "train_batch_size": config.train_batch_size, "random_seed": seed}
    trained, heldout = _pretraining_flags(config, bert_config, variant, shared)
    finetuned = {
        **shared,
        **config.text_settings._asdict(),
        **variant.finetuning,
        "bert_config_file": os.path.join(trained["output_dir"], "bert_config.json"),
        "init_checkpoint": trained["output_dir"],
        "task_name": config.task_name,
        "data_dir": config.data_dir,
        "max_seq_length": config.max_seq_length,
        "learning_rate": config.learning_rate,
        "num_train_epochs": config.num_train_epochs,
        "keep_checkpoint_max": 1,
        "output_dir": os.path.join(config.output_dir, f"{variant.name}-seed_{seed}", "finetuned"),
        "do_train": True,
        "do_eval": True,
    }
    return _Trials(
        Trial("run_pretraining", PretrainingConfig(**trained), _MASKED_LM_LOSS),
        Trial("run_pretraining", PretrainingConfig(**heldout), _MASKED_LM_LOSS),
        Trial("run_classifier", ClassifierConfig(**finetuned), metric),
    )


def _pretraining_flags(
    config: AblationConfig, bert_config: BertConfig, variant: _Variant, shared: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the flags of a variant's training, and of its evaluation on held-out text."""
    pretraining = variant.pretraining
    if variant.pretrained_as:
        pretraining = next(
            other.pretraining for other in _task_variants(bert_config) if other.name == variant.pretrained_as
        )
    seed = shared["random_seed"]
    pretrained_folder = os.path.join(config.output_dir, f"{variant.pretrained_as or variant.name}-seed_{seed}")
    has_pairs = pretraining.get("use_next_sentence", True)
    # All variants predict the same masks of held-out text, however they were trained.
    evaluated = {
        **shared,
        "bert_config_file": _architecture_file(config, variant.pretrained_as or variant.name),
        "max_seq_length": config.max_seq_length,
        "max_predictions_per_seq": math.ceil(config.max_seq_length * _PREDICTED_SHARE),
        "dynamic_masking": True,
        "eval_batch_size": config.train_batch_size,
        "do_eval": True,
        **{name: value for name, value in pretraining.items() if name in _LEFT_TO_RIGHT},
    }
    trained = {
        **evaluated,
        **pretraining,
        "input_file": _records(config, "train", has_pairs, seed),
        "output_dir": os.path.join(pretrained_folder, "pretrained"),
        "do_train": True,
        "num_train_steps": config.num_train_steps,
        "num_warmup_steps": config.num_train_steps // 10,
        "learning_rate": config.pretraining_learning_rate,
        "max_eval_steps": 10,
        "keep_checkpoint_max": 1,
    }
    heldout = {
        **evaluated,
        "input_file": _records(config, "heldout", has_pairs, config.seeds[0]),
        "init_checkpoint": trained["output_dir"],
        "output_dir": os.path.join(pretrained_folder, "heldout"),
        "max_eval_steps": 10**6,
    }
    return trained, heldout


def _records(config: AblationConfig, split: str, has_pairs: bool, seed: int) -> str:
    kind = "pairs" if has_pairs else "stretches"
    return os.path.join(config.output_dir, "records", f"{split}-{kind}-seed_{seed}.tfrecord")


def _make_records(config: AblationConfig, has_pairs: bool, seed: int) -> None:
    """Create missing records: training records for a seed, and held-out records for the first seed."""
    from official_bert.training.trials import run_script, unfinished

    texts = (("train", config.input_file, seed), ("heldout", config.heldout_file, config.seeds[0]))
    for split, given, file_seed in texts:
        path = _records(config, split, has_pairs, file_seed)
        if files.exists(path):
            continue
        writing.make_folders(os.path.dirname(path))
        flags = PretrainingDataConfig(
            input_file=given,
            input_format=config.input_format,
            text_field=config.text_field,
            output_file=path,
            vocab_file=config.vocab_file,
            max_seq_length=config.max_seq_length,
            random_seed=file_seed,
            dupe_factor=config.dupe_factor if split == "train" else 1,
            masking="none",
            use_next_sentence=has_pairs,
            **config.text_settings._asdict(),
        )
        logging.info("making %s", path)
        exit_code = run_script("create_pretraining_data", flags)
        if not files.exists(path):
            raise unfinished(f"the creation of {path}", exit_code)


def _architecture_file(config: AblationConfig, name: str) -> str:
    return os.path.join(config.output_dir, "architectures", f"{name}.json")


def _write_architecture(config: AblationConfig, bert_config: BertConfig, variant: _Variant) -> None:
    path = _architecture_file(config, variant.name)
    writing.make_folders(os.path.dirname(path))
    with writing.atomic_write(path) as sink:
        sink.write(dataclasses.replace(bert_config, **variant.architecture).to_json_string())


def _checked_settings(config: AblationConfig) -> dict[str, Any]:
    """Return the settings of records and models; raise if the folder was created with others.

    More tables and seeds may be added later. The flags of each run are compared separately.
    """
    names = ("input_file", "heldout_file", "vocab_file", "dupe_factor", "max_seq_length")
    settings = {
        **{name: getattr(config, name) for name in names},
        **config.text_settings._asdict(),
        "bert_config": BertConfig.from_json_file(config.bert_config_file).to_dict(),
        "first random_seed": config.seeds[0],
    }
    path = os.path.join(config.output_dir, _SETTINGS_FILE)
    if files.exists(path):
        found = text_files.read_json(path, "settings of an ablation")
        changed = next((name for name, value in settings.items() if found.get(name) != value), None)
        if changed:
            raise UserError(
                f"{config.output_dir} has runs with another {changed}: {found.get(changed)}, not {settings[changed]}; "
                "give another --output_dir"
            )
    return settings


def _rows(
    table: _Table,
    variants: Sequence[_Variant],
    runs: Mapping[tuple[str, int], _Trials],
    config: AblationConfig,
    metric: str,
) -> list[list[str]]:
    """Return the header of a table, and a row of means over seeds per variant."""
    perplexity = ("masked_lm_perplexity", "std") if table.has_perplexity else ()
    rows = [[*table.columns, *perplexity, metric, "std"]]
    for variant in variants:
        trials = [runs[variant.name, seed] for seed in config.seeds]
        cells = list(variant.cells)
        if table.has_perplexity:
            cells += mean_and_deviation([math.exp(trial.heldout.score) for trial in trials], 1)
        rows.append([*cells, *mean_and_deviation([trial.finetuned.score for trial in trials], _DECIMALS)])
    return rows


def _all_scores(runs: Mapping[tuple[str, int], _Trials], metric: str) -> list[list[str]]:
    rows = [["variant", "seed", f"heldout_{_MASKED_LM_LOSS}", metric]]
    for (name, seed), trials in runs.items():
        scores = (trials.heldout.score, trials.finetuned.score)
        rows.append([name, str(seed), *(f"{score:.{_DECIMALS}f}" for score in scores)])
    return rows


COMMAND = Command(
    name="ablation",
    config_class=AblationConfig,
    summary="Pretrains and fine-tunes variants of BERT on a small budget: the BERT paper's ablations.",
    usage=r"""
  {command} --input_file=corpus.txt --heldout_file=heldout.txt --vocab_file=vocab.txt \
      --bert_config_file=bert_config.json --task_name=SST-2 --data_dir=glue/SST-2 --output_dir=out/ablation

Prints tables of means over the seeds. The same command resumes an interrupted run.
""",
    check=check,
    run=run,
    uses_tensorflow=False,
)
