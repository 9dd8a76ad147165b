"""The records of masked-LM and next-sentence pretraining: what one holds, and how text becomes them."""

import dataclasses
from array import array
from collections.abc import Iterator, Sequence
from random import Random

from absl import logging

from official_bert.config.text_settings import TextSettings
from official_bert.data.corpus_files import CorpusPart, CorpusReader
from official_bert.data.masking import BERT_REPLACEMENTS, MaskedSequence, Masker, MaskingVocabulary, Replacements
from official_bert.data.schema import ENCODER_FIELDS, Field, RecordSchema
from official_bert.data.sentence_pairs import Corpus, SentencePair, full_sentences, ordered_pairs, sentence_pairs
from official_bert.support import files
from official_bert.support.errors import UserError
from official_bert.support.progress import Progress
from official_bert.tokenization import Tokenizer, vocab
from official_bert.tokenization.joining import JoinedSequence, join_texts

_NO_MASKS = "if it was made with masking=none, use dynamic_masking, which draws masks while training"
_MASKS = "it has masks already; leave out dynamic_masking, or make the records with masking=none"
_NEXT_SENTENCE_LABELS = Field("next_sentence_labels", (), "int32", below=2)

# S: max_seq_length, P: max_predictions_per_seq, V: vocabulary size, T: number of segment types.
PRETRAINING_SCHEMA = RecordSchema(
    *ENCODER_FIELDS,
    Field("masked_lm_positions", ("P",), "int32", below="S", hint_if_absent=_NO_MASKS),
    Field("masked_lm_ids", ("P",), "int32", below="V"),
    Field("masked_lm_weights", ("P",), "float32"),
    _NEXT_SENTENCE_LABELS,
)
# Without masks, which are drawn while training.
UNMASKED_SCHEMA = RecordSchema(*ENCODER_FIELDS, _NEXT_SENTENCE_LABELS, unwanted={"masked_lm_positions": _MASKS})

RANDOM_NEXT, SWAPPED = "random next", "swapped"  # what the negative pairs of records are

_LINES_BETWEEN_UPDATES = 1024
_DUBIOUS_SHARE_UNKNOWN = 0.05
_DUBIOUS_SHARE_SINGLE_SENTENCES = 0.9


def read_corpus(parts: Sequence[CorpusPart], tokenizer: Tokenizer) -> Corpus:
    """Tokenizes the files of a corpus: one sentence per line, blank lines between documents.

    As in the reference, a document continues from one file of text into the next unless a blank line ends it.

    Args:
      parts: whole files, read in this order.
      tokenizer: turns lines into ids.

    Returns:
      The documents, in the order of the files.

    Raises:
      UserError: a file cannot be read, or the files hold no text.
    """
    corpus = Corpus()
    total_bytes = sum(files.size(part.path) for part in parts)
    bytes_before = 0
    with Progress("reading text", total_bytes, "bytes") as progress:

        def show(num_bytes: int) -> None:
            rate = len(corpus.ids) / (progress.seconds or 1)
            progress.update(num_bytes, f"{len(corpus.documents):,} documents", f"{rate:,.0f} tokens/s")

        for part in parts:
            reader = CorpusReader(part)
            for number, (_, line) in enumerate(reader):
                if line:
                    corpus.add_sentence(tokenizer.encode(line))
                else:
                    corpus.end_document()
                if number % _LINES_BETWEEN_UPDATES == 0:
                    show(bytes_before + reader.bytes_read)
            bytes_before += reader.bytes_read
        show(bytes_before)
    corpus.end_document()
    if not corpus.documents:
        raise UserError(f"no text in {', '.join(part.path for part in parts)}")
    return corpus


