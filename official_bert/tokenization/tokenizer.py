"""`Tokenizer`: the base class of all tokenizers, their batches, and the choice of one for a folder or flags."""

import abc
import bisect
import numbers
import os
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
from typing_extensions import Self

from official_bert import lazy
from official_bert.config.sentence_modules import encoder_folder
from official_bert.config.text_settings import TextSettings
from official_bert.families.family import Family, all_families
from official_bert.support import files
from official_bert.support.errors import UserError, import_tensorflow, no_attribute
from official_bert.tokenization.sequences import JoinedSequence, Specials, truncate_and_join
from official_bert.tokenization.tokenizer_files import check_casing, find_settings, find_vocabulary, kind_of_file
from official_bert.tokenization.vocab import CLS, MASK, PAD, SEP, UNK, Vocabulary

if TYPE_CHECKING:
    from official_bert.options.groups import TokenizerOptions

Text = str | bytes
TextOrPair = Text | tuple[Text, Text | None]

# Arguments of transformers, with the values that mean what this tokenizer does, and advice for the others.
_OTHER_ARGUMENTS: dict[str, tuple[tuple[Any, ...], str]] = {
    "truncation": ((True,), "texts are always truncated to max_seq_length"),
    "add_special_tokens": ((True,), "for ids without [CLS] and [SEP], call tokenizer.encode(text)"),
    "return_tensors": (("np", "tf", None), "the results are NumPy arrays, which all models read, or tensors with 'tf'"),
    "return_attention_mask": ((True, None), "the mask is always returned, as input_mask"),
    "return_token_type_ids": ((True, None), "the segments are always returned, as segment_ids"),
    "return_offsets_mapping": ((False,), "for offsets, call tokenizer.encode_with_offsets(text)"),
}
_ADVICE = {  # for attributes of tokenizers in transformers
    **dict.fromkeys(("encode_plus", "batch_encode_plus"), "tokenizer(texts)"),
    **dict.fromkeys(("detokenize", "convert_tokens_to_string"), "decode(ids)"),
    **dict.fromkeys(("get_vocabulary", "token_to_id", "id_to_token"), "the dicts vocab and inv_vocab"),
    "bos_token": "cls_token",
    "eos_token": "sep_token",
    "save_pretrained": "official_bert.save_model, which saves a model with its tokenizer",
}

_MIN_SEQ_LENGTH = 3  # [CLS] and two [SEP]
_SHORTEST_LENGTH = 2  # an empty text: [CLS] and [SEP]


def check_max_seq_length(max_seq_length: int) -> None:
    """Raise UserError unless this is an integer that leaves room for [CLS] and two [SEP]."""
    if not isinstance(max_seq_length, numbers.Integral) or max_seq_length < _MIN_SEQ_LENGTH:
        raise UserError(f"max_seq_length={max_seq_length!r:.80} must be a whole number of at least {_MIN_SEQ_LENGTH}")


class EncodingWithOffsets(NamedTuple):
    """The wordpieces of a text: `ids[i]` was made from `text[starts[i]:ends[i]]`, which is never empty.

    `starts` and `ends` never decrease. Wordpieces made from one character share its range: the uncased tokenizer
    decomposes Hangul syllables, for example.
    """

    ids: list[int]
    starts: list[int]
    ends: list[int]

    def in_range(self, start: int, end: int) -> tuple[int, int] | None:
        """Find the first and last wordpiece that overlap a range of characters."""
        first = bisect.bisect_right(self.ends, start)
        last = bisect.bisect_left(self.starts, end) - 1
        return (first, last) if start < end and first <= last else None


def to_unicode(text: str | bytes) -> str:
    """Decode bytes as UTF-8, dropping undecodable ones; return a string unchanged."""
    if isinstance(text, bytes):
        return text.decode("utf-8", "ignore")
    if isinstance(text, str):
        return text
    _refuse_symbolic(text)
    raise TypeError(f"text must be str or bytes, not {type(text).__name__}; for several texts, call tokenizer([...])")


def encodable(text: str) -> tuple[str, list[int]]:
    """Drop lone surrogates, which UTF-8 cannot encode; return also the index of each remaining character."""
    places = [place for place, character in enumerate(text) if not "\ud800" <= character <= "\udfff"]
    return text if len(places) == len(text) else "".join(text[place] for place in places), places


