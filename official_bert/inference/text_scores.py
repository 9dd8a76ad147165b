"""`TextScorer`: scores texts with the masked-LM head of a pretrained model, and pairs with its next-sentence head.

The scores are computed by TensorFlow (`model_scores`), or by the engine of an export (`exported_scores`).
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from official_bert.config.bert_config import BertConfig
from official_bert.inference.sentence_index import Sentence
from official_bert.options.groups import SentenceBatchOptions
from official_bert.serving.engine_model import EngineModel
from official_bert.support.errors import UserError
from official_bert.tasks.pretraining.reader import SCORES
from official_bert.tokenization import Tokenizer
from official_bert.tokenization.sequences import POOLED_BATCHES, JoinedSequence, join_texts, pools, truncate_pair


class WordScore(NamedTuple):
    word: str  # the word as in the text
    num_wordpieces: int  # number of its wordpieces
    log_likelihood: float  # the sum of their log probabilities, each given the rest of the text


class TextScore(NamedTuple):
    sentence: Sentence  # the text
    words: list[WordScore]  # its words; of a pair, those of both texts

    @property
    def num_wordpieces(self) -> int:
        return sum(word.num_wordpieces for word in self.words)

    @property
    def log_likelihood(self) -> float:
        return math.fsum(word.log_likelihood for word in self.words)


def pseudo_perplexity(log_likelihood: float, num_wordpieces: int) -> float:
    """Return the pseudo-perplexity of texts with this pseudo-log-likelihood, `exp(-PLL / N)`; inf if too large."""
    try:
        return math.exp(-log_likelihood / num_wordpieces)
    except OverflowError:
        return math.inf


class _Word(NamedTuple):
    """A word and the positions of its wordpieces in the sequence."""

    text: str
    positions: list[int]


class _EncodedText(NamedTuple):
    """A text or a pair as a sequence, the words in it, and whether both texts of a pair have some."""

    sentence: Sentence
    sequence: JoinedSequence
    words: list[_Word]
    has_both: bool


# From sequences to the score of each; an id of -1 - id is a mask in place of the wordpiece to score.
Compute = Callable[[Sequence[JoinedSequence]], Iterable[Any]]


class TextScorer:
    """Scores texts and pairs, which it reads in pools of bounded size and returns in order."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        compute: Compute,
        *,
        max_seq_length: int,
        batch_size: int,
        scores_pairs: bool = False,
    ):
        self._tokenizer, self._specials, self._compute = tokenizer, tokenizer.specials, compute
        self._max_seq_length, self._batch_size, self._scores_pairs = max_seq_length, batch_size, scores_pairs
        self.num_long = 0  # number of texts that were truncated

    def likelihoods(self, sentences: Iterable[Sentence], *, masks_rest_of_word: bool = False) -> Iterator[TextScore]:
        """Compute the pseudo-log-likelihoods of texts: each wordpiece is masked in turn and predicted.

        Args:
          masks_rest_of_word: whether to mask the later wordpieces of the same word, too. Otherwise they almost give
            the masked one away, so that rare words of many wordpieces seem likely.

        Source: Salazar et al., "Masked Language Model Scoring", 2020; for `masks_rest_of_word` Kauf and Ivanova, "A
          Better Way to Do Masked Language Model Scoring", 2023.
        """
        for pool in self._pools(sentences):
            masked = [copy for text in pool for copy in self._masked(text, masks_rest_of_word)]
            scores = iter(self._compute(masked))
            for text in pool:
                yield TextScore(
                    text.sentence,
                    [
                        WordScore(word.text, count, math.fsum(map(float, itertools.islice(scores, count))))
                        for word in text.words
                        for count in [len(word.positions)]
                    ],
                )

    def next_sentence_probabilities(self, pairs: Iterable[Sentence]) -> Iterator[tuple[Sentence, float]]:
        """Compute the probability that the second text follows the first, for each pair whose texts have wordpieces."""
        for pool in self._pools(pairs):
            probabilities = self._compute([pair.sequence for pair in pool])
            for pair, probability in zip(pool, probabilities, strict=True):
                yield pair.sentence, float(probability)

    def _pools(self, sentences: Iterable[Sentence]) -> Iterator[list[_EncodedText]]:
        def sizes(text: _EncodedText) -> list[int]:
            return [sum(len(word.positions) for word in text.words)]  # of sequences

        texts = map(self._encoded, sentences)
        scored = (text for text in texts if text.words and (text.has_both or not self._scores_pairs))
        return pools(scored, sizes, [POOLED_BATCHES * self._batch_size])

    def _encoded(self, sentence: Sentence) -> _EncodedText:
        texts = [text or "" for text in sentence.text]
        encodings = list(map(self._tokenizer.encode_with_offsets, texts))
        first, second = (encoding.ids for encoding in encodings)
        room = self._specials.room(self._max_seq_length, is_pair=bool(second))
        self.num_long += len(first) + len(second) > room
        kept = truncate_pair(first, second, room)
        words, offset = [], 1
        for text, encoding, ids in zip(texts, encodings, kept, strict=True):
            beginnings = self._tokenizer.word_beginnings(text, encoding)
            starts = [place for place, begins in enumerate(beginnings[: len(ids)]) if begins]
            for start, end in itertools.pairwise([*starts, len(ids)]):
                positions = list(range(offset + start, offset + end))
                words.append(_Word(text[encoding.starts[start] : encoding.ends[end - 1]], positions))
            offset += len(ids) + self._specials.num_between
        return _EncodedText(sentence, join_texts(*kept, self._specials), words, bool(first and second))

    def _masked(self, text: _EncodedText, masks_rest_of_word: bool) -> Iterator[JoinedSequence]:
        """Mask each wordpiece in turn: `-1 - id` stands for a mask in place of the wordpiece to score."""
        for _, positions in text.words:
            for place, position in enumerate(positions):
                ids = list(text.sequence.input_ids)
                if masks_rest_of_word:
                    ids[position : positions[-1] + 1] = [self._tokenizer.mask_id] * (len(positions) - place)
                ids[position] = -1 - text.sequence.input_ids[position]
                yield text.sequence._replace(input_ids=ids)