def warn_about_corpus(
    *, num_documents: int, num_single: int, unknown_share: float, settings: TextSettings, negatives: str | None
) -> None:
    """Warns about text from which the reference silently made poor records.

    Args:
      num_documents: number of documents.
      num_single: number of documents of a single sentence.
      unknown_share: fraction of the wordpieces that are [UNK].
      settings: what was done to the text.
      negatives: see `RecordMaker`.
    """
    if negatives != RANDOM_NEXT:
        pass  # a document is then cut by itself, whatever it consists of
    elif num_documents == 1:
        logging.warning(
            'the input is a single document, so "random" next sentences come from it too and the next-sentence labels '
            "are noise; put a blank line between documents"
        )
    elif num_single > _DUBIOUS_SHARE_SINGLE_SENTENCES * num_documents:
        logging.warning(
            "%d of %d documents have a single sentence, so all of their pairs are random; write one sentence per "
            "line, and blank lines only between documents",
            num_single,
            num_documents,
        )
    if unknown_share > _DUBIOUS_SHARE_UNKNOWN:
        logging.warning(
            "%.1f%% of the wordpieces are %s; is this the right vocabulary, and does %s fit it?",
            100 * unknown_share,
            vocab.UNK,
            settings,
        )


@dataclasses.dataclass
class RecordCounts:
    """Counts of records; those of parts can be added.

    Attributes:
      num_records: records made; the other counts are over these.
      num_positions: their length, padding included.
      num_pieces: their wordpieces, [CLS] and [SEP] included.
      num_masked: wordpieces to predict.
      num_negative: pairs whose second part does not follow the first.
    """

    num_records: int = 0
    num_positions: int = 0
    num_pieces: int = 0
    num_masked: int = 0
    num_negative: int = 0

    def add(self, other: "RecordCounts") -> None:
        """Adds the counts of other records."""
        for name, count in vars(other).items():
            setattr(self, name, getattr(self, name) + count)

    def summary(self, *, num_documents: int, unknown_share: float, is_masked: bool, negatives: str | None) -> str:
        """Summarizes the records in one line.

        Args:
          num_documents: number of documents that they were made of.
          unknown_share: fraction of the corpus's wordpieces that are [UNK].
          is_masked: whether the records are masked.
          negatives: see `RecordMaker`.
        """
        masked = f"masked {self.num_masked / self.num_pieces:.1%} and " if is_masked else "no masks, "
        pairs = f"{negatives} {self.num_negative / self.num_records:.1%} of the pairs" if negatives else "no pairs"
        return (
            f"{num_documents:,} documents gave {self.num_records:,} records with {self.num_pieces:,} "
            f"tokens; padding {1 - self.num_pieces / self.num_positions:.1%} of all positions, "
            f"{masked}unknown {unknown_share:.2%} of the tokens, "
            f"{pairs}"
        )


