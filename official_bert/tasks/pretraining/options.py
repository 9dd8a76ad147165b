"""Flags of pretraining and of pretraining data creation."""

from typing import Any, ClassVar

from official_bert.options.groups import CorpusOptions, EvaluationOptions, TokenizerOptions
from official_bert.options.option import MAX_AXIS, MAX_NUMBER, MAX_PARTS, UNLIMITED, option, options, redeclared
from official_bert.options.training import TrainingOptions
from official_bert.support.errors import UserError

_MAX_NGRAM_LENGTH = 100
REPLACED_TOKENS = "replaced_tokens"  # choice of `objective`


def _check_replacements(config: "RecordOptions | PretrainingConfig") -> None:
    if config.mask_replace_prob + config.random_replace_prob > 1 + 1e-9:  # allow rounding errors, as in 0.7 + 0.3
        raise UserError(
            f"--mask_replace_prob={config.mask_replace_prob:g} and --random_replace_prob="
            f"{config.random_replace_prob:g} add up to more than 1; lower one of them"
        )


@options(group="masks and pairs")
class RecordOptions(CorpusOptions, TokenizerOptions):
    output_file: str | None = option(
        None,
        "TFRecord files to write: comma-separated list; records are distributed round-robin.",
        required=True,
        is_output=True,
    )
    compression: str = option("none", "Compression of the TFRecord files.", group="output", choices=("none", "gzip"))
    do_whole_word_mask: bool = option(False, "Mask either all wordpieces of a word or none.")
    max_seq_length: int = option(
        128,
        "Maximum number of wordpieces per sequence, including [CLS] and [SEP].",
        group="text",
        minimum=5,
        maximum=MAX_AXIS,
    )
    max_predictions_per_seq: int = option(
        20, "Maximum number of masked wordpieces per sequence.", minimum=1, maximum=MAX_AXIS
    )
    random_seed: int = option(
        12345, "Random seed; the same seed, text and flags give the same records.", maximum=UNLIMITED
    )
    dupe_factor: int = option(
        10, "Number of times each document is used, each time with different masks and pairs.", minimum=1
    )
    masked_lm_prob: float = option(0.15, "Fraction of wordpieces to mask.", minimum=0, maximum=1)
    short_seq_prob: float = option(
        0.1,
        "Fraction of documents that are cut into shorter sequences; with --nouse_next_sentence, of the sequences.",
        minimum=0,
        maximum=1,
    )
    num_shards: int = option(
        0,
        "Number of TFRecord files to write, named after --output_file: out.tfrecord-00000-of-00016; 0 writes the "
        "files named by --output_file.",
        group="output",
        minimum=0,
        maximum=MAX_PARTS,
    )

    masking: str = option(
        "static",
        "static masks each record once; none leaves the masks to run_pretraining --dynamic_masking, which draws new "
        "ones each time it uses a record (--dupe_factor=1 is then enough).",
        choices=("static", "none"),
    )
    mask_replace_prob: float = option(
        0.8, "Fraction of the chosen wordpieces that are replaced by [MASK].", minimum=0, maximum=1
    )
    random_replace_prob: float = option(
        0.1,
        "Fraction of the chosen wordpieces that are replaced by a random one; the remaining ones are unchanged.",
        minimum=0,
        maximum=1,
    )
    use_next_sentence: bool = option(
        True,
        "Make pairs for the next-sentence task; otherwise each record is one span of a document, for run_pretraining "
        "--nouse_next_sentence.",
    )
    sentence_order: bool = option(
        False,
        "Make pairs of consecutive segments, half of them swapped, for ALBERT's sentence-order task instead of the "
        "next-sentence task.",
    )
    max_ngram_length: int = option(
        1,
        "With --do_whole_word_mask: maximum number of neighbouring words that are masked together, as in ALBERT; a "
        "length of n is chosen with a probability proportional to 1/n.",
        minimum=1,
        maximum=_MAX_NGRAM_LENGTH,
    )

    def __post_init__(self):
        super().__post_init__()
        if self.masking != "static":
            self.refuse(
                *("do_whole_word_mask", "max_predictions_per_seq", "masked_lm_prob", "mask_replace_prob"),
                *("random_replace_prob", "max_ngram_length"),
                because="needs --masking=static",
            )
        if not self.do_whole_word_mask:
            self.refuse("max_ngram_length", because="needs --do_whole_word_mask")
        if not self.use_next_sentence:
            self.refuse("sentence_order", because="needs --use_next_sentence")
        _check_replacements(self)
        if "" in self.output_files:
            raise UserError(f"--output_file={self.output_file} contains an empty name")
        if self.num_shards and "," in self.output_file:
            raise UserError("--num_shards derives the file names from one name; give only one --output_file")

    @property
    def output_files(self) -> list[str]:
        if self.num_shards:
            name = self.output_file.strip()
            return [f"{name}-{shard:05}-of-{self.num_shards:05}" for shard in range(self.num_shards)]
        return [name.strip() for name in self.output_file.split(",")]


@options(group="rarely needed")
class PretrainingDataConfig(RecordOptions):
    sampling: str = option(
        "serial",
        "serial: a single random stream, with the same records as the original BERT scripts; sharded: several "
        "processes in bounded memory; records depend on neither.",
        group="output",
        choices=("serial", "sharded"),
    )
    num_processes: int = option(0, "Number of processes; 0 for one per CPU core.", minimum=0, maximum=MAX_PARTS)
    max_memory_gb: float = option(
        0.0, "Approximate maximum memory of all processes together, in GB; 0 allows 0.5 for each process.", minimum=0
    )
    work_dir: str | None = option(
        None,
        "Local folder for intermediate files, from which an interrupted run resumes; by default the first output "
        "file's name with .work appended. Deleted at the end.",
        is_path=True,
    )

    def __post_init__(self):
        super().__post_init__()
        if self.sampling != "sharded":
            self.refuse("num_processes", "max_memory_gb", "work_dir", because="needs --sampling=sharded")