def _refuse_symbolic(texts: object) -> None:
    if type(texts).__name__ == "SymbolicTensor":
        raise UserError(
            "this tokenizer cannot read the symbolic tensors of dataset.map and tf.function; use the graph tokenizer: "
            "tokenize = official_bert.DatasetTokenizer(tokenizer), then dataset.map(tokenize)"
        )


def paired_texts(
    texts: Text | Iterable[TextOrPair], text_pairs: Text | Iterable[Text | None] | None
) -> list[tuple[Text, Text | None]]:
    """Normalize the arguments of a tokenizer call to a list of pairs."""
    _refuse_symbolic(texts)
    if isinstance(texts, Text) and isinstance(text_pairs, Text | None):
        return [(texts, text_pairs)]
    if isinstance(texts, tuple):
        raise UserError(
            "a tuple is ambiguous: write tokenizer([(first, second)]) for a pair of texts, or "
            "tokenizer([first, second]) for two texts"
        )
    items = _as_list(texts, "texts")
    if text_pairs is None:
        pairs = [item if isinstance(item, tuple) else (item, None) for item in items]
    else:
        seconds = _as_list(text_pairs, "text_pairs")
        if len(items) != len(seconds):
            raise UserError(f"there are {len(items)} texts, but {len(seconds)} text_pairs; give one for each, or None")
        pairs = list(zip(items, seconds, strict=True))
    for number, pair in enumerate(pairs):
        if len(pair) != 2 or not isinstance(pair[0], Text) or not isinstance(pair[1], Text | None):
            shown = pair[0] if pair[1:] == (None,) else pair
            raise UserError(f"example {number} is {shown!r:.80}; it must be a text or a tuple of two: (first, second)")
    return pairs


def _as_list(texts: object, name: str) -> list:
    if isinstance(texts, Text | dict) or not isinstance(texts, Iterable):
        raise UserError(f"{name} is {texts!r:.80}; give one text, or a list of texts or of pairs (first, second)")
    return list(texts)


def pad(sequences: Sequence[JoinedSequence], length: int | None, pad_id: int = 0) -> dict[str, np.ndarray]:
    """Return input_ids, input_mask and segment_ids, int32 [B, S], of sequences padded to one length."""
    if length is None:
        length = max([_SHORTEST_LENGTH, *(len(sequence.input_ids) for sequence in sequences)])
    arrays = np.zeros([3, len(sequences), length], np.int32)
    arrays[0] = pad_id
    for row, sequence in enumerate(sequences):
        end = len(sequence.input_ids)
        arrays[0, row, :end] = sequence.input_ids
        arrays[1, row, :end] = 1
        arrays[2, row, :end] = np.frombuffer(sequence.segment_ids, np.uint8)
    return dict(zip(("input_ids", "input_mask", "segment_ids"), arrays, strict=True))


def _special_name(special: str) -> Any:
    def name_of(self: "Tokenizer") -> str:
        """Return the text of a special token in the vocabulary."""
        return self.vocabulary.name_of(special)

    return property(name_of)


def _special_id(special: str) -> Any:
    def id_of(self: "Tokenizer") -> int:
        """Return the id of a special token; UserError if the vocabulary lacks it."""
        return self.vocabulary.require(special)[0]

    return property(id_of)


