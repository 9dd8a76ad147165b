"""Tagging that reads texts: a sentence in, its words with their tags and the entities out.

Windows and tags are those of `run_ner.py` (the module `windows`), as TensorFlow operations.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from official_bert.checkpoints.loading import load_whole
from official_bert.config.bert_config import BertConfig
from official_bert.metrics.tagging import find_entities, has_entities
from official_bert.modeling.encoder import create_encoder
from official_bert.modeling.encoder_options import UNPADDED, EncoderOptions
from official_bert.modeling.tagging import TaggingModel
from official_bert.serving.servable import (
    Tensors,
    WindowedServable,
    of_bounded_size,
    of_bounded_table,
    with_dimensions,
)
from official_bert.support.errors import UserError
from official_bert.tasks.tagging.options import TaggingConfig
from official_bert.tokenization import Tokenizer
from official_bert.tokenization.graph_joining import join_parts
from official_bert.tokenization.graph_operations import cut_out, in_groups
from official_bert.tokenization.graph_windows import Cuts
from official_bert.training.labels_file import LABELS_FILE, read_labels

WORDS = "words"  # the signature that reads sentences that are split already
_BLANKS = [code for code in range(sys.maxunicode + 1) if chr(code).isspace()]  # at which `str.split` splits

# Outputs whose rows have the same length, by its name.
_TABLES = {
    "num_words": ("words", "tags", "probabilities"),
    "num_entities": ("entities", "entity_types", "entity_starts", "entity_ends", "entity_probabilities"),
}

# B: sentences, W: words of all sentences, R: windows of all sentences, S: positions, C: tags, E: entities.


class Entity(NamedTuple):
    """Words of a sentence that belong together.

    Attributes:
      text: `sentence[start:end]`.
      type: as in the tags, "PER".
      start: the character of the sentence at which it begins, not counting any that UTF-8 cannot encode.
      end: the character after it.
      probability: of the tag of its least certain word.
    """

    text: str
    type: str
    start: int
    end: int
    probability: float


class TaggedText(NamedTuple):
    """A sentence with its tags.

    Attributes:
      words: what blanks separate.
      tags: the tag of each word.
      probabilities: of each of these tags.
      entities: those that the tags mark, in their order.
    """

    words: list[str]
    tags: list[str]
    probabilities: list[float]
    entities: list[Entity]


class Words(NamedTuple):
    """The words of all sentences.

    Attributes:
      texts: string [W].
      starts: int32 [W], the character of its sentence at which each begins.
      ends: int32 [W], the character after it.
      row_splits: int64 [B + 1], how many words stand before each sentence, and all.
    """

    texts: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor
    row_splits: tf.Tensor


class _Windows(NamedTuple):
    """Windows of all sentences, and in which of them each word is tagged.

    Attributes:
      sentence: int64 [R], which sentence.
      ids: input_ids, input_mask and segment_ids, int32 [R, S].
      word_places: int64 [W, 2], the window and the position where each word is tagged.
    """

    sentence: tf.Tensor
    ids: Tensors
    word_places: tf.Tensor


class TaggingServable(WindowedServable):
    """A model of `run_ner.py`."""

    task = "tagging"

    text_names = ("text",)

    def __init__(
        self,
        model: TaggingModel,
        config: BertConfig,
        tokenizer: Tokenizer,
        *,
        tags: Sequence[str],
        max_seq_length: int,
    ):
        """Joins a tagger with its tokenizer and its tags.

        Args:
          model: the tagger.
          config: its architecture.
          tokenizer: the one that the model was trained with.
          tags: names of the C tags, in the order of the model's outputs.
          max_seq_length: positions of a window, [CLS] and [SEP] included.

        Raises:
          UserError: see `Servable`.
        """
        super().__init__(model, config, tokenizer, max_seq_length=max_seq_length, name="tagger")
        self._tags = tf.constant(tags, tf.string)
        self._unk_id = tokenizer.unk_id
        self._types, self._type_of_tag, self._begins = _entity_tables(tags)

    def signatures(self) -> dict[str, Callable[..., Tensors]]:
        """Signatures of every model, and `words`, for sentences that are split already."""
        table = tf.TensorSpec([None, None], tf.string)

        def checked(words: tf.Tensor) -> Tensors:
            return self.answer_words(**with_dimensions({"words": words}, "sentences", "words"))

        function = tf.function(checked, autograph=False).get_concrete_function(words=table)
        return {**super().signatures(), WORDS: function}

    def more_warmup_requests(self, texts: Mapping[str, tf.Tensor]) -> list[tuple[str, Tensors]]:
        """A request to `words`, with the words of texts; see `Servable`."""
        return [(WORDS, {"words": tf.strings.split(texts["text"]).to_tensor()})]

    def cut(self, text: tf.Tensor) -> tuple[tf.Tensor, Tensors]:
        """Turns sentences into windows; see `WindowedServable`."""
        windows = self._windows(split_at_blanks(text))
        return windows.sentence, windows.ids

    def predict(self, inputs: Tensors) -> Tensors:
        """Tags positions.

        Args:
          inputs: input_ids, input_mask and segment_ids, int32 [B, S].

        Returns:
          probabilities: float32 [B, S, C], in the order of the tags.
          position_tags: string [B, S], the most likely tag; that of a word stands at its first wordpiece.
        """
        probabilities = tf.nn.softmax(self._run_model(inputs))
        best = tf.argmax(probabilities, axis=-1)
        return {"probabilities": probabilities, "position_tags": tf.gather(self._tags, best)}

    def answer(self, text: tf.Tensor) -> Tensors:
        """Tags sentences and finds the entities in them.

        Args:
          text: string [B], UTF-8, each of at most `MOST_BYTES`; blanks separate the words.

        Returns:
          A dict; what is missing at the end of a row is "" or 0:
            words: string [B, words], what blanks separate.
            tags: string [B, words], the tag of each word.
            probabilities: float32 [B, words], of each of these tags.
            entities: string [B, E], the text of each entity, from its first word to its last, blanks included.
            entity_types: string [B, E], such as "PER".
            entity_starts: int32 [B, E], the character at which each begins, of those that could be decoded.
            entity_ends: int32 [B, E], the character after it.
            entity_probabilities: float32 [B, E], of the tag of its least certain word.
        """
        text, num_bytes = of_bounded_size(text, "text")
        found = in_groups(self._answer_some, [text], num_bytes)
        with tf.device("CPU:0"):
            tables = {}
            for count, names in _TABLES.items():
                lengths = of_bounded_table(tf.size(text, tf.int64), found[count])
                for name in names:
                    tables[name] = tf.RaggedTensor.from_row_lengths(found[name], lengths, validate=False).to_tensor()
            return tables

    def _answer_some(self, text: tf.Tensor) -> Tensors:
        """Return the outputs of `answer`, row after row, with the lengths of the rows: the keys of `_TABLES`."""
        with tf.device("CPU:0"):
            words = split_at_blanks(text)
            windows = self._windows(words)
        probabilities = self._probabilities(windows)
        with tf.device("CPU:0"):
            of_words = tf.gather_nd(probabilities, windows.word_places)  # [W, C]
            numbers = tf.argmax(of_words, axis=-1)
            best = tf.reduce_max(of_words, axis=-1)
            return {
                "words": words.texts,
                "tags": tf.gather(self._tags, numbers),
                "probabilities": best,
                "num_words": words.row_splits[1:] - words.row_splits[:-1],
                **self._entities(text, words, numbers, best),
            }

    def answer_words(self, words: tf.Tensor) -> Tensors:
        """Tags sentences that are split into words.

        Args:
          words: string [B, words], UTF-8; "" is no word and gets no tag.

        Returns:
          tags: string [B, words].
          probabilities: float32 [B, words], of each of these tags.
        """
        words, num_bytes = of_bounded_size(words, "words")
        shape = tf.shape(words, tf.int64)
        with tf.control_dependencies([of_bounded_table(shape[0], shape[1:])]):
            return in_groups(self._answer_some_words, [tf.identity(words)], num_bytes)

    def _answer_some_words(self, words: tf.Tensor) -> Tensors:
        with tf.device("CPU:0"):
            is_word = words != ""
            counts = tf.reduce_sum(tf.cast(is_word, tf.int64), axis=1)
            places = tf.where(is_word)
            row_splits = tf.concat([[0], tf.cumsum(counts)], axis=0)
            no_offsets = tf.zeros([tf.size(places) // 2], tf.int32)
            windows = self._windows(Words(tf.gather_nd(words, places), no_offsets, no_offsets, row_splits))
        probabilities = self._probabilities(windows)
        with tf.device("CPU:0"):
            of_words = tf.gather_nd(probabilities, windows.word_places)  # [W, C]
            tags = tf.gather(self._tags, tf.argmax(of_words, axis=-1))
            shape = tf.shape(words, tf.int64)
            return {
                "tags": tf.tensor_scatter_nd_update(tf.fill(shape, ""), places, tags),
                "probabilities": tf.scatter_nd(places, tf.reduce_max(of_words, axis=-1), shape),
            }

    def _probabilities(self, windows: _Windows) -> tf.Tensor:
        """Return the probability of each tag at every position of the windows: float32 [R, S, C]."""
        shape = (None, None, self._tags.shape[0])
        return self.predict_in_batches(windows.ids, {"probabilities": shape})["probabilities"]

    def _windows(self, words: Words) -> _Windows:
        """Cuts sentences into windows, as `windows.make_windows` does without documents."""
        pieces = self._graph_tokenizer().encode(words.texts)  # [W, (pieces)]
        nothing_left = pieces.row_lengths() == 0
        unknown = tf.RaggedTensor.from_row_lengths(
            tf.fill([tf.math.count_nonzero(nothing_left)], self._unk_id),
            tf.cast(nothing_left, tf.int64),
            validate=False,
        )
        pieces = tf.concat([pieces, unknown], axis=1)
        sentences = tf.RaggedTensor.from_row_splits(
            pieces.flat_values, tf.gather(pieces.row_splits, words.row_splits), validate=False
        )  # [B, (pieces)]
        cuts = Cuts.of(sentences.row_lengths(), self.max_seq_length - 2)
        windows = cuts.windows()
        ids = join_parts(windows.parts(sentences), **self._specials)

        of_word = tf.repeat(tf.range(sentences.nrows()), words.row_splits[1:] - words.row_splits[:-1])  # [W]
        piece, own = pieces.row_starts() - tf.gather(sentences.row_starts(), of_word), cuts.taken(of_word)
        best = own.best_windows(piece)
        window = tf.gather(tf.cumsum(cuts.num_windows, exclusive=True), of_word) + best
        return _Windows(windows.text, ids, tf.stack([window, piece - own.first(best) + 1], axis=1))

    def _entities(self, text: tf.Tensor, words: Words, numbers: tf.Tensor, probabilities: tf.Tensor) -> Tensors:
        """The entities that the numbers of the words' tags mark, as `metrics.tagging.find_entities` finds them."""
        types = tf.gather(self._type_of_tag, numbers)  # [W], -1 outside of entities
        before = tf.concat([[0], numbers], axis=0)[:-1]
        begins_sentence = tf.scatter_nd(
            words.row_splits[:-1, tf.newaxis], tf.ones_like(words.row_splits[:-1], tf.int32), [tf.size(numbers) + 1]
        )[:-1]
        begins = tf.gather_nd(self._begins, tf.stack([before, numbers], axis=1)) | (begins_sentence > 0)
        begins &= types >= 0
        entity = tf.cumsum(tf.cast(begins, tf.int64)) - 1  # [W], the entity a word is in, if it is in one
        in_entity = tf.where(types >= 0)[:, 0]
        entity = tf.gather(entity, in_entity)
        first = tf.where(begins)[:, 0]  # [E]
        num_entities = tf.size(first, tf.int64)
        last = tf.math.unsorted_segment_max(in_entity, entity, num_entities)
        least = tf.math.unsorted_segment_min(tf.gather(probabilities, in_entity), entity, num_entities)
        starts, ends = tf.gather(words.starts, first), tf.gather(words.ends, last)
        sentence = tf.searchsorted(words.row_splits[1:], first, side="right", out_type=tf.int64)
        # Only what can be decoded counts: what cannot is dropped before anything is cut out.
        characters = tf.strings.unicode_decode(text, "UTF-8", errors="ignore")
        offsets = tf.gather(characters.row_starts(), sentence)
        texts = cut_out(characters.flat_values, offsets + tf.cast(starts, tf.int64), offsets + tf.cast(ends, tf.int64))
        counts = tf.math.bincount(tf.cast(sentence, tf.int32), minlength=tf.size(text), dtype=tf.int64)
        return {
            "entities": texts,
            "entity_types": tf.gather(self._types, tf.gather(types, first)),
            "entity_starts": starts,
            "entity_ends": ends,
            "entity_probabilities": least,
            "num_entities": counts,
        }