def exported_scores(model: EngineModel) -> Compute:
    """Return the log probabilities of wordpieces, from an export of a pretrained model."""

    def compute(sequences: Sequence[JoinedSequence]) -> Iterator[float]:
        for outputs in model.computed([sequence.inputs for sequence in sequences]):
            if SCORES not in outputs:
                raise UserError("the export has no scores of wordpieces; export the model again")
            yield float(outputs[SCORES].sum())

    return compute


def model_scores(
    options: SentenceBatchOptions, bert_config: BertConfig, tokenizer: Tokenizer, *, of_pairs: bool
) -> Compute:
    """Return the log probabilities of wordpieces or, of pairs, the probabilities that the second text follows."""
    import tensorflow as tf

    from official_bert.inference.text_encoder import devices_of, rows_of_batch
    from official_bert.serving.text_model import Computation, keras_engine
    from official_bert.tasks.pretraining.task import MASKED_LM, NEXT_SENTENCE, load_model
    from official_bert.training.devices import inference_options

    devices, head = devices_of(options), NEXT_SENTENCE if of_pairs else MASKED_LM
    with devices.strategy.scope():
        encoder_options = inference_options(options)
        model = load_model(
            bert_config, options.init_checkpoint, what="init_checkpoint", encoder_options=encoder_options, head=head
        )

    def masked_wordpiece(batch: dict[str, tf.Tensor]) -> tf.Tensor:
        ids = batch["input_ids"]  # [B, S]
        is_scored = ids < 0
        position = tf.argmax(tf.cast(is_scored, tf.int32), axis=1, output_type=tf.int32)[:, tf.newaxis]  # [B, 1]
        wordpiece = -1 - tf.gather(ids, position, batch_dims=1)  # [B, 1]
        encoded = model.encoder({**batch, "input_ids": tf.where(is_scored, tokenizer.mask_id, ids)})
        logits = model.masked_lm(encoded["sequence_output"], position, model.encoder.word_embeddings)
        return tf.gather(tf.nn.log_softmax(logits), wordpiece, batch_dims=2)[:, 0]  # of logits float32 [B, 1, V]

    def next_sentence(batch: dict[str, tf.Tensor]) -> tf.Tensor:
        return tf.nn.softmax(model.next_sentence(model.encoder.pool(**batch)))[:, 0]  # of the class 0

    compute = next_sentence if of_pairs else masked_wordpiece
    computation = Computation(lambda batch: {SCORES: compute(batch)}, model.variables, bert_config.max_length)
    engine = keras_engine(computation, devices)
    most_rows = rows_of_batch(bert_config, options.batch_size, 0 if of_pairs else bert_config.vocab_size)
    return lambda sequences: [row[SCORES] for row in engine.computed([one.inputs for one in sequences], most_rows)]
