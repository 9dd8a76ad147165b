"""Servable question answering: find the best answers to a question in a text.

Windows, search and probabilities match `run_squad.py` with offset alignment (the modules `data` and `task`),
implemented as TensorFlow operations.
"""

import dataclasses
from typing import NamedTuple

import tensorflow as tf

from official_bert.serving.servable import Tensors, WindowedServable, check_text_size
from official_bert.tasks.question_answering.answers import LOGITS
from official_bert.tasks.question_answering.data import LENGTH_WEIGHT
from official_bert.tasks.question_answering.reader import NUM_RANKED
from official_bert.tasks.question_answering.task import AnswerTextModel
from official_bert.tokenization.graph_operations import (
    Parts,
    RaggedEncodingWithOffsets,
    SlidingWindows,
    Windows,
    cut_out,
    in_groups,
    join_parts,
)

_GROWTH = 4  # the first attempt takes 4 candidates per answer; each retry takes 4 times as many

# B: questions, W: windows of all questions, S: positions, M: candidates of all questions, K: answers of a question.


class EncodedQuestions(NamedTuple):
    """Tokenized questions and contexts, ready for the model."""

    characters: tf.RaggedTensor  # int32 [B, (characters)], the contexts without undecodable bytes
    wordpieces: RaggedEncodingWithOffsets  # wordpieces of the contexts
    cuts: SlidingWindows  # the split of the contexts into windows
    windows: Windows  # the windows
    offsets: tf.Tensor  # int64 [W], position of the first context wordpiece in each window


class _Candidates(NamedTuple):
    """Candidate answers of all questions; all [M], int64 except the score."""

    question: tf.Tensor  # index of the question
    first: tf.Tensor  # the context's first wordpiece; -1 for no answer
    last: tf.Tensor  # the context's last wordpiece; -1 for no answer
    score: tf.Tensor  # float64, sum of start logit and end logit

    def gather(self, places: tf.Tensor) -> "_Candidates":
        return _Candidates(*(tf.gather(column, places) for column in self))

    def followed_by(self, other: "_Candidates") -> "_Candidates":
        return _Candidates(*(tf.concat(columns, axis=0) for columns in zip(self, other, strict=True)))


_SHAPES = _Candidates(*[tf.TensorShape([None])] * 4)


