"""Question answering that reads texts: a question and a text in, the best answers out.

Windows, search and probabilities are those of `run_squad.py` with answers found by offsets (the modules `windows` and
`answers`), as TensorFlow operations.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from official_bert.checkpoints.loading import load_whole
from official_bert.config.bert_config import BertConfig
from official_bert.data.graph_joining import Parts, join_parts
from official_bert.modeling.encoder import create_encoder
from official_bert.modeling.encoder_options import UNPADDED, EncoderOptions
from official_bert.modeling.span import SpanModel
from official_bert.serving.servable import (
    WINDOWS_IN_A_BATCH,
    Servable,
    Tensors,
    of_bounded_size,
    of_bounded_table,
    of_bounded_total,
)
from official_bert.tasks.question_answering.options import AnswerOptions, SquadConfig
from official_bert.tasks.question_answering.task import LOGITS, MASKED_LOGIT
from official_bert.tasks.question_answering.windows import WindowOptions
from official_bert.tokenization import Tokenizer
from official_bert.tokenization.graph_operations import in_groups
from official_bert.tokenization.graph_tokenizer import RaggedEncodingWithOffsets

NUM_RANKED = 20  # reference value: the answers of a question that share its probability

_GROWTH = 4  # the first attempt takes 4 candidates per answer, each further attempt 4 times as many

# B: questions, W: windows of all questions, S: positions, M: candidates of all questions, K: answers of a question.


class _Windows(NamedTuple):
    """Windows of all questions, ordered by question; see `windows.Window`. All int64 [W].

    Attributes:
      question: which question.
      number: which of the question's windows.
      first: the context's piece with which the window begins.
      num_pieces: how many of the context's pieces it holds.
      offset: the position of the first of them.
    """

    question: tf.Tensor
    number: tf.Tensor
    first: tf.Tensor
    num_pieces: tf.Tensor
    offset: tf.Tensor


class _Cuts(NamedTuple):
    """How the context of each question is cut into windows. All int64 [B]."""

    num_pieces: tf.Tensor
    room: tf.Tensor
    stride: tf.Tensor
    num_windows: tf.Tensor


class _Candidates(NamedTuple):
    """Possible answers of all questions. All [M], int64 but for the score.

    Attributes:
      question: which question.
      first: the context's first piece; of no answer -1.
      last: the context's last piece; of no answer -1.
      score: float64, start logit and end logit.
    """

    question: tf.Tensor
    first: tf.Tensor
    last: tf.Tensor
    score: tf.Tensor

    def taken(self, places: tf.Tensor) -> "_Candidates":
        return _Candidates(*(tf.gather(column, places) for column in self))

    def followed_by(self, other: "_Candidates") -> "_Candidates":
        return _Candidates(*(tf.concat(columns, axis=0) for columns in zip(self, other, strict=True)))


class _Reading(NamedTuple):
    """Questions and contexts, ready for the model.

    Attributes:
      characters: int32 [B, (characters)], the contexts without the bytes that could not be decoded.
      pieces: those of the contexts.
      cuts: how these are cut.
      windows: the windows.
      ids: input_ids, input_mask and segment_ids of the windows, int32 [W, S].
    """

    characters: tf.RaggedTensor
    pieces: RaggedEncodingWithOffsets
    cuts: _Cuts
    windows: _Windows
    ids: Tensors


class Answer(NamedTuple):
    """A part of a text that may answer a question.

    Attributes:
      text: `context[start:end]`; "" means that there is no answer.
      probability: its probability among the best answers to the question.
      start: the character of the context at which it begins, not counting any that UTF-8 cannot encode; 0 of no answer.
      end: the character after it.
    """

    text: str
    probability: float
    start: int
    end: int


class QuestionAnsweringServable(Servable):
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
        """Joins a model with its tokenizer.

        Args:
          model: the model.
          config: its architecture.
          tokenizer: the one that the model was trained with.
          options: how contexts are cut into windows; answers are always found by offsets.
          max_answer_length: maximum number of wordpieces per answer.
          version_2: whether a question may have no answer, as the model learned from SQuAD 2.0.
          top_k: number of answers to return per question.

        Raises:
          UserError: see `Servable`.
        """
        super().__init__(model, config, tokenizer, max_seq_length=options.max_seq_length, name="question_answering")
        self._options = options
        self._max_answer_length = max_answer_length
        self._version_2 = version_2
        self._top_k = top_k
        self._num_ranked = max(top_k, NUM_RANKED)

    def tokenize(self, question: tf.Tensor, context: tf.Tensor) -> Tensors:
        """Turns questions and contexts into what the model reads.

        Args:
          question: string [B], UTF-8.
          context: string [B], UTF-8, in all of at most `MOST_BYTES`.

        Returns:
          input_ids, input_mask and segment_ids, int32 [B, windows of the question with most, S]; what is missing is 0.
        """
        with tf.control_dependencies([_same_number(question, context)]):
            reading = self._read(question, of_bounded_total(context, "context"))
        num_cells = reading.cuts.num_windows * tf.shape(reading.ids["input_ids"], tf.int64)[1]
        with tf.control_dependencies([of_bounded_table(tf.size(question, tf.int64), num_cells)]):
            reading = reading._replace(ids={name: tf.identity(values) for name, values in reading.ids.items()})
        return {
            name: tf.RaggedTensor.from_value_rowids(
                values, reading.windows.question, tf.size(question, tf.int64), validate=False
            ).to_tensor()
            for name, values in reading.ids.items()
        }

    def predict(self, inputs: Tensors) -> Tensors:
        """Scores the positions of windows.

        Args:
          inputs: input_ids, input_mask and segment_ids, int32 [B, S].

        Returns:
          start_logits and end_logits, float32 [B, S]; at padding a very low number.
        """
        outputs = self._run_model(inputs)
        return {name: tf.where(inputs["input_mask"] == 1, outputs[name], MASKED_LOGIT) for name in LOGITS}

    def flat_ids(self, tokenized: Tensors) -> Tensors:
        """All windows of `tokenize`, those that are not there left out: int32 [W, S]."""
        return self.flat_windows(tokenized)

    def answer(self, question: tf.Tensor, context: tf.Tensor) -> Tensors:
        """Finds the best answers.

        Args:
          question: string [B], UTF-8.
          context: string [B], UTF-8, each of at most `MOST_BYTES`.

        Returns:
          A dict, the best answer first; an answer that is missing is "", with a probability of 0:
            answers: string [B, K], parts of the context; "" with a probability means that there is no answer.
            probabilities: float32 [B, K], their probabilities among the `NUM_RANKED` best.
            starts: int32 [B, K], the character of the context at which each begins, of those that could be decoded.
            ends: int32 [B, K], the character after it.
          and in version 2
            null_probabilities: float32 [B], the probability that there is no answer.
            null_odds: float32 [B], the score of no answer minus that of the best answer.
        """
        with tf.control_dependencies([_same_number(question, context)]):
            context, num_bytes = of_bounded_size(context, "context")
        return in_groups(self._answer_some, [question, context], num_bytes)

    def _answer_some(self, question: tf.Tensor, context: tf.Tensor) -> Tensors:
        reading = self._read(question, context)
        scores = self.predict_in_batches(reading.ids, dict.fromkeys(LOGITS, (None, None)))
        with tf.device("CPU:0"):
            return self._best_answers(reading, *(scores[name] for name in LOGITS))

    def _read(self, question: tf.Tensor, context: tf.Tensor) -> _Reading:
        with tf.device("CPU:0"):
            characters = tf.strings.unicode_decode(context, "UTF-8", errors="ignore")
            queries = self._graph_tokenizer().encode_beginnings(question, self._options.max_query_length)
            pieces = self._graph_tokenizer().encode_with_offsets(context)
            num_query_pieces = tf.minimum(queries.row_lengths(), self._options.max_query_length)
            cuts = self._cuts(num_query_pieces, pieces.ids.row_lengths())
            windows = self._windows(cuts, num_query_pieces)
            ids = join_parts(
                Parts(
                    queries.flat_values,
                    tf.gather(queries.row_starts(), windows.question),
                    tf.gather(num_query_pieces, windows.question),
                ),
                Parts(
                    pieces.ids.flat_values,
                    tf.gather(pieces.ids.row_starts(), windows.question) + windows.first,
                    windows.num_pieces,
                ),
                has_second=tf.ones_like(windows.question, tf.bool),
                **self._specials,
            )
            return _Reading(characters, pieces, cuts, windows, ids)

    def _cuts(self, num_query_pieces: tf.Tensor, num_pieces: tf.Tensor) -> _Cuts:
        room = self._options.max_seq_length - num_query_pieces - 3
        stride = tf.minimum(room, self._options.doc_stride)
        num_windows = 1 - tf.minimum(room - num_pieces, 0) // stride  # rounds up
        return _Cuts(num_pieces, room, stride, num_windows)

    def _windows(self, cuts: _Cuts, num_query_pieces: tf.Tensor) -> _Windows:
        numbers = tf.ragged.range(cuts.num_windows)
        question, number = numbers.value_rowids(), numbers.flat_values
        first, num_pieces = _window_range(cuts, question, number)
        return _Windows(question, number, first, num_pieces, tf.gather(num_query_pieces, question) + 2)

    def _best_answers(self, reading: _Reading, start_logits: tf.Tensor, end_logits: tf.Tensor) -> Tensors:
        windows, num_questions = reading.windows, reading.characters.nrows()
        may_start = _has_max_context(reading.cuts, windows, tf.shape(start_logits, tf.int64)[1])

        candidates = self._spans(windows, may_start, start_logits, end_logits, self._num_ranked)
        # Only the best starts and ends are combined. Where all of them lie in the question, all positions are combined.
        has_answer = _counts(candidates.question, num_questions) > 0  # [B]

        def with_all_positions() -> _Candidates:
            # Of some windows at a time, so that not all that a long context has are in memory.
            needed = tf.where(~tf.gather(has_answer, windows.question))[:, 0]

            def add(start: tf.Tensor, best: _Candidates) -> tuple[tf.Tensor, _Candidates]:
                some = needed[start : start + WINDOWS_IN_A_BATCH]
                columns = (may_start, start_logits, end_logits)
                others = self._spans(
                    _Windows(*(tf.gather(column, some) for column in windows)),
                    *(tf.gather(column, some) for column in columns),
                    self._options.max_seq_length,
                )
                return start + WINDOWS_IN_A_BATCH, self._ranked(reading, best.followed_by(others))[0]

            nothing, any_number = tf.zeros([0], tf.int64), tf.TensorShape([None])
            _, best = tf.while_loop(
                lambda start, _: start < tf.size(needed),
                add,
                (0, _Candidates(nothing, nothing, nothing, tf.zeros([0], tf.float64))),
                shape_invariants=(tf.TensorShape([]), _Candidates(any_number, any_number, any_number, any_number)),
                parallel_iterations=1,
            )
            return candidates.followed_by(best)

        candidates = tf.cond(tf.reduce_all(has_answer), lambda: candidates, with_all_positions)
        if self._version_2:
            candidates = candidates.followed_by(_no_answers(windows, start_logits, end_logits, num_questions))
        candidates, texts = self._ranked(reading, candidates)
        return self._outputs(reading, candidates, texts, num_questions)

    def _spans(
        self,
        windows: _Windows,
        may_start: tf.Tensor,
        start_logits: tf.Tensor,
        end_logits: tf.Tensor,
        num_best: int,
    ) -> _Candidates:
        """All that may be answers, by window, then by start logit, then by end logit; see `answers`."""
        num_best = tf.minimum(num_best, tf.shape(start_logits)[1])
        (best_starts, starts), (best_ends, ends) = (
            tf.math.top_k(logits, num_best, index_type=tf.int64) for logits in (start_logits, end_logits)
        )  # [W, n]
        offset, stop = windows.offset[:, tf.newaxis], (windows.offset + windows.num_pieces)[:, tf.newaxis]
        are_starts = tf.gather(may_start, starts, batch_dims=1)
        are_ends = (ends >= offset) & (ends < stop)
        lengths = ends[:, tf.newaxis, :] - starts[:, :, tf.newaxis] + 1  # [W, n, n]
        are_spans = (lengths >= 1) & (lengths <= self._max_answer_length)
        are_spans &= are_starts[:, :, tf.newaxis] & are_ends[:, tf.newaxis, :]
        places = tf.where(are_spans)  # [M, 3]
        window, start_places, end_places = places[:, 0], places[:, :2], tf.gather(places, [0, 2], axis=1)
        shift = tf.gather(windows.first - windows.offset, window)
        best_starts, best_ends = (tf.cast(logits, tf.float64) for logits in (best_starts, best_ends))
        return _Candidates(
            tf.gather(windows.question, window),
            tf.gather_nd(starts, start_places) + shift,
            tf.gather_nd(ends, end_places) + shift,
            tf.gather_nd(best_starts, start_places) + tf.gather_nd(best_ends, end_places),
        )

    def _ranked(self, reading: _Reading, candidates: _Candidates) -> tuple[_Candidates, tf.Tensor]:
        """The best candidates of each question, each text once, where it scores highest; and their texts."""
        order = tf.argsort(-candidates.score, stable=True)
        order = tf.gather(order, tf.argsort(tf.gather(candidates.question, order), stable=True))
        candidates = candidates.taken(order)
        rank = _ranks(candidates.question)
        # A long context has very many candidates. The first few are almost always enough; otherwise more are taken.
        num_questions = reading.characters.nrows()
        numbers = _counts(candidates.question, num_questions)  # [B]

        def take(limit: tf.Tensor, *_) -> tuple[tf.Tensor, tf.Tensor, _Candidates, tf.Tensor]:
            best, texts = self._distinct(reading, candidates.taken(_kept(candidates, rank < limit)))
            is_enough = (_counts(best.question, num_questions) >= self._num_ranked) | (numbers <= limit)
            return limit * _GROWTH, tf.reduce_all(is_enough), best, texts

        start = tf.constant(_GROWTH * self._num_ranked, tf.int64)
        any_number = tf.TensorShape([None])
        column_shapes = _Candidates(any_number, any_number, any_number, any_number)
        shapes = (start.shape, tf.TensorShape([]), column_shapes, any_number)
        _, _, best, texts = tf.while_loop(
            lambda limit, is_enough, *_: ~is_enough, take, take(start), shape_invariants=shapes
        )
        kept = _kept(best, _ranks(best.question) < self._num_ranked)
        return best.taken(kept), tf.gather(texts, kept)

    def _distinct(self, reading: _Reading, candidates: _Candidates) -> tuple[_Candidates, tf.Tensor]:
        """Keeps the first of the candidates with the same text; and their texts."""
        starts, ends = self._places(reading, candidates, reading.pieces.starts, reading.pieces.ends)
        first = tf.gather(reading.characters.row_starts(), candidates.question)
        places = tf.ragged.range(first + tf.cast(starts, tf.int64), first + tf.cast(ends, tf.int64))
        characters = places.with_flat_values(tf.gather(reading.characters.flat_values, places.flat_values))
        texts = tf.strings.unicode_encode(characters, "UTF-8")

        keys = tf.strings.join([tf.strings.as_string(candidates.question), texts], separator=" ")
        distinct, number = tf.unique(keys, out_idx=tf.int64)
        places = tf.range(tf.size(keys, tf.int64))
        is_first = tf.gather(tf.math.unsorted_segment_min(places, number, tf.size(distinct)), number) == places
        kept = tf.where(is_first)[:, 0]
        return candidates.taken(kept), tf.gather(texts, kept)

    def _places(
        self, reading: _Reading, candidates: _Candidates, starts: tf.RaggedTensor, ends: tf.RaggedTensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Where candidates begin and end, int32 [M], in the units of `starts` and `ends`; no answer is at 0."""
        is_answer = candidates.first >= 0
        row_starts = tf.gather(reading.pieces.ids.row_starts(), candidates.question)
        return tuple(
            tf.where(is_answer, _gather(places.flat_values, tf.where(is_answer, row_starts + piece, 0)), 0)
            for places, piece in ((starts, candidates.first), (ends, candidates.last))
        )

    def _outputs(
        self, reading: _Reading, candidates: _Candidates, texts: tf.Tensor, num_questions: tf.Tensor
    ) -> Tensors:
        question, score = candidates.question, candidates.score
        highest = tf.math.unsorted_segment_max(score, question, num_questions)
        shares = tf.exp(score - tf.gather(highest, question))
        totals = tf.math.unsorted_segment_sum(shares, question, num_questions)
        probabilities = tf.cast(shares / tf.gather(totals, question), tf.float32)
        starts, ends = self._places(reading, candidates, reading.pieces.starts, reading.pieces.ends)

        def table(values: tf.Tensor) -> tf.Tensor:
            rows = tf.RaggedTensor.from_value_rowids(values, question, num_questions, validate=False)
            return rows[:, : self._top_k].to_tensor(shape=[None, self._top_k])

        outputs = {
            "answers": table(texts),
            "probabilities": table(probabilities),
            "starts": table(starts),
            "ends": table(ends),
        }
        if self._version_2:
            is_null = candidates.first < 0
            best = tf.math.unsorted_segment_max(tf.where(is_null, score.dtype.min, score), question, num_questions)
            null = tf.where(is_null)[:, 0]  # one for each question, in their order
            odds = tf.gather(score, null) - tf.where(best > score.dtype.min, best, 0.0)
            outputs["null_probabilities"] = tf.gather(probabilities, null)
            outputs["null_odds"] = tf.cast(odds, tf.float32)
        return outputs


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
    """Loads what a run of `run_squad.py` trained.

    Args:
      config: the flags it was trained with.
      bert_config: its architecture.
      tokenizer: its tokenizer.
      checkpoint: its weights.
      encoder_options: how the encoder computes.

    Raises:
      UserError: the checkpoint cannot be read, or is of another model.
    """
    return load_servable(
        config,
        bert_config,
        tokenizer,
        checkpoint,
        top_k=config.export_top_k,
        encoder_options=encoder_options,
        head=config.head,
        lstm_units=config.lstm_units,
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
    """As `servable_of_run`, for any flags that say how to find answers.

    Args:
      options: the flags.
      bert_config: the architecture.
      tokenizer: the tokenizer.
      checkpoint: the weights.
      top_k: answers to give for each question.
      what: the parameter that names the checkpoint, for messages.
      encoder_options: how the encoder computes.
      **model_options: see `SpanModel`.
    """
    windows = WindowOptions(options.max_seq_length, options.doc_stride, options.max_query_length)
    model = SpanModel(create_encoder(bert_config, encoder_options), **model_options)
    load_whole(checkpoint, model.trainable_variables, what)
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
    """Turns outputs of the signature `text` into the answers to each question, the best first.

    Where there may be no answer, "no answer" is added if it is not among them.
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


def _window_range(cuts: _Cuts, question: tf.Tensor, number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The first piece of windows, and how many they hold."""
    num_pieces, room, stride = (tf.gather(column, question) for column in (cuts.num_pieces, cuts.room, cuts.stride))
    first = number * stride
    return first, tf.minimum(room, num_pieces - first)


def _has_max_context(cuts: _Cuts, windows: _Windows, length: tf.Tensor) -> tf.Tensor:
    """For each position, whether it holds a piece of the context of whose surroundings no other window shows more.

    Returns:
      bool [W, S]; see `TokenizedSquad.has_max_context`.
    """
    inside = tf.range(length) - windows.offset[:, tf.newaxis]
    pieces = inside + windows.first[:, tf.newaxis]  # [W, S]
    is_piece = (inside >= 0) & (inside < windows.num_pieces[:, tf.newaxis])

    def score(number: tf.Tensor) -> tf.Tensor:
        first, num_pieces = (column[:, tf.newaxis] for column in _window_range(cuts, windows.question, number))
        poorer_side = tf.minimum(pieces - first, first + num_pieces - 1 - pieces)
        scores = tf.cast(poorer_side, tf.float64) + 0.01 * tf.cast(num_pieces, tf.float64)
        is_window = (number >= 0) & (number < tf.gather(cuts.num_windows, windows.question))
        return tf.where((poorer_side >= 0) & is_window[:, tf.newaxis], scores, -1.0)

    own = score(windows.number)

    def compare(distance: tf.Tensor, is_best: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        # Among equals the first window wins.
        is_best &= (own > score(windows.number - distance)) & (own >= score(windows.number + distance))
        return distance + 1, is_best

    reach = tf.reduce_max((cuts.room - 1) // cuts.stride)  # windows further away do not overlap
    one = tf.constant(1, tf.int64)
    return tf.while_loop(lambda distance, _: distance <= reach, compare, (one, is_piece))[1]


def _no_answers(
    windows: _Windows, start_logits: tf.Tensor, end_logits: tf.Tensor, num_questions: tf.Tensor
) -> _Candidates:
    """No answer for each question, as scored by the window in which it scores lowest."""
    scores = sum(tf.cast(logits[:, 0], tf.float64) for logits in (start_logits, end_logits))
    question = tf.range(num_questions)
    nowhere = tf.fill([num_questions], tf.constant(-1, tf.int64))
    return _Candidates(
        question, nowhere, nowhere, tf.math.unsorted_segment_min(scores, windows.question, num_questions)
    )


def _counts(question: tf.Tensor, num_questions: tf.Tensor) -> tf.Tensor:
    """How often each question occurs; int64 [B]."""
    return tf.math.unsorted_segment_sum(tf.ones_like(question), question, num_questions)


def _kept(candidates: _Candidates, is_kept: tf.Tensor) -> tf.Tensor:
    """The places of some candidates, and of no answer, which is never left out."""
    return tf.where(is_kept | (candidates.first < 0))[:, 0]


def _ranks(question: tf.Tensor) -> tf.Tensor:
    """The place of each among its equals, from 0; equals stand together."""
    return tf.range(tf.size(question, tf.int64)) - tf.searchsorted(question, question, out_type=tf.int64)


def _gather(values: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
    """Gathers values; if there are no values at all, any place gives 0."""
    return tf.gather(tf.concat([values, [0]], axis=0), places)
