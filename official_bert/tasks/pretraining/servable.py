"""Servable pretrained models: predict the most likely words for each [MASK]."""

import re
from typing import Any

import tensorflow as tf

from official_bert.serving.servable import Servable, Tensors, rows_at_once
from official_bert.serving.signatures import MOST_LOGITS
from official_bert.serving.text_model import TextModel
from official_bert.tasks.pretraining.reader import SCORES
from official_bert.tasks.pretraining.task import MaskTextModel
from official_bert.tokenization import vocab
from official_bert.tokenization.graph_operations import Parts, in_batches, join_parts, rows_of


class PretrainingServable(MaskTextModel, Servable):
    """A model of `run_pretraining.py` that fills in masked words."""

    prepared = TextModel.prepared  # masks are found in the graph

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        pieces = self.tokenizer.convert_ids_to_tokens(list(range(self.vocabulary.size)))
        self._wordpieces = tf.constant(list(map(self.vocabulary.shown, pieces)), tf.string)

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
        is_mask = self._is_mask(inputs)
        counts = tf.math.count_nonzero(is_mask, axis=1)
        num_rows, length = tf.unstack(tf.shape(is_mask))
        most = tf.reduce_max(tf.concat([counts, [0]], axis=0))
        check = self._check_table_of_positions(tf.cast(num_rows, tf.int64), most, self._top_k)
        with tf.control_dependencies([check]):
            inputs = {name: tf.identity(values) for name, values in inputs.items()}

        def predict_rows(rows: slice) -> Tensors:
            encoded = self._run_encoder({name: values[rows] for name, values in inputs.items()})["sequence_output"]
            vectors = tf.boolean_mask(encoded, is_mask[rows])[tf.newaxis]  # [1, M, D]
            num_masks = tf.shape(vectors)[1]

            def predict_masks(masks: slice) -> Tensors:
                positions = tf.range(masks.start, tf.minimum(masks.stop, num_masks))
                best, ids = self._best(self._run_head(vectors, positions[tf.newaxis])[0])
                return {"words": tf.gather(self._wordpieces, ids), "probabilities": best}

            return in_batches(predict_masks, num_masks, max(MOST_LOGITS // self.bert_config.vocab_size, 1), specs)

        shape = [None, self._top_k]
        specs = {"words": tf.TensorSpec(shape, tf.string), "probabilities": tf.TensorSpec(shape, tf.float32)}
        found = in_batches(predict_rows, num_rows, rows_at_once(length), specs)  # each [M, K]
        rows = {name: tf.RaggedTensor.from_row_lengths(found[name], counts, validate=False) for name in found}
        return {name: values.to_tensor() for name, values in rows.items()}

    def _predict_table(self, inputs: Tensors) -> Tensors:
        return self._predict(inputs)  # which limits the table, and computes in parts

    def numbers(self, inputs: Tensors) -> Tensors:
        """Compute the ids and probabilities of the words for all masks at once, [B, P, K], for engines.

        An input id below 0 is a mask for the wordpiece -1 - id, whose log probability is in `scores`, [B, P].
        """
        given = inputs["input_ids"]
        inputs = {**inputs, "input_ids": tf.where(given < 0, self._mask, given)}
        is_mask = self._is_mask(inputs)
        counts = tf.reduce_sum(tf.cast(is_mask, tf.int32), axis=1)
        most = tf.reduce_max(tf.concat([counts, [1]], axis=0))  # ONNX Runtime cannot reshape tensors without elements
        length = tf.shape(is_mask)[1]
        places = tf.sort(tf.where(is_mask, tf.range(length), length), axis=1)  # [B, S], of masks first
        places = places[:, :most] % length
        logits = self._run_head(self._run_encoder(inputs)["sequence_output"], places)  # [B, P, V]
        best, ids = self._best(logits)
        is_real = tf.sequence_mask(counts, most)
        wordpieces = tf.where(is_real, -1 - tf.gather(given, places, batch_dims=1), -1)
        scores = tf.gather(tf.nn.log_softmax(logits), tf.maximum(wordpieces, 0), batch_dims=2)
        is_real = is_real[..., tf.newaxis]
        found = {"ids": tf.where(is_real, ids, 0), "probabilities": tf.where(is_real, best, 0.0)}
        return {**found, SCORES: tf.where(wordpieces >= 0, scores, 0.0)}

    def _is_mask(self, inputs: Tensors) -> tf.Tensor:
        return (inputs["input_ids"] == self._mask) & (inputs["input_mask"] == 1)

    def _best(self, logits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the best probabilities and their ids, [..., K], of logits, float32 [..., V]."""
        return tf.math.top_k(tf.nn.softmax(logits)[..., : tf.size(self._wordpieces)], self._top_k)


servable_of_run = PretrainingServable.of_run
