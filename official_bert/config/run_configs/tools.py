"""Flags of the tools for vocabularies and checkpoints."""

from official_bert.config.options import MAX_AXIS, check_options, layer_numbers, option, options
from official_bert.config.run_configs.corpus import CorpusOptions
from official_bert.config.run_configs.training import TextOptions, TokenizerOptions, bert_config_option, text_option
from official_bert.support.addresses import is_address
from official_bert.support.errors import UserError

# Settings without which some flags have no effect.
_TO_HF = {"to_hf": (True,)}
_SHOWS_ATTENTION = {"format": ("html", "png")}


@options(group="output")
class VocabConfig(CorpusOptions, TextOptions):
    """Flags of `tools/build_vocab.py`."""

    vocab_file: str | None = option(None, "Vocabulary file to write.", required=True, is_path=True)
    vocab_size: int = option(
        30000, "Maximum number of wordpieces, including special tokens and single characters.", minimum=10
    )
    min_frequency: int = option(
        2, "Minimum number of times a wordpiece must occur; single characters are exempt.", minimum=1
    )
    max_characters: int = option(1000, "Maximum number of distinct characters; raise it for Chinese.", minimum=1)

    def __post_init__(self):
        check_options(self)


@options(group="model")
class VocabularyChangeOptions(CorpusOptions, TextOptions):
    """Flags of the tools that change the vocabulary of a model."""

    init_checkpoint: str | None = option(None, "Checkpoint of the model.", required=True, is_path=True)
    bert_config_file: str | None = bert_config_option("Model configuration of the checkpoint, a bert_config.json.")
    vocab_file: str | None = option(None, "Vocabulary of the model.", required=True, from_checkpoint=True, is_path=True)
    output_dir: str | None = option(
        None, "Folder to write bert_model.ckpt, bert_config.json and vocab.txt to.", required=True, is_path=True
    )

    def __post_init__(self):
        check_options(self)


@options(group="output")
class ExtendVocabConfig(VocabularyChangeOptions):
    """Flags of `tools/extend_vocab.py`."""

    num_new_tokens: int = option(1000, "Maximum number of wordpieces to add.", minimum=1, maximum=10**6)
    use_unused: bool = option(
        True, "Put them in the places of [unused...] tokens first, so that the vocabulary grows less, or not at all."
    )
    min_frequency: int = option(
        2, "Minimum number of times a wordpiece must occur; single characters are exempt.", minimum=1
    )
    max_characters: int = option(1000, "Maximum number of distinct characters; raise it for Chinese.", minimum=1)


@options(group="output")
class PruneVocabConfig(VocabularyChangeOptions):
    """Flags of `tools/prune_vocab.py`."""

    min_count: int = option(
        1, "Minimum number of times a wordpiece must be used to stay; above 1, the text is split otherwise.", minimum=1
    )
    keep_characters: bool = option(
        True, "Keep all wordpieces of one character that the text has, so that fewer other words are unknown."
    )


@options(group="model")
class _ModelOptions(TokenizerOptions):
    """The flags that name a model."""

    bert_config_file: str | None = bert_config_option()
    init_checkpoint: str | None = option(None, "Checkpoint with the weights of the model.", required=True, is_path=True)


@options(group="output")
class FillMaskConfig(_ModelOptions):
    """Flags of `tools/fill_mask.py`."""

    text: str | None = option(None, "Text with one [MASK] for each masked wordpiece.", required=True)
    top_k: int = option(5, "Number of candidates to print for each mask.", minimum=1, maximum=MAX_AXIS)

    def __post_init__(self):
        check_options(self)


@options(group="output")
class AttentionConfig(_ModelOptions):
    """Flags of `tools/view_attention.py`."""

    text: str | None = option(None, "Text to read: a sentence, or a question.", required=True)
    text_b: str | None = option(None, "Second text: another sentence, or the context of the question.", group="input")
    output_file: str | None = option(None, "File to write.", required=True, is_path=True)
    format: str = option(
        "html",
        "html: a page for the browser, of one file; json: all numbers, exactly; png: an image of the head that --layer "
        "and --head choose, or of all heads.",
        choices=("html", "json", "png"),
    )
    max_seq_length: int = option(
        128,
        "Maximum number of wordpieces, including [CLS] and [SEP]; longer texts are truncated, also to what the model "
        "takes.",
        group="text",
        minimum=5,
        maximum=MAX_AXIS,
    )
    layer: int | None = option(
        None,
        "Layer of the head that the page shows first, or that the image shows: 0 is the first, -1 the last.",
        only_with=_SHOWS_ATTENTION,
    )
    head: int | None = option(None, "Number of the head in its layer, from 0.", only_with=_SHOWS_ATTENTION)
    merge_words: bool = option(
        False, "Merge wordpieces to words: in the image, at first in the page, and in addition in the JSON."
    )
    top_k: int = option(
        5, "Number of words to predict at each position, with a pretrained checkpoint.", minimum=1, maximum=MAX_AXIS
    )

    def __post_init__(self):
        check_options(self)
        for name in ("text", "text_b"):
            value = getattr(self, name)
            if value is not None and not value.strip():
                raise UserError(f"--{name} is empty; give a text (was a shell variable not set?)")
        if (self.layer is None) != (self.head is None):
            given, missing = ("layer", "head") if self.head is None else ("head", "layer")
            raise UserError(f"--{given} needs --{missing}; give both, or neither")


