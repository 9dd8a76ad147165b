"""`edit_checkpoint`: average checkpoints, change layers, positions or vocabulary of a model, drop training state."""

import dataclasses
from typing import TYPE_CHECKING, ClassVar

from absl import logging

from official_bert.commands.shared.corpora import LearnerOptions, find_parts, warn_of_text
from official_bert.commands.shared.edited_model import EditedModel, EditedModelOptions, read_edited_model, write_model
from official_bert.config.bert_config import LARGEST_SIZE, BertConfig, check_memory
from official_bert.config.text_settings import TextSettings
from official_bert.options.command import Command
from official_bert.options.groups import CorpusOptions, TextOptions
from official_bert.options.option import MAX_AXIS, layer_numbers, option, options, redeclared
from official_bert.support.errors import UserError, format_names

if TYPE_CHECKING:
    from collections import Counter

    import numpy as np

    from official_bert.data.vocab_learner import VocabularyChange
    from official_bert.tokenization.vocab import Vocabulary

    Arrays = dict[str, np.ndarray]

_WORD_EMBEDDINGS = "bert/embeddings/word_embeddings"
_CLASSIFIER = "output_weights"  # of classifiers and taggers
_MEGABYTE = 2**20


@options(group="model")
class EditCheckpointConfig(EditedModelOptions, CorpusOptions, LearnerOptions, TextOptions):
    takes_several: ClassVar[bool] = True
    init_checkpoint: str | None = redeclared(
        EditedModelOptions,
        "init_checkpoint",
        help="Checkpoint, or its folder; a comma-separated list of checkpoints of the same architecture averages their "
        "weights.",
    )
    vocab_file: str | None = redeclared(EditedModelOptions, "vocab_file", from_checkpoint=("input_file",))
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
    max_position_embeddings: int | None = option(
        None,
        "Number of position embeddings of the new model, more than the old one has.",
        minimum=1,
        maximum=LARGEST_SIZE,
    )
    input_file: str | None = redeclared(
        CorpusOptions, "input_file", circumstances="With --num_new_tokens or --prune: ", required=False
    )
    num_new_tokens: int = option(
        0, "Maximum number of wordpieces of the text to add.", group="output", minimum=0, maximum=10**6
    )
    prune: bool = option(False, "Remove the wordpieces that the text does not use.", group="output")

    def __post_init__(self):
        if not self.input_file:
            names = ("num_new_tokens", "prune", "input_format", "text_field", *TextSettings._fields)
            self.refuse(*names, because="needs --input_file")
        super().__post_init__()
        if "" in self.paths:
            raise UserError(f"--init_checkpoint={self.init_checkpoint}: must be a comma-separated list of checkpoints")
        if self.layers is not None:
            layer_numbers(self.layers)
            if self.num_layers is not None:
                raise UserError("--num_layers and --layers exclude each other; give one")
        if not self.num_new_tokens:
            self.refuse(*self.learner_flags, because="needs --num_new_tokens")
        if self.input_file and bool(self.num_new_tokens) == self.prune:
            raise UserError("give either --num_new_tokens, to add wordpieces, or --prune, to remove some")

    @property
    def paths(self) -> list[str]:
        """The checkpoints; several are averaged."""
        return [path.strip() for path in self.init_checkpoint.split(",")]


def prepare(config: EditCheckpointConfig) -> tuple[EditedModel, list[int] | None]:
    """Return the old model, and the layers to take from it, if some are selected."""
    parts = find_parts(config) if config.input_file else []
    model = read_edited_model(config, config.paths)
    changes = (config.num_layers, config.layers, config.max_position_embeddings, config.input_file)
    if model.bert_config is None and any(value is not None for value in changes):
        raise UserError(
            "changing layers, positions or the vocabulary needs --bert_config_file, the model's configuration, since "
            "none is beside the checkpoint"
        )
    if config.max_position_embeddings is not None:
        there = model.bert_config.max_position_embeddings
        if config.max_position_embeddings <= there:
            raise UserError(
                f"max_position_embeddings={config.max_position_embeddings}: {model.config_file} has {there} already; "
                "give more"
            )
    if parts:
        _check_vocabulary(config, model.vocabulary)
        warn_of_text(parts[0], config, config.text_settings, model.vocabulary)
    return model, _chosen_layers(config, model)


