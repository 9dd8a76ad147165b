"""Attention of an encoder's heads over a text, and the words that its masked-LM head predicts."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from official_bert.checkpoints.loading import load, open_checkpoint
from official_bert.config.bert_config import BertConfig
from official_bert.inference.finished_runs import model_of
from official_bert.modeling.encoder import create_encoder
from official_bert.modeling.encoder_options import PLAIN
from official_bert.modeling.token_model import is_needed
from official_bert.serving.servable import Servable
from official_bert.support.errors import UserError
from official_bert.tasks.classification.reader import PREDICTED
from official_bert.tasks.classification.servable import ClassificationServable
from official_bert.tasks.pretraining.reader import FilledMask, results
from official_bert.tasks.pretraining.task import MaskTextModel, load_model
from official_bert.tasks.question_answering.servable import QuestionAnsweringServable
from official_bert.tasks.tagging.servable import TaggingServable
from official_bert.tokenization import Tokenizer, vocab
from official_bert.tokenization.sequences import join_texts, truncate_pair
from official_bert.tokenization.tokenizer import pad
from official_bert.training.devices import require_backend
from official_bert.visualization.attention import AttentionView, Attributions

_OUTSIDE = "O"  # the tag outside of entities
_NUM_STEPS = 32  # between the baseline and the text

# S: wordpieces, V: vocabulary size, E: embedding width.
Inputs = dict[str, np.ndarray]
Score = Callable[[dict[str, tf.Tensor]], tf.Tensor]
_MOST_NUMBERS = 1 << 27  # 512 MB, as of BERT-Large's heads among 590 wordpieces
_HEAD = "cls/predictions/"  # prefix of the masked-LM head's variables in a checkpoint


def attribute(servable: Servable, inputs: Inputs, word_starts: Sequence[int]) -> Attributions | None:
    """Explain the prediction for a text or a pair of texts.

    The score is the log-probability of the predicted label, the predicted number, the sum of the logits of the
    answer's start and end, or the sum of the log-probabilities of the tags of all entities; without entities of all
    tags. The prediction is that of `Predictor`, also with thresholds, a CRF or constrained decoding; the probabilities
    of tags are those before decoding.

    Args:
      inputs: input_ids, input_mask and segment_ids, int32 [1, S], without padding.
    """
    if inputs["input_ids"].shape[1] > servable.max_seq_length:
        return None
    if servable.task not in EXPLAINED or (isinstance(servable, TaggingServable) and not word_starts):
        return None
    prediction, score = EXPLAINED[servable.task](servable, inputs, word_starts)
    words = servable.encoder.word_embeddings
    table = tf.convert_to_tensor(words.value)  # [V, E]
    ids = inputs["input_ids"][0]
    specials = {servable.tokenizer.cls_id, servable.tokenizer.sep_id}
    is_replaced = np.array([[id_ not in specials] for id_ in ids], np.float32)  # [S, 1]
    rows = tf.gather(table, ids).numpy()  # [S, E]
    differences = (rows - table[servable.tokenizer.mask_id].numpy()) * is_replaced

    @tf.function(autograph=False)
    def gradients(fraction: tf.Tensor) -> tf.Tensor:
        """Return the gradients at a fraction of the way from the baseline to the text, [S, E]."""
        moved = tf.tensor_scatter_nd_update(table, ids[:, np.newaxis], rows - (1 - fraction) * differences)
        with tf.GradientTape() as tape, keras.StatelessScope([(words, moved)]):
            tape.watch(moved)
            value = score(servable.predict({name: tf.constant(values) for name, values in inputs.items()}))
        return tape.gradient(value, moved).values  # of the lookup at each position

    steps = [gradients(tf.constant((step + 0.5) / _NUM_STEPS)).numpy() for step in range(_NUM_STEPS)]
    return Attributions(
        prediction,
        (gradients(tf.constant(1.0)).numpy() * rows).sum(axis=-1),
        (np.mean(steps, axis=0) * differences).sum(axis=-1),
    )


def _of_classifier(servable: ClassificationServable, inputs: Inputs, _: Sequence[int]) -> tuple[str, Score]:
    outputs = servable.predict(inputs)
    if "scores" in outputs:
        return f"{outputs['scores'].numpy()[0]:.4g}", lambda outputs: outputs["scores"][0]
    best_first = np.argsort(-outputs["probabilities"].numpy()[0], kind="stable").tolist()
    label = int(outputs[PREDICTED].numpy()[0]) if PREDICTED in outputs else best_first[0]
    name = outputs["classes"].numpy()[0, best_first.index(label)].decode()
    return name, lambda outputs: tf.math.log(outputs["probabilities"][0, label])


def _of_answer(servable: QuestionAnsweringServable, inputs: Inputs, _: Sequence[int]) -> tuple[str, Score]:
    outputs = servable.predict(inputs)
    starts, ends = (outputs[name].numpy()[0] for name in ("start_logits", "end_logits"))
    is_context = inputs["segment_ids"][0] == inputs["segment_ids"].max()
    is_span = np.triu(np.outer(is_context, is_context))
    start, end = np.unravel_index(np.where(is_span, starts[:, None] + ends, -np.inf).argmax(), is_span.shape)
    answer = servable.tokenizer.decode(inputs["input_ids"][0, start : end + 1])
    return answer, lambda outputs: outputs["start_logits"][0, start] + outputs["end_logits"][0, end]


def _of_tags(servable: TaggingServable, inputs: Inputs, word_starts: Sequence[int]) -> tuple[str, Score]:
    """Return the words of entities with their tags, or all words without entities, and their score."""
    ids = inputs["input_ids"][0]
    probabilities = tf.gather(servable.predict(inputs)["probabilities"][0], word_starts)  # [words, C]
    numbers, _ = servable.decide(probabilities, tf.constant([0, len(word_starts)], tf.int64))
    words = list(zip(word_starts, [*word_starts[1:], len(ids) - 1], numbers.numpy().tolist(), strict=True))
    words = [word for word in words if servable.tags[word[2]] != _OUTSIDE] or words
    tagged = [f"{servable.tokenizer.decode(ids[start:end])}: {servable.tags[number]}" for start, end, number in words]
    places = [[0, start, number] for start, _, number in words]
    return ", ".join(tagged), lambda outputs: tf.reduce_sum(tf.math.log(tf.gather_nd(outputs["probabilities"], places)))


# The tasks whose predictions can be explained.
EXPLAINED: dict[str, Callable[..., tuple[str, Score]]] = {
    ClassificationServable.task: _of_classifier,
    QuestionAnsweringServable.task: _of_answer,
    TaggingServable.task: _of_tags,
}


class _Piece(NamedTuple):
    """A wordpiece, made from `text[start:end]`."""

    id: int
    start: int
    end: int
    begins_word: bool


class AttentionReader:
    """Computes the attention of any checkpoint's encoder over texts.

    Examples:
      >>> read = AttentionReader(bert_config, tokenizer, "bert_model.ckpt")
      >>> read("The harbour woke.").attention.shape   # [layers, heads, wordpieces, wordpieces]
      (12, 12, 6, 6)
    """

    def __init__(
        self,
        bert_config: BertConfig,
        tokenizer: Tokenizer,
        checkpoint: str,
        *,
        top_k: int = 5,
        explained: Servable | None = None,
    ):
        """Load the model.

        Args:
          bert_config: its architecture.
          tokenizer: its tokenizer.
          checkpoint: its weights; with a masked-LM head, words are predicted too.
          top_k: number of words to predict at each position.
          explained: the same model with its head, to attribute its predictions to wordpieces.

        Raises:
          UserError: the checkpoint cannot be read, or does not fit the model.
        """
        require_backend("AttentionReader")
        self._tokenizer = tokenizer
        self._explained = explained
        self._fill_mask = None
        if any(name.startswith(_HEAD) for name in open_checkpoint(checkpoint, "init_checkpoint").shapes):
            model = load_model(bert_config, checkpoint, what="init_checkpoint", encoder_options=PLAIN)
            self._encoder = model.encoder
            sizes = {"max_seq_length": self._encoder.max_length, "top_k": top_k}
            self._fill_mask = model_of(MaskTextModel(model, bert_config, tokenizer, **sizes))
        else:
            self._encoder = create_encoder(bert_config)
            load(open_checkpoint(checkpoint, "init_checkpoint"), self._encoder.weights, required=is_needed).log()
        self._encoder.transformer.needs_probabilities = True

    def __call__(self, text: str, text_b: str | None = None, *, max_seq_length: int = 512) -> AttentionView:
        """Read a text or a pair of texts.

        Args:
          text: a sentence, or a question; each `[MASK]` stands for one wordpiece.
          text_b: a second sentence, or the context of the question.
          max_seq_length: maximum number of wordpieces, including [CLS] and [SEP]. Longer texts are truncated at their
            end, in a pair always the longer one; so are texts that exceed the model's positions.

        Returns:
          The attention; if the checkpoint has a masked-LM head, likely words at each position; and the attributions
          of the explained model.

        Raises:
          UserError: a text has no wordpiece, or so many that their attention would have more than 2^27 numbers.
        """
        # Drop what UTF-8 cannot encode, such as undecodable bytes of a command line.
        texts = [given.encode("utf-8", "ignore").decode() for given in (text, text_b or "")]
        first, second = (self._wordpieces(given) for given in texts)
        for name, given, wordpieces in (("text", text, first), ("text_b", text_b, second)):
            if given is not None and not wordpieces:
                raise UserError(f"{name}={given!r:.80} has no wordpieces; give a text with words")
        first, second, notes = self._truncated(first, second, max_seq_length)
        specials = self._tokenizer.specials
        sequence = join_texts([piece.id for piece in first], [piece.id for piece in second], specials)
        config, length = self._encoder.config, len(sequence.input_ids)
        num_heads = config.num_layers * config.num_attention_heads
        if num_heads * length**2 > _MOST_NUMBERS:
            raise UserError(
                f"the attention of {num_heads} heads among {length} wordpieces has more than {_MOST_NUMBERS:,} "
                f"numbers; give max_seq_length={math.isqrt(_MOST_NUMBERS // num_heads)}"
            )
        inputs = pad([sequence], None)
        word_starts = []
        if not second:
            before = [texts[0][: piece.start] for piece in first]
            word_starts = [1 + n for n, text in enumerate(before) if not text.strip() or text[-1].isspace()]
        words, word_indices = _words(zip(texts, (first, second), strict=True), specials.num_between)
        if not (self._fill_mask or self._explained):
            notes.append("The checkpoint has no masked-LM head, so no words are predicted.")
        attributions = self._explained and attribute(self._explained, inputs, word_starts)
        if self._explained and attributions is None:
            notes.append(
                "The prediction is not explained: the model was trained on at most "
                f"{self._explained.max_seq_length} wordpieces at once, and taggers read one text."
            )
        return AttentionView(
            tokens=self._tokenizer.convert_ids_to_tokens(sequence.input_ids),
            segment_ids=list(sequence.segment_ids),
            words=words,
            word_indices=word_indices,
            attention=np.stack([layer.numpy()[0] for layer in self._encoder(inputs)["attention_probabilities"]]),
            predictions=self._fill_mask and self._predictions(inputs),
            attributions=attributions,
            notes=notes,
        )

    def _truncated(
        self, first: list[_Piece], second: list[_Piece], max_seq_length: int
    ) -> tuple[list[_Piece], list[_Piece], list[str]]:
        """Return the wordpieces that the model reads, and a note if these are not all."""
        limit = min(max_seq_length, self._encoder.max_length)
        room = self._tokenizer.specials.room(limit, is_pair=bool(second))
        if len(first) + len(second) <= room:
            return first, second, []
        note = (
            f"The text was truncated from {len(first) + len(second) + limit - room} to {limit} wordpieces, including "
            f"[CLS] and [SEP]: max_seq_length is {max_seq_length}, and the model has {self._encoder.max_length} "
            "positions."
        )
        logging.warning(note)
        return *truncate_pair(first, second, room), [note]

    def _wordpieces(self, text: str) -> list[_Piece]:
        wordpieces: list[_Piece] = []
        offset = 0
        masks = [match.span() for match in self._tokenizer.mask_pattern.finditer(text)]
        for number, (end_of_part, after) in enumerate([*masks, (len(text), len(text))]):
            part = text[offset:end_of_part]
            encoding = self._tokenizer.encode_with_offsets(part)
            beginnings = self._tokenizer.word_beginnings(part, encoding)
            for begins_word, identifier, start, end in zip(beginnings, *encoding, strict=True):
                wordpieces.append(_Piece(identifier, offset + start, offset + end, begins_word))
            if number < len(masks):
                wordpieces.append(_Piece(self._tokenizer.mask_id, end_of_part, after, True))
            offset = after
        return wordpieces

    def _predictions(self, inputs: dict[str, np.ndarray]) -> list[list[FilledMask] | None]:
        one = {name: values[0] for name, values in inputs.items()}
        ids = one["input_ids"]
        is_special = np.isin(ids, [self._tokenizer.cls_id, self._tokenizer.sep_id])
        positions = np.flatnonzero(~is_special)
        # The text may have masks of its own, so find the index of the inserted one.
        ranks = np.cumsum(ids == self._tokenizer.mask_id) - (ids == self._tokenizer.mask_id)
        predictions: list[list[FilledMask] | None] = [None] * len(ids)
        masked = [np.where(np.arange(len(ids)) == position, self._tokenizer.mask_id, ids) for position in positions]
        outputs = self._fill_mask.computed([{**one, "input_ids": ids} for ids in masked])
        for position, row in zip(positions, outputs, strict=True):
            (masks,) = results(self._fill_mask.reader.stacked([row]))
            predictions[position] = masks[ranks[position]]
        return predictions


def _words(texts: Sequence[tuple[str, Sequence[_Piece]]], num_between: int) -> tuple[list[str], list[int]]:
    """Return the words of joined texts, unchanged, and the word index of each wordpiece."""
    words, word_indices = [vocab.CLS], [0]
    for text, wordpieces in texts:
        if not wordpieces:
            continue
        if len(words) > 1:  # the second text
            word_indices += range(len(words), len(words) + num_between - 1)
            words += [vocab.SEP] * (num_between - 1)
        numbers = itertools.accumulate((piece.begins_word for piece in wordpieces), initial=0)
        for _, group in itertools.groupby(zip(list(numbers)[1:], wordpieces, strict=True), key=lambda pair: pair[0]):
            of_word = [piece for _, piece in group]
            word_indices += [len(words)] * len(of_word)
            words.append(text[of_word[0].start : of_word[-1].end])
        word_indices.append(len(words))
        words.append(vocab.SEP)
    return words, word_indices