@options(group="output")
class CurvesConfig:
    """Flags of `tools/plot_metrics.py`."""

    output_dirs: str | None = option(
        None, "Output folders of runs: comma-separated list of names and globs.", required=True, is_path=True
    )
    output_file: str | None = option(None, "File to write: a page for the browser, of one file.", is_path=True)
    picture_file: str | None = option(None, "PNG file to draw, instead of the page or beside it.", is_path=True)
    smoothing: float = option(
        0.6,
        "Smoothing of the curves that the page starts with and the picture has: weight of each point relative to the "
        "next one, from 0 (none) to 0.99.",
        minimum=0,
        maximum=0.99,
    )

    def __post_init__(self):
        check_options(self)
        if self.output_file is None and self.picture_file is None:
            raise UserError("nothing to write: give --output_file, for a page, or --picture_file, for a PNG, or both")


@options(group="rarely needed")
class StripCheckpointConfig:
    """Flags of `tools/strip_checkpoint.py`."""

    init_checkpoint: str | None = option(
        None, "Checkpoint written by a training run.", required=True, waived_with="checkpoint", is_path=True
    )
    output_dir: str | None = option(
        None, "Folder to write bert_model.ckpt to.", required=True, waived_with="output", is_path=True
    )
    checkpoint: str | None = option(None, "Old name of --init_checkpoint.", is_path=True)
    output: str | None = option(
        None, "Instead of --output_dir: name of the checkpoint to write, such as out/bert_model.ckpt.", is_path=True
    )

    def __post_init__(self):
        check_options(self)
        for name, other in (("init_checkpoint", "checkpoint"), ("output_dir", "output")):
            if getattr(self, name) is not None and getattr(self, other) is not None:
                raise UserError(f"--{name} and --{other} exclude each other; give one")


@options(group="output")
class AveragingConfig:
    """Flags of `tools/average_checkpoints.py`."""

    checkpoints: str | None = option(
        None,
        "Comma-separated list of at least two checkpoints of one architecture, or folders that hold them.",
        required=True,
        is_path=True,
    )
    output_dir: str | None = option(
        None,
        "Folder to write bert_model.ckpt to, with the bert_config.json and vocab.txt that lie beside the checkpoints.",
        required=True,
        is_path=True,
    )

    def __post_init__(self):
        check_options(self)
        if len(self.paths) < 2 or "" in self.paths:
            raise UserError(f"--checkpoints={self.checkpoints}: must be a list of at least two checkpoints")

    @property
    def paths(self) -> list[str]:
        """The checkpoints."""
        return [path.strip() for path in self.checkpoints.split(",")]