def run(config: EditCheckpointConfig, inputs: tuple[EditedModel, list[int] | None]) -> None:
    from official_bert.checkpoints.editing import averaged, read_model
    from official_bert.checkpoints.loading import open_checkpoint
    from official_bert.tokenization.tokenizer_files import find_settings
    from official_bert.training.run_folder import read_labels

    model, layers = inputs
    bert_config, vocabulary = model.bert_config, model.vocabulary
    folder = model.sources[0].folders[-1]
    labels, used = read_labels(folder), find_settings(folder, vocabulary, {}).flags if vocabulary else ""
    readers = [open_checkpoint(source, "init_checkpoint") for source in model.sources]
    arrays = averaged(readers) if len(readers) > 1 else read_model(readers[0])
    num_left_out = len(readers[0].shapes) - len(readers[0].weights.new) - len(arrays)
    if len(readers) > 1:
        logging.info("averaged %d checkpoints", len(readers))
    if layers is not None:
        arrays, bert_config = _with_layers(arrays, layers, model)
    if config.max_position_embeddings is not None:
        arrays, bert_config = _with_positions(arrays, bert_config, config, model)
    if config.input_file:
        arrays, bert_config, vocabulary = _with_vocabulary(arrays, bert_config, vocabulary, config)
    if _CLASSIFIER not in arrays:  # names without weights
        labels = None
    prefix = write_model(config.output_dir, arrays, bert_config, vocabulary, labels=labels)
    logging.info("wrote %s with %d arrays, without %d arrays of training state", prefix, len(arrays), num_left_out)
    if used:
        logging.info("use it with %s", used)
    if bert_config is None:
        logging.warning("there is no bert_config.json beside the checkpoint; copy the model's to %s", config.output_dir)


