"""Servable pretrained models: predict the most likely words for each [MASK]."""

import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from official_bert.checkpoints.loading import generator_of, load, open_checkpoint
from official_bert.config.bert_config import BertConfig
from official_bert.modeling.encoder import create_encoder
from official_bert.modeling.encoder_options import UNPADDED, EncoderOptions
from official_bert.modeling.pretraining import PretrainingModel
from official_bert.serving.servable import Servable, Tensors
from official_bert.tasks.pretraining.options import PretrainingConfig
from official_bert.tokenization import Tokenizer, vocab
from official_bert.tokenization.graph_operations import Parts, join_parts, rows_of

# The heads, by their scopes.
MASKED_LM, NEXT_SENTENCE = "predictions", "seq_relationship"


class FilledMask(NamedTuple):
    """A candidate wordpiece for a mask."""

    word: str  # the wordpiece
    probability: float  # probability over the whole vocabulary, from 0 to 1


class PretrainingServable(Servable):
    """A model of `run_pretraining.py` that fills in masked words."""

    task = "pretraining"

    text_names = ("text",)

    def __init__(
        self, model: PretrainingModel, config: BertConfig, tokenizer: Tokenizer, *, max_seq_length: int, top_k: int = 5
    ):
        super().__init__(model, config, tokenizer, max_seq_length=max_seq_length, name="mask_filler")
        self._mask = tokenizer.mask_id
        self._top_k = min(top_k, tokenizer.vocabulary.size)
        ids = range(tokenizer.vocabulary.size)
        pieces = map(tokenizer.vocabulary.shown, tokenizer.convert_ids_to_tokens(list(ids)))
        self._wordpieces = tf.constant(list(pieces), tf.string)

    def sample_texts(self, num_wordpieces: int) -> list[str]:
        (text,) = super().sample_texts(num_wordpieces - 1)
        return [f"{vocab.MASK} {text}"]

    def tokenize(self, text: tf.Tensor) -> Tensors:
        """Convert texts to model inputs; each `[MASK]` stands for one wordpiece."""
        max_tokens = self.max_seq_length - 2
        pattern = self.tokenizer.mask_pattern.pattern
        if pattern != re.escape(vocab.MASK):
            text = tf.strings.regex_replace(text, pattern, vocab.MASK)
        # A mask takes one position, so masks beyond the maximum length cannot fit; the rest is ignored.
        parts = tf.strings.split(text, vocab.MASK, maxsplit=max_tokens)  # [B, (masks + 1)]
        ids = self._graph_tokenizer().encode_beginnings(parts.flat_values, max_tokens)  # [parts, (wordpieces)]
        # A mask follows each part, so a wordpiece shifts by one position per preceding part.
        splits = ids.row_splits + tf.range(tf.size(ids.row_splits, tf.int64))
        places = tf.range(tf.size(ids.flat_values, tf.int64)) + rows_of(ids)
        row = tf.tensor_scatter_nd_update(tf.fill([splits[-1]], self._mask), places[:, tf.newaxis], ids.flat_values)
        ends = tf.gather(splits, parts.row_splits)  # [B + 1]
        lengths = tf.maximum(ends[1:] - ends[:-1] - 1, 0)  # excluding the mask after the last part
        texts = Parts(row, ends[:-1], tf.minimum(lengths, max_tokens))
        return join_parts(texts, specials=self._specials)

    def predict(self, inputs: Tensors) -> Tensors:
        """Predict the K most likely words for each mask, from left to right, and their probabilities, [B, P, K].

        P is the largest number of masks; missing entries are "" and 0.
        """
        is_real, best, ids = self._best(inputs)
        return {
            "words": tf.where(is_real, tf.gather(self._wordpieces, ids), ""),
            "probabilities": tf.where(is_real, best, 0.0),
        }

    def numbers(self, inputs: Tensors) -> Tensors:
        is_real, best, ids = self._best(inputs, fewest=1)  # ONNX Runtime cannot reshape tensors without elements
        return {"ids": tf.where(is_real, ids, 0), "probabilities": tf.where(is_real, best, 0.0)}

    def _best(self, inputs: Tensors, fewest: int = 0) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Return which masks are real, bool [B, P, 1], and the best probabilities and ids for each, [B, P, K]."""
        is_mask = (inputs["input_ids"] == self._mask) & (inputs["input_mask"] == 1)
        counts = tf.reduce_sum(tf.cast(is_mask, tf.int32), axis=1)
        most = tf.reduce_max(tf.concat([counts, [fewest]], axis=0))
        length = tf.shape(is_mask)[1]
        places = tf.sort(tf.where(is_mask, tf.range(length), length), axis=1)  # [B, S], of masks first
        positions = places[:, :most] % length  # [B, P]
        logits = self._run_model({**inputs, "masked_lm_positions": positions})["masked_lm_logits"]  # [B, P, V]
        probabilities = tf.nn.softmax(logits)[..., : tf.size(self._wordpieces)]
        return tf.sequence_mask(counts, most)[..., tf.newaxis], *tf.math.top_k(probabilities, self._top_k)


def servable_of_run(
    config: PretrainingConfig,
    bert_config: BertConfig,
    tokenizer: Tokenizer,
    checkpoint: str,
    encoder_options: EncoderOptions = UNPADDED,
) -> PretrainingServable:
    model = load_model(bert_config, checkpoint, encoder_options=encoder_options)
    sizes = {"max_seq_length": config.max_seq_length, "top_k": config.export_top_k}
    return PretrainingServable(model, model.config, tokenizer, **sizes)


def load_model(
    bert_config: BertConfig,
    checkpoint: str,
    *,
    what: str = "checkpoint",
    encoder_options: EncoderOptions = UNPADDED,
    head: str = MASKED_LM,
) -> PretrainingModel:
    """Load the encoder and one head of a checkpoint, `MASKED_LM` or `NEXT_SENTENCE`; `what` names it in errors.

    The encoder for masked LM from ELECTRA's pretraining is its generator.
    """
    reader = open_checkpoint(checkpoint, what)
    if head == MASKED_LM:
        reader, bert_config = generator_of(reader, bert_config)
    model = PretrainingModel(create_encoder(bert_config, encoder_options))
    (unused,) = {MASKED_LM, NEXT_SENTENCE} - {head}
    used = [variable for variable in model.trainable_variables if f"/{unused}/" not in variable.path]
    # Masked LM needs no pooler, which some masked-LM models lack.
    report = load(reader, used, required=lambda name: head != MASKED_LM or "/pooler/" not in name)
    if report.missing:
        report.log(is_trained_next=False)
    return model


def results(outputs: Mapping[str, np.ndarray]) -> list[list[list[FilledMask]]]:
    """Convert outputs of the signature `text` to the words for each mask of each text, most likely first."""
    texts = zip(outputs["words"].tolist(), outputs["probabilities"].tolist(), strict=True)
    return [
        [
            [FilledMask(word.decode(), share) for word, share in zip(words, shares, strict=True)]
            for words, shares in zip(*masks, strict=True)
            if any(shares)  # others are padding
        ]
        for masks in texts
    ]