def split_at_blanks(text: tf.Tensor) -> Words:
    """Splits texts, string [B], where `str.split` splits them."""
    characters = tf.strings.unicode_decode(text, "UTF-8", errors="ignore")  # [B, (characters)]
    codes = characters.flat_values
    is_blank = tf.reduce_any(codes[:, tf.newaxis] == tf.constant(_BLANKS), axis=1)
    row_starts = tf.scatter_nd(
        characters.row_starts()[:, tf.newaxis], tf.ones([characters.nrows()], tf.int32), [tf.size(codes) + 1]
    )[:-1]
    follows_blank = tf.concat([[True], is_blank[:-1]], axis=0)[: tf.size(codes)] | (row_starts > 0)
    firsts = tf.where(~is_blank & follows_blank)[:, 0]  # [W]
    row_ends = tf.concat([row_starts[1:], [1]], axis=0)[: tf.size(codes)]
    before_blank = tf.concat([is_blank[1:], [True]], axis=0)[: tf.size(codes)] | (row_ends > 0)
    ends = tf.where(~is_blank & before_blank)[:, 0] + 1
    row_splits = tf.searchsorted(firsts, characters.row_splits, out_type=tf.int64)
    offsets = tf.repeat(characters.row_starts(), row_splits[1:] - row_splits[:-1])
    return Words(
        cut_out(codes, firsts, ends), tf.cast(firsts - offsets, tf.int32), tf.cast(ends - offsets, tf.int32), row_splits
    )