def _dynamic(name: str) -> Any:
    """Define a masking flag for unmasked records."""
    return redeclared(RecordOptions, name, circumstances="With --dynamic_masking: ", affects="learning")


@options(group="training", affects="learning")
class PretrainingConfig(EvaluationOptions, TokenizerOptions, TrainingOptions):
    task: ClassVar[str] = "pretraining"
    of_run: ClassVar[tuple[str, ...]] = (
        *("max_seq_length", "max_predictions_per_seq", "objective", "generator_size"),
        *("use_next_sentence", "sentence_order"),
    )
    of_input_file: ClassVar[tuple[str, ...]] = (
        *("input_file", "dynamic_masking", "masked_lm_prob", "do_whole_word_mask"),
        *("mask_replace_prob", "random_replace_prob"),
    )

    input_file: str | None = option(
        None,
        "TFRecord files: comma-separated list of names, globs, folders (all files below, except .json files and "
        "vocabularies) and @list.txt (a file with one of these per line).",
        required="do_export",
        is_path=True,
    )
    max_seq_length: int = option(
        128, "Number of positions per record; must match the records.", group="input", minimum=1, maximum=MAX_AXIS
    )
    max_predictions_per_seq: int = option(
        20,
        "Number of masked positions per record; must match the records, unless --dynamic_masking is given.",
        group="input",
        minimum=1,
        maximum=MAX_AXIS,
    )
    do_eval: bool = redeclared(EvaluationOptions, "do_eval", help="Run evaluation on the same records.")
    num_train_steps: int = option(100000, "Number of training steps.", minimum=1)
    num_warmup_steps: int = option(10000, "Number of learning-rate warm-up steps.", minimum=0)
    max_eval_steps: int = option(
        100, "Maximum number of batches to evaluate.", group="evaluation", minimum=1, affects="nothing"
    )

    objective: str = option(
        "masked_lm",
        "masked_lm: BERT's pretraining; replaced_tokens: ELECTRA's, in which a generator learns masked LM, and the "
        "model learns to detect the tokens that the generator replaced.",
        choices=("masked_lm", REPLACED_TOKENS),
        affects="slots",
    )
    generator_size: float = option(
        0.25,
        "With --objective=replaced_tokens: width of the generator, as a fraction of the model's.",
        minimum=0.01,
        maximum=1,
        affects="slots",
    )
    dynamic_masking: bool = option(
        False,
        "Draw new masks each time a record is used in training; create the records with create_pretraining_data "
        "--masking=none.",
        group="masks and pairs",
    )
    masked_lm_prob: float = _dynamic("masked_lm_prob")
    do_whole_word_mask: bool = _dynamic("do_whole_word_mask")
    mask_replace_prob: float = _dynamic("mask_replace_prob")
    random_replace_prob: float = _dynamic("random_replace_prob")
    use_next_sentence: bool = option(
        True,
        "Train and evaluate the next-sentence task; otherwise only masked words are learned.",
        group="masks and pairs",
    )
    sentence_order: bool = option(
        False,
        "The records were created with create_pretraining_data --sentence_order: the pair scores are named "
        "sentence_order_accuracy and sentence_order_loss.",
        group="masks and pairs",
    )

    teacher: str | None = redeclared(
        TrainingOptions,
        "teacher",
        help="Folder of a larger pretrained model; the student also learns its predictions of the masked words and its "
        "last layer (knowledge distillation).",
    )
    soft_target_weight: float = redeclared(
        TrainingOptions,
        "soft_target_weight",
        default=5.0,
        help="With --teacher: weight of the loss against the teacher's predictions of the masked words.",
        maximum=MAX_NUMBER,
    )
    masked_lm_weight: float = option(
        2.0, "With --teacher: weight of the masked-LM loss.", group="distillation", minimum=0
    )
    cosine_weight: float = option(
        1.0,
        "With --teacher: weight of the cosine loss between the last layers of both models; 0 if they differ in size.",
        group="distillation",
        minimum=0,
    )

    vocab_file: str | None = option(
        None,
        "Vocabulary of the records and the model, copied to the output folder; by default the one that "
        "create_pretraining_data stored beside the records or, if required, the one beside --init_checkpoint.",
        group="model",
        is_path=True,
        affects="data",
    )
    export_top_k: int = option(
        5,
        "With --do_export: number of words to return for each [MASK].",
        group="export",
        minimum=1,
        maximum=MAX_AXIS,
        affects="nothing",
    )

    def __post_init__(self):
        super().__post_init__()
        if not self.dynamic_masking:
            self.refuse(
                *("masked_lm_prob", "do_whole_word_mask", "mask_replace_prob", "random_replace_prob"),
                because="needs --dynamic_masking",
            )
        if not self.use_next_sentence:
            self.refuse("sentence_order", because="needs --use_next_sentence")
        if self.objective == REPLACED_TOKENS:
            names = ("sentence_order", "teacher", "train_layers", "train_only", "lora_rank")
            self.refuse(*names, because=f"cannot be used with --objective={REPLACED_TOKENS}")
        else:
            self.refuse("generator_size", because=f"needs --objective={REPLACED_TOKENS}")
        if not self.teacher:
            self.refuse("masked_lm_weight", "cosine_weight", because="needs --teacher")
        if not self.do_export:
            self.refuse("export_top_k", because="needs --do_export")
        _check_replacements(self)
        if (self.do_train or self.do_eval) and not self.input_file:
            raise UserError(f"--{'do_train' if self.do_train else 'do_eval'} needs --input_file")
