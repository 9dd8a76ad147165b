"""Flags of the tools that compare the vectors of sentences and words."""

from collections.abc import Sequence

from official_bert.config.options import MAX_AXIS, MAX_BATCH_SIZE, check_options, layer_numbers, option, options
from official_bert.config.run_configs.training import DeviceOptions, TokenizerOptions, bert_config_option
from official_bert.support.errors import UserError

# The poolings that `--sts_file` compares.
POOLINGS = ("cls", "mean", "mean_no_special", "max", "max_no_special", "bm25")
# The flags that have no effect with `--sts_file`.
_FOR_RANKING = ("query", "query_file", "top_k", "layers", "pooling", "index_dir", "projector_dir")
# Those that have none without a query.
_FOR_QUERIES = ("top_k", "output_format")


@options(group="model")
class SentenceOptions(DeviceOptions, TokenizerOptions):
    """The flags that both tools have."""

    bert_config_file: str | None = bert_config_option()
    init_checkpoint: str | None = option(None, "Checkpoint with the weights of the model.", required=True, is_path=True)
    max_seq_length: int = option(
        128,
        "Maximum number of wordpieces per sentence, including [CLS] and [SEP]; longer ones are truncated.",
        group="text",
        minimum=4,
        maximum=MAX_AXIS,
    )
    batch_size: int = option(
        32,
        "Number of sentences of 64 wordpieces per batch and device; more if they are shorter.",
        group="devices",
        minimum=1,
        maximum=MAX_BATCH_SIZE,
    )
    layers: str = option(
        "-1", "Layer whose vectors are compared: 0 is the first, -1 the last; of several, as in -1,-2, the mean."
    )

    @property
    def layer_indices(self) -> list[int]:
        """The numbers that --layers lists."""
        return layer_numbers(self.layers)


@options(group="input")
class SimilarityConfig(SentenceOptions):
    """Flags of `tools/sentence_similarity.py`."""

    candidates_file: str | None = option(None, "Sentences to rank, one per line.", is_path=True)
    query: str | None = option(None, "Sentence to compare with the candidates.")
    query_file: str | None = option(None, "Queries, one per line; - for standard input.", is_path=True)
    top_k: int = option(5, "Number of candidates to print for each query.", group="output", minimum=1, maximum=MAX_AXIS)
    pooling: str = option(
        "mean",
        "The vector of a sentence: that of [CLS], or the mean or maximum over the wordpieces, including [CLS] and "
        "[SEP]; mean_no_special and max_no_special exclude these, and so does bm25, a mean in which rare wordpieces "
        "weigh more, by their frequency in the candidates.",
        group="model",
        choices=POOLINGS,
    )
    index_dir: str | None = option(
        None,
        "Folder for the vectors of the candidates, which are computed again only after a change.",
        group="output",
        is_path=True,
    )
    projector_dir: str | None = option(
        None,
        "Folder for the candidates and their vectors as TensorBoard's Embedding Projector reads them; needs no query.",
        group="output",
        is_path=True,
    )
    sts_file: str | None = option(
        None, "Instead of candidates: lines of a score and two sentences, with tabs between them.", is_path=True
    )
    output_format: str = option(
        "tsv",
        "tsv: columns with a header; jsonl: one JSON object per query or row.",
        group="output",
        choices=("tsv", "jsonl"),
    )

    def __post_init__(self):
        check_options(self)
        layer_numbers(self.layers)
        if (self.candidates_file is None) == (self.sts_file is None):
            raise UserError("give either --candidates_file, to rank its sentences, or --sts_file, to compare layers")
        if self.sts_file is not None:
            self._check_unused(_FOR_RANKING, "with --sts_file")
            return
        if self.projector_dir is not None and not self.has_queries:
            self._check_unused(_FOR_QUERIES, "without --query or --query_file")
            return
        if (self.query is None) == (self.query_file is None):
            raise UserError("give either --query, one sentence, or --query_file, a file of them (- for standard input)")
        if self.query is not None and not self.query.strip():
            raise UserError("--query is empty; give a sentence")
        if self.candidates_file == self.query_file == "-":
            raise UserError("--candidates_file and --query_file cannot both be standard input; give a file for one")

    @property
    def has_queries(self) -> bool:
        """Whether there is something to compare the candidates with."""
        return self.query is not None or self.query_file is not None

    def _check_unused(self, names: Sequence[str], circumstances: str) -> None:
        for name in names:
            if getattr(self, name) != getattr(SimilarityConfig, name):
                raise UserError(f"--{name} has no effect {circumstances}; leave it out")


@options(group="input")
class WordVectorConfig(SentenceOptions):
    """Flags of `tools/word_vectors.py`."""

    word: str | None = option(None, "Word to look for in the sentences.", required=True)
    input_file: str | None = option(None, "Sentences, one per line; - for standard input.", required=True, is_path=True)
    picture_file: str | None = option(
        None,
        "PNG file to draw: the occurrences, by the first two principal components of their vectors.",
        group="output",
        is_path=True,
    )

    def __post_init__(self):
        check_options(self)
        layer_numbers(self.layers)
        if not self.word.strip():
            raise UserError("--word is empty; give a word")