@dataclasses.dataclass(frozen=True)
class AnswerSearch:
    """Search for the best answers to questions in the logits of their windows."""

    max_answer_length: int
    version_2: bool
    top_k: int  # number of answers to return

    @property
    def _num_ranked(self) -> int:
        return max(self.top_k, NUM_RANKED)

    def __call__(
        self, reading: EncodedQuestions, start_logits: tf.Tensor, end_logits: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Find the best answers from the logits, float32 [W, S], which are very low at padding."""
        windows, num_questions = reading.windows, reading.characters.nrows()
        may_start = _have_max_context(reading, tf.shape(start_logits, tf.int64)[1])
        candidates = self._spans(reading, may_start, start_logits, end_logits)
        # Only the best starts and ends are combined. If all of them lie in the question, wordpieces are the answers.
        has_answer = _counts(candidates.question, num_questions) > 0  # [B]
        places = tf.where(may_start & ~tf.gather(has_answer, windows.text)[:, tf.newaxis])  # [M, 2]
        window, position = places[:, 0], places[:, 1]
        piece = position + tf.gather(windows.first - reading.offsets, window)
        scores = tf.gather_nd(start_logits, places) + tf.gather_nd(end_logits, places)
        others = _Candidates(tf.gather(windows.text, window), piece, piece, tf.cast(scores, tf.float64))
        candidates = candidates.followed_by(others)
        if self.version_2:
            candidates = candidates.followed_by(_no_answers(windows, start_logits, end_logits, num_questions))
        candidates, texts = self._ranked(reading, candidates)
        return self._outputs(reading, candidates, texts, num_questions)

    def _spans(
        self, reading: EncodedQuestions, may_start: tf.Tensor, start_logits: tf.Tensor, end_logits: tf.Tensor
    ) -> _Candidates:
        """Return all candidates, ordered by window, start logit and end logit; see `task._spans`."""
        windows, offsets = reading.windows, reading.offsets
        num_best = tf.minimum(self._num_ranked, tf.shape(start_logits)[1])
        (best_starts, starts), (best_ends, ends) = (
            tf.math.top_k(logits, num_best, index_type=tf.int64) for logits in (start_logits, end_logits)
        )  # [W, n]
        offset, stop = offsets[:, tf.newaxis], (offsets + windows.num_wordpieces)[:, tf.newaxis]
        are_starts = tf.gather(may_start, starts, batch_dims=1)
        are_ends = (ends >= offset) & (ends < stop)
        lengths = ends[:, tf.newaxis, :] - starts[:, :, tf.newaxis] + 1  # [W, n, n]
        are_spans = (lengths >= 1) & (lengths <= self.max_answer_length)
        are_spans &= are_starts[:, :, tf.newaxis] & are_ends[:, tf.newaxis, :]
        places = tf.where(are_spans)  # [M, 3]
        window, start_places, end_places = places[:, 0], places[:, :2], tf.gather(places, [0, 2], axis=1)
        shift = tf.gather(windows.first - offsets, window)
        best_starts, best_ends = (tf.cast(logits, tf.float64) for logits in (best_starts, best_ends))
        return _Candidates(
            tf.gather(windows.text, window),
            tf.gather_nd(starts, start_places) + shift,
            tf.gather_nd(ends, end_places) + shift,
            tf.gather_nd(best_starts, start_places) + tf.gather_nd(best_ends, end_places),
        )

    def _ranked(self, reading: EncodedQuestions, candidates: _Candidates) -> tuple[_Candidates, tf.Tensor]:
        """Return the best candidates of each question and their texts; duplicate texts keep the highest score."""
        order = tf.argsort(-candidates.score, stable=True)
        order = tf.gather(order, tf.argsort(tf.gather(candidates.question, order), stable=True))
        candidates = candidates.gather(order)
        rank = _ranks(candidates.question)
        # A long context has very many candidates. The first few almost always suffice; otherwise, take more.
        num_questions = reading.characters.nrows()
        numbers = _counts(candidates.question, num_questions)  # [B]

        def take(limit: tf.Tensor, *_) -> tuple[tf.Tensor, tf.Tensor, _Candidates, tf.Tensor]:
            best, texts = self._distinct(reading, candidates.gather(_kept(candidates, rank < limit)))
            is_enough = (_counts(best.question, num_questions) >= self._num_ranked) | (numbers <= limit)
            return limit * _GROWTH, tf.reduce_all(is_enough), best, texts

        start = tf.constant(_GROWTH * self._num_ranked, tf.int64)
        shapes = (start.shape, tf.TensorShape([]), _SHAPES, tf.TensorShape([None]))
        _, _, best, texts = tf.while_loop(
            lambda limit, is_enough, *_: ~is_enough, take, take(start), shape_invariants=shapes
        )
        kept = _kept(best, _ranks(best.question) < self._num_ranked)
        return best.gather(kept), tf.gather(texts, kept)

    def _distinct(self, reading: EncodedQuestions, candidates: _Candidates) -> tuple[_Candidates, tf.Tensor]:
        """Keep the first of several candidates with the same text; also return the texts."""
        first = tf.gather(reading.characters.row_starts(), candidates.question)
        places = (first + tf.cast(places, tf.int64) for places in self._places(reading, candidates))
        texts = cut_out(reading.characters.flat_values, *places)

        keys = tf.strings.join([tf.strings.as_string(candidates.question), texts], separator=" ")
        distinct, number = tf.unique(keys, out_idx=tf.int64)
        places = tf.range(tf.size(keys, tf.int64))
        is_first = tf.gather(tf.math.unsorted_segment_min(places, number, tf.size(distinct)), number) == places
        kept = tf.where(is_first)[:, 0]
        return candidates.gather(kept), tf.gather(texts, kept)

    def _places(self, reading: EncodedQuestions, candidates: _Candidates) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the character offsets of candidates in the context, int32 [M]; 0 for no answer."""
        is_answer = candidates.first >= 0
        row_starts = tf.gather(reading.wordpieces.ids.row_starts(), candidates.question)
        return tuple(
            tf.where(is_answer, _gather(places.flat_values, tf.where(is_answer, row_starts + piece, 0)), 0)
            for places, piece in (
                (reading.wordpieces.starts, candidates.first),
                (reading.wordpieces.ends, candidates.last),
            )
        )

    def _outputs(
        self, reading: EncodedQuestions, candidates: _Candidates, texts: tf.Tensor, num_questions: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        question, score = candidates.question, candidates.score
        highest = tf.math.unsorted_segment_max(score, question, num_questions)
        shares = tf.exp(score - tf.gather(highest, question))
        totals = tf.math.unsorted_segment_sum(shares, question, num_questions)
        probabilities = tf.cast(shares / tf.gather(totals, question), tf.float32)
        starts, ends = self._places(reading, candidates)

        def table(values: tf.Tensor) -> tf.Tensor:
            rows = tf.RaggedTensor.from_value_rowids(values, question, num_questions, validate=False)
            return rows[:, : self.top_k].to_tensor(shape=[None, self.top_k])

        outputs = {
            "answers": table(texts),
            "probabilities": table(probabilities),
            "starts": table(starts),
            "ends": table(ends),
        }
        if self.version_2:
            is_null = candidates.first < 0
            best = tf.math.unsorted_segment_max(tf.where(is_null, score.dtype.min, score), question, num_questions)
            null = tf.where(is_null)[:, 0]  # one per question, in order
            odds = tf.gather(score, null) - tf.where(best > score.dtype.min, best, 0.0)
            outputs["null_probabilities"] = tf.gather(probabilities, null)
            outputs["null_odds"] = tf.cast(odds, tf.float32)
        return outputs


def _have_max_context(reading: EncodedQuestions, length: tf.Tensor) -> tf.Tensor:
    """Mark positions whose wordpiece has its maximum context in this window, [W, S]; see `TokenizedSquad`."""
    windows = reading.windows
    inside = tf.range(length) - reading.offsets[:, tf.newaxis]
    is_piece = (inside >= 0) & (inside < windows.num_wordpieces[:, tf.newaxis])
    cuts = reading.cuts.gather(windows.text).as_rows()
    best = cuts.best_windows(inside + windows.first[:, tf.newaxis], LENGTH_WEIGHT)
    return is_piece & (best == windows.number[:, tf.newaxis])


def _no_answers(
    windows: Windows, start_logits: tf.Tensor, end_logits: tf.Tensor, num_questions: tf.Tensor
) -> _Candidates:
    """Return a no-answer candidate per question, scored by the window with the lowest no-answer score."""
    scores = sum(tf.cast(logits[:, 0], tf.float64) for logits in (start_logits, end_logits))
    question = tf.range(num_questions)
    nowhere = tf.fill([num_questions], tf.constant(-1, tf.int64))
    return _Candidates(question, nowhere, nowhere, tf.math.unsorted_segment_min(scores, windows.text, num_questions))


def _counts(question: tf.Tensor, num_questions: tf.Tensor) -> tf.Tensor:
    """Count how often each question occurs; int64 [B]."""
    return tf.math.unsorted_segment_sum(tf.ones_like(question), question, num_questions)


def _kept(candidates: _Candidates, is_kept: tf.Tensor) -> tf.Tensor:
    """Return the indices of some candidates, always including no answer."""
    return tf.where(is_kept | (candidates.first < 0))[:, 0]


def _ranks(question: tf.Tensor) -> tf.Tensor:
    """Return the rank of each element among its equals, from 0; equal elements must be adjacent."""
    return tf.range(tf.size(question, tf.int64)) - tf.searchsorted(question, question, out_type=tf.int64)


def _gather(values: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
    """Gather values; if there are no values at all, return 0 for any index."""
    return tf.gather(tf.concat([values, [0]], axis=0), places)


class QuestionAnsweringServable(AnswerTextModel, WindowedServable):
    """A model of `run_squad.py`."""

    @property
    def _search(self) -> AnswerSearch:
        return AnswerSearch(self._max_answer_length, self._version_2, self._top_k)

    def cut(self, question: tf.Tensor, context: tf.Tensor) -> tuple[tf.Tensor, Tensors]:
        reading, ids = self._read(question, context)
        return reading.windows.text, ids

    def answer(self, question: tf.Tensor, context: tf.Tensor) -> Tensors:
        """Return the K best answers, their probabilities among the `NUM_RANKED` best, and their offsets, [B, K].

        A missing answer is "" with the probability 0; "" with another probability means no answer. In version 2, also
        null_probabilities, [B], and null_odds, [B]: the score of no answer minus that of the best answer.
        """
        context, num_bytes = check_text_size(context, "context")
        return in_groups(self._answer_some, [question, context], num_bytes)

    def _answer_some(self, question: tf.Tensor, context: tf.Tensor) -> Tensors:
        reading, ids = self._read(question, context)
        scores = self.predict_in_batches(ids, self._output_specs())
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


servable_of_run = QuestionAnsweringServable.of_run