@options(group="model")
class StudentConfig:
    """Flags of `tools/make_student.py`."""

    init_checkpoint: str | None = option(
        None, "Checkpoint of the model whose layers are taken.", required=True, is_path=True
    )
    bert_config_file: str | None = bert_config_option("Model configuration of the checkpoint, a bert_config.json.")
    vocab_file: str | None = option(None, "Vocabulary of the model, to be copied beside the new one.", is_path=True)
    num_layers: int | None = option(
        None,
        "Number of layers of the new model, evenly spaced in the old one: with 6 of 12 layers 0, 2, 4, 6, 8 and 10.",
        minimum=1,
        maximum=MAX_AXIS,
    )
    layers: str | None = option(
        None,
        "Instead of --num_layers: comma-separated list of the layers to take, 0 is the first, -1 the last; a repeated "
        "list, as in 0,1,0,1, makes a deeper model.",
    )
    output_dir: str | None = option(
        None, "Folder to write bert_model.ckpt, bert_config.json and vocab.txt to.", required=True, is_path=True
    )

    def __post_init__(self):
        check_options(self)
        if (self.num_layers is None) == (self.layers is None):
            raise UserError("give either --num_layers or --layers")
        if self.layers is not None:
            layer_numbers(self.layers)

    def chosen_layers(self, num_hidden_layers: int) -> list[int]:
        """The layers to take of a model that has so many; negative ones are still to be checked."""
        if self.layers is not None:
            return layer_numbers(self.layers)
        return [place * num_hidden_layers // self.num_layers for place in range(self.num_layers)]


@options(group="input")
class HfConversionConfig(TextOptions):
    """Flags of `tools/convert_hf_checkpoint.py`."""

    output_dir: str | None = option(None, "Folder to write the converted files to.", required=True, is_path=True)
    hf_dir: str | None = option(
        None,
        "Hugging Face folder to read: config.json, model.safetensors, and vocab.txt or spiece.model.",
        only_with={"to_hf": (False,)},
        is_path=True,
    )
    to_hf: bool = option(False, "Convert --init_checkpoint to a Hugging Face folder instead.")
    init_checkpoint: str | None = option(None, "Checkpoint to read, with --to_hf.", only_with=_TO_HF, is_path=True)
    bert_config_file: str | None = option(
        None,
        "Model configuration of the checkpoint, a bert_config.json, with --to_hf.",
        from_checkpoint=("to_hf",),
        only_with=_TO_HF,
        is_path=True,
    )
    vocab_file: str | None = option(
        None,
        "Vocabulary of the checkpoint, with --to_hf.",
        from_checkpoint=("to_hf",),
        only_with=_TO_HF,
        not_with={"spm_model_file": "--vocab_file has no effect with --spm_model_file; leave it out"},
        is_path=True,
    )
    spm_model_file: str | None = option(
        None,
        "SentencePiece model of the checkpoint, with --to_hf, instead of --vocab_file.",
        only_with=_TO_HF,
        is_path=True,
    )
    do_lower_case: bool = text_option("do_lower_case", "With --to_hf: ", _TO_HF)
    strip_accents: bool = text_option("strip_accents", "With --to_hf: ", _TO_HF)
    basic_tokenize: bool = text_option("basic_tokenize", "With --to_hf: ", _TO_HF)

    def __post_init__(self):
        check_options(self)
        for name in ("init_checkpoint", "bert_config_file", "vocab_file") if self.to_hf else ("hf_dir",):
            if getattr(self, name) is None and not (name == "vocab_file" and self.spm_model_file):
                advice = ", unless the folder of --init_checkpoint has it" if name.endswith("_file") else ""
                circumstances = "with" if self.to_hf else "without"
                raise UserError(f"--{name} is missing; it is needed {circumstances} --to_hf{advice}")


@options(group="devices")
class LaunchConfig:
    """Flags of `tools/launch_workers.py`."""

    num_workers: int = option(2, "Number of workers to start on this machine.", minimum=1, maximum=64)
    hosts: str | None = option(
        None, "Instead of workers on this machine: comma-separated host:port of each worker; the first is the chief."
    )
    worker_index: int | None = option(
        None,
        "With --hosts: which of them this machine is, counted from 0; starts the command as this worker.",
        minimum=0,
    )
    command: str | None = option(
        None, "Command that each worker runs, as one quoted value; or give it at the end, after --.", group="input"
    )

    def __post_init__(self):
        check_options(self)
        addresses = self.addresses
        wrong = next((address for address in addresses if not is_address(address)), None)
        if wrong is not None:
            raise UserError(f"--hosts: {wrong!r} is not host:port, as in worker0.example.com:2222")
        if len(set(addresses)) < len(addresses):
            raise UserError("--hosts names a worker twice; on one machine, each needs a port of its own")
        if self.worker_index is not None and not addresses:
            raise UserError("--worker_index needs --hosts, the host:port of all workers")
        if self.worker_index is not None and self.worker_index >= len(addresses):
            raise UserError(f"--worker_index={self.worker_index}, but --hosts names {len(addresses)} workers")
        if (self.worker_index is None) == bool(addresses and self.command):
            raise UserError("a command with --hosts needs --worker_index, and --worker_index a command, after --")
        if not addresses and not self.command:
            raise UserError("nothing to start: give the command at the end, after --, or --hosts to see each TF_CONFIG")

    @property
    def addresses(self) -> list[str]:
        """The host:port of each worker of a cluster; none for workers on this machine."""
        return [address.strip() for address in self.hosts.split(",")] if self.hosts is not None else []