def _entity_tables(tags: Sequence[str]) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Table of what `find_entities` says of every pair of neighbouring tags.

    Returns:
      The types, string; the number of the type of each tag, int64 [C], -1 of a tag outside of entities; and whether an
      entity begins with a tag behind another one, bool [C, C].
    """
    if not has_entities(set(tags)):
        tags = ["O"] * len(tags)  # parts of speech, say, mark none
    found = [find_entities([tag]) for tag in tags]
    types = sorted({entities[0].type for entities in found if entities})
    numbers = [types.index(entities[0].type) if entities else -1 for entities in found]
    begins = [[any(entity.start == 1 for entity in find_entities([before, tag])) for tag in tags] for before in tags]
    return tf.constant(types or [""], tf.string), tf.constant(numbers, tf.int64), tf.constant(begins, tf.bool)


def servable_of_run(
    config: TaggingConfig,
    bert_config: BertConfig,
    tokenizer: Tokenizer,
    checkpoint: str,
    encoder_options: EncoderOptions = UNPADDED,
) -> TaggingServable:
    """Loads what a run of `run_ner.py` trained.

    Args:
      config: the flags it was trained with; its output folder has the names of the tags.
      bert_config: its architecture.
      tokenizer: its tokenizer.
      checkpoint: its weights.
      encoder_options: how the encoder computes.

    Raises:
      UserError: the checkpoint cannot be read or is of another model, or the names of the tags are missing.
    """
    tags = trained_tags(config.output_dir)
    model = TaggingModel(
        create_encoder(bert_config, encoder_options),
        num_outputs=len(tags),
        feature_layers=config.feature_layers,
        head=config.head,
        lstm_units=config.lstm_units,
    )
    load_whole(checkpoint, model.trainable_variables, "checkpoint")
    return TaggingServable(model, bert_config, tokenizer, tags=tags, max_seq_length=config.max_seq_length)


def trained_tags(output_dir: str) -> list[str]:
    """The names of the tags that the model of an output folder was trained with.

    Raises:
      UserError: they are missing.
    """
    tags = read_labels(output_dir)
    if not tags:
        raise UserError(
            f"{output_dir} has no {LABELS_FILE}, which names the tags of a trained model; train first, or give the "
            "output folder of a run that did"
        )
    return tags


def results(outputs: Mapping[str, np.ndarray]) -> list[TaggedText]:
    """Turns outputs of the signature `text` into a `TaggedText` per sentence."""
    texts = []
    for row in range(len(outputs["words"])):
        columns = {name: values[row].tolist() for name, values in outputs.items()}
        num_words = sum(word != b"" for word in columns["words"])
        words, tags = ([value.decode() for value in columns[name][:num_words]] for name in ("words", "tags"))
        entities = [
            Entity(text.decode(), kind.decode(), start, end, probability)
            for text, kind, start, end, probability in zip(
                *(columns[name] for name in ("entities", "entity_types", "entity_starts", "entity_ends")),
                columns["entity_probabilities"],
                strict=True,
            )
            if text
        ]
        texts.append(TaggedText(words, tags, columns["probabilities"][:num_words], entities))
    return texts