class RecordMaker:
    """Makes the records of documents.

    Attributes:
      is_masked: whether the records are masked.
      negatives: what negative pairs are, `RANDOM_NEXT` or `SWAPPED`; None if the records are no pairs.
      counts: counts of the records made so far.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        max_seq_length: int,
        max_predictions_per_seq: int,
        masked_lm_prob: float,
        short_seq_prob: float,
        do_whole_word_mask: bool,
        max_ngram_length: int = 1,
        is_masked: bool = True,
        replacements: Replacements = BERT_REPLACEMENTS,
        use_next_sentence: bool = True,
        sentence_order: bool = False,
    ):
        """Prepares; the arguments are the flags of `create_pretraining_data.py`.

        `is_masked` is `masking`, and `replacements` are `mask_replace_prob` and `random_replace_prob`.

        Without masks nothing is drawn for them: the pairs come from the same stream in the same order, and so, from the
        second record on, they are other pairs than with masks.

        Raises:
          UserError: the vocabulary lacks a special piece.
        """
        self.is_masked = is_masked
        self.negatives = (SWAPPED if sentence_order else RANDOM_NEXT) if use_next_sentence else None
        self.counts = RecordCounts()
        self._has_logged_example = False
        self._tokenizer = tokenizer
        self._max_seq_length = max_seq_length
        self._short_seq_prob = short_seq_prob
        schema = PRETRAINING_SCHEMA if is_masked else UNMASKED_SCHEMA
        self._schema = schema.sized(S=max_seq_length, P=max_predictions_per_seq)
        self._specials = {"cls_id": tokenizer.cls_id, "sep_id": tokenizer.sep_id}
        self._continues_word = MaskingVocabulary.of(tokenizer.vocabulary).continues_word if sentence_order else ()
        self._masker = None
        if is_masked:
            self._masker = Masker(
                tokenizer.vocabulary,
                masked_lm_prob=masked_lm_prob,
                max_predictions_per_seq=max_predictions_per_seq,
                whole_word=do_whole_word_mask,
                max_ngram_length=max_ngram_length,
                replacements=replacements,
            )

    def passes(self, corpus: Corpus, rng: Random, dupe_factor: int) -> Iterator[bytes]:
        """Makes the records of `dupe_factor` passes over the documents, in the order the reference makes them."""
        num_documents = len(corpus.documents)
        total = dupe_factor * num_documents
        unit = f"documents ({dupe_factor:,} passes over {num_documents:,})"
        with Progress("making records", total, unit) as progress:
            for done in range(total):
                yield from self.records(corpus, done % num_documents, rng)
                num_records = self.counts.num_records
                rate = num_records / (progress.seconds or 1)
                progress.update(done + 1, f"{num_records:,} records", f"{rate:,.0f} records/s")

    def records(self, corpus: Corpus, document_index: int, rng: Random) -> Iterator[bytes]:
        """Makes the records of a document; `corpus` has the others, where random next sentences come from."""
        for pair in self._pairs(corpus, document_index, rng):
            joined = join_texts(pair.first, pair.second, **self._specials)
            if self._masker:
                masked = self._masker.mask(joined.input_ids, rng)
            else:
                masked = MaskedSequence(joined.input_ids, [], [])
            if not self._has_logged_example:
                self._log_example(joined, masked, pair)
            self._count(joined, masked, pair)
            yield self._schema.encode(
                {
                    "input_ids": masked.ids,
                    "input_mask": joined.input_mask,
                    "segment_ids": joined.segment_ids,
                    "masked_lm_positions": masked.positions,
                    "masked_lm_ids": masked.labels,
                    "masked_lm_weights": [1.0] * len(masked.labels),
                    "next_sentence_labels": bytes([pair.is_negative]),
                }
            )

    def _pairs(self, corpus: Corpus, document_index: int, rng: Random) -> Iterator[SentencePair]:
        options = {"short_seq_prob": self._short_seq_prob, "rng": rng}
        if self.negatives:
            options["max_num_pieces"] = self._max_seq_length - 3  # without [CLS] and two [SEP]
            if self.negatives == SWAPPED:
                yield from ordered_pairs(corpus, document_index, continues_word=self._continues_word, **options)
            else:
                yield from sentence_pairs(corpus, document_index, **options)
            return
        room = self._max_seq_length - 2
        for stretch in full_sentences(corpus, document_index, max_num_pieces=room, **options):
            yield SentencePair(stretch, array("i"), is_negative=False)

    def _count(self, joined: JoinedSequence, masked: MaskedSequence, pair: SentencePair) -> None:
        counts = self.counts
        counts.num_records += 1
        counts.num_positions += self._max_seq_length
        counts.num_pieces += len(joined.input_ids)
        counts.num_masked += len(masked.labels)
        counts.num_negative += pair.is_negative

    def _log_example(self, joined: JoinedSequence, masked: MaskedSequence, pair: SentencePair) -> None:
        self._has_logged_example = True
        pieces_of = self._tokenizer.convert_ids_to_tokens
        logging.info("example: %s", " ".join(pieces_of(masked.ids)))
        if self._masker:
            logging.info("  masked: %s", " ".join(pieces_of(masked.labels)))
        else:
            logging.info("  masked: none; run_pretraining.py masks while training")
        if self.negatives:
            negative = "what precedes the first" if self.negatives == SWAPPED else "random"
            logging.info("  second part: %s", negative if pair.is_negative else "the actual next sentences")
