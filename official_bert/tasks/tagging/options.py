"""Flags of `run_ner`."""

from typing import Any, ClassVar

from official_bert.options.groups import HeadOptions
from official_bert.options.option import MAX_AXIS, option, options, redeclared
from official_bert.options.training import LabellingOptions
from official_bert.support.errors import UserError

CHARACTERS = "characters"  # a value of file_layout


@options(group="input", affects="data")
class TaggingConfig(HeadOptions, LabellingOptions):
    task: ClassVar[str] = "tagging"

    data_dir: str | None = option(
        None,
        "Folder with the files of the data set: eng.train, eng.testa and eng.testb, as CoNLL-2003 names them, or "
        "train.txt, dev.txt (or valid.txt) and test.txt.",
        is_path=True,
    )
    train_file: str | None = option(None, "File to train on, instead of that in --data_dir.", is_path=True)
    eval_file: str | None = option(None, "File to evaluate, instead of that in --data_dir.", is_path=True)
    predict_file: str | None = option(
        None, "File to predict, instead of that in --data_dir; scored if it has the tags.", is_path=True
    )
    file_layout: str = option(
        "auto",
        "columns: one word per line with its tag, blank lines between sentences; characters: the same with characters, "
        "as in KLUE, or, in .json and .jsonl, texts with spans, as annotation tools export them; sentences: one "
        "sentence per line, a tab, and its tags; jsonl: one object per sentence, with the keys tokens and ner_tags; "
        "auto: recognized by the name or the content, except characters.",
        choices=("auto", "columns", "sentences", "jsonl", CHARACTERS),
    )
    word_column: int = option(
        0, "Number of the column of the word: 0 is the first, -1 the last.", minimum=-MAX_AXIS, maximum=MAX_AXIS
    )
    tag_column: int = option(
        -1, "Number of the column of the tag: 0 is the first, -1 the last.", minimum=-MAX_AXIS, maximum=MAX_AXIS
    )
    document_context: bool = option(
        False,
        "Fill the window with the neighbouring sentences of the same document; only the words of the sentence itself "
        "are tagged.",
    )
    constrained_decoding: bool = option(
        False,
        "Choose the most likely sequence of tags that follows the rules of IOB2 or IOBES, instead of the most likely "
        "tag of each word; needs no training.",
        group="evaluation",
        affects="use",
    )
    head: str = redeclared(
        HeadOptions,
        "head",
        help="Head on the encoder. linear: one linear layer; bilstm: two bidirectional LSTM layers, then a linear "
        "layer; crf: one linear layer, and learned scores of neighbouring tags (a conditional random field).",
        choices=("linear", "bilstm", "crf"),
    )
    feature_layers: str = option(
        "last",
        "Encoder layers that the tagger reads.",
        group="model",
        choices=("embeddings", "second_to_last", "last", "weighted_sum_last_four", "concat_last_four", "weighted_sum"),
        affects="head",
    )

    def __post_init__(self):
        super().__post_init__()
        for name, flag in self.required_files.items():
            if not getattr(self, name) and not self.data_dir:
                raise UserError(f"--{flag} needs --{name}, or --data_dir with the files of CoNLL-2003")
        if self.word_column == self.tag_column:
            raise UserError(f"--word_column={self.word_column} and --tag_column={self.tag_column} are the same column")

        # The gradients of the loops of a CRF cannot be compiled by XLA.
        excluded = [name for name in ("teacher", "use_xla", "use_tpu") if getattr(self, name)]
        if self.head == "crf" and excluded:
            raise UserError(f"--{excluded[0]} and --head=crf exclude each other; choose one")

    @property
    def decodes_sequences(self) -> bool:
        """True if the tags of a sentence are chosen together."""
        return self.head == "crf" or self.constrained_decoding

    @property
    def model_options(self) -> dict[str, Any]:
        return {**super().model_options, "head_dropout": self.head_dropout, "feature_layers": self.feature_layers}