def _chosen_layers(config: EditCheckpointConfig, model: EditedModel) -> list[int] | None:
    if config.num_layers is None and config.layers is None:
        return None
    if model.bert_config.family.shares_layers:
        raise UserError(
            f"{model.config_file} is of {model.bert_config.family.title}, whose layers share their weights; for "
            "another number of layers change num_hidden_layers there, and use the same checkpoint"
        )
    count = model.bert_config.num_hidden_layers
    if config.layers is not None:
        layers = layer_numbers(config.layers)
        model.bert_config.check_layers(layers, model.config_file)
        return [layer % count for layer in layers]
    if config.num_layers > count:
        raise UserError(f"num_layers={config.num_layers}: {model.config_file} has {count} layers; give at most {count}")
    return [place * count // config.num_layers for place in range(config.num_layers)]


def _with_layers(arrays: "Arrays", layers: list[int], model: EditedModel) -> "tuple[Arrays, BertConfig]":
    from official_bert.checkpoints.editing import num_layers, with_layers

    count = model.bert_config.num_hidden_layers
    if (there := num_layers(arrays)) != count:
        raise UserError(
            f"init_checkpoint {model.sources[0].prefix} has {there} layers, {model.config_file} {count}; use files "
            "that belong together"
        )
    student = dataclasses.replace(model.bert_config, num_hidden_layers=len(layers))
    logging.info(
        "took the layers %s: %s parameters instead of %s",
        ", ".join(map(str, layers)),
        f"{student.num_parameters:,}",
        f"{model.bert_config.num_parameters:,}",
    )
    return with_layers(arrays, layers), student


def _with_positions(
    arrays: "Arrays", bert_config: BertConfig, config: EditCheckpointConfig, model: EditedModel
) -> "tuple[Arrays, BertConfig]":
    from official_bert.checkpoints.editing import with_positions

    extended = dataclasses.replace(bert_config, max_position_embeddings=config.max_position_embeddings)
    check_memory(extended, model.config_file, for_training=False)
    arrays = with_positions(arrays, bert_config, config.max_position_embeddings)
    message = "extended to %d positions instead of %d; train the model further on sequences of that length"
    logging.info(message, config.max_position_embeddings, bert_config.max_position_embeddings)
    return arrays, extended


def _check_vocabulary(config: EditCheckpointConfig, vocabulary: "Vocabulary | None") -> None:
    from official_bert.tokenization.tokenizer_files import check_casing
    from official_bert.tokenization.vocab import CLS, CONTINUATION, MASK, SEP, UNK

    if vocabulary is None:
        raise UserError("--vocab_file is missing, the model's vocabulary; none is beside the checkpoint")
    if vocabulary.marker != CONTINUATION:
        raise UserError(f"{vocabulary.source} is no WordPiece vocabulary; only a vocab.txt can be edited")
    vocabulary.require(UNK, CLS, SEP, MASK)
    if vocabulary.added:
        names = format_names([token["content"] for token in vocabulary.added])
        raise UserError(f"{vocabulary.source} has added tokens ({names}), which edit_checkpoint does not support")
    check_casing(vocabulary, config.text_settings, init_checkpoint=config.init_checkpoint)


def _with_vocabulary(
    arrays: "Arrays", bert_config: BertConfig, vocabulary: "Vocabulary", config: EditCheckpointConfig
) -> "tuple[Arrays, BertConfig, Vocabulary]":
    """Add or remove wordpieces, and log tokenization statistics before and after."""
    from official_bert.checkpoints.editing import with_vocabulary
    from official_bert.data.vocab_learner import count_corpus_words, coverage, pruned
    from official_bert.tokenization.vocab import number_tokens

    old = arrays.get(_WORD_EMBEDDINGS, ())
    if len(old) < vocabulary.size:
        raise UserError(
            f"init_checkpoint {config.init_checkpoint} has embeddings of {len(old)} tokens, and {vocabulary.source} "
            f"has {vocabulary.size}; use files that belong together"
        )
    word_counts = count_corpus_words(find_parts(config), config.text_settings)
    change = pruned(vocabulary, word_counts) if config.prune else _extended(config, vocabulary, word_counts)
    logging.info("before: %s", coverage(vocabulary.token_to_id, word_counts))
    logging.info("after: %s", coverage(change.tokens, word_counts))
    arrays = with_vocabulary(arrays, change.sources)
    logging.info(
        "%s tokens instead of %s: word embeddings of %.1f instead of %.1f MiB",
        f"{len(change.tokens):,}",
        f"{len(old):,}",
        arrays[_WORD_EMBEDDINGS].nbytes / _MEGABYTE,
        old.nbytes / _MEGABYTE,
    )
    bert_config = dataclasses.replace(bert_config, vocab_size=len(change.tokens))
    return arrays, bert_config, type(vocabulary)(number_tokens(change.tokens, vocabulary.source))


def _extended(
    config: EditCheckpointConfig, vocabulary: "Vocabulary", word_counts: "Counter[str]"
) -> "VocabularyChange":
    """Add the wordpieces that shorten a text most."""
    from official_bert.data.vocab_learner import SPECIAL_PIECES, extended, learn_vocab

    learned = learn_vocab(
        word_counts,
        # At least all single characters, also as continuations.
        vocab_size=max(vocabulary.size, 2 * config.num_new_tokens, 2 * config.max_characters + len(SPECIAL_PIECES)),
        **config.learner_flags,
    )
    change = extended(vocabulary, learned, word_counts, num_new_tokens=config.num_new_tokens)
    num_added = len(set(change.tokens) - vocabulary.token_to_id.keys())
    if not num_added:
        raise UserError(
            f"{vocabulary.source} has all wordpieces that occur {config.min_frequency} times in the text: "
            "nothing to add"
        )
    num_appended = len(change.tokens) - vocabulary.size
    logging.info("adding %d wordpieces, %d of them replacing unused tokens", num_added, num_added - num_appended)
    return change


COMMAND = Command(
    config_class=EditCheckpointConfig,
    summary="Averages checkpoints, changes layers, positions or vocabulary, or removes the optimizer state.",
    usage=r"""
Copies a checkpoint without the training state: a third of the size.

  {command} --init_checkpoint=out/model.ckpt-1000 --output_dir=stripped

Averages the weights of several checkpoints:

  {command} --init_checkpoint=out/model.ckpt-800,out/model.ckpt-900,out/model.ckpt-1000 --output_dir=averaged

Makes a shallower or deeper model from the layers of another one, to train further. Embeddings, pooler and heads are
copied.

  {command} --init_checkpoint=bert_model.ckpt --num_layers=6 --output_dir=student
  {command} --init_checkpoint=bert_model.ckpt --layers=0,1,2,0,1,2 --output_dir=deep

Extends a model from 512 to 2,048 positions: position 512 is initialized from position 0, and so on. Then train it
further with run_pretraining.py on records of longer sequences.

  {command} --init_checkpoint=bert_model.ckpt --max_position_embeddings=2048 --output_dir=long

Adds the wordpieces of a domain. The embedding of a new token is the mean of the embeddings of its old wordpieces.
Train the model further on the text.

  {command} --init_checkpoint=bert_model.ckpt --input_file='domain/*.txt' --num_new_tokens=1000 \
      --output_dir=domain_model

Removes wordpieces, for example those of other languages from a multilingual model. The text is tokenized as before, and
the model's outputs for it do not change.

  {command} --init_checkpoint=bert_model.ckpt --input_file='korean/*.txt' --prune --output_dir=korean_model \
      --nodo_lower_case
""",
    prepare=prepare,
    run=run,
)