class Tokenizer(abc.ABC):
    """Converts text to tokens, ids and batches of model inputs, and back.

    `FullTokenizer` splits words into wordpieces, as BERT does; `SentencePieceTokenizer` follows ALBERT's rules.

    Attributes:
      vocabulary: its wordpieces and their ids.
      settings: the text settings.
      num_segments: number of segments of the model, if one was read with the tokenizer.
    """

    vocabulary_class: ClassVar[type[Vocabulary]] = Vocabulary
    is_of_words: ClassVar[bool] = True  # whether the wordpieces of a word do not depend on its context
    vocabulary: Vocabulary
    settings: TextSettings
    num_segments: int = 2

    @classmethod
    def from_folder(
        cls, folder: str | os.PathLike[str], do_lower_case: bool | None = None, **settings: bool | str | None
    ) -> Self:
        """Load the tokenizer of a model; UserError if it is of another kind; see `load_tokenizer`.

        Args:
          folder: folder of a released checkpoint, output folder of a run, or a Hugging Face folder; it contains
            the vocabulary, and a `tokenizer.json` counts as a `vocab.txt`.
          do_lower_case: whether to lowercase text and strip accents; None for the value in the folder's
            `tokenizer_config.json`, else `run_config.json`, else by the vocabulary, which is cased if it has capital
            letters. The source is logged.
          **settings: other arguments of `FullTokenizer`; by default the values in these files, else its defaults.

        Raises:
          UserError: the folder or its vocabulary is missing or damaged, text would be lowercased for a cased
            vocabulary, or the settings contradict each other.
        """
        folder = encoder_folder(files.local_folder(os.fspath(folder)))
        path = find_vocabulary(folder)
        kind = kind_of_file(path)
        if not issubclass(kind, cls):
            raise UserError(f"{path} is not the vocabulary of a {cls.__name__}; use official_bert.load_tokenizer")
        vocabulary = kind.vocabulary_class.from_file(path)
        given = {"do_lower_case": do_lower_case, **settings}
        given = {name: value for name, value in given.items() if value is not None}
        settings = find_settings(folder, vocabulary, given)
        check_casing(vocabulary, settings, init_checkpoint=None)
        return kind.with_settings(vocabulary, settings)

    @classmethod
    def with_settings(cls, vocabulary: str | Vocabulary, settings: TextSettings) -> Self:
        """Make a tokenizer from a vocabulary, or its file; UserError for settings that do not apply to it."""
        if cls.vocabulary_class.changes_text:
            return cls(vocabulary, **settings._asdict())
        settings.require_unchanged_text(f"the vocabulary of a {cls.__name__}")
        return cls(vocabulary)

    def in_graph(self) -> Any:
        """Return the tokenizer as TensorFlow operations; those of this class call Python."""
        return lazy.PythonTokenizer(self)

    def to_hugging_face(self, family: Family, max_length: int) -> dict[str, Any]:
        """Make the content of a `tokenizer_config.json` for sequences of at most `max_length` tokens."""
        owner = next(of for of in (family, *all_families().values()) if isinstance(self, of.tokenizer()))
        name = self.vocabulary.their_class or owner.hugging_face.tokenizer_class
        return {"tokenizer_class": name, "model_max_length": max_length, **self._their_settings()}

    def to_tokenizer_json(self) -> dict[str, Any] | None:
        """Make the content of a `tokenizer.json` with which `tokenizers` gives the same ids; None if unknown."""
        return None

    @abc.abstractmethod
    def _their_settings(self) -> dict[str, Any]:
        """Return the text settings as keys of a `tokenizer_config.json`."""

    @abc.abstractmethod
    def encode(self, text: str | bytes) -> list[int]:
        """Return the ids of a text's wordpieces, without [CLS] and [SEP]; TypeError for a list: call the tokenizer."""

    def encode_word(self, word: str | bytes) -> list[int]:
        """Encode a word of pretokenized text."""
        return self.encode(word)

    @abc.abstractmethod
    def encode_with_offsets(self, text: str | bytes) -> EncodingWithOffsets:
        """Return the ids of `encode` and their offsets in the text, which count characters; see the subclass."""

    def word_beginnings(self, text: str, encoding: EncodingWithOffsets) -> list[bool]:
        """Return for each wordpiece of `encode_with_offsets(text)` whether it is the first one of a word.

        Words of pretokenized text may look like the continuation of a word, so a wordpiece after a space always begins
        one.
        """
        beginnings, last_end = [], 0
        for token, start, end in zip(self.vocabulary.tokens(encoding.ids), encoding.starts, encoding.ends, strict=True):
            has_space = any(character.isspace() for character in text[last_end:start])
            beginnings.append(not last_end or has_space or not self.vocabulary.continues_word(token))
            last_end = end
        return beginnings

    def check_prefix(self, prefix: str, max_seq_length: int) -> None:
        """Raise UserError if a prefix of texts fills all positions, so that nothing of a text would be read."""
        size, room = len(self.encode(prefix)), self.specials.room(max_seq_length, is_pair=False)
        if size and size >= room:
            raise UserError(
                f"the prefix {prefix!r:.80} has {size} wordpieces, but max_seq_length={max_seq_length} has room for "
                f"{room}; shorten the prefix or raise max_seq_length"
            )

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that determines the ids of a text, as JSON values."""
        return {"vocabulary": self.vocabulary.fingerprint, **self.settings.recorded}

    @property
    def vocab(self) -> dict[str, int]:
        """Token to id."""
        return self.vocabulary.token_to_id

    @property
    def inv_vocab(self) -> dict[int, str]:
        """Id to token."""
        return self.vocabulary.id_to_token

    @property
    def specials(self) -> Specials:
        """The special tokens of its sequences."""
        ends_in_zeros = self.is_of_words and self.vocabulary.name_of(PAD) == PAD  # BERT's, whatever the id of [PAD]
        pad_id = 0 if ends_in_zeros else self.vocabulary.pad_id or 0
        layout = self.vocabulary.layout
        return Specials(self.cls_id, self.sep_id, **layout, pad_id=pad_id, num_segments=self.num_segments)

    @property
    def mask_pattern(self) -> re.Pattern[str]:
        """Pattern of a masked wordpiece in a text; that of RoBERTa includes the space before it."""
        names = dict.fromkeys((MASK, self.vocabulary.name_of(MASK)))
        space = r"[ \t\r\n]*" if self.vocabulary.mask_takes_space else ""
        return re.compile(rf"{space}(?:{'|'.join(map(re.escape, names))})")

    def __len__(self) -> int:
        """Return the number of ids."""
        return self.vocabulary.size

    cls_id, sep_id, pad_id, mask_id, unk_id = map(_special_id, (CLS, SEP, PAD, MASK, UNK))
    # The names in transformers and KerasHub.
    from_pretrained = from_preset = from_folder
    vocab_size = property(__len__)
    cls_token_id, sep_token_id, pad_token_id, mask_token_id, unk_token_id = cls_id, sep_id, pad_id, mask_id, unk_id
    cls_token, sep_token, pad_token, mask_token, unk_token = map(_special_name, (CLS, SEP, PAD, MASK, UNK))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise no_attribute(self, name, _ADVICE)

    def __call__(
        self,
        texts: Text | Iterable[TextOrPair] = (),
        text_pairs: Text | Iterable[Text | None] | None = None,
        *,
        max_seq_length: int = 512,
        padding: Literal["longest", "max_length", True] = "longest",
        **others: Any,
    ) -> dict[str, np.ndarray]:
        """Turn texts and pairs of texts into the inputs of a model, exactly as for training.

        Args:
          texts: B texts, each a string or UTF-8 bytes, or a tuple `(first, second)` for a pair. A single string is a
            batch of one.
          text_pairs: a second text (or None) for each text, as another way to give pairs; a single string for a single
            string.
          max_seq_length: maximum length of a sequence, including [CLS] and [SEP]. Longer texts are truncated at their
            end; in a pair, always the longer one. The default is that of the released models.
          padding: "longest" or True pads to the longest sequence of the batch, "max_length" to `max_seq_length`.
          **others: arguments of transformers: `text`, `text_pair`, `max_length`, `return_tensors="tf"` for TensorFlow's
            tensors, and others with the value that means what this tokenizer does: `truncation=True`.

        Returns:
          input_ids, input_mask and segment_ids, int32 [B, S]: `[CLS] first [SEP]` or `[CLS] first [SEP] second [SEP]`,
          followed by zeros. The mask is 1 except for padding; the segment is 1 for the second text and its [SEP].
          `specials` may define another layout of pairs and another padding id.

        Raises:
          UserError: an argument has another type or value.
        """
        max_seq_length = others.pop("max_length", max_seq_length)
        text_pairs = others.pop("text_pair", text_pairs)
        texts = others.pop("text", texts)
        for name, value in others.items():
            meant, advice = _OTHER_ARGUMENTS.get(name, ((), "there is no such argument; leave it out"))
            if value not in meant:
                raise UserError(f"{name}={value!r:.80}: {advice}")
        if padding not in ("longest", "max_length", True):
            raise UserError(f"padding={padding!r:.80} must be 'longest' or 'max_length'")
        sequences = self.sequences(texts, text_pairs, max_seq_length=max_seq_length)
        batch = pad(sequences, max_seq_length if padding == "max_length" else None, self.specials.pad_id)
        if others.get("return_tensors") == "tf":
            return {name: import_tensorflow("return_tensors='tf'").constant(rows) for name, rows in batch.items()}
        return batch

    def sequences(
        self,
        texts: Text | Iterable[TextOrPair],
        text_pairs: Text | Iterable[Text | None] | None = None,
        *,
        max_seq_length: int = 512,
    ) -> list[JoinedSequence]:
        """Encode texts like a call, but as separate sequences without padding; see `__call__`."""
        check_max_seq_length(max_seq_length)
        specials = self.specials
        return [
            truncate_and_join(self.encode(first), self.encode(second or ""), specials, max_seq_length=max_seq_length)
            for first, second in paired_texts(texts, text_pairs)
        ]

    def tokenize(self, text: str | bytes) -> list[str]:
        """Split a text into wordpieces; bytes are UTF-8, undecodable ones are dropped."""
        return self.vocabulary.tokens(self.encode(text))

    def convert_tokens_to_ids(self, tokens: Iterable[str]) -> list[int]:
        """Look up tokens; KeyError if one is not in the vocabulary."""
        return self.vocabulary.ids(tokens)

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        """Look up ids; KeyError if one is not in the vocabulary."""
        return self.vocabulary.tokens(ids)

    def decode(self, ids: Sequence[int] | np.ndarray, skip_special_tokens: bool = True) -> str:
        """Turn ids into text, which may differ from the original text.

        Wordpieces of a word are joined, and words are separated by one space: dropped capitals and accents, and missing
        or repeated spaces, are not restored. `"Don't  stop"` becomes `"don ' t stop"`.

        Args:
          ids: int [S], those of one sequence.
          skip_special_tokens: whether to leave out [CLS], [SEP] and [PAD]. [UNK] and [MASK] stand for words and remain.

        Raises:
          KeyError: an id is not in the vocabulary.
          UserError: `ids` is a batch of sequences, or a single id.
        """
        ids = np.asarray(ids)
        if ids.ndim != 1:
            raise UserError(
                f"decode takes the ids of one sequence, not an array of shape {list(ids.shape)}; "
                "for a batch: [tokenizer.decode(row) for row in ids]"
            )
        tokens = self.vocabulary.tokens(ids.tolist())
        if skip_special_tokens:
            left_out = {self.vocabulary.name_of(special) for special in (CLS, SEP, PAD)}
            tokens = [token for token in tokens if token not in left_out]
        return self.vocabulary.joined(tokens)

    def batch_decode(self, sequences: Iterable[Sequence[int]], skip_special_tokens: bool = True) -> list[str]:
        """Turn the ids of several sequences into texts; see `decode`."""
        return [self.decode(ids, skip_special_tokens) for ids in sequences]

    def get_vocab(self) -> dict[str, int]:
        """Return a copy of `vocab`."""
        return dict(self.vocab)


def read_vocabulary(flags: "TokenizerOptions") -> Vocabulary:
    kind, path = _kind_and_file(flags)
    return kind.vocabulary_class.from_file(path)


def read_vocabulary_file(path: str) -> Vocabulary:
    return kind_of_file(path).vocabulary_class.from_file(path)


def read_tokenizer(flags: "TokenizerOptions") -> Tokenizer:
    kind, path = _kind_and_file(flags)
    return kind.with_settings(path, flags.text_settings)


def _kind_and_file(flags: "TokenizerOptions") -> tuple[type[Tokenizer], str]:
    flag = "vocab_file" if flags.spm_model_file is None else "spm_model_file"
    path = getattr(flags, flag)
    return kind_of_file(path, flag), path


def load_tokenizer(folder: str | os.PathLike[str], **settings: bool | str | None) -> Tokenizer:
    """Load the tokenizer of a model; see `FullTokenizer.from_folder`.

    Args:
      folder: it contains `vocab.txt`, `tokenizer.json`, `vocab.json` with `merges.txt`, `spiece.model` or
        `sentencepiece.bpe.model`; possibly `hf://owner/name`.
      **settings: fields of `TextSettings` that override the folder's.

    Returns:
      A `FullTokenizer`, a `BpeTokenizer` or a SentencePiece tokenizer, depending on the files.
    """
    return Tokenizer.from_folder(folder, **settings)
