"""Servable question answering: find the best answers to a question in a text.

Windows, search and probabilities match `run_squad.py` with offset alignment (the modules `windows` and `answers`),
implemented as TensorFlow operations.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from official_bert.checkpoints.loading import load
from official_bert.checkpoints.opening import open_checkpoint
from official_bert.config.bert_config import BertConfig
from official_bert.modeling.encoder import create_encoder
from official_bert.modeling.encoder_options import UNPADDED, EncoderOptions
from official_bert.modeling.heads import SpanModel
from official_bert.serving.servable import Tensors, WindowedServable, check_text_size
from official_bert.tasks.question_answering.graph_answers import AnswerSearch, EncodedQuestions
from official_bert.tasks.question_answering.options import AnswerOptions, SquadConfig
from official_bert.tasks.question_answering.task import LOGITS, MASKED_LOGIT
from official_bert.tasks.question_answering.windows import WindowOptions
from official_bert.tokenization import Tokenizer
from official_bert.tokenization.graph_operations import in_groups
from official_bert.tokenization.graph_sequences import Parts, SlidingWindows, join_parts

# B: questions, W: windows of all questions, S: positions, K: answers of a question.


class Answer(NamedTuple):
    """A candidate answer: a span of the context."""

    text: str  # `context[start:end]`; "" for no answer
    probability: float  # its probability among the best answers to the question
    start: int  # offset of its first character in the context, not counting undecodable characters; 0 for no answer
    end: int  # offset after its last character


class QuestionAnsweringServable(WindowedServable):
    """A model of `run_squad.py`."""

    task = "question_answering"

    text_names = ("question", "context")

    def __init__(
        self,
        model: SpanModel,
        config: BertConfig,
        tokenizer: Tokenizer,
        options: WindowOptions,
        *,
        max_answer_length: int = 30,
        version_2: bool = False,
        top_k: int = 5,
    ):
        super().__init__(model, config, tokenizer, max_seq_length=options.max_seq_length, name="question_answering")
        self._options = options
        self._search = AnswerSearch(
            max_answer_length=max_answer_length,
            version_2=version_2,
            top_k=top_k,
            max_positions=options.max_seq_length,
        )

    def cut(self, question: tf.Tensor, context: tf.Tensor) -> tuple[tf.Tensor, Tensors]:
        """Convert questions and contexts to windows; see `WindowedServable`."""
        with tf.control_dependencies([_same_number(question, context)]):
            reading, ids = self._read(question, tf.identity(context))
        return reading.windows.text, ids

    def predict(self, inputs: Tensors) -> Tensors:
        """Score the positions of windows.

        Args:
          inputs: input_ids, input_mask and segment_ids, int32 [B, S].

        Returns:
          start_logits and end_logits, float32 [B, S]; a very low number at padding.
        """
        outputs = self._run_model(inputs)
        return {name: tf.where(inputs["input_mask"] == 1, outputs[name], MASKED_LOGIT) for name in LOGITS}

    def answer(self, question: tf.Tensor, context: tf.Tensor) -> Tensors:
        """Find the best answers.

        Args:
          question: string [B], UTF-8.
          context: string [B], UTF-8, at most `MOST_BYTES` each.

        Returns:
          A dict, best answers first; missing answers are "" with probability 0:
              answers: string [B, K], spans of the context; "" with a nonzero probability means no answer.
            probabilities: float32 [B, K], their probabilities among the `NUM_RANKED` best.
              starts: int32 [B, K], offset of each answer's first character among the context's decodable characters.
              ends: int32 [B, K], offset after its last character.
          and in version 2
            null_probabilities: float32 [B], the probability that there is no answer.
            null_odds: float32 [B], the score of no answer minus that of the best answer.
        """
        with tf.control_dependencies([_same_number(question, context)]):
            context, num_bytes = check_text_size(context, "context")
        return in_groups(self._answer_some, [question, context], num_bytes)

    def _answer_some(self, question: tf.Tensor, context: tf.Tensor) -> Tensors:
        reading, ids = self._read(question, context)
        scores = self.predict_in_batches(ids, dict.fromkeys(LOGITS, (None, None)))
        with tf.device("CPU:0"):
            return self._search(reading, *(scores[name] for name in LOGITS))

    def _read(self, question: tf.Tensor, context: tf.Tensor) -> tuple[EncodedQuestions, Tensors]:
        """Return tokenized questions and contexts, and input_ids, input_mask and segment_ids [W, S]."""
        with tf.device("CPU:0"):
            characters = tf.strings.unicode_decode(context, "UTF-8", errors="ignore")
            queries = self._graph_tokenizer().encode_beginnings(question, self._options.max_query_length)
            wordpieces = self._graph_tokenizer().encode_with_offsets(context)
            lengths = tf.minimum(queries.row_lengths(), self._options.max_query_length)
            room = self._specials.room(self.max_seq_length, is_pair=True)
            cuts = SlidingWindows.from_lengths(wordpieces.ids.row_lengths(), room - lengths, self._options.doc_stride)
            windows = cuts.windows()
            lengths = tf.gather(lengths, windows.text)
            query_parts = Parts(queries.flat_values, tf.gather(queries.row_starts(), windows.text), lengths)
            ids = join_parts(query_parts, windows.parts(wordpieces.ids), specials=self._specials)
            return EncodedQuestions(
                characters, wordpieces, cuts, windows, lengths + self._specials.num_before_second
            ), ids


def _same_number(question: tf.Tensor, context: tf.Tensor) -> tf.Operation:
    return tf.debugging.assert_equal(
        tf.size(question), tf.size(context), message="there must be as many questions as contexts"
    )


def servable_of_run(
    config: SquadConfig,
    bert_config: BertConfig,
    tokenizer: Tokenizer,
    checkpoint: str,
    encoder_options: EncoderOptions = UNPADDED,
) -> QuestionAnsweringServable:
    """Load a model trained by `run_squad.py`; see `TaskRow`."""
    return load_servable(
        config,
        bert_config,
        tokenizer,
        checkpoint,
        top_k=config.export_top_k,
        encoder_options=encoder_options,
        **config.model_options,
    )


def load_servable(
    options: AnswerOptions,
    bert_config: BertConfig,
    tokenizer: Tokenizer,
    checkpoint: str,
    *,
    top_k: int,
    what: str = "checkpoint",
    encoder_options: EncoderOptions = UNPADDED,
    **model_options,
) -> QuestionAnsweringServable:
    """Load a model as `servable_of_run` does, with any answering flags."""
    windows = WindowOptions(options.max_seq_length, options.doc_stride, options.max_query_length)
    model = SpanModel(create_encoder(bert_config, encoder_options), **model_options)
    load(open_checkpoint(checkpoint, what), model.trainable_variables)
    return QuestionAnsweringServable(
        model,
        bert_config,
        tokenizer,
        windows,
        max_answer_length=options.max_answer_length,
        version_2=options.version_2_with_negative,
        top_k=top_k,
    )


def results(outputs: Mapping[str, np.ndarray]) -> list[list[Answer]]:
    """Convert outputs of the signature `text` to the answers to each question, best first.

    If questions may be unanswerable, "no answer" is always included.
    """
    names = ("answers", "probabilities", "starts", "ends")
    null = outputs.get("null_probabilities", np.array([None] * len(outputs["answers"])))
    rows = zip(*(outputs[name].tolist() for name in names), null.tolist(), strict=True)
    return [_answers(*row) for row in rows]


def _answers(
    texts: list[bytes], probabilities: list[float], starts: list[int], ends: list[int], null: float | None
) -> list[Answer]:
    rows = zip(texts, probabilities, starts, ends, strict=True)
    answers = [Answer(text.decode(), *values) for text, *values in rows if values[0]]
    if null is not None and all(answer.text for answer in answers):
        answers.append(Answer("", null, 0, 0))
    return answers
